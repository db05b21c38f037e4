"""From Workload, Cluster and options to World."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.engine import agenda
from wattflow.engine.tables import TIMERS, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.model.cluster import Cluster, Series
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.sim import world
from wattflow.sim.world import World


@dataclass(frozen=True, slots=True)
class SimOptions:
    """How a run is simulated.

    Attributes:
        queue: Overrides the policy's queue: ``skip``, ``strict`` or ``easy-backfill``.
        round_s: Decisions only at multiples of this; 0 decides at every event.
        message_s: Delay between a decision and its node.
        sleep_after_s: Sleepable nodes sleep after idling so long; None leaves policy and cluster as they are.
        max_retries: Attempts after the first.
        record_power: Keep every change of watts in ``Run.power_log``.
        from_zero: Count energy from time 0 instead of the first release; the makespan stays as it is.
        runtime_error: Spread (σ of log) of the estimates around the truth; 0 leaves the workload's estimates.
        power_error: Spread (σ of log) of the nodes' true watts around their profiles.
        outages: (node, down_s, up_s) that happen for certain.
        task_faults: (task, attempt, fraction of the work) that fail for certain.
    """

    queue: str | None = None
    round_s: float = 0.0
    message_s: float = 0.0
    sleep_after_s: float | None = None
    max_retries: int = 3
    record_power: bool = False
    from_zero: bool = False
    runtime_error: float = 0.0
    power_error: float = 0.0
    outages: tuple[tuple[int, float, float], ...] = ()
    task_faults: tuple[tuple[int, int, float], ...] = ()


def build_world(state: State, workload: Workload, cluster: Cluster, options: SimOptions, seed: int) -> World:
    """Make the simulator's tables for a State at the start of the run; the first event is not folded yet."""
    count, nodes, devices = len(workload), len(cluster.nodes), len(state.devices)
    node_rows = record_table(world.NODES, nodes)
    lanes = _lanes(node_rows, workload, cluster, 2 * nodes + devices)
    # One for the cores of each node, then one for each device, each
    # node's link, each lane. `running` and `stages` count on this order.
    domains = record_table(world.DOMAINS, 2 * nodes + devices + lanes)
    domains["rate"] = 1.0
    domains["root"] = domains["place"] = -1
    checkpoints = any(function.checkpoint_s > 0 for function in workload.functions)
    gangs = record_table(world.GANGS, count if any(shape.parts > 1 for shape in workload.shapes) else 1)
    gangs["first_held"] = -1
    made = World(
        pulse=_pulse(state, workload, cluster, options, seed),
        runtime=workload.runtime_s.copy(),
        saved=np.zeros(max(2, count) if checkpoints else 1),  # one row means: no checkpoints
        arrivals=_by_release(workload),
        runs=record_table(world.RUNS, len(state.attempts)),
        domains=domains,
        domain_heap=np.zeros(len(domains), np.int32),
        nodes=node_rows,
        devices=record_table(world.DEVICES, devices),
        # A column for each of `model.run.ACCOUNTS`.
        energy=np.zeros((nodes, 8)),
        records=record_table(world.RECORDS, _record_capacity(workload, state)),
        power_log=record_table(world.POWER_LOG, log_capacity(state) if options.record_power else 1),
        task_faults=_task_faults(options),
        gangs=gangs,
        watt_error=_watt_errors(nodes, options, seed),
        **zone_tables(cluster),
    )
    make_event_room(state)
    for node, down_s, up_s in options.outages:
        if not 0 <= node < nodes or not 0 <= down_s < up_s:
            raise InvalidInput("outages", f"({node}, {down_s}, {up_s}) is not (node index, down, up) with down < up")
        push(state.handle(), float(down_s), agenda.LOST, node, 0)
        push(state.handle(), float(up_s), agenda.BACK, node, 0)
    return made


@jit.jit
def push(state, at_s, what, who, generation):
    """`agenda.push`, called from Python."""
    agenda.push(state, at_s, what, who, generation)


def _by_release(workload: Workload) -> Any:
    """Return tasks by release, equal ones by index; most workloads are in that order already."""
    release = workload.release_s
    if bool(np.all(release[1:] >= release[:-1])):
        return np.arange(len(release), dtype=np.int32)
    return np.argsort(release, kind="stable").astype(np.int32)


def _lanes(rows: Any, workload: Workload, cluster: Cluster, first: int) -> int:
    """Give each node with pinned sharing a domain for each hardware thread; returns how many."""
    lanes = 0
    rows["lane_first"] = -1
    for number, node in enumerate(cluster.nodes):
        if node.sharing == "pinned":
            rows["lane_first"][number], rows["lane_n"][number] = first + lanes, node.threads
            lanes += node.threads
    wide = any(v.device is None and v.cores > 1 for shape in workload.shapes for v in shape.variants)
    if lanes and wide:
        raise InvalidInput(cluster.name, "nodes with sharing = 'pinned' run tasks of at most one core; use 'fair'")
    return lanes


def event_capacity(state: State) -> int:
    """Size the heap for the events of a few instants."""
    return 4 * len(state.attempts) + 8 * len(state.nodes) + 1024


def make_event_room(state: State) -> None:
    """Give the agenda, whose rows no longer count, room for a simulation's events."""
    if len(state.timers) < event_capacity(state):
        state.replace(timers=record_table(TIMERS, event_capacity(state)))
        state.counts["timer_n"] = 0


def log_capacity(state: State) -> int:
    """Size the power log; it grows when full."""
    return 8 * (len(state.attempts) + len(state.nodes)) + (1 << 12)


def _record_capacity(workload: Workload, state: State) -> int:
    """Size the records: a row for each part, and for attempts that run when the last ones are written."""
    parts = np.array([shape.parts for shape in workload.shapes], np.int64)
    rows = int(parts[workload.shape].sum()) if len(workload) else 0
    return rows + len(state.attempts) + 64


def _pulse(state: State, workload: Workload, cluster: Cluster, options: SimOptions, seed: int) -> Any:
    pulse = record_table(world.PULSE, 1)
    for name in ("round_at", "timer_at", "ramp_at"):
        pulse[name] = np.inf
    pulse["round_s"] = options.round_s
    pulse["message_s"] = options.message_s
    pulse["record_power"] = int(options.record_power)
    pulse["seed"] = seed
    pulse["series"] = int(any(zone.carbon_known or zone.price_known for zone in cluster.zones))
    pulse["ramps"] = int(any(node.serverless is not None for node in cluster.nodes))
    start = 0.0 if options.from_zero or not len(workload) else float(workload.release_s.min())
    pulse["last_end"] = start
    state.clock["now"] = state.clock["start"] = start
    return pulse


def _task_faults(options: SimOptions) -> Any:
    rows = record_table(world.TASK_FAULTS, len(options.task_faults))
    for i, (task, attempt, fraction) in enumerate(options.task_faults):
        rows[i] = (task, attempt, fraction)
    return rows


def _watt_errors(nodes: int, options: SimOptions, seed: int) -> Any:
    """True watts over profiled watts, node by node: log-normal with median 1."""
    if options.power_error <= 0:
        return np.ones(nodes)
    return np.exp(np.random.default_rng([seed, 7]).normal(0.0, options.power_error, nodes))


def zone_tables(cluster: Cluster) -> dict[str, Any]:
    """Make the tables of zones: their rows, the values of all series one after another, and running integrals."""
    rows = record_table(world.ZONES, len(cluster.zones))
    values: list[float] = []
    sums: list[float] = []
    for z, zone in enumerate(cluster.zones):
        rows[z].pue = zone.pue
        for kind, series in (("carbon", zone.carbon), ("price", zone.price)):
            rows[f"{kind}_first"][z], rows[f"{kind}_n"][z] = len(values), len(series.values)
            rows[f"{kind}_step"][z] = series.step_s
            values += series.values
            sums += _running(series)
    return {"zones": rows, "series": np.array(values, np.float64), "series_sum": np.array(sums, np.float64)}


def _running(series: Series) -> list[float]:
    """Integral from the series' start to the start of each step."""
    return [0.0, *(np.cumsum(series.values[:-1]) * series.step_s).tolist()]
