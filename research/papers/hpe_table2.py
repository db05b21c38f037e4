"""Kind ``hpe_table2``: the HPE paper's GPU experiment simulated, and the same for the measured H200.

Forty equal jobs, the device handed out whole, in ten time slices, or shared by MPS. A job keeps its device busy for
the part u of its run (its duty) and uses the part a of the multiprocessors meanwhile. From the first two rows follow u
(slices run 1 / max(1, Σu) as fast) and a line of watts against the busy part; the third row is predicted.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from research.papers.findings import Figure, Findings, Progress, Sheet
from research.papers.hpe_gpu import MEASURED
from wattflow.files.strict_table import StrictTable
from wattflow.lab.show.data_frames import new_figure
from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import registry
from wattflow.sim import simulate

MODES = ("exclusive", "time-slice", "mps")
LABELS = {"exclusive": "exclusive", "time-slice": "time slices", "mps": "MPS (predicted)"}
Row = tuple[float, float]
"""Makespan in seconds and mean watts of all devices."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One machine's experiment: what was run, and what came out by mode."""

    name: str
    jobs: int
    job_s: float
    devices: int
    slots: int
    published: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Table2Settings:
    """The paper's bench, the part of the multiprocessors that a job uses, what switching costs, the measured device."""

    paper: Bench
    sm_parts: tuple[float, ...]
    switch_loss: float
    measured: str
    measured_mps: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """From the first two rows: duty, and watts of one device with none and all of it busy."""

    duty: float
    idle_w: float
    full_w: float


def read(table: StrictTable) -> Table2Settings:
    """Settings from the file's table; problems are noted in it."""
    jobs, job_s = table.whole("jobs"), table.duration("job")
    devices, slots = table.whole("devices"), table.whole("slots")
    rows = {}
    found = table.value("published")
    for number, data in enumerate(found if isinstance(found, list) else []):
        row = StrictTable(data, f"published[{number}]", table.problems)
        rows[row.choice("row", MODES, "exclusive")] = (row.number("makespan_s"), row.number("mean_w"))
        row.finish()
    if sorted(rows) != sorted(MODES):
        table.problem("published", f"needs the rows {', '.join(MODES)}")
    parts = tuple(table.numbers("sm_parts"))
    if not parts or not all(0 < part <= 1 for part in parts):
        table.problem("sm_parts", "must be shares above 0 and at most 1, the first being ours")
    return Table2Settings(
        Bench("2 × A100X, published", jobs, job_s, devices, slots, rows),
        parts,
        table.number("switch_loss"),
        table.text("measured"),
        table.text("measured_mps"),
    )


def run(settings: Table2Settings, progress: Progress) -> Findings:
    """Both machines, each with every part of the multiprocessors that is tried."""
    sheets, figures, results = [], [], {}
    shown: list[tuple[Bench, Mapping[str, Row]]] = []
    for bench in (settings.paper, measured_bench(settings)):
        progress(0.4, bench.name)
        rows = []
        for part in settings.sm_parts:
            fitted = fit(bench, part, settings.switch_loss)
            ours = {mode: simulated(bench, fitted, part, settings.switch_loss, mode) for mode in MODES}
            rows += [_cells(bench, part, fitted, mode, ours[mode]) for mode in MODES]
            results[f"{bench.name}, a = {part:g}"] = {"duty": fitted.duty, **{m: list(row) for m, row in ours.items()}}
            # The first is ours; others are shown beside it.
            if part == settings.sm_parts[0]:
                figures += _figures(bench, ours)
                shown.append((bench, ours))
        columns = ("a, way", "u", "makespan s", "known", "mean W", "known", "energy Wh", "known")
        sheets.append(Sheet(f"40 jobs on {bench.name}: u and watts fitted on the first two rows", columns, tuple(rows)))
    notes = (
        "simulated; a is assumed: 0.45 is where the paper's watts stop rising with the share of its A100X, and other "
        "values are shown beside it; the loss by switching is that of the measured H200 (slices against duties)",
        "under MPS each job is capped at a share of 1 / slots: its kernels take a · slots times as long, and its duty "
        "rises",
    )
    return Findings(tuple(sheets), tuple(figures), results, notes, {"modes": lambda path: draw(shown, path)})


def draw(shown: Sequence[tuple[Bench, Mapping[str, Row]]], path: Path) -> None:
    """Seconds and watts of each way to hand a GPU out, ours beside the known ones."""
    figure = new_figure(width=9.0)
    for axes, (what, unit) in zip(figure.subplots(1, 2), (("makespan", "s"), ("mean watts", "W")), strict=True):
        names, values = [], []
        for bench, ours in shown:
            for mode in MODES:
                names.append("\n".join([*LABELS[mode].split(), bench.name.split(",")[0]]))
                at = 0 if unit == "s" else 1
                values.append((ours[mode][at], bench.published[mode][at]))
        place = np.arange(len(names))
        for offset, side, label, colour in ((-0.2, 0, "ours", "#228833"), (0.2, 1, "known", "#bbbbbb")):
            bars = axes.bar(place + offset, [pair[side] for pair in values], 0.4, label=label, color=colour)
            axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=2)
        axes.set_xticks(place, names, fontsize=7)
        axes.set(ylabel=f"{what}, {unit}", title=what)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def measured_bench(settings: Table2Settings) -> Bench:
    """The committed H200 runs as a bench."""
    found = json.loads((MEASURED / f"{settings.measured}.json").read_text(encoding="utf-8"))
    ways: dict[str, list[dict[str, Any]]] = {}
    for one in found["runs"]:
        name = f"{one['workers']} x {100 * one['share']:g}" if one["mode"] == "mps" else str(one["mode"])
        ways.setdefault(name, []).append(one)
    chosen = {"exclusive": ways["exclusive"], "time-slice": ways["time-sliced"], "mps": ways[settings.measured_mps]}
    rows = {
        mode: (statistics.fmean(r["makespan_s"] for r in runs), statistics.fmean(r["mean_w"] for r in runs))
        for mode, runs in chosen.items()
    }
    jobs = settings.paper.jobs
    return Bench("1 × H200, measured", jobs, rows["exclusive"][0] / jobs, 1, settings.paper.slots, rows)


def fit(bench: Bench, part: float, switch_loss: float) -> Fitted:
    """Duty from the time under slices, and the line of watts through the first two rows."""
    batches = bench.jobs / bench.devices / bench.slots
    stretch = bench.published["time-slice"][0] / batches / bench.job_s
    # From slots · duty · (1 + loss) = stretch, as time slices work in the simulator.
    duty = min(1.0, stretch / bench.slots / (1.0 + switch_loss))
    alone_w, turns_w = (bench.published[mode][1] / bench.devices for mode in MODES[:2])
    # Two points of the line: a job alone, and turns that keep the device busy all the time.
    slope = (turns_w - alone_w) / (part - duty * part)
    idle_w = alone_w - slope * duty * part
    return Fitted(duty, idle_w, idle_w + slope)


def variant(fitted: Fitted, part: float, mode: str, slots: int) -> Variant:
    """A job alone, or capped at its share under MPS."""
    if mode != "mps":
        return Variant("gpu", 1, 0, "gpu", 1, part, device_duty=fitted.duty)
    share = 1.0 / slots
    # Capped at its share a kernel takes longer by what it lacks.
    kernels = fitted.duty * max(1.0, part / share)
    factor = 1.0 - fitted.duty + kernels
    return Variant("gpu", 1, 0, "gpu", 1, min(part, share), runtime_factor=factor, device_duty=kernels / factor)


def simulated(bench: Bench, fitted: Fitted, part: float, switch_loss: float, mode: str) -> Row:
    """Makespan and mean watts of the devices."""
    power = DeviceProfile((0.0, 1.0), (fitted.idle_w, fitted.full_w))
    slots = bench.slots if mode == "time-slice" else 1
    device = Device("gpu", sharing=mode, slots=slots, power=power, switch_loss=switch_loss)
    # No watts of its own: the published ones are those of the devices.
    host = Node("host", 128, 1 << 40, power=PowerProfile((0.0,), (0.0,)), devices=(device,) * bench.devices)
    work = Workload.of_columns(
        "forty",
        release_s=np.zeros(bench.jobs),
        runtime_s=np.full(bench.jobs, bench.job_s),
        shapes=(Shape(0, (variant(fitted, part, mode, bench.slots),)),),
        functions=(Function("job"),),
    )
    done = simulate(work, Cluster("bench", (host,)), registry.load("fifo"))
    return done.makespan_s, done.total_j / done.makespan_s


def _cells(bench: Bench, part: float, fitted: Fitted, mode: str, ours: Row) -> tuple[str, ...]:
    known = bench.published[mode]
    return (
        f"{part:g}, {LABELS[mode]}",
        f"{fitted.duty:.3f}",
        f"{ours[0]:.0f}",
        f"{known[0]:.0f}",
        f"{ours[1]:.0f}",
        f"{known[1]:.0f}",
        f"{ours[0] * ours[1] / 3600:.1f}",
        f"{known[0] * known[1] / 3600:.1f}",
    )


def _figures(bench: Bench, ours: Mapping[str, Row]) -> list[Figure]:
    """The predicted row within 15 % of the known one."""
    name = "h200" if "H200" in bench.name else "a100x"
    pairs = zip(("makespan", "mean_watts"), ("s", "W"), ours["mps"], bench.published["mps"], strict=True)
    return [
        Figure(f"hpe_table2_{name}_mps_{what}", value, unit, f"{goal:.4g}±15%", abs(value / goal - 1.0) <= 0.15)
        for what, unit, value, goal in pairs
    ]
