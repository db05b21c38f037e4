"""Many independent parts of one measurement: several processes at once, each part kept on disk as soon as it is there.

A part is a name, what a function is called with, and the plain data (for JSON) that it returns. With a folder, parts
that lie there are read instead of made; the folder's name should hold all that they depend on (`mark`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from wattflow.files.whole import write_text

Job = TypeVar("Job")
Progress = Callable[[float, str], None]
_PACKAGE = Path(__file__).parents[1]


def mark(*about: object) -> str:
    """A name for results of these sources, this packaged data and these settings: another wattflow, another name."""
    digest = hashlib.sha256(repr(about).encode())
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and (path.suffix == ".py" or path.is_relative_to(_PACKAGE / "data")):
            digest.update(path.relative_to(_PACKAGE).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def gathered(
    jobs: Mapping[str, Job],
    make: Callable[[Job], Any],
    workers: int,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What ``make`` returns for every job, by name and in their order. ``make`` is a function of a module."""
    found = {name: part for name in jobs if (part := _kept(folder, name)) is not None}
    todo = {name: job for name, job in jobs.items() if name not in found}
    for name, part in _made(todo, make, workers):
        found[name] = part
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(_file(folder, name), json.dumps(part, allow_nan=True))
        if progress is not None:
            progress(len(found) / len(jobs), f"{len(found)} of {len(jobs)}, {name}")
    return {name: found[name] for name in jobs}


def _made(todo: Mapping[str, Job], make: Callable[[Job], Any], workers: int) -> Iterable[tuple[str, Any]]:
    if workers <= 1 or len(todo) <= 1:
        return ((name, make(job)) for name, job in todo.items())
    return _made_by_several(todo, make, workers)


def _made_by_several(todo: Mapping[str, Job], make: Callable[[Job], Any], workers: int) -> Iterator[tuple[str, Any]]:
    with ProcessPoolExecutor(min(workers, len(todo))) as pool:
        names = {pool.submit(make, job): name for name, job in todo.items()}
        try:
            for ready in as_completed(names):
                yield names[ready], ready.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '_')}.json"


def _kept(folder: Path | None, name: str) -> Any:
    """A part that was made before; one that cannot be read is made anew."""
    if folder is None or not _file(folder, name).is_file():
        return None
    try:
        return json.loads(_file(folder, name).read_text(encoding="utf-8"))
    except ValueError:
        return None
