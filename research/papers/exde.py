"""ExDe's designs on the headline trace: central, delegated and hashed placement, without and with stealing.

The paper prints no table for this trace; the percentiles are for a comparison with its authors' simulator. Two readings
of that simulator stand beside the six rows: owners are forgotten after five minutes, and idle slots of the central
design look into two host queues before the global one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research.papers.findings import Figure, Findings, Progress, Sheet
from wattflow.files.strict_table import StrictTable
from wattflow.frames import frame as frames
from wattflow.frames import frame_run, library, workloads
from wattflow.frames.frame import Frame
from wattflow.frames.frame_run import run_frame
from wattflow.model.run import Run

SIX = tuple(f"exde-{name}{end}" for name in ("centralised", "delegated", "hash") for end in ("", "-stealing"))
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
_FORGET_S = 300.0


@dataclass(frozen=True, slots=True)
class ExDeSettings:
    """Settings of the file."""

    tasks: int
    seeds: tuple[int, ...]
    hosts: int


@dataclass(frozen=True, slots=True)
class Tail:
    """One design on all seeds: slowdowns and responses of every task, and what else was counted."""

    name: str
    slowdown: NDArray[np.float64]
    response_s: NDArray[np.float64]
    hits: float
    stolen: float
    energy_mj: float


def read(table: StrictTable) -> ExDeSettings:
    """The keys of this kind."""
    settings = ExDeSettings(
        tasks=table.whole("tasks", 500_000),
        seeds=tuple(int(seed) for seed in table.numbers("seeds")) or (0,),
        hosts=table.whole("hosts", 20),
    )
    if settings.tasks < 1 or settings.hosts < 2:
        table.problem("tasks", "there must be at least 1 task and 2 hosts")
    return settings


def designs() -> dict[str, Frame]:
    """The six, then the other readings of the authors' code."""
    six = {name: library.load_frame(name) for name in SIX}
    others = {}
    # Owners are those of the central and the delegated designs; hashing has none.
    for name in SIX[:4]:
        forgetful = replace(six[name].placers, forget_s=_FORGET_S)
        others[f"{name}, owners forgotten after 5 min"] = replace(six[name], placers=forgetful)
    two_hosts = replace(six["exde-centralised-stealing"], stealing=frames.Stealing(slots=2))
    return six | others | {"exde-centralised-stealing, two host queues first": two_hosts}


def run(settings: ExDeSettings, progress: Progress) -> Findings:
    """Run every design on every seed's trace."""
    chosen = designs()
    started = time.perf_counter()
    runs: dict[str, list[Run]] = {name: [] for name in chosen}
    total, done = len(chosen) * len(settings.seeds), 0
    for seed in settings.seeds:
        # One trace for all designs of a seed: differences between them are paired.
        workload, cluster = workloads.skewed(settings.tasks, seed, settings.hosts)
        for name, frame in chosen.items():
            progress(done / total, name)
            runs[name].append(run_frame(frame, workload, cluster, seed=seed))
            done += 1
    tails = [_tail(name, some) for name, some in runs.items()]
    return outcome(tails, settings, time.perf_counter() - started)


def _tail(name: str, runs: Sequence[Run]) -> Tail:
    hits = sum(run.scalars["cache_hits"] for run in runs)
    looked = hits + sum(run.scalars["cache_misses"] for run in runs)
    return Tail(
        name=name,
        slowdown=np.concatenate([frame_run.slowdowns(run) for run in runs]),
        # Responses in seconds beside ratios: a tail of slowdowns may be short tasks alone.
        response_s=np.concatenate([run.attempts["end_s"] - run.attempts["ready_s"] for run in runs]),
        hits=hits / looked if looked else 0.0,
        stolen=sum(run.scalars["stolen"] for run in runs) / sum(len(run.workload) for run in runs),
        energy_mj=float(np.mean([run.total_j for run in runs])) / 1e6,
    )


def outcome(tails: Sequence[Tail], settings: ExDeSettings, seconds: float) -> Findings:
    """Tables, figures and the picture."""
    six = [tail for tail in tails if tail.name in SIX]
    figures = [
        Figure(f"{tail.name.replace('-', '_')}_slowdown_p{p:g}", float(value), "times", "none", True)
        for tail in six
        for p, value in zip(PERCENTILES, np.percentile(tail.slowdown, PERCENTILES))
    ]
    figures.append(Figure("exde_s", seconds, "s", "none", True))
    results = {
        "tasks": settings.tasks,
        "seeds": list(settings.seeds),
        "designs": {
            tail.name: {
                "slowdown": dict(zip(map(str, PERCENTILES), np.percentile(tail.slowdown, PERCENTILES).tolist())),
                "response_s": dict(zip(map(str, PERCENTILES), np.percentile(tail.response_s, PERCENTILES).tolist())),
                "mean_slowdown": float(tail.slowdown.mean()),
                "hits": tail.hits,
                "stolen": tail.stolen,
                "energy_mj": tail.energy_mj,
            }
            for tail in tails
        },
    }
    others = [tail for tail in tails if tail.name not in SIX]
    shown = (_sheet("The six designs", six), _sheet("Other readings of the authors' simulator", others))
    return Findings(shown, tuple(figures), results, NOTES, {"tails": lambda path: draw(six, path)})


def _sheet(title: str, tails: Sequence[Tail]) -> Sheet:
    columns = ("design", *(f"p{p:g}" for p in PERCENTILES), "p99 s", "p99.9 s", "hits", "stolen", "MJ")
    return Sheet(f"{title}: slowdown", columns, tuple(_row(tail) for tail in tails))


def _row(tail: Tail) -> tuple[str, ...]:
    slow = np.percentile(tail.slowdown, PERCENTILES)
    seconds = np.percentile(tail.response_s, PERCENTILES[3:])
    return (
        tail.name,
        *(f"{value:,.3f}" if value < 100 else f"{value:,.0f}" for value in (*slow, *seconds)),
        f"{100 * tail.hits:.1f} %",
        f"{100 * tail.stolen:.1f} %",
        f"{tail.energy_mj:.2f}",
    )


NOTES = (
    "Slowdown is (end − arrival) / runtime and counts waiting and the fetch of a missed object; decisions and messages "
    "take no time.",
    "One free slot of a host looks for work at a time: in its own queue, then (hash with stealing) in two other hosts' "
    "queues, or (central) the global queue, or (delegated) the longer of two placers' global queues; when it finds "
    "nothing it waits there. Of several that wait, the one that has waited longest is served.",
    "Without stealing, tasks of a known object wait for its owner alone, as in the authors' simulator with stealing "
    "off; with it they stand in both queues. Who lets known tasks stand in both queues in either case reads the row "
    "exde-centralised-stealing as the central design, and the last row of all as that design with stealing.",
    "Without stealing the owner of the hottest object (7.1 % of all tasks: 4.0 of its 4 slots) is offered more than it "
    "can run, so those tails grow with the length of the trace.",
)


def draw(tails: Sequence[Tail], path: Path) -> None:
    """The upper tail of the slowdown: share of tasks that are slower, both axes logarithmic."""
    from wattflow.lab.show.data_frames import new_figure

    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    # Equal steps of the logarithm, down to one task in ten thousand.
    share = np.logspace(0, -4, 200)
    for number, tail in enumerate(tails):
        style = "--" if tail.name.endswith("stealing") else "-"
        axes.plot(np.quantile(tail.slowdown, 1.0 - share), share, style, color=f"C{number // 2}", label=tail.name)
    axes.set(xscale="log", yscale="log", xlabel="slowdown", ylabel="share of tasks that are slower")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
