"""Faults in code that a user wrote: one line that names their file, instead of a page about ours."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_NAMED = re.compile(r'(?:File "|at )(?P<file>[^"\n]+?\.py)(?:", line | \()(?P<line>\d+)')
_PREAMBLES = ("Failed in ", "- Resolution failure", "During: ")


def own_fault(error: BaseException) -> str | None:
    """Return ``my.py, line 7: TypeError: …`` where an error arose in code that is neither ours nor installed, or None.

    What numba says of code that it cannot compile is cut to its reason; the place is the one that it names.
    """
    place = own_place(error)
    if place is None:
        return None
    compiling = type(error).__module__.startswith("numba.")
    what = f"does not compile: {_reason(error)}" if compiling else f"{type(error).__name__}: {error}"
    return f"{place}: {what}"


def own_place(error: BaseException) -> str | None:
    """Return ``my.py, line 7``: the innermost place of an error in a user's code."""
    places = _compiled_places(error) if type(error).__module__.startswith("numba.") else []
    # Innermost first: the last frame that is the user's is where they can mend something.
    places += [(frame.filename, frame.lineno or 0) for frame in reversed(traceback.extract_tb(error.__traceback__))]
    return next((f"{_shown(file)}, line {line}" for file, line in places if is_own_file(file)), None)


def is_own_file(file: str) -> bool:
    """Tell whether a file is Python code outside wattflow and outside the installation."""
    # Links resolved: an editable installation must not look like the user's own code.
    path = os.path.realpath(file)
    return path.endswith(".py") and Path(path).is_file() and not path.startswith((_PACKAGE, *_installed()))


def _installed() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    # Debian's dist-packages, for one, may be in no scheme of sysconfig.
    folders |= {folder for folder in sys.path if folder.endswith("-packages")}
    return tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)


def _compiled_places(error: BaseException) -> list[tuple[str, int]]:
    named = [(found["file"], int(found["line"])) for found in _NAMED.finditer(str(error))]
    loc: Any = getattr(error, "loc", None)
    return named if loc is None else [(str(loc.filename), int(loc.line)), *named]


def _reason(error: BaseException) -> str:
    """Return the first line that says something of the code itself."""
    lines = [line.strip() for line in str(error).splitlines()]
    # numba puts its own history before the reason.
    said = [line for line in lines if line and not line.startswith(_PREAMBLES)]
    reason = said[0] if said else type(error).__name__
    call = next((line.removeprefix(">>> ") for line in said[1:4] if line.startswith(">>> ")), None)
    return f"{reason.rstrip(':')}: {call}" if call else reason


def _shown(file: str) -> str:
    """Return a file as a user would type it."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except ValueError:
        return file
