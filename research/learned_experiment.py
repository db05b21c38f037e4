"""Kind ``learned``: the learned policy, and the shielded one, against their opponents on what they have not seen.

Every application is judged with the weights of the fold that held it out. See docs/learned.md for what each figure is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from research import (
    curves,
    evaluate,
    hindsight,
    own_folder,
    parts,
    portfolio,
    rival_tables,
    search_tables,
    tables_of_ours,
)
from research.evaluate import NETWORK, OURS, SHIELDED, Place, Plan, Row
from research.hindsight import Searched
from research.notes import notes, own_notes
from research.papers import experiment
from research.papers.findings import Figure, Findings, Progress, Sheet
from research.rival_tables import Table
from research.tables_of_ours import AGAINST
from wattflow.clusters import load_cluster
from wattflow.files.strict_table import StrictTable
from wattflow.policy import weights

POLICIES_S, SWEEP_S, RIVALS_S, SEARCHES_S, COMPILE_S = 12.0, 2.0, 1.0, 12.0, 80.0
"""Seconds of one core for a scenario and seed of 600 tasks (searches: for a stream), to tell how long it takes."""


@dataclass(frozen=True, slots=True)
class LearnedSettings:
    """What the file says. ``folder`` names other workflows: a folder with one for each application; ``rivals``: whether
    the literature's and the distilled rule are judged too; ``searches``: whether annealing and NSGA-II are shown;
    ``kept``: a folder for parts as they are done."""

    clusters: tuple[str, ...]
    random_clusters: int
    loads: tuple[float, ...]
    plan: Plan
    workers: int
    folder: str
    rivals: bool = True
    searches: bool = True
    kept: str = ""


FILE = Path(__file__).parent / "experiments" / "learned.toml"


def load(workflows: Path | None = None) -> experiment.Experiment:
    """Read the experiment's file; ``workflows`` takes the place of its folder."""
    return experiment.load(str(FILE), workflows)


def read(table: StrictTable) -> LearnedSettings:
    """The keys of this kind."""
    plan = Plan(
        seeds=table.whole("seeds", 2),
        tasks=table.whole("tasks", 600),
        runtime_error=table.number("runtime_error", 0.2),
        power_error=table.number("power_error", 0.1),
        sweep=table.choice("sweep", ("yes", "no"), "yes") == "yes",
        all_seeds=table.choice("all_seeds", ("yes", "no"), "yes") == "yes",
    )
    settings = LearnedSettings(
        clusters=table.texts("clusters"),
        random_clusters=table.whole("random_clusters", 2),
        loads=table.numbers("loads"),
        plan=plan,
        workers=table.whole("workers", 2) or os.cpu_count() or 1,
        folder=table.text("folder", ""),
        rivals=table.choice("rivals", ("yes", "no"), "yes") == "yes",
        searches=table.choice("searches", ("yes", "no"), "yes") == "yes",
    )
    if plan.seeds < 1 or plan.tasks < 1:
        table.problem("seeds", "seeds and tasks must be at least 1")
    if not settings.loads or not all(0 < load <= 1 for load in settings.loads):
        table.problem("loads", f"loads are shares above 0 and at most 1, not {settings.loads}")
    return settings


def kept_in(settings: LearnedSettings, folder: Path) -> LearnedSettings:
    """The same, parts being kept in a folder as they are done: a run that was ended goes on from there."""
    return replace(settings, kept=str(folder))


def expected(settings: LearnedSettings) -> str:
    """How long it will take, roughly."""
    todo, plan = places(settings), settings.plan
    each = POLICIES_S + (SWEEP_S if plan.sweep else 0.0) + (RIVALS_S if settings.rivals else 0.0)
    work = len(todo) * plan.seeds * each * plan.tasks / 600
    work += len(hindsight.places(todo)) * SEARCHES_S if settings.searches else 0.0
    minutes = (COMPILE_S + work / settings.workers) / 60.0
    return (
        f"{len(todo)} scenarios of {plan.seeds} seeds: about {minutes:.0f} minutes with {settings.workers} processes "
        "on cores of their own; parts are kept as they are done, and the same command goes on from them"
        + "".join(f"\n{note}" for note in own_notes(todo))
    )


def run(settings: LearnedSettings, progress: Progress) -> Findings:
    """Judge every scenario and compare."""
    started = time.perf_counter()
    todo, plan = places(settings), settings.plan
    # The longest first, so that at the end no process is left with one of them.
    jobs: dict[str, tuple[str, Place, Plan]] = {}
    jobs |= {f"shielded {place.name}": ("shielded", place, plan) for place in todo}
    if settings.searches and search_tables.available():
        jobs |= {f"searches {place.name}": ("searches", place, plan) for place in hindsight.places(todo)}
    jobs |= {f"policies {place.name}": ("policies", place, plan) for place in todo}
    if settings.rivals and rival_tables.available():
        jobs |= {f"rivals {place.name}": ("rivals", place, plan) for place in todo}
    found = parts.gathered(jobs, part, settings.workers, _folder(settings), progress)
    searched = [hindsight.from_data(one) for name, one in found.items() if name.startswith("searches ")]
    rows = [evaluate.from_data(r) for name, some in found.items() if not name.startswith("searches ") for r in some]
    return outcome(rows, time.perf_counter() - started, searched)


def part(job: tuple[str, Place, Plan]) -> Any:
    """One part: plain data."""
    kind, place, plan = job
    if kind == "searches":
        return hindsight.as_data(hindsight.searched(place))
    if kind == "shielded":
        rows = [evaluate.judge_shielded(place, plan)]
    else:
        rows = evaluate.judge_others(place, plan) if kind == "policies" else rival_tables.judged(place, plan)
    return [evaluate.as_data(row) for row in rows]


def _folder(settings: LearnedSettings) -> Path | None:
    """Where parts are kept: by all that they depend on."""
    if not settings.kept:
        return None
    files = sorted(Path(settings.folder).rglob("*.json*")) if settings.folder else []
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    clusters = [repr(load_cluster(name)) for name in settings.clusters]
    return Path(settings.kept) / parts.mark(settings.plan, stats, clusters, weights.current().tobytes())


def places(settings: LearnedSettings) -> list[Place]:
    """Applications × clusters × loads."""
    clusters = (*settings.clusters, *(f"random-{i}" for i in range(settings.random_clusters)))
    if not settings.folder:
        return evaluate.places(evaluate.held_out(), clusters, settings.loads)
    names = own_folder.applications(settings.folder)
    return [Place(name, -1, load, c, settings.folder) for name in names for c in clusters for load in settings.loads]


def outcome(rows: Sequence[Row], seconds: float, searched: Sequence[Searched] = ()) -> Findings:
    """Tables, figures, raw results and the learning curves."""
    table: Table = {(row.place, row.policy): row for row in rows}
    there = list(dict.fromkeys(row.place for row in rows))
    names = [name for name in (portfolio.BASELINE, *AGAINST) if (there[0], name) in table]
    ours = [name for name in (SHIELDED, OURS, NETWORK) if (there[0], name) in table]
    beside = {mine: tables_of_ours.beside(table, there, mine, names) for mine in ours}
    family = tables_of_ours.corrected(beside)
    sheets: list[Sheet] = []
    made: list[Figure] = []
    for mine, one in beside.items():
        sheets += [tables_of_ours.against(mine, one, family), tables_of_ours.by_cluster(mine, table, there)]
        made += tables_of_ours.figures(mine, table, there, one, family)
    if any(place.fold >= 0 for place in there):
        made += tables_of_ours.seeds(table, there)
        made += tables_of_ours.network_off(table, there)
    sheets.append(tables_of_ours.bounds_kept(table, there, [*ours, *names]))
    rivals = rival_tables.present(table, there)
    if rivals:
        sheets.append(rival_tables.sheet(table, there, rivals))
        made += rival_tables.figures(table, there, rivals)
    if searched:
        sheets += search_tables.sheets(searched)
        made += search_tables.figures(searched)
    results = {
        "rows": [evaluate.as_data(row) for row in rows],
        "searches": [hindsight.as_data(one) for one in searched],
        "seconds": seconds,
    }
    pictures = {"curves": curves.draw} if curves.curves() else {}
    return Findings(tuple(sheets), tuple(made), results, notes(there, bool(searched)), pictures)
