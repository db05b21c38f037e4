"""Which tests to run for a fault: those that call its function, the quickest first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from faults import Fault
from recording import rows

PORTIONS = (
    ("tests/golden/", 6.0),
    ("tests/unit/{package}/", 16.0),
    ("tests/differential/", 16.0),
    ("tests/", 30.0),
)
"""Where the tests of each portion lie, and their CPU seconds; the next runs only when those before notice nothing.

Whole runs first: they notice most, and few files of them are loaded. Then the tests of the fault's own package, which
know what its functions should answer; then the comparisons with an independent answer; then whatever else is quick."""


@dataclass(frozen=True)
class Timed:
    """A test and its CPU seconds, uncompiled."""

    test: str
    seconds: float


def load(path: Path) -> dict[str, list[Timed]]:
    """The tests that call each function ("path name"), the quickest first."""
    found: dict[str, list[Timed]] = defaultdict(list)
    for row in rows(path):
        if row["passed"]:
            for function in row["functions"]:
                found[function].append(Timed(row["test"], row["seconds"]))
    return {function: sorted(tests, key=_quick) for function, tests in found.items()}


def _quick(timed: Timed) -> tuple[float, str]:
    return timed.seconds, timed.test


def portions(fault: Fault, calling: dict[str, list[Timed]]) -> list[list[Timed]]:
    """The tests for a fault, in portions; a function that none calls by itself gets those of its file, or folder."""
    folder = fault.path.rpartition("/")[0]
    tests = calling.get(f"{fault.path} {fault.function}") or []
    tests = tests or _calling(f"{fault.path} ", calling) or _calling(f"{folder}/", calling)
    found: list[list[Timed]] = []
    for where, most_s in PORTIONS:
        portion, spent = [], 0.0
        for test in tests:
            here = test.test.startswith(where.format(package=fault.path.split("/")[0]))
            if here and spent <= most_s and not any(test in earlier for earlier in found):
                portion.append(test)
                spent += test.seconds
        if portion:
            found.append(portion)
    return found


def _calling(start: str, calling: dict[str, list[Timed]]) -> list[Timed]:
    """The tests that call any function whose name starts so."""
    return sorted({test for name, tests in calling.items() if name.startswith(start) for test in tests}, key=_quick)
