"""Explore a design space of schedulers: run each point of a design once, from where it was left; join the results.

A finished point is one small file in a folder; all of them are one parquet.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattflow.files.whole import whole_file, write_text
from wattflow.lab.explore.design import Design
from wattflow.lab.explore.point import DesignPoint, Runner, attempt, warm_up
from wattflow.lab.run.crews import cores, crew_for
from wattflow.lab.run.work import code_hash
from wattflow.model.errors import WattflowError

LISTS = ("slower", "utilisation")
Row = dict[str, Any]


class Store:
    """The folder of a design's results. A file appears whole or not at all, so an interruption loses nothing else."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.points = self.folder / "points"
        self.points.mkdir(parents=True, exist_ok=True)

    @property
    def parquet(self) -> Path:
        return self.folder / "results.parquet"

    def path(self, key: str) -> Path:
        return self.points / f"{key}.json"

    def add(self, point: DesignPoint, found: Mapping[str, object]) -> None:
        """Keep the result of a point; a second one for the same key changes nothing."""
        if not self.path(point.key).exists():
            # NaN would make a file that other programs cannot read.
            text = json.dumps({"key": point.key, **found}, separators=(",", ":"), allow_nan=False)
            write_text(self.path(point.key), text)

    def left(self, points: Sequence[DesignPoint]) -> list[DesignPoint]:
        """Return points without a result, in order."""
        return [point for point in points if self.get(point.key) is None]

    def get(self, key: str) -> dict[str, Any] | None:
        """Return a kept result; one that cannot be read (a disk was full, say) is removed, and its point runs again."""
        try:
            found: dict[str, Any] = json.loads(self.path(key).read_text(encoding="utf-8"))
            # Of this key and with all parts: a file from elsewhere, or half of one, is no result.
            if found["key"] == key and set(found) >= {"values", "watts", *LISTS}:
                return found
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass  # cut short or of an older form: it is worth less than running the piece again
        self.path(key).unlink()
        return None

    def rows(self, design: Design) -> list[Row]:
        """Return one row per finished point of the design, in its order, with the design's labels."""
        return [row_of(point, found) for point in design.points if (found := self.get(point.key)) is not None]


def row_of(point: DesignPoint, found: Mapping[str, Any]) -> Row:
    """Labels, axes inside the frame, figures and lists of one point."""
    axes = {
        "key": point.key,
        "frame": point.title,
        "design": point.design,
        "policy": point.policy,
        "cluster": point.place.label,
        "workload": point.source.label,
        "seed": point.seed,
        "watts": found["watts"],
    }
    inside = {f"axis.{axis}": label for axis, label in point.factors.items()}
    return {**axes, **inside, **found["values"], **{f"{name}_over": found[name] for name in LISTS}}


def write_rows(path: Path, rows: Sequence[Row], about: Mapping[str, object]) -> None:
    """Write all rows as one parquet; a column that a row lacks is empty there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    table = pa.table(columns).replace_schema_metadata({b"wattflow": json.dumps(about, default=str).encode()})
    with whole_file(path) as draft, draft.open("wb") as file:
        pq.write_table(table, file, compression="zstd")


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    # Whole numbers and floats in one column are floats; whole numbers alone stay so.
    if kinds and kinds <= {int, float} and kinds != {int}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array(values, pa.list_(pa.float64()) if kinds == {list} else None)


def read_rows(path: str | Path) -> list[Row]:
    """Read the rows of a results file."""
    import pyarrow.parquet as pq

    with Path(path).open("rb") as file:
        rows: list[Row] = pq.read_table(file).to_pylist()
    return rows


def known(rows: Iterable[Row], name: str) -> list[float]:
    """Return the known numbers of a column."""
    return [float(v) for row in rows if (v := row.get(name)) is not None and math.isfinite(v)]


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
