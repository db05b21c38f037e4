"""Pictures of the HPE experiment: watts over time as in the paper's figure 5, each job's stretch, the savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattflow.lab.figures.power_series import power_curve
from wattflow.model.errors import MissingExtra
from wattflow.model.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {"default": "default", "no_request": "default, no requests", "energy_aware": "energy-aware"}
COLOURS = {"default": "#4477aa", "no_request": "#ccaa33", "energy_aware": "#228833"}
BINS = 600


def stretch(run: Run) -> NDArray[np.float64]:
    """For each job: seconds from start to end over those it takes alone on a core."""
    ratio: NDArray[np.float64] = (run.end_s_by_task() - run.start_s_by_task()) / run.workload.runtime_s
    return ratio


def response(run: Run) -> NDArray[np.float64]:
    """For each job: seconds from submission to end over those it takes alone on a core."""
    ratio: NDArray[np.float64] = (run.end_s_by_task() - run.workload.release_s) / run.workload.runtime_s
    return ratio


def draw_watts(runs: Mapping[str, Run], published: Mapping[str, tuple[float, float]], path: Path) -> None:
    """Watts of all nodes over time, and, dashed, the published mean watts as long as the published makespan."""
    figure, (axes,) = _figure(1)
    levels: list[float] = []
    for row, run in runs.items():
        edges, watts = power_curve(run).binned(len(run.cluster.nodes), BINS)
        axes.stairs(watts.sum(axis=0), edges, baseline=None, color=COLOURS[row], label=f"{LABELS[row]}, ours")
        makespan_s, mean_w = published[row]
        axes.plot([0, makespan_s], [mean_w, mean_w], "--", color=COLOURS[row], label=f"{LABELS[row]}, published mean")
        axes.plot([run.makespan_s], [watts.sum(axis=0)[-1]], "o", color=COLOURS[row], markersize=4)
        axes.plot([makespan_s], [mean_w], "x", color=COLOURS[row], markersize=5)
        levels += [mean_w, float(watts.sum(axis=0).min()), float(watts.sum(axis=0).max())]
    low, high = min(levels), max(levels)
    # Room above the curves for the legend.
    axes.set_ylim(low - 0.15 * (high - low), high + 0.75 * (high - low))
    axes.set(xlabel="time, s", ylabel="power of all nodes, W (axis does not start at 0)")
    axes.set_title("watts over time (simulated, first repetition)")
    axes.legend(fontsize=8, ncols=2, loc="upper right")
    _save(figure, path)


def draw_stretch(runs: Mapping[str, Run], path: Path) -> None:
    """Draw each job's stretch while it runs (left) and from submission to end (right), ascending."""
    figure, (left, right) = _figure(2)
    for row, run in runs.items():
        for axes, values in ((left, stretch(run)), (right, response(run))):
            axes.plot(np.arange(1, len(values) + 1), np.sort(values), color=COLOURS[row], label=LABELS[row])
    left.set(xlabel="jobs, ascending", ylabel="start to end / time alone", title="stretch of each job")
    right.set(xlabel="jobs, ascending", ylabel="submission to end / time alone", title="with its wait")
    right.legend(fontsize=8)
    _save(figure, path)


def draw_savings(names: Sequence[str], ours: Sequence[float], theirs: Sequence[float], path: Path) -> None:
    """Reductions in percent, ours beside the published ones."""
    figure, (axes,) = _figure(1)
    place = np.arange(len(names))
    for offset, values, label, colour in ((-0.2, ours, "ours", "#228833"), (0.2, theirs, "published", "#bbbbbb")):
        bars = axes.bar(place + offset, values, 0.4, label=label, color=colour)
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(place, names, fontsize=8)
    axes.margins(y=0.12)
    axes.set(ylabel="reduction, %", title="what each scheduler saves")
    axes.legend()
    _save(figure, path)


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'wattflow[report]'") from error
    figure = Figure(figsize=(8.0, 4.4), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, panels)))


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=130)
