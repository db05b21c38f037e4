"""Tidying of a machine that works for months: logs are cut, old work folders go, free memory is given back."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
import time
from collections.abc import Container
from pathlib import Path

LOG_BYTES = 16 << 20
"""A process's own log beyond this is moved aside as ``NAME.1``, in the place of the one before."""
KEEP_FOLDER_S = 30 * 86400.0
"""A workflow's work folder that nothing has touched for this long goes."""
LOOKED_AT = 10_000
"""Files of a folder that are asked for their age at most."""
_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def trim_own_log(most: int = LOG_BYTES, fd: int = 2) -> bool:
    """Begin the file anew that this process writes its log to, if it is a file and too long.

    It is copied and emptied, not renamed: others may write to it, too, and all of them append.
    """
    with contextlib.suppress(OSError):
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode) and about.st_size > most:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            draft = path.with_name(f"{path.name}.draft")
            shutil.copyfile(path, draft)
            draft.replace(path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
            return True
    return False


def share_arenas(most: int = 2) -> bool:
    """Have all threads of this process allocate from so few arenas of glibc; False with another C library.

    By itself glibc gives up to eight arenas a core to threads, each with holes of its own that the others cannot use: a
    server's threads left some megabytes a minute in them. Only threads that start later are bound by it.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    return option is not None and bool(option(_M_ARENA_MAX, most))


def trim_memory() -> bool:
    """Give pages that glibc holds free between blocks in use back to the machine; False with another C library.

    Thousands of requests a second leave holes of every size. They are used again, but each burst leaves more of them
    than the one before, and a server that works for months never shrinks by itself.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def sweep_folders(root: Path, used: Container[str], keep_s: float = KEEP_FOLDER_S) -> int:
    """Remove folders below ``root`` that nobody uses and nothing has touched for a while; says how many."""
    gone = 0
    with contextlib.suppress(FileNotFoundError):
        for folder in root.iterdir():
            if folder.name not in used and folder.is_dir() and time.time() - _touched_s(folder) > keep_s:
                shutil.rmtree(folder, ignore_errors=True)
                gone += 1
    return gone


def _touched_s(folder: Path) -> float:
    """When something below a folder changed last, as far as that can be had at little cost."""
    latest = folder.lstat().st_mtime
    for count, (path, _, files) in enumerate(os.walk(folder)):
        for name in files if count < LOOKED_AT else ():
            with contextlib.suppress(OSError):
                latest = max(latest, (Path(path) / name).lstat().st_mtime)
        if count >= LOOKED_AT:
            break
    return latest
