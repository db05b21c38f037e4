"""Which tests to run for a fault: those that call its function, the quickest first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import ROOT, Fault

TESTS = (
    "tests/golden/uncompiled.py", "tests/golden/test_policy_texts.py", "tests/golden/test_figures.py",
    "tests/unit/engine", "tests/unit/sim", "tests/unit/policy", "tests/unit/plan", "tests/unit/kernel",
    "tests/unit/lab", "tests/unit/live",
    "tests/unit/frames", "tests/property/test_policies.py", "tests/property/test_planners.py",
    "tests/property/test_lab.py", "tests/property/test_bounds.py", "tests/differential/test_closed_forms.py",
    "tests/differential/test_saga.py", "tests/differential/test_frames.py", "tests/differential/test_reference.py",
)  # fmt: skip
SLOW = (
    "tests/unit/lab/test_report_browser.py", "tests/unit/lab/test_experiment_hpe.py", "tests/unit/lab/test_notebook.py",
    "tests/unit/lab/test_explore_run.py", "tests/unit/policy/test_learned.py", "tests/unit/live/test_boards.py",
)  # fmt: skip
"""Left out: uncompiled they take minutes, or need a browser."""
CASES = "60"
"""Random cases of the reference simulator; `make test` runs thousands, compiled."""
PORTIONS_S = (6.0, 16.0, 44.0)
"""CPU seconds of tests in each portion; the next runs only when those before notice nothing."""
GOLDEN = "tests/golden/"
"""Tests that compare whole runs notice most, and there are few files of them to load."""


@dataclass(frozen=True)
class Timed:
    """A test and its CPU seconds, uncompiled."""

    test: str
    seconds: float


def environment(*paths: Path) -> dict[str, str]:
    """Tests run on these sources and plugins, uncompiled."""
    shared = {"NUMBA_DISABLE_JIT": "1", "WATTFLOW_CASES": CASES}
    return os.environ | shared | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def record(path: Path, tests: Sequence[str], processes: int, limit_s: float) -> bool:
    """Run these tests once, noting what they call; goes on where it stopped. Whether it came to the end."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "touched"]
    command += [f"--ignore={name}" for name in SLOW]
    env = environment(ROOT / "src", Path(__file__).parent) | {"WATTFLOW_MAP": str(path)}
    shares = [share for first in range(processes) if (share := tests[first::processes])]
    running = [subprocess.Popen([*command, *s], cwd=ROOT, env=env, stdout=subprocess.DEVNULL) for s in shares]
    until = time.monotonic() + limit_s
    try:
        for process in running:
            process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    finally:
        for process in running:
            process.kill()
            process.wait()
    return True


def load(path: Path) -> dict[str, list[Timed]]:
    """The tests that call each function ("path name"), the quickest first."""
    found: dict[str, list[Timed]] = defaultdict(list)
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if row["passed"]:
            for function in row["functions"]:
                found[function].append(Timed(row["test"], row["seconds"]))
    return {function: sorted(tests, key=_quick) for function, tests in found.items()}


def _quick(timed: Timed) -> tuple[float, str]:
    return timed.seconds, timed.test


def portions(fault: Fault, calling: dict[str, list[Timed]]) -> list[list[Timed]]:
    """The tests for a fault, in portions; a function that no test calls by itself gets those of its whole file.

    Whole runs first, then the unit tests of the fault's own package, which know what its functions should answer, then
    whatever else is quick.
    """
    tests = calling.get(f"{fault.path} {fault.function}")
    if not tests:
        of_file = {t for function, each in calling.items() if function.startswith(f"{fault.path} ") for t in each}
        tests = sorted(of_file, key=_quick)
    found: list[list[Timed]] = []
    for prefix, most_s in zip((GOLDEN, f"tests/unit/{fault.path.split('/')[0]}/", "tests/"), PORTIONS_S, strict=True):
        portion, spent = [], 0.0
        for test in tests:
            if test.test.startswith(prefix) and spent <= most_s and not any(test in earlier for earlier in found):
                portion.append(test)
                spent += test.seconds
        if portion:
            found.append(portion)
    return found
