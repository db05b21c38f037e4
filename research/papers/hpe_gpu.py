"""The HPE paper's GPU experiment on a real H200: exclusive use, ten time slices, MPS shares; measured, not simulated.

The runs are kept in ``research/data/h200_sharing.json``; ``experiments/gpu_sharing/measure.py`` made them on the
device.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.papers.findings import Figure, Findings, Progress, Sheet
from wattflow.files.strict_table import StrictTable

Runs = list[dict[str, Any]]
_WH = 3600.0
MEASURED = Path(__file__).parents[1] / "data"
"""Runs that were measured on a real device and kept."""


@dataclass(frozen=True, slots=True)
class SharingSettings:
    """The measurement to show and the paper's plain reductions, percent, as (makespan, energy)."""

    measured: str
    against_sliced: tuple[float, float]
    against_exclusive: tuple[float, float]


def read(table: StrictTable) -> SharingSettings:
    """Settings from the file's table; problems are noted in it."""
    paper = table.table("paper")
    names = ("sliced_makespan_pct", "sliced_energy_pct", "exclusive_makespan_pct", "exclusive_energy_pct")
    values = [paper.number(name) if paper is not None else 0.0 for name in names]
    return SharingSettings(table.text("measured"), (values[0], values[1]), (values[2], values[3]))


def run(settings: SharingSettings, progress: Progress) -> Findings:
    """Tables, figures and pictures of the kept measurement."""
    found = json.loads((MEASURED / f"{settings.measured}.json").read_text(encoding="utf-8"))
    progress(0.5, "tables")
    ways = by_way(found["runs"])
    # The shortest makespan, as the paper's best packing; names break ties.
    best = min((way for way in ways if way.startswith("mps")), key=lambda way: (_mean(ways[way], "makespan_s"), way))
    sheets = (_modes_sheet(ways), _packings_sheet(found), _beside_sheet(found), _pairs_sheet(found))
    notes = (
        f"Measured on one {found['device']['model']} (driver {found['device']['driver']}), {found['measured_at']}: "
        "joules of the whole device by NVML's counter from the first job's start to the last one's end, workers warm.",
        "A job alone lasts about 4.8 s and keeps the device at work for 34–40 % of it. Shares are caps: sixteen jobs "
        "of 25 % oversubscribe the device on purpose.",
        "Each way was measured as often as the table says; the exclusive runs on three hosts with such a card.",
        "The paper's two A100X gain 25 % of energy over slices; the H200 gains speed, and its watts rise with it: "
        "371 → 621 W, so work on it costs nearly the same joules either way. Why is our guess, not a measurement.",
    )
    pictures = {"power": lambda path: _draw_power(ways, best, path), "beside": lambda path: _draw_beside(found, path)}
    return Findings(sheets, figures(ways, best, settings), {"ways": _summary(ways), "best": best}, notes, pictures)


def by_way(runs: Runs) -> dict[str, Runs]:
    """Runs by how the device was handed out."""
    ways: dict[str, Runs] = {}
    for one in runs:
        name = f"mps {one['workers']} × {one['share'] * 100:g} %" if one["mode"] == "mps" else str(one["mode"])
        ways.setdefault(name, []).append(one)
    return ways


def figures(ways: Mapping[str, Runs], best: str, settings: SharingSettings) -> tuple[Figure, ...]:
    """Plain reductions of the best packing, beside the paper's."""
    made = []
    for other, paper in (("time-sliced", settings.against_sliced), ("exclusive", settings.against_exclusive)):
        for key, goal in zip(("makespan_s", "energy_j"), paper, strict=True):
            before, after = _mean(ways[other], key), _mean(ways[best], key)
            cut = 100.0 * (before - after) / before
            name = f"mps_{key.split('_')[0]}_cut_against_{other.replace('-', '_')}"
            made.append(Figure(name, cut, "%", f"≥{goal:g}", cut >= goal))
    return tuple(made)


def _mean(runs: Runs, key: str) -> float:
    return statistics.fmean(float(one[key]) for one in runs)


def stretch(runs: Runs, alone: Runs) -> float:
    """Mean over jobs of their time here over their kind's mean time with the device to itself."""
    # Each kind by its own time alone: a mean over kinds would weigh long jobs more.
    base = {kind: statistics.fmean(t for one in alone for t in one["job_s"][kind]) for kind in alone[0]["job_s"]}
    return statistics.fmean(t / base[kind] for one in runs for kind, times in one["job_s"].items() for t in times)


def _summary(ways: Mapping[str, Runs]) -> dict[str, dict[str, float]]:
    keys = ("makespan_s", "energy_j", "mean_w")
    return {way: {key: _mean(runs, key) for key in keys} | {"runs": len(runs)} for way, runs in ways.items()}


def _modes_sheet(ways: Mapping[str, Runs]) -> Sheet:
    rows = []
    for way, runs in ways.items():
        times = [float(one["makespan_s"]) for one in runs]
        rows.append(
            (
                way,
                str(len(runs)),
                f"{_mean(runs, 'makespan_s'):.1f}",
                f"{max(times) - min(times):.1f}",
                f"{_mean(runs, 'energy_j') / _WH:.2f}",
                f"{_mean(runs, 'mean_w'):.0f}",
                f"{stretch(runs, ways['exclusive']):.2f}",
            )
        )
    columns = ("way", "runs", "makespan s", "spread s", "energy Wh", "mean W", "stretch of a job")
    return Sheet("40 jobs on one GPU, measured", columns, tuple(rows))


def _packings_sheet(found: Mapping[str, Any]) -> Sheet:
    tried = sorted([*found["explored"], *(r for r in found["short_runs"] if r["mode"] == "mps")], key=_packing)
    rows = tuple(
        (f"{r['workers']} × {100 * r['share']:g} %", f"{r['makespan_s']:.1f}", f"{r['energy_j'] / _WH:.2f}")
        for r in tried
    )
    return Sheet("MPS packings tried on jobs of 1.4 s", ("packing", "makespan s", "energy Wh"), rows)


def _packing(row: Mapping[str, Any]) -> tuple[float, float]:
    return float(row["workers"]), float(row["share"])


def _beside_sheet(found: Mapping[str, Any]) -> Sheet:
    alone = float(found["beside"][0]["seconds"])
    rows = tuple(
        (f"{r['percent']}", f"{r['seconds']:.2f}", f"{r['seconds'] / alone:.2f}", f"{r['matmul_per_s']:.0f}")
        for r in found["beside"]
    )
    columns = ("matmul %", "seconds", "stretch", "matmul/s")
    return Sheet("1,000 ResNet-50 inferences (batches of 8) beside matrix products on a share", columns, rows)


def _pairs_sheet(found: Mapping[str, Any]) -> Sheet:
    kinds = list(dict.fromkeys(str(r["job"]) for r in found["pairs"]))
    rate = {(r["job"], r["beside"]): float(r["rate"]) for r in found["pairs"]}
    rows = tuple((job, *(f"{rate[job, other]:.2f}" for other in kinds)) for job in kinds)
    return Sheet("Rate of a program (row) beside another (column), each on half of the device", ("", *kinds), rows)


def _draw_power(ways: Mapping[str, Runs], best: str, path: Path) -> None:
    """The three power curves on one axis, as the paper's figure 6."""
    from wattflow.lab.show.data_frames import new_figure

    figure = new_figure()
    axes = figure.subplots()
    for way in ("exclusive", "time-sliced", best):
        times, watts = zip(*ways[way][0]["watts"], strict=True)
        axes.plot(times, watts, linewidth=1.2, label=f"{way}: {_mean(ways[way], 'energy_j') / _WH:.1f} Wh")
    axes.set(xlabel="seconds", ylabel="watts of the GPU, measured", title="40 jobs on one H200", ylim=(0, None))
    axes.grid(color="0.9")
    axes.legend()
    figure.savefig(path)


def _draw_beside(found: Mapping[str, Any], path: Path) -> None:
    """Inference beside matrix products, as the paper's figure 8."""
    from wattflow.lab.show.data_frames import new_figure

    figure = new_figure()
    axes = figure.subplots()
    percents = [r["percent"] for r in found["beside"]]
    axes.plot(percents, [r["seconds"] for r in found["beside"]], marker="o", label="1,000 inferences")
    axes.set(xlabel="share of the device for matrix products, %", ylabel="seconds", ylim=(0, None))
    other = axes.twinx()
    other.plot(percents, [r["matmul_per_s"] for r in found["beside"]], marker="s", color="tab:orange")
    other.set(ylabel="matrix products a second (orange)", ylim=(0, None))
    axes.set_title("ResNet-50 inference beside matrix products under MPS, H200")
    axes.grid(color="0.9")
    figure.savefig(path)
