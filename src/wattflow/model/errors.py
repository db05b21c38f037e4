"""The exceptions a person may see, and the list of problems that one of them carries.

WattflowError
├── InvalidInput        a file or option is wrong; lists every problem with its place; exit code 2
│   ├── UnknownName     a name that is not registered, with the nearest one that is
│   └── InfeasibleTask  a task that no node of the cluster can ever run
├── MissingExtra        an optional dependency is not installed
├── MissingData         the folder of real data is not there
├── MissingMeter        no meter reads this machine's energy; joins the reason of each
└── BrokenPolicy        a policy broke its contract (NaN cost, wrong shape)

Faults in code that a user wrote become one line that names their file (`own_fault`).
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    places = _compiled_places(error) if type(error).__module__.startswith("numba.") else _inferred_places(error)
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


def _inferred_places(error: BaseException) -> list[tuple[str, int]]:
    """Return the line whose types numba was inferring: it lets the error of an unknown name of a module through."""
    at = [getattr(frame.f_locals.get("constraint"), "loc", None) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [(str(loc.filename), int(loc.line)) for loc in at if loc is not None]


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


class WattflowError(Exception):
    """Base of everything wattflow raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where it stands and what to do about it."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class InvalidInput(WattflowError):
    """Input that cannot be used. Carries all problems found, not only the first."""

    def __init__(self, source: str, problems: Sequence[Problem] | str) -> None:
        self.source = source
        self.problems: tuple[Problem, ...] = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        # Both in `args`: exceptions are pickled between processes, and built again from them.
        super().__init__(source, self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.source}: {self.problems[0]}"
        # A file of nonsense has thousands; twenty show what is wrong.
        shown = [f"  - {problem}" for problem in self.problems[:20]]
        if len(self.problems) > 20:
            shown.append(f"  … and {len(self.problems) - 20} more")
        return "\n".join([f"{self.source}: {len(self.problems)} problems", *shown])


class UnknownName(InvalidInput):
    """A policy, cluster, family or format that does not exist."""


class InfeasibleTask(InvalidInput):
    """A task whose needs no node of the cluster can meet, even empty."""


class MissingExtra(WattflowError):
    """An optional dependency is needed for this; the message names the extra to install."""


class MissingData(WattflowError):
    """The folder of real data (``WATTFLOW_DATA``) is absent or lacks a file."""


class MissingMeter(WattflowError):
    """No meter reads this machine's energy; the message holds the reason of each that was tried."""


class BrokenPolicy(WattflowError):
    """A policy returned NaN, or something the contract does not allow."""


LISTED = 60
"""Names that an error lists before it counts the rest."""


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownName:
    """Build the error for a name that is not registered, with the nearest registered one."""
    names = sorted(known)
    # One suggestion, or else the whole list: both would bury the message.
    near = difflib.get_close_matches(name, names, n=1)
    shown = names if len(names) <= LISTED else [*names[:LISTED], f"and {len(names) - LISTED} more"]
    meant = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(shown)}"
    return UnknownName(kind, f"no {kind} named {name!r}{meant}{' ' + hint if hint else ''}")
