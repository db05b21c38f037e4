"""The second reading of the HPE testbed: two agents of 96 hardware threads, and jobs of one class.

Fitted to the first row as the first reading is, with one job length, one slowdown of full cores and one scale of watts;
the other rows follow, under fair and under pinned sharing of the hardware threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from research.papers import hpe_factorial, hpe_model, hpe_pictures
from research.papers.findings import Figure, Sheet
from research.papers.hpe_model import Calibration, FirstRow, Setting
from wattflow.clusters import load_cluster
from wattflow.files.strict_table import StrictTable
from wattflow.model.run import Run

SHARING = ("fair", "pinned")
VARIANTS = (*SHARING, "pinned, concave")
CROWDED = "no_request_three"
Row = tuple[float, float]
"""Seconds and watt-hours."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The second reading: its preset and calibration, and the spreads that are tried beside it."""

    cluster: str
    calibration: Calibration
    spreads: tuple[float, ...]
    shape: str
    powers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Rows under each sharing, other spreads and curves (fitted again), and the eight corners of the factorial."""

    rows: Mapping[str, Mapping[str, Row]]
    other: Mapping[str, Mapping[str, Row]]
    bent: Mapping[float, Mapping[str, Row]]
    corners: Mapping[hpe_factorial.Corner, hpe_factorial.Effect]


def read(table: StrictTable) -> Reading:
    """Settings from the table ``[second_reading]``."""
    cluster, job_s = table.text("cluster"), table.number("job_s")
    siblings, spreads, powers = table.value("siblings"), table.numbers("spreads"), table.numbers("concave_powers")
    names = tuple(str(name) for name in siblings) if isinstance(siblings, list) else ()
    nodes = len(load_cluster(cluster).nodes)
    if len(names) != nodes:
        table.problem("siblings", f"needs one for each of the {nodes} nodes, not {len(names)}")
    calibration = Calibration(
        job_s, job_s, table.number("spread"), table.number("watts_scale"), names, table.number("smt_slowdown")
    )
    return Reading(cluster, calibration, tuple(spreads), table.text("concave_shape"), tuple(powers))


def setting_of(reading: Reading, first: Setting, sharing: str = "fair") -> Setting:
    """The first reading's jobs and repetitions on the second's nodes."""
    return replace(first, preset=reading.cluster, calibration=replace(reading.calibration, sharing=sharing))


def fit(setting: Setting, row: FirstRow, spread: float) -> Calibration:
    """Job length and slowdown from the mark and the makespan of the first row, then the scale of watts from its energy.

    The waiting jobs start at the mark and run nearly alone: makespan − mark is a job's length, and mark over length the
    slowdown of 95 jobs on 48 cores. A few rounds of simulation settle what the spread changes.
    """
    # Waiting jobs run nearly alone, so the first guess is close.
    length_s = row.makespan_s - row.mark_s
    fitted = replace(
        setting.calibration, long_s=length_s, short_s=length_s, spread=spread, smt_slowdown=row.mark_s / length_s
    )
    # Each round corrects length and slowdown by what the simulation shows; six are more than enough.
    for _ in range(6):
        runs = _rows(replace(setting, calibration=fitted), ("default",))["default"]
        starts = np.concatenate([run.start_s_by_task() for run in runs])
        # Those that started at once say nothing of the mark.
        start_s = float(starts[starts > 0].mean())
        rest_s = hpe_model.mean(runs, lambda run: run.makespan_s) - start_s
        longer = (row.makespan_s - row.mark_s) / rest_s
        assert fitted.smt_slowdown is not None
        fitted = replace(
            fitted,
            long_s=fitted.long_s * longer,
            short_s=fitted.short_s * longer,
            # Never quicker with threads shared than alone.
            smt_slowdown=max(1.0, fitted.smt_slowdown * row.mark_s / start_s / longer),
        )
    energy = []
    for scale in (0.0, 1.0):
        runs = _rows(replace(setting, calibration=replace(fitted, watts_scale=scale)), ("default",))["default"]
        energy.append(hpe_model.mean(runs, lambda run: run.total_j) / hpe_model.J_PER_WH)
    return replace(fitted, watts_scale=(row.energy_wh - energy[0]) / (energy[1] - energy[0]))


def measure(reading: Reading, first: Setting, row: FirstRow) -> Found:
    """All rows under both sharings, the same with other spreads, and the factorial under fair sharing."""
    rows = {sharing: _measured(setting_of(reading, first, sharing)) for sharing in SHARING}
    rows["pinned, concave"] = _measured(concave(reading, first, row, reading.shape))
    other = {}
    for spread in reading.spreads:
        base = setting_of(reading, first)
        fitted = fit(base, row, spread)
        for sharing in SHARING:
            tried = replace(base, calibration=replace(fitted, sharing=sharing))
            other[f"{sharing}, spread {100 * spread:.2g} %"] = _measured(tried)
    bent = {p: _bent_rows(concave(reading, first, row, f"{hpe_model.POWER}{p:g}")) for p in reading.powers}
    return Found(rows, other, bent, hpe_factorial.corners(setting_of(reading, first)))


def concave(reading: Reading, first: Setting, row: FirstRow, shape: str) -> Setting:
    """Pinned sharing with another curve of watts, its scale fitted to the first row again."""
    bent = setting_of(reading, first)
    bent = replace(bent, calibration=replace(bent.calibration, shape=shape))
    fitted = fit(bent, row, reading.calibration.spread)
    return replace(bent, calibration=replace(fitted, sharing="pinned"))


def _bent_rows(setting: Setting) -> dict[str, Row]:
    """All rows, and the repetitions without requests in which some thread had three jobs: the longest."""
    runs = _rows(setting, ("no_request",))["no_request"]
    longest_s = max(run.makespan_s for run in runs)
    # Within a second of the longest: those in which some thread had three jobs.
    crowded = [run for run in runs if run.makespan_s > longest_s - 1.0]
    joules = hpe_model.mean(crowded, lambda run: run.total_j)
    return {**_measured(setting), CROWDED: (longest_s, joules / hpe_model.J_PER_WH)}


def _rows(setting: Setting, names: tuple[str, ...] = hpe_model.ROWS) -> dict[str, list[Run]]:
    cluster, policies = hpe_model.testbed(setting), hpe_model.schedulers()
    return {name: hpe_model.repeat(setting, cluster, policies[name]) for name in names}


def _measured(setting: Setting) -> dict[str, Row]:
    return {
        name: (
            hpe_model.mean(runs, lambda run: run.makespan_s),
            hpe_model.mean(runs, lambda run: run.total_j) / hpe_model.J_PER_WH,
        )
        for name, runs in _rows(setting).items()
    }


def sheet(found: Found, ours: Mapping[str, Row], published: Mapping[str, Row]) -> Sheet:
    """Both readings side by side."""
    cells = []
    for row in hpe_model.ROWS:
        pairs = (published[row], ours[row], *(found.rows[name][row] for name in VARIANTS))
        label = hpe_pictures.LABELS[row] + (" (calibrated)" if row == "default" else "")
        cells.append((label, *(f"{seconds:.0f} s, {joules:.2f} Wh" for seconds, joules in pairs)))
    columns = ("scheduler", "published", "4 × 48, fair", *(f"2 × 96, {name}" for name in VARIANTS))
    return Sheet("two readings of the testbed, each calibrated on the first row only", columns, tuple(cells))


def other_sheet(found: Found) -> Sheet:
    """The second reading with other spreads of the job length, each fitted to the first row again."""
    rows = tuple(
        (name, *(f"{each[row][0]:.0f} s, {each[row][1]:.2f} Wh" for row in hpe_model.ROWS))
        for name, each in found.other.items()
    )
    labels = tuple(hpe_pictures.LABELS[row] for row in hpe_model.ROWS)
    return Sheet("2 × 96 under other spreads, fitted again", ("calibration", *labels), rows)


def bent_sheet(found: Found) -> Sheet:
    """The second reading, pinned, with curves that bend more and more, each fitted to the first row again."""
    rows = tuple(
        (f"share^{power:g}", *(f"{each[row][0]:.0f} s, {each[row][1]:.2f} Wh" for row in (*hpe_model.ROWS, CROWDED)))
        for power, each in found.bent.items()
    )
    labels = (*(hpe_pictures.LABELS[row] for row in hpe_model.ROWS), "no requests, three on a thread")
    return Sheet("2 × 96, pinned: watts above idle by the share of busy threads", ("curve", *labels), rows)


def figures(found: Found, published: Mapping[str, Row]) -> list[Figure]:
    """The rows that were not calibrated, against the published ones, within 5 %."""
    made = []
    for variant in VARIANTS:
        # The first row is calibrated, not predicted.
        for row in hpe_model.ROWS[1:]:
            for i, (what, unit) in enumerate((("makespan", "s"), ("energy", "Wh"))):
                value, goal = found.rows[variant][row][i], published[row][i]
                name = f"hpe_2x96_{variant.replace(', ', '_')}_{row}_{what}"
                made.append(Figure(name, value, unit, f"{goal:g}±5%", abs(value / goal - 1.0) <= 0.05))
    return made


def note(reading: Reading) -> str:
    """Describe the second reading: its calibration, and the evidence against it."""
    c = reading.calibration
    return (
        f"second reading ({reading.cluster}): one class of jobs of {c.long_s:g} s, {c.smt_slowdown:g} times as long "
        f"with all threads busy, watts above idle × {c.watts_scale:g}; against it speak that the paper's figure 7 "
        "shows a slowdown of about 1.5, and that Kubernetes admits 110 pods to a node by default, fewer than 118"
    )


def as_map(found: Found) -> dict[str, object]:
    """For JSON."""
    return {
        "rows": {sharing: {row: list(pair) for row, pair in rows.items()} for sharing, rows in found.rows.items()},
        "other": {name: {row: list(pair) for row, pair in rows.items()} for name, rows in found.other.items()},
        "bent": {f"{power:g}": {row: list(pair) for row, pair in rows.items()} for power, rows in found.bent.items()},
        "factorial": {str(corner): [each.makespan_s, each.energy_wh] for corner, each in found.corners.items()},
    }
