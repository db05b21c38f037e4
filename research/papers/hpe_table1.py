"""Kind ``hpe_table1``: the HPE paper's CPU experiment, our table beside the published one.

What the paper leaves open is calibrated on the first row only; the other rows are predictions. See docs/experiments.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from research.papers import hpe_beyond, hpe_factorial, hpe_model, hpe_pictures, hpe_readings
from research.papers.findings import Figure, Findings, Picture, Progress, Sheet
from research.papers.hpe_model import Calibration, FirstRow, Jobs, Setting
from wattflow.clusters import load_cluster
from wattflow.files.strict_table import StrictTable, is_number
from wattflow.model.run import Run


@dataclass(frozen=True, slots=True)
class Published:
    """A row of the paper's table."""

    makespan_s: float
    energy_wh: float

    @property
    def mean_w(self) -> float:
        return self.energy_wh * hpe_model.J_PER_WH / self.makespan_s


@dataclass(frozen=True, slots=True)
class Goals:
    """Reductions of energy-aware against default in percent, and the tolerance in points."""

    makespan_saved: float
    energy_saved: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class OtherReadings:
    """Other values of what the first row leaves open."""

    spreads: tuple[float, ...]
    siblings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HpeSettings:
    """The whole file."""

    setting: Setting
    first_row: FirstRow
    published: Mapping[str, Published]
    goals: Goals
    other: OtherReadings
    beyond: hpe_beyond.Beyond
    second: hpe_readings.Reading


def read(table: StrictTable) -> HpeSettings:
    """Settings from the file's table; problems are noted in it."""
    preset, repetitions = table.text("cluster", "hpe"), table.whole("repetitions", 5)
    jobs, first = _sub(table, "jobs"), _sub(table, "first_row")
    published = _read_published(table)
    calibration = _read_calibration(_sub(table, "calibrated"))
    other_table = _sub(table, "other_readings")
    other = OtherReadings(_numbers(other_table, "spreads"), _texts(other_table, "siblings"))
    nodes = len(load_cluster(preset).nodes)
    for where, siblings in (("calibrated", calibration.siblings), ("other_readings", other.siblings)):
        if len(siblings) != nodes:
            table.problem(where, f"needs one sibling for each of the {nodes} nodes, not {len(siblings)}")
    setting = Setting(
        preset,
        Jobs(jobs.whole("count"), first.whole("starting"), jobs.number("cores"), jobs.size("memory")),
        calibration,
        repetitions,
    )
    default = published.get("default", Published(1.0, 1.0))
    row = FirstRow(default.makespan_s, default.energy_wh, first.duration("mark"), first.duration("mark_window"))
    goals = _sub(table, "goals")
    wanted = Goals(goals.number("makespan_saved"), goals.number("energy_saved"), goals.number("tolerance"))
    beyond_table = _sub(table, "beyond")
    beyond = hpe_beyond.read(beyond_table)
    second_table = _sub(table, "second_reading")
    second = hpe_readings.read(second_table)
    # Every table is asked for keys that nobody read, so that a typing error is not passed over.
    for each in (jobs, first, goals, other_table, beyond_table, second_table):
        each.finish()
    return HpeSettings(setting, row, published, wanted, other, beyond, second)


def run(settings: HpeSettings, progress: Progress) -> Findings:
    """All rows, the factorial, the sensitivity and what our policy saves beyond."""
    setting = settings.setting
    cluster = hpe_model.testbed(setting)
    runs: dict[str, list[Run]] = {}
    for number, (row, policy) in enumerate(hpe_model.schedulers().items()):
        progress(0.1 * number, row)
        runs[row] = hpe_model.repeat(setting, cluster, policy)
    # Means over repetitions; runs themselves are kept for pictures.
    ours = {row: _measured(each) for row, each in runs.items()}
    progress(0.3, "factorial")
    corners = hpe_factorial.corners(setting)
    progress(0.5, "other calibrations")
    others = _other_calibrations(settings)
    progress(0.6, "the second reading of the testbed")
    second = hpe_readings.measure(settings.second, setting, settings.first_row)
    pairs = {row: (each.makespan_s, each.energy_wh) for row, each in ours.items()}
    theirs = {row: (each.makespan_s, each.energy_wh) for row, each in settings.published.items()}
    progress(0.8, "our policy on a cluster that sleeps")
    beyond = hpe_beyond.measure(settings.beyond, setting)
    sheets = (
        hpe_readings.sheet(second, pairs, theirs),
        _table_sheet(ours, settings.published),
        _factorial_sheet(corners, "4 × 48"),
        _shares_sheet(corners),
        _factorial_sheet(second.corners, "2 × 96"),
        _shares_sheet(second.corners),
        _others_sheet(others, settings),
        hpe_readings.other_sheet(second),
        hpe_readings.bent_sheet(second),
        hpe_beyond.sheet(settings.beyond, beyond),
    )
    results: dict[str, object] = {
        "ours": {row: {"makespan_s": each.makespan_s, "energy_wh": each.energy_wh} for row, each in ours.items()},
        "published": {
            row: {"makespan_s": each.makespan_s, "energy_wh": each.energy_wh}
            for row, each in settings.published.items()
        },
        "started_at_once": {row: _started(each) for row, each in runs.items()},
        "stretch_p50_max": {row: _stretch(each) for row, each in runs.items()},
        "factorial": {str(corner): [each.makespan_s, each.energy_wh] for corner, each in corners.items()},
        "other_calibrations": {name: [each.makespan_s, each.energy_wh] for name, each in others.items()},
        "beyond": hpe_beyond.as_map(beyond),
        "second_reading": hpe_readings.as_map(second),
    }
    figures = (
        # Figures of the first reading, of the second, and beyond the paper.
        *_figures(ours, settings),
        *hpe_readings.figures(second, theirs),
        *hpe_beyond.figures(settings.beyond, beyond),
    )
    notes = (*_notes(ours, runs, settings), _identified(others, settings), hpe_readings.note(settings.second))
    return Findings(sheets, figures, results, notes, _pictures(runs, ours, settings))


def reduction(before: float, after: float) -> float:
    """Percent saved."""
    return 100.0 * (before - after) / before


def _measured(runs: list[Run]) -> Published:
    joules = hpe_model.mean(runs, lambda run: run.total_j)
    return Published(hpe_model.mean(runs, lambda run: run.makespan_s), joules / hpe_model.J_PER_WH)


def _started(runs: list[Run]) -> float:
    return hpe_model.mean(runs, lambda run: float((run.start_s_by_task() == 0.0).sum()))


def _stretch(runs: list[Run]) -> list[float]:
    values = np.concatenate([hpe_pictures.stretch(run) for run in runs])
    return [float(np.median(values)), float(values.max())]


def _other_calibrations(settings: HpeSettings) -> dict[str, Published]:
    """Energy-aware under other readings of what the first row leaves open, each fitted to the first row again."""
    setting, chosen = settings.setting, settings.setting.calibration
    readings: dict[str, tuple[tuple[str, ...], float]] = {
        f"{what}, spread {100 * spread:.2g} %": (siblings, spread)
        for what, siblings in (("siblings as calibrated", chosen.siblings), ("other siblings", settings.other.siblings))
        for spread in sorted({chosen.spread, *settings.other.spreads})
    }
    found: dict[str, Published] = {}
    for name, (siblings, spread) in readings.items():
        tried = replace(setting, calibration=replace(chosen, siblings=siblings))
        # Fitted again: each of them reproduces the first row, so that only what it leaves open differs.
        tried = replace(tried, calibration=hpe_model.fit(tried, settings.first_row, spread))
        runs = hpe_model.repeat(tried, hpe_model.testbed(tried), hpe_model.schedulers()["energy_aware"])
        found[name] = _measured(runs)
    return found


def _figures(ours: Mapping[str, Published], settings: HpeSettings) -> list[Figure]:
    goals, first = settings.goals, settings.first_row
    default, no_request, aware = (ours[row] for row in hpe_model.ROWS)
    theirs = settings.published
    saved_s = reduction(default.makespan_s, aware.makespan_s)
    saved_wh = reduction(default.energy_wh, aware.energy_wh)
    beyond_s = reduction(no_request.makespan_s, aware.makespan_s)
    beyond_wh = reduction(no_request.energy_wh, aware.energy_wh)
    # Rounded as the paper prints them.
    published_s = round(reduction(theirs["no_request"].makespan_s, theirs["energy_aware"].makespan_s), 1)
    published_wh = round(reduction(theirs["no_request"].energy_wh, theirs["energy_aware"].energy_wh), 1)
    wanted = (
        ("hpe_makespan_saved", saved_s, goals.makespan_saved),
        ("hpe_energy_saved", saved_wh, goals.energy_saved),
        ("hpe_makespan_saved_against_no_request", beyond_s, published_s),
        ("hpe_energy_saved_against_no_request", beyond_wh, published_wh),
    )
    return [
        Figure("hpe_first_row_makespan", default.makespan_s, "s", f"{first.makespan_s:g}±1%",
               abs(default.makespan_s / first.makespan_s - 1.0) <= 0.01),
        Figure("hpe_first_row_energy", default.energy_wh, "Wh", f"{first.energy_wh:g}±1%",
               abs(default.energy_wh / first.energy_wh - 1.0) <= 0.01),
        *(Figure(name, value, "%", f"{goal:g}±{goals.tolerance:g}", abs(value - goal) <= goals.tolerance)
          for name, value, goal in wanted),
    ]  # fmt: skip


def _table_sheet(ours: Mapping[str, Published], theirs: Mapping[str, Published]) -> Sheet:
    rows = []
    for row in hpe_model.ROWS:
        mine, published = ours[row], theirs[row]
        rows.append(
            (
                hpe_pictures.LABELS[row] + (" (calibrated)" if row == "default" else ""),
                f"{mine.makespan_s:.0f}",
                f"{published.makespan_s:.0f}",
                f"{mine.energy_wh:.2f}",
                f"{published.energy_wh:.2f}",
                f"{mine.mean_w:.0f}",
                f"{published.mean_w:.0f}",
                f"{reduction(ours['default'].makespan_s, mine.makespan_s):.1f}",
                f"{reduction(theirs['default'].makespan_s, published.makespan_s):.1f}",
                f"{reduction(ours['default'].energy_wh, mine.energy_wh):.1f}",
                f"{reduction(theirs['default'].energy_wh, published.energy_wh):.1f}",
            )
        )
    columns = (
        "scheduler", "makespan s", "published", "energy Wh", "published", "mean W", "published",
        "makespan saved %", "published", "energy saved %", "published",
    )  # fmt: skip
    return Sheet("table I: ours (simulated, mean of the repetitions) beside the published one", columns, tuple(rows))


def _factorial_sheet(corners: Mapping[hpe_factorial.Corner, hpe_factorial.Effect], reading: str) -> Sheet:
    rows = tuple(
        (
            *(hpe_factorial.LEVELS[name][level] for name, level in zip(hpe_factorial.FACTORS, corner, strict=True)),
            f"{each.makespan_s:.0f}",
            f"{each.energy_wh:.2f}",
        )
        for corner, each in corners.items()
    )
    return Sheet(f"factorial, {reading}", ("guarantee", "curves known", "placement", "makespan s", "energy Wh"), rows)


def _shares_sheet(corners: Mapping[hpe_factorial.Corner, hpe_factorial.Effect]) -> Sheet:
    whole = corners[0, 0, 0]
    rows = tuple(
        (
            name,
            f"{part.makespan_s:+.1f}",
            f"{100 * part.makespan_s / whole.makespan_s:+.1f}",
            f"{part.energy_wh:+.2f}",
            f"{100 * part.energy_wh / whole.energy_wh:+.1f}",
        )
        for name, part in hpe_factorial.shares(corners).items()
    )
    columns = ("factor", "seconds saved", "% of default", "Wh saved", "% of default")
    return Sheet("what the saving is made of (each factor's mean step; they sum to the whole)", columns, rows)


def _saved(each: Published, settings: HpeSettings) -> tuple[float, float]:
    """Percent of makespan and of energy against the first row, which every calibration reproduces."""
    first = settings.first_row
    # Against the published row, which all of them meet.
    return reduction(first.makespan_s, each.makespan_s), reduction(first.energy_wh, each.energy_wh)


def _others_sheet(others: Mapping[str, Published], settings: HpeSettings) -> Sheet:
    rows = tuple(
        (name, f"{each.makespan_s:.0f}", f"{each.energy_wh:.2f}", *(f"{cut:.1f}" for cut in _saved(each, settings)))
        for name, each in others.items()
    )
    title = "energy-aware under other calibrations that reproduce the first row just as well"
    return Sheet(title, ("calibration", "makespan s", "energy Wh", "makespan saved %", "energy saved %"), rows)


def _identified(others: Mapping[str, Published], settings: HpeSettings) -> str:
    """How far the first row settles the others."""
    goals = settings.goals
    cuts = [_saved(each, settings) for each in others.values()]
    seconds, joules = [cut[0] for cut in cuts], [cut[1] for cut in cuts]
    good = sum(
        abs(cut[0] - goals.makespan_saved) <= goals.tolerance and abs(cut[1] - goals.energy_saved) <= goals.tolerance
        for cut in cuts
    )
    return (
        f"the first row does not settle the others: over {len(cuts)} calibrations that all reproduce it, energy-aware "
        f"saves {min(seconds):.1f} to {max(seconds):.1f} % makespan and {min(joules):.1f} to {max(joules):.1f} % "
        f"energy; {good} of them meet both goals; so a figure that is ok says compatible, not predicted"
    )


def _notes(ours: Mapping[str, Published], runs: Mapping[str, list[Run]], settings: HpeSettings) -> tuple[str, ...]:
    c, theirs = settings.setting.calibration, settings.published
    gap_w = (theirs["default"].energy_wh - theirs["energy_aware"].energy_wh) * hpe_model.J_PER_WH
    gap_w /= theirs["default"].makespan_s - theirs["energy_aware"].makespan_s
    gain_s = reduction(ours["no_request"].makespan_s, ours["energy_aware"].makespan_s)
    gain_wh = reduction(ours["no_request"].energy_wh, ours["energy_aware"].energy_wh)
    their_s = reduction(theirs["no_request"].makespan_s, theirs["energy_aware"].makespan_s)
    their_wh = reduction(theirs["no_request"].energy_wh, theirs["energy_aware"].energy_wh)
    started = ", ".join(f"{hpe_pictures.LABELS[row]} {_started(each):.0f}" for row, each in runs.items())
    return (
        f"calibrated on the first row only: jobs of {c.long_s:g} s, those submitted last of {c.short_s:g} s, "
        f"spread {100 * c.spread:.2g} %, watts above idle × {c.watts_scale:g}",
        f"jobs that start at once: {started}",
        f"energy-aware against no requests: the paper saves {their_s:.1f} % makespan and {their_wh:.1f} % energy; with "
        f"equally fast nodes the model gives {gain_s:.1f} % and {gain_wh:.1f} %, so it explains none of it: an even "
        "spread then shares the fewest cores and cannot lose to packing",
        f"between its first and last row the paper saves {gap_w:.0f} J for each second of makespan, more than its mean "
        f"watts ({theirs['default'].mean_w:.0f}): with the same work on equally busy nodes no idle watts explain that",
    )


def _pictures(
    runs: Mapping[str, list[Run]], ours: Mapping[str, Published], settings: HpeSettings
) -> Mapping[str, Picture]:
    first = {row: each[0] for row, each in runs.items()}
    theirs = settings.published
    published = {row: (each.makespan_s, each.mean_w) for row, each in theirs.items()}
    names, mine, published_cut = [], [], []
    for row, base in (("no_request", "default"), ("energy_aware", "default"), ("energy_aware", "no_request")):
        for what in ("makespan_s", "energy_wh"):
            names.append(f"{row}\nagainst {base}:\n{what.split('_')[0]}".replace("_", " "))
            mine.append(reduction(getattr(ours[base], what), getattr(ours[row], what)))
            published_cut.append(reduction(getattr(theirs[base], what), getattr(theirs[row], what)))
    return {
        "watts": partial(hpe_pictures.draw_watts, first, published),
        "stretch": partial(hpe_pictures.draw_stretch, first),
        "savings": partial(hpe_pictures.draw_savings, names, mine, published_cut),
    }


def _sub(table: StrictTable, key: str) -> StrictTable:
    value = table.value(key)
    if not isinstance(value, dict):
        table.problem("", f"needs a table [{key}]")
        value = {}
    return StrictTable(value, table.place(key), table.problems)


def _read_published(table: StrictTable) -> dict[str, Published]:
    rows = table.value("published")
    published: dict[str, Published] = {}
    for number, data in enumerate(rows if isinstance(rows, list) else []):
        row = StrictTable(data, f"published[{number}]", table.problems)
        published[row.choice("row", hpe_model.ROWS, "default")] = Published(
            row.number("makespan_s"), row.number("energy_wh")
        )
        row.finish()
    # Each row once and none else.
    if sorted(published) != sorted(hpe_model.ROWS):
        table.problem("published", f"needs the rows {', '.join(hpe_model.ROWS)}")
    return published


def _read_calibration(table: StrictTable) -> Calibration:
    found = Calibration(
        table.number("long_s"),
        table.number("short_s"),
        table.number("spread"),
        table.number("watts_scale"),
        _texts(table, "siblings"),
    )
    table.finish()
    return found


def _texts(table: StrictTable, key: str) -> tuple[str, ...]:
    values = table.value(key)
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return tuple(values)
    table.problem(key, "must be a list of texts")
    return ()


def _numbers(table: StrictTable, key: str) -> tuple[float, ...]:
    values = table.value(key)
    if isinstance(values, list) and all(is_number(value) for value in values):
        return tuple(float(value) for value in values)
    table.problem(key, "must be a list of numbers")
    return ()
