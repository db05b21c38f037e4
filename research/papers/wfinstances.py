"""Recorded against simulated makespan: each instance of WfInstances on the machines it was recorded on.

Nothing but the tasks takes time in the simulation, so the recorded makespan is longer by all that a workflow system
does between tasks. What that is made of, a fit for each application says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from research.papers import overheads, recorded_replay
from research.papers.findings import Figure, Findings, Progress, Sheet
from research.papers.recorded_replay import Replay
from wattflow.files.data_folder import data_file
from wattflow.files.strict_table import StrictTable
from wattflow.model.errors import InvalidInput

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Settings of the file."""

    folder: str
    bandwidth_bytes_per_s: float
    slowest_bytes_per_s: float
    fit_from: int


def read(table: StrictTable) -> ReplaySettings:
    """The keys of this kind."""
    settings = ReplaySettings(
        folder=table.text("folder", "wfinstances"),
        bandwidth_bytes_per_s=table.bandwidth("network", 1.25e9),
        slowest_bytes_per_s=table.bandwidth("slowest_link", 1.25e7),
        fit_from=table.whole("fit_from", 4),
    )
    if settings.fit_from < 4:
        table.problem("fit_from", f"must be at least 4, or two terms fit anything; not {settings.fit_from}")
    return settings


def run(settings: ReplaySettings, progress: Progress) -> Findings:
    """Replay every file of the folder."""
    folder = data_file(settings.folder)
    files = sorted(folder.rglob("*.json.gz"))
    started = time.perf_counter()
    found: list[Replay] = []
    for number, path in enumerate(files):
        progress(number / len(files), path.name)
        # Its folder names the application.
        application = path.parent.relative_to(folder).as_posix()
        one = recorded_replay.replay(path, application, settings.bandwidth_bytes_per_s)
        found += [one] if one is not None else []
    if not found:
        raise InvalidInput(str(folder), "holds no WfFormat file (*.json.gz) with a recorded makespan")
    groups = overheads.grouped(found, settings.fit_from)
    fits = {
        name: overheads.fit(some, settings.slowest_bytes_per_s)
        for name, some in groups.items()
        if len(some) >= settings.fit_from
    }
    return outcome(groups, fits, time.perf_counter() - started)


def outcome(groups: dict[str, list[Replay]], fits: dict[str, overheads.Fit], seconds: float) -> Findings:
    """Tables, figures and the picture."""
    found = [one for some in groups.values() for one in some]
    errors = np.array([abs(one.error) for one in found])
    ratios = np.array([one.simulated_s / one.recorded_s for one in found])
    guessed = [
        abs(guess - one.recorded_s) / one.recorded_s
        for name, fit in fits.items()
        for one, guess in zip(groups[name], fit.left_out, strict=True)
    ]
    # Ratios, so that half and twice count alike.
    within = 100.0 * float(np.mean((ratios >= 0.5) & (ratios <= 2.0)))
    figures = [
        Figure("wfinstances_replayed", len(found), "files", "none", True),
        Figure("wfinstances_median_abs_error", 100.0 * float(np.median(errors)), "%", "none", True),
        Figure("wfinstances_within_2x", within, "%", "none", True),
        Figure("wfinstances_s", seconds, "s", "≤60", seconds <= _LIMIT_S),
    ]
    if guessed:
        left = 100.0 * float(np.median(guessed))
        figures.insert(3, Figure("wfinstances_median_abs_error_with_overheads", left, "%", "none", True))
    results = {
        "instances": [asdict(one) | {"error": one.error} for one in found],
        "fits": {name: asdict(fit) for name, fit in fits.items()},
    }
    pictures = {"makespans": lambda path: draw(groups, fits, path)}
    return Findings(sheets(groups, fits), tuple(figures), results, NOTES, pictures)


def sheets(groups: dict[str, list[Replay]], fits: dict[str, overheads.Fit]) -> tuple[Sheet, Sheet]:
    """The error by application, and what it is made of."""
    return (
        Sheet(
            "Simulated against recorded makespan, by application",
            ("application", "files", "recorded s", "simulated s", "error", "from", "to", "with data", "any machine"),
            tuple((name, *_error_row(some)) for name, some in groups.items()),
        ),
        Sheet(
            "What the recorded makespan has besides the tasks",
            ("application", "s per task in chain", "s per task", "s per GB", "|error|", "left out"),
            tuple((name, *_fit_row(groups[name], fit)) for name, fit in fits.items()),
        ),
    )


def _error_row(some: Sequence[Replay]) -> tuple[str, ...]:
    errors = [one.error for one in some]
    data = [(one.data_s - one.recorded_s) / one.recorded_s for one in some]
    free = [(one.free_s - one.recorded_s) / one.recorded_s for one in some]
    return (
        str(len(some)),
        f"{np.median([one.recorded_s for one in some]):,.0f}",
        f"{np.median([one.simulated_s for one in some]):,.0f}",
        *(f"{100 * value:+.0f} %" for value in (np.median(errors), min(errors), max(errors))),
        f"{100 * np.median(data):+.0f} %",
        f"{100 * np.median(free):+.0f} %",
    )


def _fit_row(some: Sequence[Replay], fit: overheads.Fit) -> tuple[str, ...]:
    before = float(np.median([abs(one.error) for one in some]))
    terms = (f"{value:.1f}" if value > 0 else "–" for value in (fit.chain_s, fit.task_s, fit.gb_s))
    return (*terms, f"{100 * before:.0f} %", f"{100 * fit.error:.0f} %")


NOTES = (
    "Errors are (simulated − recorded) / recorded, medians over the files, with the least and the largest. Tasks run "
    "on their recorded machines for their recorded seconds and nothing else takes time; 'with data' moves every file "
    "over the links of the machines, 'any machine' drops the recorded placement.",
    "Recorded = simulated + seconds for each task on the longest chain + seconds for each task, or for each GB that "
    "tasks read, whichever predicts better; 'left out' is the error of predicting an instance from the others.",
    "No file has start times of tasks, so waiting in a queue, staging, submission and polling cannot be told apart.",
)


def draw(groups: dict[str, list[Replay]], fits: dict[str, overheads.Fit], path: Path) -> None:
    """Simulated against recorded, without and with what the fit adds; both axes logarithmic."""
    from wattflow.lab.show.data_frames import new_figure

    figure = new_figure(11.0, 5.0)
    bare, fitted = figure.subplots(1, 2, sharex=True, sharey=True)
    for number, (name, some) in enumerate(groups.items()):
        style = {"marker": "osD^vP*Xh<>"[number % 11], "s": 26, "alpha": 0.75, "color": f"C{number % 10}"}
        recorded = [one.recorded_s for one in some]
        bare.scatter(recorded, [one.simulated_s for one in some], label=name, **style)
        if name in fits:
            fitted.scatter(recorded, fits[name].left_out, **style)
    most = max(one.recorded_s for some in groups.values() for one in some) * 1.5
    least = min(min(one.simulated_s, one.recorded_s) for some in groups.values() for one in some) / 1.5
    # A logarithmic axis cannot begin at 0.
    ends = np.array([max(least, 0.1), most])
    for axes, title in ((bare, "tasks alone"), (fitted, "with overheads fitted to the other instances")):
        axes.plot(ends, ends, color="black", linewidth=0.8)
        axes.fill_between(ends, ends / 2, ends * 2, color="0.92", zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="recorded makespan, s", title=title)
    shortest = min(one.recorded_s for some in groups.values() for one in some)
    bare.set(ylabel="simulated makespan, s", xlim=(shortest / 1.5, most), ylim=tuple(ends))
    figure.legend(loc="outside right center", fontsize=8, title="grey: within 2×")
    figure.savefig(path, dpi=120)
