"""`run_frame`: a workload on a cluster under a frame gives a Run."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattflow.frames import frame_build, frame_rules
from wattflow.frames.deciding import Views
from wattflow.frames.frame import Frame
from wattflow.frames.frame_rules import FramePolicy, check
from wattflow.frames.kernel import frame_loop, frame_tables
from wattflow.frames.kernel.frame_tables import FrameState
from wattflow.model.cluster import Cluster
from wattflow.model.errors import WattflowError
from wattflow.model.run import ACCOUNTS, Run
from wattflow.model.workload import Workload
from wattflow.policy.base import Policy

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
STAGES = ("client", "broker", "placer", "message", "host", "data")


def slowdowns(run: Run) -> NDArray[np.float64]:
    """End minus first ready over the runtime on the fastest host, of each finished task with a runtime above 0."""
    rows = run.attempts
    speed = max(node.speed for node in run.cluster.nodes)
    done = rows["outcome"] == 0
    # The common case, without a search by task.
    if len(rows) == len(run.workload) and done.all():
        response, task = rows["end_s"] - rows["ready_s"], rows["task"]
    else:
        ready = np.full(len(run.workload), np.inf)
        np.minimum.at(ready, rows["task"], rows["ready_s"])
        end = run.end_s_by_task()
        task = np.flatnonzero(np.isfinite(end))
        response = end[task] - ready[task]
    ideal = run.workload.runtime_s[task] / speed
    known = ideal > 0
    return np.asarray(response[known] / ideal[known])


def tail(run: Run) -> dict[str, float]:
    """Percentiles of the slowdown and its mean."""
    values = slowdowns(run)
    if not len(values):
        return {"mean": float("nan")} | {f"p{p:g}": float("nan") for p in PERCENTILES}
    return {"mean": float(values.mean())} | {
        f"p{p:g}": float(v) for p, v in zip(PERCENTILES, np.percentile(values, PERCENTILES))
    }


def waits_s(run: Run) -> dict[str, float]:
    """Return the mean seconds a task spent at each stage before it ran."""
    count = max(1, len(run.workload))
    return {stage: run.scalars[f"wait_{stage}_s"] / count for stage in STAGES}


_EVENTS_PER_CALL = 2_000_000
_REPORTED = """
events messages decisions steals steal_tries stolen placer_stolen cache_hits cache_misses preemptions copies copies_won
retries host_failures placer_failures conflicts probes rebalanced hosts_added hosts_removed failed_tasks moved_objects
"""
# Counters are named as their constants, but for the prefix of caches.
_COUNTERS = {name: getattr(frame_tables, name.removeprefix("cache_").upper()) for name in _REPORTED.split()}
"""Where each counter stands, by the name that a report has for it."""
_SUMS = {
    "wait_client_s": frame_tables.WAIT_CLIENT,
    "wait_broker_s": frame_tables.WAIT_BROKER,
    "wait_placer_s": frame_tables.WAIT_PLACER,
    "wait_message_s": frame_tables.WAIT_MESSAGE,
    "wait_host_s": frame_tables.WAIT_HOST,
    "wait_data_s": frame_tables.WAIT_DATA,
    "copy_j": frame_tables.COPY_J,
    "preempt_j": frame_tables.PREEMPT_J,
    "busy_core_s": frame_tables.BUSY_CORE_S,
}


def run_frame(
    frame: Frame,
    workload: Workload,
    cluster: Cluster,
    policy: str | FramePolicy | Policy = frame_rules.DEFAULT,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run a workload to its end under a frame. Same arguments, same bytes.

    Args:
        policy: Order of queues and score of hosts, such as ``"fifo+least-loaded"``, or one of the engine's policies,
            such as ``"engine:least-energy"``, that each placer asks on its own view.
        seed: Of everything random: delays, samples, failures.
        progress: Called now and then with the share of tasks done; an exception from it ends the run.

    The Run's ``scalars`` hold the waits by stage (``wait_placer_s`` and so on, summed over tasks), counters such as
    ``stolen`` and ``cache_misses``, ``utilisation`` and the joules of messages.
    """
    check(frame)
    # An engine's policy is wrapped first; a name is looked up in the frames' own list.
    chosen = frame_rules.of_engine(policy) if isinstance(policy, Policy) else policy
    chosen = frame_rules.load(chosen) if isinstance(chosen, str) else chosen
    views = None
    if chosen.engine is not None:
        views = Views(chosen.engine, workload, cluster, frame.placers.count, seed)
        keys = views.keys()
        chosen = replace(chosen, order="fifo" if keys is None else "sjf", keys=keys)
    state = frame_build.build(frame, workload, cluster, chosen, seed)
    if views is not None:
        views.attach(state)
    started = time.process_time()
    _advance(state, len(workload), progress, views)
    seconds = time.process_time() - started
    return _result(state, (frame, workload, cluster, chosen, seed), seconds)


def _advance(
    state: FrameState, total: int, progress: Callable[[float], None] | None, views: Views | None = None
) -> None:
    opening, advance, settle = frame_loop.functions(frame_loop.type_of(state))
    # Hashes wrap around at 64 bits, and NaN stands for unknown joules; uncompiled, numpy would warn of both.
    with np.errstate(over="ignore", invalid="ignore"):
        opening(state.handle())
        while total:
            status = advance(state.handle(), _EVENTS_PER_CALL)
            if status == frame_loop.GROW:
                _grow(state)
            # At once: an error of the policy must not look like a run that is stuck.
            if views is not None:
                views.raise_error()
            if status == frame_loop.STUCK:
                left, now = int(state.i[frame_tables.OPEN]), float(state.f[frame_tables.NOW])
                raise WattflowError(f"{left} tasks are open at {now:g} s and nothing more will happen")
            if progress is not None:
                progress(1.0 - float(state.i[frame_tables.OPEN]) / total)
            if status == frame_loop.DONE:
                break
        settle(state.handle())


def _grow(state: FrameState) -> None:
    """Make room for events, records or both."""
    if int(state.i[frame_tables.EVENT_N] + state.i[frame_tables.MARGIN]) > len(state.e_time):
        rows = 2 * len(state.e_time) + int(state.i[frame_tables.MARGIN])
        names = ("e_time", "e_key", "e_what", "e_who", "e_other")
        state.replace(**{name: _longer(getattr(state, name), rows) for name in names})
    if int(state.i[frame_tables.RECORD_N] + state.i[frame_tables.RUNNING]) + 4 > len(state.records):
        rows = int(1.25 * len(state.records)) + int(state.i[frame_tables.RUNNING]) + 1024
        state.replace(records=_longer(state.records, rows).view(np.recarray))


def _longer(array: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    larger = np.zeros(rows, array.dtype)
    larger[: len(array)] = array
    return larger


def _result(state: FrameState, inputs: tuple[Frame, Workload, Cluster, FramePolicy, int], seconds: float) -> Run:
    frame, workload, cluster, policy, seed = inputs
    start, end = float(state.f[frame_tables.START]), float(state.f[frame_tables.LAST_END])
    span = end - start
    energy = state.energy.copy()
    message_j = float(state.i[frame_tables.MESSAGES] * state.f[frame_tables.MESSAGE_J])
    # Messages are counted for the run, not by host, so their joules are spread evenly.
    energy[:, ACCOUNTS.index("transfer")] += message_j / len(cluster.nodes)
    carbon, cost = _charges(cluster, energy, span)
    scalars = {name: float(state.i[at]) for name, at in _COUNTERS.items()}
    scalars |= {name: float(state.f[at]) for name, at in _SUMS.items()}
    cores = float(state.h_capacity.sum()) / frame_tables.MICRO
    scalars |= {
        "message_j": message_j,
        "utilisation": scalars["busy_core_s"] / (cores * span) if span > 0 else 0.0,
        "kernel_s": seconds,
    }
    return Run(
        workload=workload,
        cluster=cluster,
        policy=f"{frame.name} / {policy.name}",
        attempts=np.asarray(state.records[: int(state.i[frame_tables.RECORD_N])]),
        energy_j=energy,
        carbon_g=carbon,
        cost=cost,
        peak_w=float(state.f[frame_tables.PEAK_W]),
        makespan_s=span,
        start_s=start,
        scalars=scalars,
        manifest=_manifest(frame, workload, cluster, policy, seed),
    )


def _charges(
    cluster: Cluster, energy: NDArray[np.float64], span: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return carbon and money by node where intensity and price are constant; NaN (unknown) where they vary."""
    zones = {zone.name: zone for zone in cluster.zones}
    joules = energy.sum(axis=1)
    carbon, cost = np.zeros(len(joules)), np.zeros(len(joules))
    for n, node in enumerate(cluster.nodes):
        zone = zones[node.zone]
        for series, out in ((zone.carbon, carbon), (zone.price, cost)):
            # A frame books joules by account, not by time: with a series that varies the grams are unknown, not 0.
            each = series.values[0] if len(set(series.values)) == 1 else np.nan
            out[n] = joules[n] * each * zone.pue / 3.6e6
        cost[n] += node.price_per_hour / 3600.0 * span
    return carbon, cost


def _manifest(frame: Frame, workload: Workload, cluster: Cluster, policy: FramePolicy, seed: int) -> dict[str, object]:
    from wattflow import __version__

    ignored = []
    if any(function.cold_start_s > 0 for function in workload.functions):
        ignored.append("cold starts")
    if any(node.threads_per_core > 1 or node.request_cores > node.cores for node in cluster.nodes):
        ignored.append("hardware threads beyond physical cores")
    if any(node.devices for node in cluster.nodes):
        ignored.append("devices, apart from their idle watts")
    if policy.engine is not None and policy.engine.act is not None:
        ignored.append("what the policy does besides placing: sleep, wake, frequencies")
    return {
        "wattflow": __version__,
        "python": platform.python_version(),
        "frame": frame.name,
        "workload": workload.name,
        "tasks": len(workload),
        "cluster": cluster.name,
        "policy": policy.name,
        "seed": seed,
        "simulated": True,
        "not_modelled": ignored,
        "power_provenance": sorted({n.power.provenance.value if n.power else "unknown" for n in cluster.nodes}),
        "power_scope": sorted({n.power.scope.value for n in cluster.nodes if n.power}),
    }
