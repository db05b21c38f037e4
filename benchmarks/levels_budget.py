"""Levels under a budget, simulated (a part of `make bench-levels`): a cap on the cluster's watts, and Joulie's setting.

Cap: twelve equal nodes with `mixed`'s levels, a stream of map-reduces that asks for more than the cap allows;
`power-cap:order=start` (levels first, holding back last) beside every node capped alike under kube-scheduler's placing.
Joulie: its 41 nodes and 48 hours (`experiments/joulie.toml`) without sleep; one task a job, so nobody has slack. Ends
with one line per figure.
"""

from __future__ import annotations

from dataclasses import replace

import ground
import levels_rivals
import numpy as np
from levels_gpu import figure
from levels_simulated import FREQUENCIES, OFF, ON, bound_by_name

from research.judge import Stream, estimated
from research.papers import joulie_paper
from wattflow.lab.figures.power_series import cap_kept
from wattflow.model.cluster import Cluster, Series
from wattflow.model.workload import Workload
from wattflow.policy import power_cap, registry
from wattflow.sim import SimOptions, simulate

SHARES = (0.6, 0.7, 0.8)
"""Caps, as parts of all nodes' full watts."""
STEPS = (0.7, 0.5, 0.6, 0.45)
"""A cap that changes every ten minutes."""


def ground_of_the_cap() -> tuple[Cluster, Workload, float]:
    """Cluster, work and the watts of all nodes at full load."""
    cluster = ground.cluster_of("equal").without_sleep()
    cluster = replace(cluster, nodes=tuple(replace(node, frequencies=FREQUENCIES) for node in cluster.nodes))
    parts = tuple(map(bound_by_name, ground.parts_of("map-reduce")))
    full_w = sum(node.power.at(node.threads) for node in cluster.nodes if node.power is not None)
    return cluster, Stream(parts, cluster, 1.2, 0, workflows=400).draw(), full_w


def tell_cap() -> None:
    """Overshoot, time above, and throughput beside nodes that are capped alike."""
    cluster, work, full_w = ground_of_the_cap()
    options, more = SimOptions(record_power=True), []
    rule = registry.load("power-cap:order=start")
    constant = {f"{share:g}": Series(3600.0, (share * full_w,)) for share in SHARES}
    for name, series in {**constant, "changing": Series(600.0, tuple(share * full_w for share in STEPS))}.items():
        run = simulate(work, cluster, power_cap.following(series, policy=rule), options=options)
        kept = cap_kept(run, series)
        figure(f"levels.cap.{name}.overshoot", 100 * kept.over, "% of watt-seconds", "≤ 1", kept.over <= 0.01)
        figure(f"levels.cap.{name}.time_above", 100 * kept.time, "%", "≤ 1", kept.time <= 0.01)
        if name in constant:
            alike = simulate(work, cluster, levels_rivals.one_cap(float(name)), options=options)
            more.append(alike.makespan_s / run.makespan_s)
            figure(f"levels.cap.{name}.throughput_over_capped_alike", 100 * (more[-1] - 1), "%", "none", True)
            over = 100 * cap_kept(alike, series).over
            figure(f"levels.cap.{name}.capped_alike.overshoot", over, "% of watt-seconds", "none", True)
    gained = 100 * (float(np.exp(np.mean(np.log(more)))) - 1)
    figure("levels.cap.throughput_over_capped_alike", gained, "%", "≥ 10", gained >= 10)


def tell_errors() -> None:
    """Print how the changing cap is kept where estimates err by 20 %."""
    cluster, work, full_w = ground_of_the_cap()
    series = Series(600.0, tuple(share * full_w for share in STEPS))
    rule = power_cap.following(series, policy=registry.load("power-cap:order=start"))
    run = simulate(estimated(work, "20", 0), cluster, rule, options=SimOptions(record_power=True))
    kept = cap_kept(run, series)
    figure("levels.cap.changing.estimates_err.time_above", 100 * kept.time, "%", "≤ 1", kept.time <= 0.01)


def tell_joulie() -> None:
    """Savings against most-allocated in Joulie's caps setting, nobody asleep."""
    settings = joulie_paper.JoulieSettings(0.05, 48.0, 0.5, 10.4, 0.25, 0, 0.05, 60.0, ("most-allocated",))
    machines = joulie_paper.cluster(joulie_paper.MIXED, settings).without_sleep()
    cores = sum(one.cores for one in machines.nodes)
    per_s = 10.4 * cores / sum(one.cores for one in joulie_paper.cluster(joulie_paper.LARGE, settings).nodes)
    jobs = joulie_paper.workload(machines, settings, per_s, settings.performance)
    found = {name: joulie_paper.replay(machines, jobs, name, 0) for name in ("most-allocated", "joulie-caps", ON, OFF)}
    base = found["most-allocated"]
    for name, title in ((ON, "ours"), (OFF, "ours_levels_off"), ("joulie-caps", "its_rule")):
        saved, longer = joulie_paper.saving(found, name), found[name].p95_s / base.p95_s
        goal, good = ("≥ 17.2", saved >= 17.2) if name == ON else ("none", True)
        figure(f"levels.joulie.{title}.saved", saved, "%", goal, good)
        goal, good = ("≤ 1.02", longer <= 1.02) if name == ON else ("none", True)
        figure(f"levels.joulie.{title}.p95", longer, "times", goal, good)


if __name__ == "__main__":
    tell_cap()
    tell_errors()
    tell_joulie()
