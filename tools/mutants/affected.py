"""Which tests to run for a fault: those that call its function, the quickest first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from faults import ROOT, Fault

TESTS = (
    "tests/golden/uncompiled.py", "tests/unit/engine", "tests/unit/sim", "tests/unit/policy", "tests/unit/plan",
    "tests/unit/kernel", "tests/unit/lab", "--ignore=tests/unit/lab/test_report_browser.py", "tests/unit/live",
    "tests/unit/frames", "tests/differential", "tests/property/test_simulator.py", "tests/property/test_policies.py",
    "tests/property/test_planners.py", "tests/property/test_lab.py", "tests/property/test_live.py",
    "tests/property/test_bounds.py",
)  # fmt: skip
PORTIONS_S = (6.0, 60.0)
"""CPU seconds of tests in each portion; the second runs only when the first notices nothing."""


@dataclass(frozen=True)
class Timed:
    """A test and its CPU seconds, uncompiled."""

    test: str
    seconds: float


def environment(sources: Path) -> dict[str, str]:
    """Tests run on a copy of the sources, uncompiled."""
    return os.environ | {"PYTHONPATH": str(sources), "NUMBA_DISABLE_JIT": "1"}


def record(path: Path, limit_s: float | None = None) -> bool:
    """Run all tests once, noting what they call; goes on where it stopped. Whether it came to the end."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "touched", *TESTS]
    env = environment(ROOT / "src")
    env |= {"WATTFLOW_MAP": str(path), "PYTHONPATH": f"{env['PYTHONPATH']}:{Path(__file__).parent}"}
    try:
        subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def load(path: Path) -> dict[str, list[Timed]]:
    """The tests that call each function ("path name"), the quickest first."""
    found: dict[str, list[Timed]] = defaultdict(list)
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if row["passed"]:
            for function in row["functions"]:
                found[function].append(Timed(row["test"], row["seconds"]))
    return {function: sorted(tests, key=lambda t: (t.seconds, t.test)) for function, tests in found.items()}


def portions(fault: Fault, calling: dict[str, list[Timed]]) -> list[list[Timed]]:
    """The tests for a fault, in portions; a function that no test calls by itself gets those of its whole file."""
    tests = calling.get(f"{fault.path} {fault.function}")
    if not tests:
        of_file = {t for function, each in calling.items() if function.startswith(f"{fault.path} ") for t in each}
        tests = sorted(of_file, key=lambda t: (t.seconds, t.test))
    found: list[list[Timed]] = []
    left = iter(tests)
    for most_s in PORTIONS_S:
        portion, spent = [], 0.0
        for test in left:
            portion.append(test)
            spent += test.seconds
            if spent > most_s:
                break
        if portion:
            found.append(portion)
    return found
