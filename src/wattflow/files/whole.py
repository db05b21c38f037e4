"""Files appear whole or not at all: written beside their place under another name, then renamed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wattflow.model.errors import InvalidInput

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path to write to; it becomes ``path`` when the block ends well and is removed when it does not."""
    target = Path(path)
    if target.is_dir():
        raise InvalidInput(str(target), "is a folder; name a file")
    if not target.parent.is_dir():
        raise InvalidInput(str(target), f"the folder {target.parent} does not exist")
    try:
        # In the target's folder, so that the rename is atomic; with its suffix, since some writers choose
        # their format by it.
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise InvalidInput(str(target), f"cannot be written: {error.strerror}") from error
    os.close(handle)
    draft = Path(name)
    try:
        try:
            yield draft
        except OSError as error:
            # A disk that fills up in the middle of a write names no file.
            if error.filename is None and error.errno in _DISK:
                raise InvalidInput(str(target), f"cannot be written: {os.strerror(error.errno)}") from error
            raise
        draft.chmod(0o666 & ~_umask())
        draft.replace(target)
    finally:
        # Gone already where the rename succeeded.
        draft.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole UTF-8 file."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
