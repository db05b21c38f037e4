"""Kind ``learned``: the learned policy, and the rehearsed one, against their opponents on what they have not seen.

Every application is judged with the weights of the fold that held it out. See docs/learned.md for what each figure is.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.files.strict_table import StrictTable
from wattflow.lab.experiments import learned_rivals, learned_searches
from wattflow.lab.experiments.learned_rivals import Table, compare, keeps
from wattflow.lab.experiments.outcome import Figure, Outcome, Progress, Sheet
from wattflow.learn import curves, evaluate, hindsight, own_folder, paired, parts, portfolio
from wattflow.learn.evaluate import FLAGSHIP, NETWORK, OURS, PORTFOLIO, REHEARSED, SWEEP, Place, Plan, Row
from wattflow.learn.hindsight import Searched
from wattflow.learn.paired import Paired

GATES = {0.3: 35.0, 0.6: 20.0, 0.8: 12.0}
"""Per cent of joules below `kubernetes` with all nodes on, by load."""
AGAINST = {PORTFOLIO: 3.0, SWEEP: 5.0, FLAGSHIP: 0.0}
POLICIES_S, SWEEP_S, RIVALS_S, SEARCHES_S, COMPILE_S = 6.0, 2.5, 3.0, 12.0, 90.0
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
        + "".join(f"\n{note}" for note in folder_notes(todo))
    )


def run(settings: LearnedSettings, progress: Progress) -> Outcome:
    """Judge every scenario and compare."""
    started = time.perf_counter()
    todo, plan = places(settings), settings.plan
    jobs: dict[str, tuple[str, Place, Plan]] = {}
    if settings.searches and learned_searches.available():
        jobs |= {f"searches {place.name}": ("searches", place, plan) for place in hindsight.places(todo)}
    jobs |= {f"policies {place.name}": ("policies", place, plan) for place in todo}
    if settings.rivals and learned_rivals.available():
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
    rows = evaluate.judge((place, plan)) if kind == "policies" else learned_rivals.judged(place, plan)
    return [evaluate.as_data(row) for row in rows]


def _folder(settings: LearnedSettings) -> Path | None:
    """Where parts are kept: by all that they depend on."""
    if not settings.kept:
        return None
    files = sorted(Path(settings.folder).rglob("*.json*")) if settings.folder else []
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return Path(settings.kept) / parts.mark(settings.plan, stats)


def places(settings: LearnedSettings) -> list[Place]:
    """Applications × clusters × loads."""
    clusters = (*settings.clusters, *(f"random-{i}" for i in range(settings.random_clusters)))
    if not settings.folder:
        return evaluate.places(evaluate.held_out(), clusters, settings.loads)
    names = own_folder.applications(settings.folder)
    return [Place(name, -1, load, c, settings.folder) for name in names for c in clusters for load in settings.loads]


def outcome(rows: Sequence[Row], seconds: float, searched: Sequence[Searched] = ()) -> Outcome:
    """Tables, figures, raw results and the learning curves."""
    table: Table = {(row.place, row.policy): row for row in rows}
    there = list(dict.fromkeys(row.place for row in rows))
    names = [name for name in (portfolio.BASELINE, *AGAINST) if (there[0], name) in table]
    ours = [name for name in (REHEARSED, OURS, NETWORK) if (there[0], name) in table]
    sheets: list[Sheet] = []
    made: list[Figure] = []
    for mine in ours:
        found = {name: compare(table, there, name, mine) for name in names}
        kept = [p for p in there if keeps(table, p, mine)]
        both = {
            name: compare(table, [p for p in kept if keeps(table, p, name)], name, mine)
            for name in names
            if any(keeps(table, p, name) for p in kept)
        }
        corrected = paired.holm({name: one.p for name, one in found.items()})
        sheets += [against(mine, found, both, corrected), by_cluster(mine, table, there)]
        made += figures(mine, table, there, found, both)
    if not there[0].folder:  # of other workflows' weights there is one training seed
        made += seeds(table, there)
    sheets.append(bounds_kept(table, there, [*ours, *names]))
    rivals = learned_rivals.present(table, there)
    if rivals:
        sheets.append(learned_rivals.sheet(table, there, rivals))
        made += learned_rivals.figures(table, there, rivals)
    if searched:
        sheets += learned_searches.sheets(searched)
        made += learned_searches.figures(searched)
    results = {
        "rows": [evaluate.as_data(row) for row in rows],
        "searches": [hindsight.as_data(one) for one in searched],
        "seconds": seconds,
    }
    pictures = {"curves": curves.draw} if curves.shipped() else {}
    return Outcome(tuple(sheets), tuple(made), results, notes(there), pictures)


def figures(
    ours: str, table: Table, there: Sequence[Place], found: dict[str, Paired], both: dict[str, Paired]
) -> list[Figure]:
    """Every bar for one of ours, those that are missed included."""
    made: list[Figure] = []
    for load in sorted({place.load for place in there}):
        one = compare(table, [place for place in there if place.load == load], portfolio.BASELINE, ours)
        gate = min(GATES.items(), key=lambda item: abs(item[0] - load))[1]
        good = one.percent <= -gate and one.high < 0
        made.append(Figure(f"{ours}_below_kubernetes_load_{load:g}", one.percent, "%", f"≤-{gate:g}", good))
    for name, gate in AGAINST.items():
        if name not in found:
            continue
        for word, where in (("", found), ("_both_within_bound", both)):
            if name in where:
                one = where[name]
                good = one.percent <= -gate and one.high < 0
                label = f"{ours}_against_{name}{word}".replace("-", "_")
                made.append(Figure(label, one.percent, "%", f"≤-{gate:g}", good))
                made.append(Figure(f"{label}_high_end", one.high, "%", "<0", one.high < 0))
    count = len(there)
    within = sum(keeps(table, place, ours) for place in there)
    theirs = sum(keeps(table, place, PORTFOLIO) for place in there)
    missed = sum(evaluate.newly_missed(table[p, ours], table[p, portfolio.PUNCTUAL]) for p in there)
    made.append(Figure(f"{ours}_scenarios_within_bound", within, f"of_{count}", str(count), within == count))
    made.append(Figure(f"{ours}_scenarios_within_bound_beyond_portfolio", within - theirs, "", "≥0", within >= theirs))
    made.append(Figure(f"{ours}_deadlines_newly_missed", missed, "workflows", "0", missed == 0))
    worst = max(worst_of(table, place, ours) for place in there)
    made.append(Figure(f"{ours}_worst_scenario_against_portfolio", worst, "%", "≤2", worst <= 2.0))
    able = [worst_of(table, place, ours) for place in there if keeps(table, place, PORTFOLIO)]
    if able:  # elsewhere the portfolio saves joules by letting people wait
        label = f"{ours}_worst_scenario_where_portfolio_keeps_bound"
        made.append(Figure(label, max(able), "%", "≤2", max(able) <= 2.0))
    return made


def seeds(table: Table, there: Sequence[Place]) -> list[Figure]:
    """How much training seeds differ: each against the portfolio, on all scenarios."""
    names = sorted({name for _, name in table if name.startswith(f"{OURS}-")})
    names = [name for name in names if all((place, name) in table for place in there)]
    each = [compare(table, there, PORTFOLIO, name) for name in names]
    made = [Figure("learned_training_seeds", len(names), "of_5", "5", len(names) >= 5)]
    if each:
        best, poorest = min(each, key=lambda one: one.percent), max(each, key=lambda one: one.percent)
        gate = AGAINST[PORTFOLIO]
        for word, one in (("best", best), ("poorest", poorest)):
            label = f"learned_against_portfolio_{word}_training_seed"
            made.append(Figure(label, one.percent, "%", f"≤-{gate:g}", one.percent <= -gate and one.high < 0))
    return made


def worst_of(table: Table, place: Place, mine: str) -> float:
    """Joules above the portfolio's in one scenario, in per cent."""
    ours, theirs = (portfolio.mean(table[place, name].results).energy_j for name in (mine, PORTFOLIO))
    return 100.0 * (ours / theirs - 1.0)


def against(mine: str, found: dict[str, Paired], both: dict[str, Paired], corrected: dict[str, float]) -> Sheet:
    """Ours beside each opponent."""
    rows = []
    for name, one in found.items():
        within = both[name].text if name in both else "–"
        rows.append((name, one.text, within, f"{one.wins}/{one.ties}/{one.losses}", f"{corrected[name]:.2g}"))
    columns = ("opponent", "joules, % (95 %)", "where both keep the bound", "win/tie/loss", "p (Holm)")
    return Sheet(f"{mine} against", columns, tuple(rows))


def by_cluster(mine: str, table: Table, there: Sequence[Place]) -> Sheet:
    """Against the portfolio, cluster by cluster and load by load."""
    loads = sorted({place.load for place in there})
    rows = []
    for cluster in dict.fromkeys(place.cluster for place in there):
        cells = []
        for load in loads:
            some = [p for p in there if p.cluster == cluster and p.load == load]
            logs = [math.log(1.0 + worst_of(table, place, mine) / 100.0) for place in some]
            cells.append(f"{paired.percent(float(np.mean(logs))):+.1f}")
        rows.append((cluster, *cells))
    return Sheet(
        f"Joules of {mine} against the portfolio, %", ("cluster", *(f"load {load:g}" for load in loads)), tuple(rows)
    )


def bounds_kept(table: Table, there: Sequence[Place], names: Sequence[str]) -> Sheet:
    """How many scenarios each policy keeps the bound in, and whom it makes late."""
    rows = []
    for name in names:
        slower = [evaluate.slower(table[p, name], table[p, portfolio.BASELINE]) for p in there]
        missed = sum(evaluate.newly_missed(table[p, name], table[p, portfolio.PUNCTUAL]) for p in there)
        within = sum(value <= portfolio.BOUND for value in slower)
        rows.append((name, f"{within} of {len(there)}", f"{np.median(slower):.3f}", f"{max(slower):.2f}", str(missed)))
    columns = ("policy", "scenarios within the bound", "median of the worst ratio", "largest", "deadlines newly missed")
    return Sheet("Waiting, beside kubernetes with all nodes on", columns, tuple(rows))


def notes(there: Sequence[Place]) -> tuple[str, ...]:
    """What is to be said of the figures: of applications that were held out, or of somebody's own folder."""
    return (*(folder_notes(there) if there[0].folder else HELD_OUT), *NOTES)


def folder_notes(there: Sequence[Place]) -> list[str]:
    """What is particular to somebody's own workflows: what was left out of them, and what training has seen."""
    folder = there[0].folder
    if not folder:
        return []
    names = list(dict.fromkeys(place.application for place in there))
    made = [
        "Joules are simulated. The weights, the portfolio's setting and those that `rehearsed` tries were chosen on "
        "all of WfInstances, the portfolio's also on the presets among the clusters."
    ]
    seen = own_folder.seen_in_training(folder, names)
    if seen:
        made.append(
            f"Seen in training: {', '.join(seen)} (by the folder's name or a file's, WfInstances). What is said of "
            "them is not said of unseen applications."
        )
    bad = own_folder.left_out(folder, names)
    if bad:
        made.append(f"Left out, {len(bad)} files that hold no workflow: {'; '.join(bad)}")
    return made


HELD_OUT = (
    "Joules are simulated. Each application is judged with weights trained without it and without any of these "
    "clusters; the portfolio's setting was tuned without the application but on the presets among the clusters.",
    "rehearsed: the flagship with dials chosen, when 1, 2, 4, 8, … workflows have arrived, by simulating streams of "
    "these at the usual load, which the portfolio is tuned for too; the settings it tries were chosen without the "
    "application, and the portfolio is tuned over all of them. The constants of its fine were chosen on training "
    "streams of all applications.",
)
NOTES = (
    "Intervals resample applications, their scenarios and their seeds; signed ranks over scenarios, corrected by Holm; "
    "a tie is within half a per cent.",
    "Bound: mean and p95 response of workflows and makespan at most 1.02 × kubernetes with all nodes on, means over "
    "seeds. The energy-HEFT sweep is chosen in each scenario with hindsight.",
    "Estimates err as the file says (spread of their logarithm); they stand for predictions.",
)
