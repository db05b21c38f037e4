"""Power over time: from the run's own log where it was kept, else rebuilt from its attempts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.lab.figures.metrics import StepSeries, accumulate, sweep, variant_columns
from wattflow.model.cluster import Node, Series
from wattflow.model.run import SLEEP, Run

ROUNDING_W = 1e-6
"""Sums of watts at the cap itself stray by less."""


@dataclass(frozen=True, slots=True)
class CapKept:
    """A run beside its cap.

    Attributes:
        over: Watt-seconds above the cap, as a part of those that it allows.
        time: Part of the time above it.
    """

    over: float
    time: float


def cap_kept(run: Run, cap_w: Series) -> CapKept:
    """Compare the log of watts with the cap, from the run's start to its last end."""
    log = run.power_log
    assert log is not None, "the run was made without its log of watts"
    end_s = run.start_s + run.span_s
    steps = np.arange(np.ceil(run.start_s / cap_w.step_s) * cap_w.step_s, end_s, cap_w.step_s)
    times = np.unique(np.concatenate([[run.start_s, end_s], log["time_s"], steps]))
    times = times[(times >= run.start_s) & (times <= end_s)]
    watts = np.zeros(len(times) - 1)
    for node in range(len(run.cluster.nodes)):
        mine = log[log["node"] == node]
        # The last change up to a time stands; before a node's first one it draws nothing.
        at = np.searchsorted(mine["time_s"], times[:-1], side="right") - 1
        watts += np.where(at >= 0, mine["watts"][at], 0.0) if len(mine) else 0.0
    held_s = np.diff(times)
    # A run without length is above nothing.
    if not len(held_s):
        return CapKept(0.0, 0.0)
    # In the middle of each interval: at its edge a rounding would take the step before.
    allowed = np.array([cap_w.at(float(t)) for t in times[:-1] + held_s / 2])
    above = np.where(watts > allowed + ROUNDING_W, watts - allowed, 0.0)
    return CapKept(
        float((above * held_s).sum() / (allowed * held_s).sum()), float(held_s[above > 0].sum() / held_s.sum())
    )


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Watts of each node over time.

    Attributes:
        steps: By node: from each time on, that many watts.
        start_s, end_s: What the curve covers.
        rebuilt: True where it was rebuilt from attempts: every node is then taken to be on all the time, so sleep,
            wake and lost nodes do not show.
    """

    steps: StepSeries
    start_s: float
    end_s: float
    rebuilt: bool

    def energy_j(self, node: int) -> float:
        """Integral of a node's curve, where it is known."""
        mine = self.steps.group == node
        held = self.steps.held_s(self.end_s)
        return float(np.nansum((held * self.steps.value)[mine]))

    def binned(self, nodes: int, bins: int) -> tuple[Floats, Floats]:
        """(edges in seconds, mean watts by node and bin): areas, and so joules, stay right. Where nobody measured,
        nothing is added."""
        # A run without length has one bin that is not empty, or the division would be by 0.
        edges = np.linspace(self.start_s, max(self.end_s, self.start_s + 1e-9), bins + 1)
        watts = np.zeros((nodes, bins))
        bounds = np.searchsorted(self.steps.group, np.arange(nodes + 1))
        for node in range(nodes):
            rows = slice(bounds[node], bounds[node + 1])
            times, values = self.steps.time_s[rows], np.nan_to_num(self.steps.value[rows])
            if len(times):
                # Integrals at the steps, read off at the edges: joules of a bin are exact however its edges lie.
                joules = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
                ends = np.append(times, max(self.end_s, times[-1]))
                totals = np.append(joules, joules[-1] + values[-1] * (ends[-1] - times[-1]))
                watts[node] = np.diff(np.interp(edges, ends, totals)) / np.diff(edges)
        return edges, watts


def power_curve(run: Run) -> PowerCurve:
    """Return watts of each node from the first release to the last end."""
    start_s, end_s = run.start_s, run.start_s + run.span_s
    if run.power_log is not None and len(run.power_log):
        # Several changes in one instant: only the last one lasted.
        rows = _last_of_each_moment(run.power_log)
        steps = StepSeries(rows["node"].astype(np.int64), rows["time_s"].astype(float), rows["watts"].astype(float))
        return PowerCurve(steps, start_s, end_s, rebuilt=False)
    return PowerCurve(_rebuild(run, start_s), start_s, end_s, rebuilt=True)


def idle_watts(run: Run, curve: PowerCurve) -> Floats:
    """Of each step of the curve, the watts that the node draws for being on, or asleep: the rest is its work's."""
    log = run.power_log
    if not curve.rebuilt and log is not None and "idle_w" in (log.dtype.names or ()):
        idle: Floats = _last_of_each_moment(log)["idle_w"]
    else:
        known = [np.nan if (watts := idle_w(node)) is None else watts for node in run.cluster.nodes]
        idle = np.array(known)[curve.steps.group]
    # Asleep a node draws less than idling: what it draws is all for being there.
    lower: Floats = np.minimum(idle, curve.steps.value)
    return lower


def idle_w(node: Node) -> float | None:
    """Return watts of a node that does nothing, its devices included; None without a profile."""
    return None if node.power is None else node.power.idle_w + sum(device.power.idle_w for device in node.devices)


def sleeps(run: Run, curve: PowerCurve) -> NDArray[np.void]:
    """Stretches in which nodes were not on, rows of ``SLEEP``: as logged, else where the watts are those of sleep."""
    if run.sleep_log is not None:
        return run.sleep_log
    found: list[tuple[int, float, float, int]] = []
    steps, held = curve.steps, curve.steps.held_s(curve.end_s)
    for number, node in enumerate(run.cluster.nodes if not curve.rebuilt else ()):
        # Watts of sleep that are no lower than idling cannot be told from it.
        if node.sleep is None or (node.power is not None and node.sleep.watts >= node.power.idle_w):
            continue
        # Watts pass through sums and files: equal but for a rounding.
        asleep = (steps.group == number) & (np.abs(steps.value - node.sleep.watts) <= 1e-6 * node.sleep.watts)
        asleep &= held > 0
        found += [
            (number, start_s, start_s + length_s, 0)
            for start_s, length_s in zip(steps.time_s[asleep].tolist(), held[asleep].tolist(), strict=True)
        ]
    return np.array(found, SLEEP)


def _last_of_each_moment(log: NDArray[np.void]) -> NDArray[np.void]:
    """Return the log by node and time; of several rows at one moment the last."""
    rows = log[np.lexsort((np.arange(len(log)), log["time_s"], log["node"]))]
    node, time_s = rows["node"], rows["time_s"]
    last: NDArray[np.void] = rows[np.append((node[1:] != node[:-1]) | (time_s[1:] != time_s[:-1]), True)]
    return last


def busy_threads(run: Run) -> StepSeries:
    """Return hardware threads that attempts keep busy on each node: run and cold-start stages, at most all of them."""
    rows = run.attempts
    cores, _, _ = variant_columns(run)
    cold_end = rows["start_s"] - rows["hold_s"] - rows["data_s"]
    steps = sweep(
        np.concatenate([rows["node"], rows["node"]]),
        np.concatenate([rows["start_s"], cold_end - rows["cold_s"]]),
        np.concatenate([rows["end_s"], cold_end]),
        np.concatenate([cores, cores]),
    )
    threads = np.array([node.threads for node in run.cluster.nodes], float)
    return StepSeries(steps.group, steps.time_s, np.minimum(steps.value, threads[steps.group]))


def _rebuild(run: Run, start_s: float) -> StepSeries:
    nodes = run.cluster.nodes
    busy, above = busy_threads(run), _device_watts(run)
    groups, times, values = [], [], []
    bounds = np.searchsorted(busy.group, np.arange(len(nodes) + 1))
    device_bounds = np.searchsorted(above.group, np.arange(len(nodes) + 1))
    for number, node in enumerate(nodes):
        mine, its_devices = slice(*bounds[number : number + 2]), slice(*device_bounds[number : number + 2])
        # All moments at which either changes, so that the sum is a step function again.
        at = np.unique(np.concatenate([[start_s], busy.time_s[mine], above.time_s[its_devices]]))
        watts = _cpu_watts(node, _at(at, busy.time_s[mine], busy.value[mine]))
        watts += sum(device.power.idle_w for device in node.devices)
        watts += _at(at, above.time_s[its_devices], above.value[its_devices])
        groups.append(np.full(len(at), number, np.int64))
        times.append(at)
        values.append(watts)
    return StepSeries(np.concatenate(groups), np.concatenate(times), np.concatenate(values))


def _cpu_watts(node: Node, busy: Floats) -> Floats:
    if node.power is None:
        return np.zeros(len(busy))
    return np.interp(busy, node.power.busy, node.power.watts)


def _at(at: Floats, times: Floats, values: Floats) -> Floats:
    """Value of a step function at given times, 0 before its first step."""
    if not len(times):
        return np.zeros(len(at))
    place = np.searchsorted(times, at, side="right") - 1
    return np.where(place >= 0, values[np.maximum(place, 0)], 0.0)


def _device_watts(run: Run) -> StepSeries:
    """Return watts above idle of all devices of a node, by node."""
    nodes = run.cluster.nodes
    most = max(1, *(len(node.devices) for node in nodes))
    load = _device_load(run, most)
    watts = np.zeros(len(load.value))
    for key in np.unique(load.group).tolist():
        device, mine = nodes[key // most].devices[key % most], load.group == key
        busy = load.value[mine]
        watts[mine] = np.interp(np.minimum(busy, 1.0), device.power.share, device.power.watts) - device.power.idle_w
    # By differences: steps of several devices of one node add up to the node's.
    before = np.append(0.0, watts[:-1])[: len(watts)]
    # Before a device's first step there is nothing.
    before[np.append(True, load.group[1:] != load.group[:-1])[: len(watts)]] = 0.0
    return accumulate(load.group // most, load.time_s, watts - before)


def _device_load(run: Run, most: int) -> StepSeries:
    """Busy share of each device; the group is node · most + device. An attempt with several takes the next ones too."""
    rows = run.attempts
    _, share, count = variant_columns(run)
    used = (rows["device"] >= 0) & (count > 0)
    chosen, counts = rows[used], count[used].astype(np.int64)
    each = np.repeat(np.arange(len(chosen)), counts)
    offset = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)
    # As the engine takes them: the lowest free ones, which here are assumed to be neighbours.
    key = chosen["node"][each].astype(np.int64) * most + np.minimum(chosen["device"][each] + offset, most - 1)
    return sweep(key, chosen["start_s"][each], chosen["end_s"][each], share[used][each])
