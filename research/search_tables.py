"""Annealing and NSGA-II in the tables of kind ``learned``: the whole stream known beforehand, equal wall time."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from research import paired
from research.evaluate import PORTFOLIO, SHIELDED
from research.hindsight import ANNEALING, NSGA2, POLICIES, Searched
from research.papers.findings import Figure, Sheet
from research.portfolio import BASELINE, BOUND
from wattflow.plan.measured import slower

_log = logging.getLogger(__name__)


def available() -> bool:
    """Whether NSGA-II is there."""
    if find_spec("pymoo") is None:
        _log.warning("annealing and NSGA-II are not shown: pip install 'wattflow[plan]'")
        return False
    return True


def against(found: Sequence[Searched], name: str) -> float:
    """Per cent of joules beyond the portfolio's, geometric mean."""
    logs = [math.log(one.results[name].energy_j / one.results[PORTFOLIO].energy_j) for one in found]
    return paired.percent(float(np.mean(logs)))


def sheets(found: Sequence[Searched]) -> list[Sheet]:
    """Joules, waiting and seconds of each; both fronts."""
    rows = []
    for name in (*POLICIES, ANNEALING, NSGA2):
        ratios = [slower(one.results[name], one.results[BASELINE]) for one in found]
        kept = sum(ratio <= BOUND for ratio in ratios)
        took = [one.seconds[name] for one in found if name in one.seconds]
        seconds = f"{np.median([s.search for s in took]):.2f} / {np.median([s.all for s in took]):.2f}" if took else "–"
        joules = "–" if name == PORTFOLIO else f"{against(found, name):+.1f}"
        rows.append((name, joules, f"{kept} of {len(found)}", f"{np.median(ratios):.3f}", seconds))
    columns = (
        "policy or search", "joules against the portfolio, %", "within the bound", "median of the worst ratio",
        "seconds: search / all (medians)",
    )  # fmt: skip
    tasks = sorted(one.tasks for one in found)
    title = (
        f"Beside searches that know the whole stream beforehand ({len(found)} streams of {tasks[0]}–{tasks[-1]} tasks, "
        "estimates true)"
    )
    return [Sheet(title, columns, tuple(rows)), fronts_sheet(found)]


def fronts_sheet(found: Sequence[Searched]) -> Sheet:
    """Hypervolumes of mean response and joules."""
    rows = []
    for told, each in (
        ("our dials' seconds", [one.equal for one in found]),
        (f"{SHIELDED}'s seconds", [one.longer for one in found]),
    ):
        ratio = np.array([f.ours / f.theirs for f in each])
        rows.append(
            (
                told,
                f"{np.median(ratio):.3f}",
                f"{(ratio >= 1.0).sum()} of {len(each)}",
                f"{np.median([f.points for f in each]):.0f}",
                f"{np.median([f.their_points for f in each]):.0f}",
                f"{np.median([f.seconds for f in each]):.2f}",
                f"{np.median([f.their_seconds for f in each]):.2f}",
            )
        )
    columns = (
        "NSGA-II is given", "hypervolume, ours / NSGA-II's", "ours larger", "our points", "its points", "our seconds",
        "its seconds",
    )  # fmt: skip
    return Sheet("Fronts of mean response and joules: dials of learned beside NSGA-II (medians)", columns, tuple(rows))


def figures(found: Sequence[Searched]) -> list[Figure]:
    """What is shown; only the fronts have a goal."""
    made = [
        Figure(f"{name}_small_streams_against_portfolio", against(found, name), "%", "none", True)
        for name in (*POLICIES, ANNEALING, NSGA2)
        if name != PORTFOLIO
    ]
    for name in (SHIELDED, ANNEALING, NSGA2):
        seconds = float(np.median([one.seconds[name].search for one in found]))
        made.append(Figure(f"{name}_small_streams_seconds", seconds, "s", "none", True))
    for word, each in (("", [one.equal for one in found]), ("_longer", [one.longer for one in found])):
        ratio = float(np.median([f.ours / f.theirs for f in each]))
        made.append(Figure(f"learned_hypervolume_against_nsga2{word}", ratio, "×", "≥1", ratio >= 1.0))
    points = (float(np.median([getattr(one.equal, n) for one in found])) for n in ("points", "their_points"))
    for name, value in zip(("learned", "nsga2"), points, strict=True):
        made.append(Figure(f"{name}_points_of_front", value, "points", "none", True))
    return made
