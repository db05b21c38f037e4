"""Plots of profiles: P(k) of several nodes over one another, GPU watts by share, runtime under sharing.

Each writes one file (the name's ending chooses the format). Needs matplotlib (extra: report).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wattflow.energy import gpu_profile
from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.model.profile import PowerProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_profiles(profiles: Mapping[str, PowerProfile], path: Path) -> None:
    """Draw P(k) of several nodes. Wall and package watts are never drawn on one axis."""
    scopes = sorted({profile.scope for profile in profiles.values()})
    if not profiles:
        raise InvalidInput("plot", "no profile to draw")
    figure, axes = _figure(len(scopes))
    for scope, axis in zip(scopes, axes, strict=True):
        for name, profile in profiles.items():
            if profile.scope == scope:
                axis.plot(profile.busy, profile.watts, marker=".", label=f"{name} ({profile.provenance})")
        _label(axis, "busy hardware threads", f"W ({scope})")
    _write(figure, path)


def plot_gpu(document: Mapping[str, object], path: Path) -> None:
    """Draw watts by share of the device for every kernel measured, with the knee and its interval."""
    figure, (axis,) = _figure(1)
    for kernel in ("gemm", "fma", "mem"):
        shares, windows = gpu_profile.by_share(document, kernel)
        if not shares:
            continue
        watts = [sum(values) / len(values) for values in windows]
        (line,) = axis.plot([100 * share for share in shares], watts, marker="o", label=kernel)
        if len(shares) >= 4:
            knee = gpu_profile.knee(shares, windows)
            if not knee.flattens:
                continue
            axis.axvspan(100 * knee.low, 100 * knee.high, color=line.get_color(), alpha=0.15)
            axis.axvline(100 * knee.share, color=line.get_color(), linestyle=":")
    idle = gpu_profile.idle_w(document)
    if idle is not None:
        axis.axhline(idle, color="grey", linewidth=0.8, label="idle")
    _label(axis, f"share of the device, % ({document['sharing']})", "W (device)")
    _write(figure, path)


def plot_sharing(curves: Mapping[str, Sequence[tuple[float, float]]], path: Path, beside: str) -> None:
    """Draw a benchmark's runtime beside a rising load, relative to alone. ``curves``: (load, seconds) by name."""
    figure, (axis,) = _figure(1)
    for name, rows in curves.items():
        levels = sorted({level for level, _ in rows})
        mean = {level: _mean([seconds for at, seconds in rows if at == level]) for level in levels}
        if levels:
            axis.plot(levels, [mean[level] / mean[levels[0]] for level in levels], marker="o", label=name)
    _label(axis, beside, "runtime relative to alone")
    _write(figure, path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _figure(count: int) -> tuple[Figure, list[Axes]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("plots need matplotlib: pip install 'wattflow[report]'") from error
    figure = Figure(figsize=(7.0 * count, 4.5), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(axes)


def _label(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _write(figure: Figure, path: Path) -> None:
    figure.savefig(path)
