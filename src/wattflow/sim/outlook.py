"""Looks ahead from a State in the middle of a run: what would become of the open tasks that are known, if …

Nothing is taken from the driver's World: tasks have what is left of their estimates, drawn round them, watts are those
of the profiles, and tasks that have not arrived are left out unless they are named. The State itself stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import DONE, MICRO, ON, STARTED, WAITING, WAITS, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.model.cluster import Cluster
from wattflow.policy import bind
from wattflow.policy.base import Policy
from wattflow.sim import adopt, kernel, world, world_build
from wattflow.sim.simulate import SimOptions, grow
from wattflow.sim.world import World

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
LEAST_LEFT = 0.05
"""Work that a task still has when it is past its drawn runtime, as a share of its estimate."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: joules of all nodes from now to the last end, and the end of each task; inf if it never came to it."""

    energy_j: float
    end_s: Floats


class Outlook:
    """Looks from one State.

    Args:
        rows: The tasks that are known; all others count as not being there.
        policy: Whose rules are followed.
        now_s: The time, if nothing has happened since the State's own.
    """

    def __init__(self, state: State, cluster: Cluster, rows: Longs, policy: Policy, now_s: float) -> None:
        self._state, self._rows = state.copy(), rows
        self._state.clock["now"] = now_s
        self._functions = bind.bind(policy, self._state)
        attempts = self._state.attempts
        attempts["stage"] = np.where(_wait_for_node(self._state), WAITS, STARTED)
        tasks, known = self._state.tasks, np.zeros(len(state.tasks), np.bool_)
        known[rows] = True
        still = np.asarray(tasks["state"]) < DONE
        # Only what is known has to end: a run is done when nothing is open.
        self._state.counts["open"] = int((still & known).sum())
        waits = known & (np.asarray(tasks["state"]) == WAITING) & (np.asarray(tasks["arrived"]) == 0)
        coming = np.flatnonzero(waits)
        order = coming[np.argsort(tasks["release"][coming], kind="stable")]
        self._world = world_at(self._state, cluster, order)

    def left(self, spread: float, seed: int) -> Floats:
        """Draw the remaining seconds of every task around its estimate, with σ = ``spread`` of the logarithm."""
        return left(self._state, spread, seed)

    def look(self, put: Callable[[Any], None], left_s: Floats) -> Seen:
        """To the end of all that is known, after ``put`` has changed the State; ``left_s`` as `left` gives it."""
        state, made = self._state.copy(), self._world.copy()
        put(state)
        made.runtime[:] = left_s
        with jit.compiling(), np.errstate(over="ignore"):
            adopt.take_over(state, made)
            step = kernel.kernel(state, made, self._functions)
            # No limit of events: the kernel comes back for room alone.
            while step(state.handle(), made.handle(), self._functions, math.inf, 1 << 40) == kernel.GROW:
                grow(state, made, SimOptions())
            kernel.settle(state.handle(), made.handle())
        records = made.records[: int(made.pulse.record_n[0])]
        end_s = np.full(len(state.tasks), -math.inf)
        done = records[records["outcome"] == 0]
        np.maximum.at(end_s, done["task"], done["end_s"])
        end_s[np.asarray(state.tasks["state"]) < DONE] = math.inf
        return Seen(float(made.energy.sum()), end_s[self._rows])


def left(state: State, spread: float, seed: int) -> Floats:
    """See `Outlook.left`. Those that run share their node as they do now, and fetched what they need at first."""
    # Without an estimate a task counts as one of a second, as policies count it.
    estimate = np.nan_to_num(np.asarray(state.tasks["estimate"]).astype(np.float64), nan=1.0)
    drawn = estimate * np.exp(spread * np.random.default_rng([seed, 23]).standard_normal(len(estimate)))
    attempts = state.attempts[(np.asarray(state.attempts["task"]) >= 0) & ~_wait_for_node(state)]
    node, placed_s = np.asarray(attempts["node"]), np.asarray(attempts["placed"])
    busy = np.bincount(node, weights=np.asarray(attempts["cores_u"]) / MICRO, minlength=len(state.nodes))
    for i, task in enumerate(np.asarray(attempts["task"]).tolist()):
        start_s = float(attempts["started"][i])
        # Not "<": a start that is not known is NaN.
        if not start_s >= placed_s[i]:  # its data are on the way
            together = int(((node == node[i]) & (placed_s == placed_s[i])).sum())
            start_s = float(placed_s[i]) + _fetch_s(state, task, int(node[i]), together)
        ran_s = float(state.clock.now[0]) - start_s
        whole_s = float(attempts["end"][i]) - float(placed_s[i])
        rate = _rate(state, int(node[i]), float(busy[node[i]])) if ran_s > 0.0 else 1.0
        part = rate * ran_s / whole_s if math.isfinite(whole_s) and whole_s > 0.0 else 0.0
        drawn[task] = max(drawn[task] - part * estimate[task], LEAST_LEFT * estimate[task])
    return drawn


def _wait_for_node(state: State) -> NDArray[np.bool_]:
    """Attempts whose node is not awake yet: nothing of them is done."""
    attempts = state.attempts
    on = np.asarray(state.nodes["power_state"])[np.asarray(attempts["node"])] == ON
    begun: NDArray[np.bool_] = np.asarray(attempts["started"]) >= np.asarray(attempts["placed"])
    return (np.asarray(attempts["task"]) >= 0) & ~on & ~begun


def _fetch_s(state: State, task: int, node: int, together: int) -> float:
    """Return seconds that the task's data took to its node, the link shared with those that began with it."""
    first = int(state.links["parent_first"][task])
    edges = slice(first, first + int(state.links["parent_n"][task]))
    away = np.asarray(state.tasks["node"])[np.asarray(state.parent[edges])] != node
    size = float(np.asarray(state.parent_bytes[edges])[away].sum())
    size += float(state.extra["input_bytes"][task]) if len(state.extra) > 1 else 0.0
    kind = state.classes[int(state.nodes["cls"][node])]
    return float(kind["latency_s"]) + together * size / float(kind["bandwidth"]) if size > 0.0 else 0.0


def _rate(state: State, node: int, busy: float) -> float:
    """Progress of each attempt on a node with so many busy threads (as `engine.view.share_rate`)."""
    kind = state.classes[int(state.nodes["cls"][node])]
    cores, threads = float(kind["cores"]), float(kind["threads"])
    return 1.0 if busy <= cores else (cores + (min(busy, threads) - cores) * float(kind["smt_gain"])) / busy


def world_at(state: State, cluster: Cluster, coming: Longs) -> World:
    """Build the simulator's tables for a State in the middle of things, before `adopt`; ``coming`` arrive later."""
    nodes, devices, attempts = len(state.nodes), len(state.devices), len(state.attempts)
    domains = record_table(world.DOMAINS, 2 * nodes + devices)
    domains["rate"] = 1.0
    domains["root"] = domains["place"] = -1
    gangs = record_table(world.GANGS, len(state.tasks))
    gangs["first_held"] = -1
    rows = record_table(world.NODES, nodes)
    rows["lane_first"] = -1
    used = record_table(world.DEVICES, devices)
    used["level"] = state.devices["level"]
    pulse = record_table(world.PULSE, 1)
    for name in ("round_at", "timer_at", "ramp_at"):
        pulse[name] = np.inf
    pulse["last_end"] = float(state.clock.now[0])
    pulse["series"] = int(any(zone.carbon_known or zone.price_known for zone in cluster.zones))
    pulse["ramps"] = int(any(node.serverless is not None for node in cluster.nodes))
    return World(
        pulse=pulse,
        runtime=np.zeros(len(state.tasks)),
        saved=np.zeros(1),
        arrivals=coming.astype(np.int32),
        runs=record_table(world.RUNS, attempts),
        domains=domains,
        domain_heap=np.zeros(2 * nodes + devices, np.int32),
        nodes=rows,
        devices=used,
        energy=np.zeros((nodes, 8)),
        records=record_table(world.RECORDS, int(state.counts.open[0]) + attempts + 64),
        power_log=record_table(world.POWER_LOG, 1),
        task_faults=record_table(world.TASK_FAULTS, 0),
        gangs=gangs,
        watt_error=np.ones(nodes),
        **world_build.zone_tables(cluster),
    )


__all__ = ["Outlook", "Seen", "left", "world_at"]
