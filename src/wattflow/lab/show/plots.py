"""Plots as files, for papers and slides. Needs the extra ``report`` (matplotlib)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from wattflow.files.whole import whole_file
from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.figures.ideal import ideal_s
from wattflow.lab.figures.metrics import TaskTimes, slowdown
from wattflow.lab.figures.power import power_curve
from wattflow.lab.figures.statistics import pareto_front
from wattflow.model.errors import MissingExtra
from wattflow.model.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Path = str | os.PathLike[str]


def plot_front(comparison: Comparison, workload: str, path: Path) -> None:
    """Energy against makespan of every policy, with the Pareto front as stairs."""
    figure, axes = _figure()
    known: list[tuple[str, float, float]] = []
    for policy in comparison.policies:
        span, joules = (comparison.summary(workload, policy, metric).mean for metric in ("makespan_s", "energy_j"))
        if span is not None and joules is not None:
            known.append((policy, span, joules / 1000.0))
    for policy, x, y in known:
        axes.plot(x, y, "o", color="tab:orange" if policy == comparison.baseline else "tab:gray")
        axes.annotate(policy, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=7)
    front = [known[i] for i in pareto_front([x for _, x, _ in known], [y for _, _, y in known])]
    axes.step([x for _, x, _ in front], [y for _, _, y in front], where="post", color="tab:blue", linestyle="--")
    axes.set(xlabel="makespan, s", ylabel="energy, kJ", title=f"{workload} on {comparison.cluster.name} (simulated)")
    _save(figure, path)


def plot_power(runs: dict[str, Run], path: Path, bins: int = 400) -> None:
    """Watts of the whole cluster over time, one line per run."""
    figure, axes = _figure()
    for name, run in runs.items():
        edges, watts = power_curve(run).binned(len(run.cluster.nodes), bins)
        axes.stairs(watts.sum(axis=0), edges - run.start_s, label=name, baseline=None)
    axes.set(xlabel="time, s", ylabel="power, W", ylim=(0, None))
    axes.legend()
    _save(figure, path)


def plot_slowdown(runs: dict[str, Run], path: Path) -> None:
    """Share of tasks whose slowdown exceeds x, both axes logarithmic, so that the tail shows."""
    figure, axes = _figure()
    for name, run in runs.items():
        values = slowdown(TaskTimes.of(run), ideal_s(run.workload, run.cluster))
        values = np.sort(values[np.isfinite(values)])
        axes.step(values, 1.0 - np.arange(len(values)) / max(1, len(values)), label=name)
    axes.set(xscale="log", yscale="log", xlabel="slowdown", ylabel="share of tasks above")
    axes.legend()
    _save(figure, path)


def _figure() -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("plots as files need matplotlib: pip install 'wattflow[report]'") from error
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Figure, path: Path) -> None:
    with whole_file(path) as draft:
        figure.savefig(draft)
