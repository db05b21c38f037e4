"""Profiles a function: runs it at a few levels, chooses the next one by what it learned, keeps the response.

Full clock comes first, then two thirds of it. From then on the next level is the best one, by the curve so far, for one
of three slacks (none, 1.3 ×, any) that was not run yet; then the one whose interval is the widest. Six runs at most.
A document holds the runs, not the curve: a better curve reads old runs.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wattflow.files.reading import small_text
from wattflow.files.whole import write_text
from wattflow.levels.response import LevelRun, Response
from wattflow.model.errors import InvalidInput

VERSION = 1
MOST_RUNS = 6
# 1.02 and not 1: a level whose seconds differ by noise counts as no slower.
SLACKS = (1.02, 1.3, float("inf"))
SETTLED = 0.03
"""Half width of the widest interval, as a part of the value, at which no more runs are needed."""
SECOND = 0.66
Measure = Callable[[float], LevelRun]


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """The runs of one function on one model of device, and where they come from.

    Attributes:
        model: Of the device; a profile is worth nothing on another.
        knob: Kind of level: ``clock_mhz``.
        meter: What counted the joules.
        measured_at: Day, ISO 8601, UTC.
    """

    function: str
    model: str
    knob: str
    idle_w: float
    runs: tuple[LevelRun, ...]
    meter: str
    measured_at: str
    driver: str = ""
    provenance: str = "measured"

    @property
    def response(self) -> Response:
        """Return the curve through the runs."""
        return Response(self.runs, self.idle_w)

    def age_days(self, today: datetime.date | None = None) -> int:
        """Count the days since it was measured."""
        now = today or datetime.datetime.now(datetime.UTC).date()
        return (now - datetime.date.fromisoformat(self.measured_at)).days

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        write_text(path, json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n")


def choose_runs(measure: Measure, levels: Sequence[float], idle_w: float, most: int = MOST_RUNS) -> Response:
    """Run at few levels, each chosen by what the earlier ones tell.

    Args:
        levels: What may be run; the highest is full clock.
    """
    full = max(levels)
    runs = [measure(full)]
    # Ties go to the higher level, which is the safer run.
    second = min(levels, key=lambda level: (abs(level - SECOND * full), -level))
    # A device with one level has nothing else to run.
    if second != full:
        runs.append(measure(second))
    response = Response(runs, idle_w)
    while len(runs) < most and (level := next_level(response, levels)) is not None:
        runs.append(measure(level))
        response = Response(runs, idle_w)
    return response


def next_level(response: Response, levels: Sequence[float]) -> float | None:
    """Choose the level that is worth a run; None when nothing is left to learn."""
    ran = {run.level for run in response.runs}
    # For each slack that a scheduler may have: those are the levels that it will ask for.
    best = [response.best(levels, slack) for slack in SLACKS]
    for level in best:
        if level not in ran:
            return level
    # Below the cheapest level of all nothing is ever chosen; one step beyond it is looked at, in case it is cheaper.
    beyond = max((level for level in levels if level < min(best)), default=min(best))
    left = [level for level in levels if level not in ran and level >= beyond]
    widest = max(left, key=lambda level: (_half_width(response, level), level), default=None)
    return widest if widest is not None and _half_width(response, widest) > SETTLED else None


def _half_width(response: Response, level: float) -> float:
    estimate = response.joules(level)
    return (estimate.high - estimate.low) / (2 * estimate.value)


def read_profile(path: Path, model: str | None = None) -> FunctionProfile:
    """Read a profile.

    Raises:
        InvalidInput: It is none, or one of another model of device than ``model``.
    """
    source = str(path)
    try:
        document = json.loads(small_text(path, "profile of a function"))
        profile = _parse(document, source)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(source, f"is no profile of a function ({type(error).__name__}: {error})") from None
    if model is not None and profile.model != model:
        raise InvalidInput(source, f"was measured on {profile.model!r}, not on {model!r}; measure it there again")
    return profile


def _parse(document: Mapping[str, object], source: str) -> FunctionProfile:
    facts: dict[str, Any] = dict(document)
    if facts.pop("version") != VERSION:
        raise InvalidInput(source, f"has version {document['version']}; this program reads {VERSION}")
    rows = facts.pop("runs")
    assert isinstance(rows, list)
    profile = FunctionProfile(runs=tuple(LevelRun(**row) for row in rows), **facts)
    # Raises on what is no date: the age is asked for later, where nobody would know which file it was.
    datetime.date.fromisoformat(profile.measured_at)
    # Raises on runs that make no curve.
    _ = profile.response
    return profile
