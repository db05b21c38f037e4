"""Rivals in the scenarios of the evaluation: same workloads, seeds and errors, weights that have not seen the fold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from research import evaluate, parts
from research.evaluate import Place, Plan, Row, scenario_of
from research.rivals import files, play

NAMES = files.RIVALS
"""Policies that are judged here."""


def judge(place: Place, plan: Plan, folder: Path | None = None) -> list[Row]:
    """A row for every rival whose weights are there, in the package or in a folder."""
    scenario = scenario_of(place, plan)
    rows = []
    for name in files.RIVALS:
        path = files.shipped(name, place.fold)
        path = path if folder is None else folder / path.name
        if path.is_file():
            agent = files.load(path)
            found = tuple(play.roll(agent, play.open_stream(agent, scenario, seed)) for seed in range(plan.seeds))
            rows.append(Row(place, name, path.stem, found))
    return rows


def judge_all(
    todo: Sequence[Place],
    plan: Plan,
    workers: int,
    progress: Callable[[float, str], None] | None = None,
    folder: Path | None = None,
) -> list[Row]:
    """Every scenario, several processes at once."""
    make = functools.partial(_judged_data, plan=plan, folder=folder)
    found = parts.gathered({place.name: place for place in todo}, make, workers, progress=progress)
    return [evaluate.from_data(row) for rows in found.values() for row in rows]


def _judged_data(place: Place, plan: Plan, folder: Path | None) -> list[dict[str, Any]]:
    return [evaluate.as_data(row) for row in judge(place, plan, folder)]
