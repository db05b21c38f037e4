"""The map: which functions each test calls and how long it takes, recorded file by file in several processes.

`map.jsonl` has a line per test; `recorded.json` beside it says how each file of tests read when its recording came to
its end. A file that still reads so is not run again; of one that changed, all tests are recorded anew.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faults import ROOT

TESTS = (
    "tests/golden/uncompiled.py", "tests/golden/test_policy_texts.py", "tests/golden/test_figures.py",
    "tests/unit/engine", "tests/unit/sim", "tests/unit/policy", "tests/unit/plan", "tests/unit/kernel",
    "tests/unit/lab", "tests/unit/live",
    "tests/unit/frames", "tests/property/test_policies.py", "tests/property/test_planners.py",
    "tests/property/test_lab.py", "tests/property/test_bounds.py", "tests/differential/test_closed_forms.py",
    "tests/differential/test_saga.py", "tests/differential/test_frames.py", "tests/differential/test_reference.py",
)  # fmt: skip
ROOM_TESTS = {
    "live": ("tests/unit/live", "tests/property/test_live.py"),
    "runtime/service": tuple(
        f"tests/unit/{name}.py" if "/" in name else f"tests/unit/runtime/test_{name}.py"
        for name in [
            "service_orders",
            "power",
            "levelling",
            "capping",
            "ahead",
            "estimates",
            "level_learning",
            "replay",
            "live/test_earlier_version",
            "service_rules",
            "service_facts",
            "recovery",
            "records",
            "once",
            "feed",
            "objectives",
            "learning",
            "agents_driver",
            "cold_starts",
            "epochs",
            "rehearsed_choice",
            "trust",
            "accounts",
            "gpu_learning",
        ]
    ),
}
"""The tests of the rooms in `faults.ROOMS`."""
SLOW = (
    "tests/unit/lab/test_report_browser.py", "tests/unit/lab/test_experiment_hpe.py", "tests/unit/lab/test_notebook.py",
    "tests/unit/lab/test_explore_run.py", "tests/unit/policy/test_learned.py", "tests/unit/live/test_boards.py",
)  # fmt: skip
"""Left out: uncompiled they take minutes, or need a browser."""
CASES = "60"
"""Random cases of the reference simulator; `make test` runs thousands, compiled."""
USUAL_S = 3.0
HEAVY_S = {
    "tests/unit/policy/test_policy_contract.py": 114.0, "tests/differential/test_closed_forms.py": 88.0,
    "tests/differential/test_reference.py": 87.0, "tests/property/test_planners.py": 79.0,
    "tests/property/test_policies.py": 58.0, "tests/golden/test_policy_texts.py": 57.0,
    "tests/unit/live/test_many_shapes.py": 56.0, "tests/unit/policy/test_policies_energy.py": 44.0,
    "tests/unit/live/test_engine.py": 33.0, "tests/unit/live/test_counted_rules.py": 26.0,
    "tests/differential/test_frames.py": 22.0, "tests/unit/lab/test_experiment_fgd.py": 21.0,
    "tests/unit/policy/test_joulie.py": 18.0,
    "tests/unit/sim/test_reference_answers.py": 11.0, "tests/unit/frames/test_frames_workloads.py": 10.0,
}  # fmt: skip
"""CPU seconds of the files that take longest, so that the first recording is shared out well too."""


def environment(*paths: Path) -> dict[str, str]:
    """Tests run on these sources and plugins, uncompiled."""
    shared = {"NUMBA_DISABLE_JIT": "1", "WATTFLOW_CASES": CASES}
    return os.environ | shared | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def rows(path: Path) -> list[dict[str, Any]]:
    """The map's lines, of each test the last; one that is being written is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return list({row["test"]: row for row in map(json.loads, lines)}.values())


def record(path: Path, tests: Sequence[str], processes: int, limit_s: float) -> bool:
    """Run the tests that are not on the map as they are now, noting what they call. Whether it came to the end."""
    before, now = _recorded(path), digests(files_of(tests))
    fresh = [file for file in now if before.get(file) != now[file]]
    if not fresh:
        return True
    print(f"recording which functions the tests of {len(fresh)} files call", flush=True)
    changed = [file for file in fresh if file in before]
    done = _run(path, balanced(fresh, _seconds(path), processes), changed, limit_s)
    if done:
        _beside(path).write_text(json.dumps(before | now, indent=0, sort_keys=True), encoding="utf-8")
    return done


def balanced(files: Sequence[str], seconds: Mapping[str, float], processes: int) -> list[list[str]]:
    """Files for each process: the longest first, each to the process that has least to do so far."""
    shares: list[tuple[float, int, list[str]]] = [(0.0, number, []) for number in range(processes)]
    for file in sorted(files, key=lambda file: (-seconds.get(file, USUAL_S), file)):
        spent, number, share = heapq.heappop(shares)
        heapq.heappush(shares, (spent + seconds.get(file, USUAL_S), number, [*share, file]))
    return [share for _, _, share in sorted(shares, key=lambda each: each[1]) if share]


def files_of(tests: Sequence[str]) -> list[str]:
    """The files of these tests and folders, less those left out."""
    found: dict[str, None] = {}
    for name in (test.partition("::")[0] for test in tests):
        at = ROOT / name
        for file in sorted(at.rglob("test_*.py")) if at.is_dir() else [at]:
            found[file.relative_to(ROOT).as_posix()] = None
    return [file for file in found if file not in SLOW]


def digests(files: Sequence[str]) -> dict[str, str]:
    """What each file is recorded by: its text, and the sources' names, as some tests have a case for each policy."""
    names = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.py"))
    shared = "\n".join(names).encode()
    return {file: hashlib.sha256((ROOT / file).read_bytes() + shared).hexdigest() for file in files}


def _run(path: Path, shares: list[list[str]], changed: list[str], limit_s: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "touched"]
    env = environment(ROOT / "src", Path(__file__).parent) | {"WATTFLOW_MAP": str(path)}
    env["WATTFLOW_CHANGED"] = os.pathsep.join(changed)
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
    return all(process.returncode >= 0 for process in running)  # one that was killed did not come to its end


def _seconds(path: Path) -> dict[str, float]:
    """CPU seconds of each file: as the map has them, or else as they once were."""
    found: Counter[str] = Counter()
    for row in rows(path):
        found[str(row["test"]).partition("::")[0]] += float(row["seconds"])
    return HEAVY_S | found


def _beside(path: Path) -> Path:
    return path.with_name("recorded.json")


def _recorded(path: Path) -> dict[str, str]:
    """The files whose recording came to its end, as they were then."""
    at = _beside(path)
    return json.loads(at.read_text(encoding="utf-8")) if path.exists() and at.exists() else {}
