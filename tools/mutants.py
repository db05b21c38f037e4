"""`make mutants`: plant small faults, one at a time, and see whether the tests notice.

A seeded choice of faults in `engine`, `sim`, `policy` and `lab/figures`: a comparison, an operator, a constant or a
condition is changed in a copy of the sources, and the tests of that package run, uncompiled, until one fails. Results
are kept as they come: started again, the run goes on where it stopped. A fault that changes no answer is listed with
its reason in `tests/mutants_unchanged.toml` and left out of the share.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "wattflow"
REASONS = ROOT / "tests" / "mutants_unchanged.toml"
GOAL = 0.90
_CORE = ("tests/golden/uncompiled.py", "tests/unit/sim", "tests/unit/engine", "tests/differential/test_closed_forms.py")
STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "engine": (_CORE, ("tests/differential/test_reference.py",), ("tests/unit/live", "tests/unit/policy")),
    "sim": (_CORE, ("tests/differential/test_reference.py",)),
    "policy": (
        ("tests/golden/uncompiled.py", "tests/unit/policy", "tests/unit/plan"),
        ("tests/property/test_policies.py", "tests/property/test_planners.py", "tests/differential/test_saga.py"),
    ),
    "lab/figures": (
        ("tests/unit/lab/test_metrics.py", "tests/unit/lab/test_statistics.py", "tests/unit/lab/test_power.py"),
        ("tests/unit/lab", "--ignore=tests/unit/lab/test_report_browser.py"),
        ("tests/property/test_lab.py",),
    ),
}  # fmt: skip
"""Tests of each package, the quick ones first; a later step runs only when the earlier ones notice nothing."""
LIMIT_S = 300
"""CPU seconds of a step; one that takes more is an endless loop, which is a fault that was noticed."""

_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_NAMES = {"min": "max", "max": "min"}


@dataclass(frozen=True)
class Fault:
    """One change: the expression at a place in a file, before and after."""

    path: str
    line: int
    function: str
    before: str
    after: str
    start: int
    end: int
    nth: int = 1

    @property
    def key(self) -> str:
        """What names the fault in the list of reasons: lines may move, the rest stays."""
        which = f" #{self.nth}" if self.nth > 1 else ""
        return f"{self.path} {self.function}: {self.before} -> {self.after}{which}"


def faults_of(path: Path) -> list[Fault]:
    """Every small fault that could be planted in a file's functions."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    name = path.relative_to(SOURCES).as_posix()
    found: dict[tuple[int, int], Fault] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in _expressions(function):
            changed = _changed(node)
            if changed is None:
                continue
            start = offsets[node.lineno - 1] + node.col_offset
            end = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            what = (function.name, ast.unparse(node), ast.unparse(changed))
            if (start, end) not in found:
                seen[what] += 1
                found[start, end] = Fault(name, node.lineno, *what, start, end, seen[what])
    return list(found.values())


def _expressions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Expressions of a function's own body: no annotations, defaults, decorators, docstrings, messages of errors."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.Raise | ast.Assert | ast.JoinedStr):
            continue
        if isinstance(node, ast.expr):
            yield node
        stack += [
            child
            for field, child in _fields(node)
            if not (isinstance(node, ast.AnnAssign | ast.arg) and field == "annotation")
        ]


def _fields(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield name, item


def _changed(node: ast.expr) -> ast.expr | None:
    """The faulty expression, or None where there is nothing to change."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in _COMPARE:
            return ast.Compare(left, [_COMPARE[type(op)]()], right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return ast.BinOp(left, _ARITHMETIC[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _NAMES and len(args) > 1:
            return ast.Call(ast.Name(_NAMES[name]), args, [])
        case ast.IfExp(test=test, body=body, orelse=other):
            return ast.IfExp(test, other, body)
    return None


def choose(count: int, seed: int) -> list[Fault]:
    """A seeded choice, as many from each package as it has of all faults' square roots: small packages count too."""
    rng = random.Random(seed)
    pools = {}
    for package in STEPS:
        files = sorted((SOURCES / package).rglob("*.py"))
        pools[package] = [fault for path in files for fault in faults_of(path)]
        rng.shuffle(pools[package])
    weights = {package: len(pool) ** 0.5 for package, pool in pools.items()}
    chosen: list[Fault] = []
    for package, pool in pools.items():
        chosen += pool[: round(count * weights[package] / sum(weights.values()))]
    rng.shuffle(chosen)
    return chosen


def package_of(fault: Fault) -> str:
    return next(package for package in STEPS if fault.path.startswith(f"{package}/"))


def plant(fault: Fault, sources: Path) -> bytes:
    """Write the fault into a copy of the sources; returns the file as it was."""
    target = sources / "wattflow" / fault.path
    text = target.read_bytes()
    target.write_bytes(text[: fault.start] + f"({fault.after})".encode() + text[fault.end :])
    return text


def noticed(fault: Fault, sources: Path) -> tuple[bool, str, float]:
    """Whether a step of the package's tests fails, which one, and seconds."""
    started = time.monotonic()
    for number, step in enumerate(STEPS[package_of(fault)]):
        how = _run(step, sources)
        if how:
            return True, f"step {number + 1}: {how}", time.monotonic() - started
    return False, "", time.monotonic() - started


def _run(step: tuple[str, ...], sources: Path) -> str:
    """Empty when all tests pass; else the first that failed, or that time ran out."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", *step]
    env = os.environ | {"PYTHONPATH": str(sources), "NUMBA_DISABLE_JIT": "1", "WATTFLOW_MUTANT": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S)),
    )  # fmt: skip
    if done.returncode == 0:
        return ""
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"no end after {LIMIT_S} CPU seconds"
    out = done.stdout
    lines = [line for line in out.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0][:160] if lines else f"pytest ended with {done.returncode}"


def reasons() -> dict[str, str]:
    """Faults that change no answer, by key."""
    if not REASONS.exists():
        return {}
    with REASONS.open("rb") as file:
        return {str(row["fault"]): str(row["reason"]) for row in tomllib.load(file).get("unchanged", [])}


def run(faults: list[Fault], kept: Path, limit_s: float) -> list[dict[str, object]]:
    """Try every fault that is not kept yet; returns all results, in order."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    known = {row["key"]: row for row in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    results = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        for number, fault in enumerate(faults, 1):
            row = known.get(fault.key)
            if row is None:
                if time.monotonic() - started > limit_s:
                    break
                before = plant(fault, sources)
                seen, how, seconds = noticed(fault, sources)
                (sources / "wattflow" / fault.path).write_bytes(before)
                row = {"key": fault.key, "line": fault.line, "noticed": seen, "how": how, "seconds": round(seconds, 1)}
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                mark = "noticed" if seen else "SURVIVED"
                print(f"{number:4d}/{len(faults)} {mark:8s} {seconds:6.1f} s  {fault.key}", flush=True)
            results.append(row)
    return results


def report(results: list[dict[str, object]], wanted: int) -> None:
    """Survivors, those that change no answer, and the figures."""
    known = reasons()
    unchanged = [row for row in results if not row["noticed"] and row["key"] in known]
    survivors = [row for row in results if not row["noticed"] and row["key"] not in known]
    counted = len(results) - len(unchanged)
    for row in unchanged:
        print(f"changes no answer: {row['key']} (line {row['line']}): {known[str(row['key'])]}")
    for row in survivors:
        print(f"survived: {row['key']} (line {row['line']})")
    share = (counted - len(survivors)) / counted if counted else 0.0
    done = len(results) >= wanted
    print(f"figure mutants_tried {len(results)} faults goal {wanted} {'ok' if done else 'short'}")
    print(f"figure mutants_unchanged {len(unchanged)} faults goal none ok")
    print(f"figure mutants_noticed {share:.3f} share goal >={GOAL} {'ok' if share >= GOAL and done else 'short'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, default=ROOT / "out" / "mutants.jsonl", help="results as they come")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="start no fault after so long")
    parser.add_argument("--list", action="store_true", help="print the faults; try none")
    given = parser.parse_args()
    faults = choose(given.count, given.seed)
    if given.list:
        for fault in faults:
            print(f"{fault.path}:{fault.line} {fault.function}: {fault.before} -> {fault.after}")
        return
    report(run(faults, given.kept, given.limit_s), len(faults))


if __name__ == "__main__":
    main()
