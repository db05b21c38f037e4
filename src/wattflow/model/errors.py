"""The exceptions a person may see, and the list of problems that one of them carries.

WattflowError
├── InvalidInput        a file or option is wrong; lists every problem with its place; exit code 2
│   ├── UnknownName     a name that is not registered, with the nearest one that is
│   └── InfeasibleTask  a task that no node of the cluster can ever run
├── MissingExtra        an optional dependency is not installed
├── MissingData         the folder of real data is not there
├── MissingMeter        no meter reads this machine's energy; joins the reason of each
└── BrokenPolicy        a policy broke its contract (NaN cost, wrong shape)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
