"""`simulate`: a workload on a cluster under a policy gives a Run.

A kernel compiled without the parts that this run can never need is smaller, quicker to compile and quicker to run.
`parts` looks for them in the tables at the start; what it asks cannot change, for an event only comes of what is there.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from wattflow.engine.build import build_state, container_table
from wattflow.engine.parts import LIVE, RICH
from wattflow.engine.tables import BEST_PAIR, EASY, NO_DEVICE, ON, State
from wattflow.engine.validate import validate_state
from wattflow.kernel import jit, random
from wattflow.model.cluster import Cluster
from wattflow.model.errors import BrokenPolicy
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.policy import arrivals, bind, registry
from wattflow.policy.base import Plan, Policy
from wattflow.sim import kernel, steering, world_build
from wattflow.sim.exchange import Exchange
from wattflow.sim.inputs import Name, cluster_of, drawn
from wattflow.sim.world import World
from wattflow.sim.world_build import SimOptions

if TYPE_CHECKING:
    from wattflow.generate.recipe import Recipe


def parts(state: State, world: World) -> tuple[str, ...]:
    """Return the parts that a simulation lacks: all that can be lacked or none, so that two kernels serve everybody."""
    if len(state.marks) > 1 or len(state.boards) > 0 or not _is_plain(state, world):
        return ()
    return LIVE, RICH


def _is_plain(state: State, world: World) -> bool:
    """CPU tasks of one part on nodes that are always on, without data, containers or failures; any order and score."""
    return (
        _asks_nothing_special(state.rules[0])
        and _shapes_are_plain(state)
        and _nodes_are_plain(state, world)
        and _world_is_plain(world)
        # Outages that were asked for stand in the agenda before the first event.
        and state.counts.timer_n[0] == 0
    )


def _asks_nothing_special(rules: Any) -> bool:
    switches = (
        "has_act",
        "has_data",
        "cold",
        "limits",
        "tainted",
        "wishes",
        "pods",
        "samples",
        "dynamic",
        "alike",
        "parks",
    )
    return not any(rules[name] for name in switches) and rules.queue != EASY and rules.selection != BEST_PAIR


def _shapes_are_plain(state: State) -> bool:
    shapes, variants, functions = state.shapes, state.variants, state.functions
    return bool(
        np.all(shapes.parts == 1)
        and not np.any(shapes.constraint)
        and not np.any(shapes.counted)
        and np.all(variants.device == NO_DEVICE)
        and not np.any(variants.counts_n)
        and not np.any(functions.cold_start_s)
        and not np.any(functions.failure_rate)
        and not np.any(functions.checkpoint_s)
    )


def _nodes_are_plain(state: State, world: World) -> bool:
    classes = state.classes
    return bool(
        not np.any(state.nodes.device_n)
        and np.all(state.nodes.power_state == ON)
        and not np.any(classes.serverless)
        and np.all(np.isinf(classes.sleep_after_s))
        and np.all(np.isinf(classes.mtbf_s))
        and np.all(np.isinf(classes.limit_s))
        and np.all(world.nodes.lane_first < 0)
    )


def _world_is_plain(world: World) -> bool:
    pulse = world.pulse[0]
    nothing_planned = len(world.task_faults) == 0
    return bool(nothing_planned and len(world.saved) == 1 and pulse.message_s <= 0.0 and pulse.ramps == 0)


__all__ = ["SimOptions", "Simulation", "simulate"]
# Between calls progress is told and Ctrl-C is heard; compiled code hears neither.
_EVENTS_PER_CALL = 200_000
_EVENTS_PER_CALL_PLAIN = 2_000


def simulate(
    workload: Workload | Recipe | Name,
    cluster: Cluster | Name,
    policy: str | Policy = "fifo",
    *,
    seed: int = 0,
    options: SimOptions | None = None,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run a workload to its end. Same arguments, same bytes.

    Args:
        workload: A workload, a recipe, a trace's file, or a recipe as it is typed (``montage:tasks=60``).
        cluster: A cluster, or the name or file of one.
        policy: A registered name or a Policy.
        seed: Of everything random: a recipe's draw, failures, estimate errors, the policy's own stream.
        progress: Called now and then with the share of tasks done; an exception from it ends the run.
    """
    given, machine = drawn(workload, seed), cluster_of(cluster)
    return Simulation(given, machine, policy, seed=seed, options=options).run(progress)


class Simulation:
    """A simulation that can be stepped: build it, `advance` it, read its State, take its Run."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str | Policy = "fifo",
        *,
        seed: int = 0,
        options: SimOptions | None = None,
    ) -> None:
        self.workload, self.cluster, self.seed = workload, cluster, seed
        self.options = options or SimOptions()
        self.policy = registry.load(policy) if isinstance(policy, str) else policy
        if self.options.queue is not None:
            self.policy = self.policy.with_settings(queue=self.options.queue)
        self.seconds = 0.0
        self.plan_seconds = 0.0
        known = workload
        if self.options.runtime_error > 0:
            # The second number keeps draws apart: 11 estimates, 7 watts (`world_build`).
            noise = np.random.default_rng([seed, 11]).normal(0.0, self.options.runtime_error, len(workload))
            known = workload.with_estimates(workload.estimate_s * np.exp(noise))
        steered = self.policy.steer is not None and len(workload) > 0
        self._steered = steering.Steered(self.policy, known, cluster) if steered else None
        with jit.compiling():
            seen = self._follow_plan(known)
            self.state = self._build_state(known, seen)
            self.world = world_build.build_world(self.state, workload, cluster, self.options, seed)
            self.functions = bind.bind(self.policy, self.state)
            self._open()
        # After `_open`: first losses and sleep checks are in the agenda by now. The rules of a steered policy may be
        # exchanged for others, which may need any part.
        self.lacks = () if steered else parts(self.state, self.world)
        self._exchange = Exchange(self.state, known, cluster, self.policy) if steered else None

    def _open(self) -> None:
        """Schedule the first events."""
        with np.errstate(over="ignore"):
            kernel.open_world(self.state.handle(), self.world.handle())

    def _steer(self, steered: steering.Steered) -> None:
        """Tell the policy's steering what has been observed, and go on with the numbers that it chooses."""
        started = time.perf_counter()
        chosen = steered.ask(self.world)
        if chosen is not None:
            self._use(chosen)
        self.plan_seconds += time.perf_counter() - started

    def _use(self, policy: Policy) -> None:
        """Decide by other numbers of the same rules, or by another policy's rules, from now on."""
        # By identity, as on a live engine: settings of one policy share their functions, and nothing else does.
        same = policy.score is not None and policy.score is self.policy.score
        self.policy = policy
        if same or self._exchange is None:
            with np.errstate(over="ignore"):
                steering.put_in(policy, self.state, self.world, self.cluster, self._time_outs(policy, self.state))
        else:
            with jit.compiling():
                self.functions = self._exchange.put_in(policy, self.world, self._time_outs(policy, self.state))

    def _time_outs(self, policy: Policy, state: State) -> Any:
        """The classes' time-outs under a policy before it prepares: those asked for, its own, or the cluster's."""
        after = self.options.sleep_after_s if self.options.sleep_after_s is not None else policy.sleep_after_s
        own = self._own_sleep_s
        return own if after is None else np.where(state.classes.sleepable == 1, after, own)

    def _follow_plan(self, known: Workload) -> Workload:
        """With a planning policy: make its lanes part of the DAG."""
        self.planned: Plan | None = None
        if self.policy.plan is None:
            return known
        started = time.perf_counter()
        self.planned = arrivals.plans(self.policy, known, self.cluster)
        self.plan_seconds += time.perf_counter() - started
        return known if self.planned.after is None else _with_lanes(known, self.planned.after)

    def _build_state(self, known: Workload, seen: Workload) -> State:
        state = build_state(seen, self.cluster, self.policy.settings)
        state.rules["max_retries"] = self.options.max_retries
        state.clock["random"] = random.stream(self.seed)
        if state.rules.cold[0]:
            # When these are all in use a node forgets its oldest container (`containers.keep`).
            rows = int(4 * sum(node.request_cores for node in self.cluster.nodes)) + 1024
            state.replace(containers=container_table(min(rows, 1 << 20)))
            state.counts["free_container"] = 0
        for i, value in enumerate(self.policy.params.values()):
            state.params[i] = value
        arrivals.note_places(state, known, self.cluster, self.policy, self.planned)
        self._own_sleep_s = state.classes.sleep_after_s.copy()
        # Before `prepare`, which may set time-outs of its own:
        # other numbers begin from these (`steering.set_numbers`).
        self._sleep_after_s = self._time_outs(self.policy, state)
        state.classes.sleep_after_s[:] = self._sleep_after_s
        if self.policy.prepare is not None:
            self.policy.prepare(state, self.cluster)
        return state

    def advance(self, until_s: float = np.inf, max_events: int | None = None) -> int:
        """Call the kernel once, and grow tables as needed. Returns a status of `wattflow.sim.kernel`."""
        step = kernel.kernel(self.state, self.world, self.functions, self.lacks)
        limit = max_events or (_EVENTS_PER_CALL if jit.COMPILED and self.policy.compiled else _EVENTS_PER_CALL_PLAIN)
        left, at_once = limit, 1 if jit.CHECKED else limit
        while True:
            started = time.perf_counter()
            with np.errstate(over="ignore"):
                status = step(self.state.handle(), self.world.handle(), self.functions, until_s, at_once)
            self.seconds += time.perf_counter() - started
            if jit.CHECKED and status != kernel.GROW:
                validate_state(self.state)
                left -= 1
                if status == kernel.LIMIT and left > 0:
                    continue
            if status == kernel.GROW:
                grow(self.state, self.world, self.options)
            elif status == kernel.BAD_COST:
                raise self._bad_cost()
            elif status == kernel.STUCK:
                raise self._stuck()
            else:
                return int(status)

    def run(self, progress: Callable[[float], None] | None = None) -> Run:
        """Run to the end."""
        total = max(1, len(self.workload))
        while len(self.workload):
            steered = self._steered
            status = self.advance(np.inf if steered is None else steered.until_s)
            if status == kernel.DONE:
                break
            if steered is not None and status == kernel.UNTIL:
                self._steer(steered)
            if progress is not None:
                progress(1.0 - float(self.state.counts.open[0]) / total)
        if progress is not None:
            progress(1.0)
        return self.result()

    def result(self) -> Run:
        """Return the Run so far."""
        with np.errstate(over="ignore"):
            # Nodes that did not change since still have an open interval.
            kernel.settle(self.state.handle(), self.world.handle())
        pulse = self.world.pulse[0]
        start = float(self.state.clock.start[0])
        lead = float(self.workload.release_s.min()) - start if len(self.workload) else 0.0
        span = float(pulse.last_end - start)
        rented = np.array([node.price_per_hour / 3600.0 for node in self.cluster.nodes]) * span
        log = _used_rows(self.world.power_log, int(pulse.log_n)) if self.options.record_power else None
        return Run(
            workload=self.workload,
            cluster=self.cluster,
            policy=self.policy.name,
            attempts=_used_rows(self.world.records, int(pulse.record_n)),
            energy_j=self.world.energy.copy(),
            carbon_g=self.world.nodes.carbon.copy(),
            cost=self.world.nodes.cost + rented,
            peak_w=float(pulse.peak_w),
            makespan_s=max(0.0, span - lead),
            start_s=start,
            lead_s=lead,
            power_log=log,
            scalars=self._scalars(),
            manifest=self._manifest(),
        )

    def _scalars(self) -> dict[str, float]:
        pulse, counts = self.world.pulse[0], self.state.counts[0]
        values = {
            name: float(pulse[name])
            for name in ("retries", "wakes", "sleeps", "cold_starts", "transfers", "events", "moved_bytes")
        }
        values |= {name: float(counts[name]) for name in ("decisions", "scored", "held", "failed_tasks")}
        return values | {
            "random_draws": float(int(self.state.clock.random[0]) != int(random.stream(self.seed))),
            "kernel_s": self.seconds,
            "plan_s": self.plan_seconds,
            "decision_s": (self.seconds + self.plan_seconds) / max(1.0, float(counts.decisions)),
        }

    def _manifest(self) -> dict[str, object]:
        from wattflow import __version__

        sources = {n.power.provenance.value if n.power else "unknown" for n in self.cluster.nodes}
        scopes = {n.power.scope.value for n in self.cluster.nodes if n.power}
        return {
            "wattflow": __version__,
            "python": platform.python_version(),
            "workload": self.workload.name,
            "tasks": len(self.workload),
            "cluster": self.cluster.name,
            "policy": self.policy.name,
            "params": dict(self.policy.params),
            "seed": self.seed,
            "options": asdict(self.options),
            "steering": [] if self._steered is None else self._steered.steering.notes,
            "shield": {} if self._steered is None else self._steered.steering.summary(),
            "versions": {"numpy": np.__version__, "numba": numba.__version__},
            "simulated": True,
            "power_provenance": sorted(sources),
            "power_scope": sorted(scopes),
        }

    def _bad_cost(self) -> BrokenPolicy:
        task = self.workload.task_id(int(self.state.choice.bad_task[0]))
        return BrokenPolicy(
            f"policy {self.policy.name!r} returned NaN for task {task} at {float(self.state.clock.now[0]):g} s; "
            "return inf for 'not here' and a finite cost otherwise"
        )

    def _stuck(self) -> BrokenPolicy:
        waiting = int(self.state.counts.waiting[0])
        return BrokenPolicy(
            f"policy {self.policy.name!r} leaves {waiting} tasks waiting at {float(self.state.clock.now[0]):g} s and "
            "nothing more will happen: it must place a task that fits on an empty cluster, or set a time to try again"
        )


def _with_lanes(workload: Workload, after: tuple[Any, Any]) -> Workload:
    """Return the workload with more edges, each without bytes."""
    earlier, later = (np.asarray(side, np.int32) for side in after)
    count = len(workload)
    child = np.repeat(np.arange(count, dtype=np.int32), np.diff(workload.parent_start))
    child = np.concatenate([child, later])
    parent = np.concatenate([workload.parent, earlier])
    size = np.concatenate([workload.parent_bytes, np.zeros(len(earlier))])
    # Stable: parents keep their order, and with it sums of bytes their last digit.
    order = np.argsort(child, kind="stable")
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(child, minlength=count), out=start[1:])
    return replace(workload, parent_start=start, parent=parent[order], parent_bytes=size[order])


def _used_rows(table: Any, rows: int) -> Any:
    """Return the rows in use: a copy where the buffer is much larger, so that a Run does not keep the rest of it."""
    used = np.asarray(table[:rows])
    return used if len(table) <= rows + rows // 8 + 1024 else used.copy()


def _grown(table: Any, rows: int) -> Any:
    larger = np.zeros(rows, table.dtype)
    larger[: len(table)] = table
    return larger.view(type(table))


def grow(state: State, world: World, options: SimOptions) -> None:
    """Make room: attempts when their rows ran out, and whatever hangs on their number; then records, events, log."""
    # The complement of `kernel._has_rows`: else the kernel would come back for room at once.
    if state.counts.free_attempt[0] < 0 or state.counts.running[0] + 1 >= len(state.attempts) // 2:
        old = len(state.attempts)
        attempts = _grown(state.attempts, 2 * old)
        attempts.task[old:] = -1
        attempts.next[old:] = np.arange(old + 1, 2 * old + 1)
        # New rows before those that are still free.
        attempts.next[-1] = state.counts.free_attempt[0]
        state.counts["free_attempt"] = old
        scratch = _grown(state.scratch, max(len(state.scratch), 2 * old))
        state.replace(attempts=attempts, placed=_grown(state.placed, 2 * old), scratch=scratch)
        world.replace(runs=_grown(world.runs, 2 * old))
    pulse = world.pulse[0]
    if pulse.record_n + state.counts.running[0] + 64 > len(world.records):
        world.replace(records=_grown(world.records, int(len(world.records) * 1.5) + int(state.counts.running[0]) + 64))
    wanted = int(state.counts.timer_n[0]) + world_build.event_capacity(state)
    if wanted > len(state.timers):
        state.replace(timers=_grown(state.timers, 2 * wanted))
    if options.record_power:
        wanted = int(pulse.log_n) + world_build.log_capacity(state)
        if wanted > len(world.power_log):
            world.replace(power_log=_grown(world.power_log, wanted + len(world.power_log) // 2))
