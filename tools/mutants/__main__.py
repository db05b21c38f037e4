"""`make mutants`: plant small faults, one at a time, and see whether the tests notice.

A seeded choice of faults in `engine`, `sim`, `policy` and `lab/figures` (or in one room of `faults.ROOMS`): a
comparison, an operator, a constant or a condition is changed in a copy of the sources, and the tests that call the
faulty function run, uncompiled, golden ones and then the quickest first, until one fails. Which tests those are is
recorded by running all once (`map.jsonl` beside the results), and later those whose file is new or changed. Results are
kept as they come: started again, the run goes on where it stopped. A fault that changes no answer is listed with its
reason in `tests/mutants_unchanged.toml` and left out of the share.
"""

from __future__ import annotations

import argparse
import json
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

import affected
import recording
from faults import PACKAGES, ROOMS, ROOT, Fault, choose

REASONS = ROOT / "tests" / "mutants_unchanged.toml"
GOAL = 0.90
KEPT = ROOT / "out" / "mutants"
Row = dict[str, object]


def plant(fault: Fault, sources: Path) -> bytes:
    """Write the fault into a copy of the sources; returns the file as it was."""
    target = sources / "wattflow" / fault.path
    text = target.read_bytes()
    target.write_bytes(text[: fault.start] + f"({fault.after})".encode() + text[fault.end :])
    return text


def tried(fault: Fault, sources: Path, calling: dict[str, list[affected.Timed]]) -> Row:
    """Whether one of the tests fails, which one, and seconds."""
    started = time.monotonic()
    before = plant(fault, sources)
    how, ran = "", 0
    for portion in affected.portions(fault, calling):
        ran += len(portion)
        how = _run(portion, sources)
        if how:
            break
    (sources / "wattflow" / fault.path).write_bytes(before)
    seconds = round(time.monotonic() - started, 1)
    return {"key": fault.key, "line": fault.line, "noticed": bool(how), "how": how, "tests": ran, "seconds": seconds}


def _run(tests: list[affected.Timed], sources: Path) -> str:
    """Empty when all tests pass; else the first that failed, or that time ran out: an endless loop is noticed."""
    each_s, limit_s = 5 + 4 * max(test.seconds for test in tests), round(60 + 5 * sum(test.seconds for test in tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "limited"]
    env = recording.environment(sources, Path(__file__).parent) | {"WATTFLOW_LIMIT_S": str(each_s)}
    done = subprocess.run(
        [*command, "--no-header", *(test.test for test in tests)], cwd=ROOT, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
    )  # fmt: skip
    if done.returncode == 0:
        return ""
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"no end after {limit_s} CPU seconds"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (1, 2) or not lines:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return lines[0][:160]


def reasons() -> dict[str, str]:
    """Faults that change no answer, by key."""
    with REASONS.open("rb") as file:
        return {str(row["fault"]): str(row["reason"]) for row in tomllib.load(file)["unchanged"]}


def results_kept(path: Path) -> dict[str, Row]:
    """Results so far by key; a later one counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {str(row["key"]): row for row in map(json.loads, lines)}


class Trial:
    """Tries faults one after another in several processes, each with a copy of the sources of its own."""

    def __init__(self, faults: list[Fault], kept: Path, calling: dict[str, list[affected.Timed]]) -> None:
        self.kept, self.calling, self.total = kept, calling, len(faults)
        self.waiting: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        self.lock, self.done = threading.Lock(), 0
        for fault in faults:
            self.waiting.put(fault)

    def run(self, processes: int, limit_s: float) -> None:
        """Until all are tried or the time is over."""
        until = time.monotonic() + limit_s
        threads = [threading.Thread(target=self._work, args=(until,)) for _ in range(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, until: float) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            sources = Path(scratch) / "src"
            shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
            while time.monotonic() < until:
                try:
                    fault = self.waiting.get_nowait()
                except queue.Empty:
                    return
                self._note(tried(fault, sources, self.calling))

    def _note(self, row: Row) -> None:
        with self.lock, self.kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            self.done += 1
            mark = "noticed" if row["noticed"] else "SURVIVED"
            print(f"{self.done:4d}/{self.total} {mark:8s} {row['seconds']:6.1f} s  {row['key']}", flush=True)


def report(results: list[Row], wanted: int) -> Row:
    """Print survivors, those that change no answer, and the figures; returns what `make house` prints of them."""
    known = reasons()
    unchanged = [row for row in results if not row["noticed"] and row["key"] in known]
    survivors = [row for row in results if not row["noticed"] and row["key"] not in known]
    counted = len(results) - len(unchanged)
    for row in unchanged:
        print(f"changes no answer: {row['key']} (line {row['line']}): {known[str(row['key'])]}")
    for row in survivors:
        print(f"survived: {row['key']} (line {row['line']}, {row['tests']} tests)")
    share = (counted - len(survivors)) / counted if counted else 0.0
    mean_s = sum(float(str(row["seconds"])) for row in results) / max(1, len(results))
    done = len(results) >= wanted
    print(f"figure mutants_tried {len(results)} faults goal {wanted} {'ok' if done else 'short'}")
    print(f"figure mutants_unchanged {len(unchanged)} faults goal none ok")
    print(f"figure mutants_seconds_each {mean_s:.1f} s goal <=20 {'ok' if mean_s <= 20 else 'short'}")
    print(f"figure mutants_noticed {share:.3f} share goal >={GOAL} {'ok' if share >= GOAL and done else 'short'}")
    return {"share": share, "counted": counted, "done": done}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="map and results as they come; out/mutants/ROOM by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=1e6, help="start nothing after so long")
    parser.add_argument("--again", action="store_true", help="try survivors again, as after adding tests")
    parser.add_argument("--map", nargs="*", metavar="TESTS", help="record the map, or that of new tests; try none")
    parser.add_argument("--list", action="store_true", help="print the faults; try none")
    parser.add_argument("--room", choices=[*ROOMS], help="faults in this room alone, noticed by its own tests")
    given = parser.parse_args()
    faults = choose(given.count, given.seed, [given.room] if given.room else PACKAGES)
    if given.list:
        for fault in faults:
            print(f"{fault.path}:{fault.line} {fault.function}: {fault.before} -> {fault.after}")
        return
    folder = given.folder or KEPT / (given.room or "").replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    mapped, kept = folder / "map.jsonl", folder / "results.jsonl"
    usual = recording.ROOM_TESTS[given.room] if given.room else recording.TESTS
    recording.record(mapped, given.map or usual, given.processes, given.limit_s)
    if given.map is not None:
        return
    known = results_kept(kept)
    if given.again:
        known = {key: row for key, row in known.items() if row["noticed"]}
    left = [fault for fault in faults if fault.key not in known]
    Trial(left, kept, affected.load(mapped)).run(given.processes, given.limit_s)
    known = results_kept(kept)
    found = report([known[fault.key] for fault in faults if fault.key in known], len(faults))
    (folder / "share.json").write_text(json.dumps(found | {"seed": given.seed}), encoding="utf-8")


if __name__ == "__main__":
    main()
