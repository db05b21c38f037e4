"""Files appear whole or not at all: written beside their place under another name, then renamed."""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wattflow.model.errors import InvalidInput

LARGEST_BYTES = 64 * 1024**2


def small_text(path: Path, kind: str, most_bytes: int = LARGEST_BYTES) -> str:
    """Read a file that should be a ``kind`` ("cluster file"), which is never large.

    Raises:
        InvalidInput: It is too large for one, cannot be read, or is no text.
    """
    try:
        # Before reading: a wrong path may name a disk image.
        if path.stat().st_size > most_bytes:
            raise InvalidInput(str(path), f"is larger than {most_bytes // 1024**2} MiB; not a {kind}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(str(path), f"is not UTF-8 text (byte {error.start})") from error


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_FREE: set[Path] = set()
"""Paths that a command found free before its work began."""
_BESIDE: list[tuple[Path, Path]] = []
"""Paths that were taken meanwhile, and where the results went instead; told when the command has written all."""


def expect_free(path: Path, free: bool = True) -> None:
    """Let the next `whole_file` of this path write over nothing, or (not ``free``) over what is there."""
    (_FREE.add if free else _FREE.discard)(path.absolute())


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path to write to; it becomes ``path`` when the block ends well and is removed when it does not."""
    target = Path(path)
    draft = _draft(target)
    try:
        try:
            yield draft
        except OSError as error:
            # A disk that fills up in the middle of a write names no file.
            if error.filename is None and error.errno in _DISK:
                raise InvalidInput(str(target), f"cannot be written: {os.strerror(error.errno)}") from error
            raise
        draft.chmod(0o666 & ~_umask())
        if target.absolute() in _FREE:
            _FREE.discard(target.absolute())
            _place_new(draft, target)
        else:
            draft.replace(target)
    finally:
        # Gone already where the rename succeeded.
        draft.unlink(missing_ok=True)


def check_writable(target: Path) -> None:
    """Refuse a place where no file can be written, by writing one: rights alone do not tell of every file system."""
    _draft(target).unlink()


def _draft(target: Path) -> Path:
    if target.is_dir():
        raise InvalidInput(str(target), "is a folder; name a file")
    if not target.parent.is_dir():
        raise InvalidInput(str(target), f"the folder {target.parent} does not exist")
    try:
        # In the target's folder, so that the rename is atomic; with its suffix, since some writers choose
        # their format by it; short, since a name that is just not too long has no room for more.
        handle, name = tempfile.mkstemp(prefix=f".{target.stem[:40]}-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise InvalidInput(str(target), f"cannot be written: {error.strerror}") from error
    os.close(handle)
    return Path(name)


def _place_new(draft: Path, target: Path) -> None:
    """Give a draft its name, or one beside it where that was taken meanwhile: no result is lost (`tell_of_races`)."""
    for number in itertools.count():
        place = target if number == 0 else target.with_name(f"{target.stem}-{number}{target.suffix}")
        try:
            # Not a rename, which writes over what is there: a link is refused.
            os.link(draft, place)
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            if place.exists():
                continue
            draft.replace(place)
        break
    # No error yet: the files that this command has still to write are wanted too.
    if place != target:
        _BESIDE.append((target, place))


def tell_of_races() -> None:
    """Refuse to end well where files were taken by another command meanwhile; names all, and forgets them.

    Raises:
        InvalidInput: Some results lie under another name than was asked for.
    """
    told = [
        f"{target}: was written by another command meanwhile; this one's result is in {place}"
        for target, place in _BESIDE
    ]
    _BESIDE.clear()
    if told:
        first, _, rest = "\n".join(told).partition(": ")
        raise InvalidInput(first, rest)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole UTF-8 file."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
