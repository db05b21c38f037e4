"""A text file that a person wrote: read whole, and refused with one message where it is something else."""

from __future__ import annotations

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
