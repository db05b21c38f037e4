"""Rivals in the scenarios of the evaluation: same workloads, seeds and errors, weights that have not seen the fold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from wattflow.learn.evaluate import Place, Plan, Row, scenario_of
from wattflow.learn.rivals import files, play

NAMES = tuple(files.RIVALS)
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
    one = functools.partial(judge, plan=plan, folder=folder)
    if workers <= 1:
        return _gathered(map(one, todo), todo, progress)
    with ProcessPoolExecutor(workers) as pool:
        return _gathered(pool.map(one, todo), todo, progress)


def _gathered(
    results: Iterable[list[Row]], todo: Sequence[Place], progress: Callable[[float, str], None] | None
) -> list[Row]:
    found: list[Row] = []
    for done, rows in enumerate(results, 1):
        found += rows
        if progress is not None:
            progress(done / len(todo), f"rivals, {todo[done - 1].name}")
    return found
