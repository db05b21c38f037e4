"""Where work runs: in this process, on processes of this machine, or on a Dask cluster. One contract for all three.

A ``Work`` says how a piece of it is run, a ``Crew`` runs pieces. The work travels once to each process, so a piece can
be as small as a number. Answers come in any order; ``deliver`` is called in this process, once per piece.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import traceback
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from wattflow.model.errors import WattflowError

SOURCES = (
    "model",
    "files",
    "traces",
    "generate",
    "clusters",
    "kernel",
    "engine",
    "policy",
    "plan",
    "sim",
    "frames",
    "lab/figures",
    "lab/run",
    "lab/explore/point.py",
)
"""Packages and modules whose code decides what a run gives."""


@functools.cache
def code_hash() -> str:
    """Hash of the sources that decide a result."""
    import wattflow

    home = Path(wattflow.__file__).parent
    digest = hashlib.sha256(wattflow.__version__.encode())
    # Every source, comments included: a hash that is too careful only costs a run, one that is not would mix results.
    for name in SOURCES:
        where = home / name
        for path in [where] if where.is_file() else sorted(where.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


Piece = TypeVar("Piece")
Answer = TypeVar("Answer")
_Asked = TypeVar("_Asked", contravariant=True)
_Given = TypeVar("_Given", covariant=True)
Wait = Callable[[str], None]
Deliver = Callable[[Piece, Answer], None]

DASK = ("dask://", "tcp://")
"""How the address of a Dask scheduler may begin."""

TRIES = 3
"""A piece whose process dies so often is given up."""


class Work(Protocol[_Asked, _Given]):
    """Work to be run. It can be pickled where it is to run elsewhere than here."""

    def ready(self) -> Callable[[_Asked], _Given]:
        """Return what runs a piece; called once by each process (on Dask: by each thread of a worker)."""
        ...

    def compiled(self) -> bool:
        """Tell whether the kernel is compiled; where it is not, one process comes first and compiles for all."""
        ...

    def warm_up(self) -> None:
        """Compile the kernel, or load it; called first in a process of this machine."""
        ...

    def key(self, piece: _Asked) -> str:
        """Name the piece, uniquely within the work."""
        ...

    def title(self, piece: _Asked) -> str:
        """Name it for people while it runs."""
        ...

    def load(self, piece: _Asked) -> Hashable:
        """Name the piece's workload: the next piece of the same one goes to the same process, which has it cached."""
        ...

    def failed(self, piece: _Asked, error: Exception) -> _Given:
        """Answer for a piece that raised this error elsewhere or lost its process too often; it may raise it."""
        ...


class Crew(Protocol[Piece, _Given]):
    """Runs pieces of one work; leaving its ``with`` block early ends all that runs elsewhere at once."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, pieces: Iterable[Piece], deliver: Deliver[Piece, _Given], wait: Wait) -> None:
        """Run all; ``wait`` is told now and then what is going on, and may raise KeyboardInterrupt."""
        ...


@dataclass(slots=True)
class Here(Generic[Piece, Answer]):
    """One piece after another in this process. The pieces may be found while they run; errors are simply raised."""

    work: Work[Piece, Answer]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def run(self, pieces: Iterable[Piece], deliver: Deliver[Piece, Answer], wait: Wait) -> None:
        """Run all; ``wait`` hears the title of each piece before it runs."""
        run = self.work.ready()
        for piece in pieces:
            wait(self.work.title(piece))
            deliver(piece, run(piece))


Told = tuple[bool, Answer | Exception]
"""An answer from another process: whether it went well, and the result or the error."""


def told(run: Callable[[Piece], Answer], piece: Piece) -> Told[Answer]:
    """Run a piece elsewhere: an error is sent back as data, with its traceback as a note."""
    try:
        return True, run(piece)
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            # Both ways: some exceptions can be written and not read.
            pickle.loads(pickle.dumps(error))
        except Exception:
            return False, WattflowError(f"{type(error).__name__}: {error}")
        return False, error


def understood(work: Work[Piece, Answer], piece: Piece, message: Told[Answer]) -> Answer:
    """Return the answer, or what the work makes of the error."""
    good, found = message
    if not good:
        assert isinstance(found, Exception)
        return work.failed(piece, found)
    return found  # type: ignore[return-value]
