"""Look ahead: the same live state rolled forward under several policies, with the same draws for all.

What runs has its estimate less what it has run already, drawn from the predictor's interval given that it has not
ended yet; what waits has a draw of its own. Each seed is one set of draws, so policies differ by their decisions alone.
A forecast is *simulated* from estimates: it knows no task that has not been put.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import PARKED, PLACED, READY, UNKNOWN, WAITING, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.live.engine import Engine
from wattflow.live.fork import fork
from wattflow.model.cluster import Cluster, Zone
from wattflow.model.errors import BrokenPolicy, InvalidInput
from wattflow.policy.base import Policy
from wattflow.sim import adopt, kernel, world, world_build
from wattflow.sim.simulate import SimOptions, grow
from wattflow.sim.world import World

Floats = NDArray[np.float64]
_Z90 = 1.6448536269514722
_TRIES = 64
_LEAST_LEFT = 0.05
"""Rest of a task that is past every draw, as a share of its estimate."""


@dataclass(frozen=True, slots=True)
class SeedRange:
    """A figure over all seeds: mean and extremes."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedRange:
        """Summarise one value per seed; NaN where none is known."""
        known = [value for value in values if not math.isnan(value)]
        return cls(float(np.mean(known)), min(known), max(known)) if known else cls(math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class PolicyForecast:
    """Forecast of one policy until a time.

    Attributes:
        energy_j: All nodes from now on, simulated.
        response_s: Mean of end − release over the tasks that end until then.
        late: Tasks past their deadline: ended after it, or still open when it has passed.
        ended, open: Tasks that end until then, and that do not.
        unknown: Open tasks without an estimate; they were given the mean of the others.
    """

    policy: str
    energy_j: SeedRange
    response_s: SeedRange
    late: SeedRange
    ended: SeedRange
    open: SeedRange
    unknown: int


def roll(
    engine: Engine,
    policies: Sequence[str | Policy],
    until_s: float,
    seeds: Sequence[int] = (0,),
    interval: float | Callable[[int], tuple[float, float]] = 0.0,
) -> list[PolicyForecast]:
    """Forecast several policies from the engine's present state, which does not change.

    Args:
        until_s: On the engine's clock; `inf` rolls to the end of all that is known.
        interval: The predictor's 90 % interval of a task's runtime: a function of the task's tag that gives (low,
            high) seconds, or one spread (σ of the logarithm) for all; 0 takes estimates for the truth.
    """
    now = float(engine.state.clock.now[0])
    if not until_s > now:
        raise InvalidInput("until_s", f"{until_s:g} s is not after now, {now:g} s")
    if not seeds:
        raise InvalidInput("seeds", "at least one is needed")
    draws = [draw_left(engine.state, interval, seed) for seed in seeds]
    stage = _Stage(engine)
    return [stage.forecast(policy, until_s, list(zip(seeds, draws, strict=True))) for policy in policies]


def _spread(state: State, interval: float | Callable[[int], tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return median and σ of the logarithm of every task's runtime."""
    estimate = np.asarray(state.tasks["estimate"]).astype(np.float64)
    open_now = np.isin(np.asarray(state.tasks["state"]), (WAITING, READY, PLACED, PARKED))
    known = np.isfinite(estimate) & (estimate > 0) & open_now
    median = np.where(known, estimate, float(estimate[known].mean()) if known.any() else 1.0)
    if not callable(interval):
        return median, np.full(len(median), float(interval))
    sigma = np.zeros(len(median))
    for task in np.flatnonzero(known).tolist():
        low, high = interval(int(state.marks["tag"][task]))
        if not 0 < low <= high:
            raise InvalidInput("interval", f"({low}, {high}) of task {task} is not 0 < low <= high")
        median[task], sigma[task] = math.sqrt(low * high), math.log(high / low) / (2 * _Z90)
    return median, sigma


def draw_left(state: State, interval: Any, seed: int) -> Floats:
    """Tell what is left of every task, in seconds of its estimate."""
    median, sigma = _spread(state, interval)
    # A stream of its own: the simulator draws from the seed too, and the two must not go together.
    rng = np.random.default_rng([seed, 21])
    left = median * np.exp(sigma * rng.standard_normal(len(median)))
    now = float(state.clock.now[0])
    attempts = state.attempts
    for a in np.flatnonzero(np.asarray(attempts["task"]) >= 0).tolist():
        task, started = int(attempts["task"][a]), float(attempts["started"][a])
        if not started <= now:
            continue
        planned = float(attempts["end"][a]) - float(attempts["placed"][a])
        estimate = float(state.tasks["estimate"][task])
        factor = planned / estimate if math.isfinite(planned) and estimate > 0 and planned > 0 else 1.0
        run = (now - started) / factor
        total = left[task]
        # Drawn again until it is longer than what it has run: that it has not ended is known.
        for _ in range(_TRIES):
            if total > run or sigma[task] == 0:
                break
            total = median[task] * math.exp(sigma[task] * rng.standard_normal())
        left[task] = max(total - run, _LEAST_LEFT * median[task])
    return left


class _Stage:
    """A copy of an engine on which one policy after another is rolled forward from the same present.

    Copying tables costs more than a roll-out of some hundred tasks, so there is one fork for all policies: each is put
    in use in turn, and what it makes of the present is copied, as one piece of memory, for each of its roll-outs.
    """

    def __init__(self, engine: Engine) -> None:
        self._original, self._copy = engine, fork(engine)
        self._memory = engine.state.memory.copy()
        self._work: tuple[State, World] | None = None
        self._start()

    def _start(self) -> None:
        self._copy.prepare()  # no step of the live engine comes before the roll
        state = self._copy.state
        parked = np.flatnonzero(np.asarray(state.tasks["state"]) == PARKED)
        state.tasks.state[parked], state.tasks.arrived[parked] = WAITING, 0
        state.tasks.release[parked] = state.marks["until"][parked]
        world_build.make_event_room(state)  # here, so that all copies have one size
        self._world, self._never = _world(self._copy).copy(), len(_behind_placeholders(state))

    def forecast(self, policy: str | Policy, until_s: float, draws: list[tuple[int, Floats]]) -> PolicyForecast:
        """Forecast one policy, under every draw."""
        copy, engine = self._copy, self._original
        copy.policy = engine.policy  # what it noted counts for other settings of it, not what a member before did
        copy.state.replace(memory=self._memory.copy())
        copy.use(policy)
        present, rows = copy.state.copy(), []
        for seed, left in draws:
            state, made = self._work = _taken_over(self._work, (present, self._world))
            made.runtime[:], made.pulse["seed"] = left[: len(made.runtime)], seed  # a copy has fewer spare rows
            rows.append(_one(copy, state, made, until_s, self._never))
        name, planned = copy.policy.name, copy.policy.plan is not None
        if planned:  # its lanes are edges by now, which nobody else has
            self._copy = fork(engine)
            self._start()
        estimate, states = np.asarray(engine.state.tasks["estimate"]), np.asarray(engine.state.tasks["state"])
        unknown = int(np.count_nonzero(~np.isfinite(estimate) & np.isin(states, (WAITING, READY, PARKED))))
        energy_j, response_s, late, ended, left_open = (SeedRange.of(column) for column in zip(*rows, strict=True))
        return PolicyForecast(name, energy_j, response_s, late, ended, left_open, unknown)


def _taken_over(work: tuple[State, World] | None, present: tuple[State, World]) -> tuple[State, World]:
    """Take the present into the tables of the last roll where these have its sizes; make them anew where they grew."""
    if work is not None:
        try:
            work[0].copy_from(present[0])
            work[1].copy_from(present[1])
            return work
        except ValueError:
            pass  # the tables have grown since: the copies are made anew
    return present[0].copy(), present[1].copy()


def _one(
    copy: Engine, state: State, made: World, until_s: float, never: int
) -> tuple[float, float, float, float, float]:
    """Roll one policy under one seed: (joules, response, late, ended, open). So many tasks can never end."""
    before = int(state.counts.open[0])
    # With them a roll to the end of all would never end.
    state.counts["open"] = before - never  # a roll ends with the work that can end
    with jit.compiling(), np.errstate(over="ignore"):
        adopt.take_over(state, made)
        _advance(copy, state, made, until_s)
        if math.isfinite(until_s):
            state.clock["now"] = until_s
        kernel.settle(state.handle(), made.handle())
    records = np.asarray(made.records[: int(made.pulse.record_n[0])])
    done = records[records["outcome"] == 0]
    tasks, end = done["task"], done["end_s"]
    response = float(np.mean(end - np.maximum(state.tasks["release"][tasks], 0.0))) if len(done) else math.nan
    late = float(np.count_nonzero(end > state.extra["deadline"][tasks]))
    still = np.isin(np.asarray(state.tasks["state"]), (WAITING, READY, PLACED))
    late += float(np.count_nonzero(still & (np.asarray(state.extra["deadline"]) < float(state.clock.now[0]))))
    remaining, energy_j = float(state.counts.open[0]) + never, float(made.energy.sum())
    return energy_j, response, late, before - remaining, remaining


def _behind_placeholders(state: State) -> frozenset[int]:
    """Find tasks that stand for unknown work, and all that waits for them."""
    found: set[int] = set()
    ahead = np.flatnonzero(np.asarray(state.tasks["state"]) == UNKNOWN).tolist()
    while ahead:
        task = ahead.pop()
        if task not in found:
            found.add(task)
            first, count = int(state.links["child_first"][task]), int(state.links["child_n"][task])
            ahead += np.asarray(state.child[first : first + count]).tolist()
    return frozenset(found)


def _advance(copy: Engine, state: State, made: World, until_s: float) -> None:
    step = kernel.kernel(state, made, copy._functions)
    while True:
        status = step(state.handle(), made.handle(), copy._functions, until_s, 1 << 40)
        if status == kernel.GROW:
            grow(state, made, SimOptions())
        elif status == kernel.BAD_COST:
            raise BrokenPolicy(f"policy {copy.policy.name!r} returned NaN")
        else:
            return  # done, at the time, or nothing more happens: placeholders stay open


def _world(copy: Engine) -> World:
    state = copy.state
    nodes, devices, attempts = len(state.nodes), len(state.devices), len(state.attempts)
    now = float(state.clock.now[0])
    domains = record_table(world.DOMAINS, 2 * nodes + devices)
    domains["rate"] = 1.0
    domains["root"] = domains["place"] = -1
    gangs = record_table(world.GANGS, len(state.tasks))
    gangs["first_held"] = -1
    pulse = record_table(world.PULSE, 1)
    for name in ("round_at", "timer_at", "ramp_at"):
        pulse[name] = np.inf
    cluster = copy._places.cluster()
    pulse["last_end"] = now
    pulse["series"] = int(any(zone.carbon_known or zone.price_known for zone in cluster.zones))
    pulse["ramps"] = int(any(node.serverless is not None for node in cluster.nodes))
    waiting = (np.asarray(state.tasks["state"]) == WAITING) & (np.asarray(state.tasks["arrived"]) == 0)
    rows = np.flatnonzero(waiting & (np.asarray(state.tasks["release"]) > now))
    arrivals = rows[np.argsort(state.tasks["release"][rows], kind="stable")].astype(np.int32)
    return World(
        pulse=pulse, runtime=np.zeros(len(state.tasks)), saved=np.zeros(1), arrivals=arrivals,
        runs=record_table(world.RUNS, attempts), domains=domains, domain_heap=np.zeros(2 * nodes + devices, np.int32),
        nodes=record_table(world.NODES, nodes),
        devices=record_table(world.DEVICES, devices), energy=np.zeros((nodes, 8)),
        records=record_table(world.RECORDS, int(state.counts.open[0]) + attempts + 64),
        power_log=record_table(world.POWER_LOG, 1), task_faults=record_table(world.TASK_FAULTS, 0), gangs=gangs,
        watt_error=np.ones(nodes), **world_build.zone_tables(_by_number(copy, cluster)),
    )  # fmt: skip


def _by_number(copy: Engine, cluster: Cluster) -> Cluster:
    """Return the cluster with its zones in the order in which the engine numbers them."""
    known = {zone.name: zone for zone in cluster.zones}
    zones = tuple(known.get(name, Zone(name)) for name, _ in sorted(copy._nodes.zones.items(), key=lambda z: z[1]))
    return Cluster(cluster.name, cluster.nodes, zones or (Zone(),))


__all__ = ["PolicyForecast", "SeedRange", "draw_left", "roll"]
