"""Every figure of small runs and their watts over time, as text; `make golden` writes it anew after a change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from research.grid_energy import grid_j
from wattflow.lab.figures.metrics import metrics
from wattflow.lab.figures.power_series import busy_threads, power_curve
from wattflow.model.cluster import Cluster, Series
from wattflow.model.profile import PowerProfile
from wattflow.sim import SimOptions, simulate
from wattflow.testing import sample_states

TIMED = ("decision_us",)
"""Figures that a clock measures."""
CURVE = PowerProfile((0.0, 4.0), (21.0, 77.0))
SUPPLY = Series(4.0, (150.0, 20.0, 90.0))


def _known(cluster: Cluster) -> Cluster:
    """The cluster with watts, money and carbon of making for every node."""
    nodes = (
        replace(n, power=n.power or CURVE, price_per_hour=0.5 + i, embodied_kg=900.0 + i, lifetime_years=4.0)
        for i, n in enumerate(cluster.nodes)
    )
    return replace(cluster, nodes=tuple(nodes), zones=tuple(replace(z, price_known=True) for z in cluster.zones))


def lines(name: str) -> Iterator[str]:
    """A sample's figures, one a line."""
    sample = next(each for each in sample_states() if each.name == name)
    late = np.where(np.arange(len(sample.workload)) % 3 == 0, 9.0, 30.0)
    workload = replace(sample.workload, deadline_s=late)
    run = simulate(workload, _known(sample.cluster), "fifo", seed=1, options=SimOptions(record_power=True))
    for key, value in metrics(run).items():
        if key not in TIMED:
            yield f"{name} | {key} | {'unknown' if value is None else f'{value:.9g}'}"
    for kind, curve in (("logged", power_curve(run)), ("rebuilt", power_curve(replace(run, power_log=None)))):
        nodes = range(len(run.cluster.nodes))
        yield f"{name} | {kind} joules | {' '.join(f'{curve.energy_j(node):.9g}' for node in nodes)}"
        _, watts = curve.binned(len(nodes), 7)
        yield f"{name} | {kind} watts | {' '.join(f'{value:.9g}' for value in watts.sum(axis=0))}"
    busy = busy_threads(run)
    yield f"{name} | busy threads | {float(busy.value @ np.arange(1, len(busy.value) + 1)):.9g}"
    yield f"{name} | joules of the grid | {grid_j(run, SUPPLY):.9g} {grid_j(run, SUPPLY, 500.0):.9g}"


NAMES = tuple(sample.name for sample in sample_states())

if __name__ == "__main__":
    for each in NAMES:
        for line in lines(each):
            sys.stdout.write(line + "\n")
