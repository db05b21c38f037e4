"""Explore a design space of schedulers: run each point of a design once, from where it was left; join the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattflow.lab.explore.design import Design
from wattflow.lab.explore.point import DesignPoint, Runner, attempt, warm_up
from wattflow.lab.explore.store import Row, Store, write_rows
from wattflow.lab.run.crews import cores, crew_for
from wattflow.lab.run.work import code_hash
from wattflow.model.errors import WattflowError

Progress = Callable[[float, str], None]
SMALL = 2
"""Fewer points than this run in this process."""

Found = dict[str, object]


@dataclass(frozen=True, slots=True)
class Exploration:
    """A design with the results that are there.

    Attributes:
        rows: One per finished point, in the design's order.
        reused: How many of them an earlier call had left.
        failed: Points that cannot be run, with the reason.
    """

    design: Design
    rows: Sequence[Row]
    reused: int
    failed: Sequence[tuple[str, str]]
    parquet: Path


def explore(
    design: Design, folder: str | Path, workers: int | str | None = None, progress: Progress | None = None
) -> Exploration:
    """Run the points that have no result yet, and write all results to ``results.parquet`` of the folder.

    Args:
        workers: Processes of this machine (all cores by default), or a Dask scheduler at ``dask://host:port``.
        progress: Called with the share done and what is running; may raise KeyboardInterrupt. Finished points stay.
    """
    store = Store(folder)
    left = store.left(design.points)
    before = {point.key for point in left}
    job = _Job(store, len(left), progress)
    _run(left, workers, job)
    rows = store.rows(design)
    # What was not left before this call was there already.
    reused = sum(row["key"] not in before for row in rows)
    write_rows(store.parquet, rows, {"design": design.name, "points": len(design.points), "code": code_hash()})
    return Exploration(design, rows, reused, tuple(job.failed), store.parquet)


def _run(left: list[DesignPoint], workers: int | str | None, job: _Job) -> None:
    if not left:
        return
    wanted = workers or cores()
    # One point is not worth a process.
    if isinstance(wanted, int) and len(left) < SMALL:
        wanted = 1
    with crew_for(_Points(), wanted) as crew:
        crew.run(left, job.deliver, job.wait)


class _Points:
    """The work of an exploration: a point that cannot be run has an error for its result."""

    def ready(self) -> Callable[[DesignPoint], Found]:
        runner = Runner()
        return lambda point: attempt(runner, point)

    def compiled(self) -> bool:
        # Nothing has run in this process: whoever comes first compiles for the others.
        return False

    def warm_up(self) -> None:
        warm_up()

    def key(self, point: DesignPoint) -> str:
        return point.key

    def title(self, point: DesignPoint) -> str:
        return point.title

    def load(self, point: DesignPoint) -> tuple[str, int]:
        # By content: two labels of one workload share what is drawn.
        return point.source.content, point.seed

    def failed(self, point: DesignPoint, error: Exception) -> Found:
        return {"error": str(error) if isinstance(error, WattflowError) else f"{type(error).__name__}: {error}"}


class _Job:
    """Keeps what comes in and tells the progress bar."""

    def __init__(self, store: Store, total: int, progress: Progress | None) -> None:
        self.store, self.total, self.progress = store, total, progress
        self.done, self.failed = 0, list[tuple[str, str]]()

    def deliver(self, point: DesignPoint, found: Found) -> None:
        if "error" in found:
            where = f"{point.title} / {point.policy} / {point.source.label} / seed {point.seed}"
            self.failed.append((where, str(found["error"])))
        else:
            # At once: a call that is interrupted keeps all that came in.
            self.store.add(point, found)
        self.done += 1
        self.wait(point.title)

    def wait(self, text: str) -> None:
        if self.progress is not None:
            self.progress(self.done / self.total, f"{self.done} of {self.total} points {text}")
