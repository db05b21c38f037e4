"""Small faults that could be planted in the sources, and a seeded choice of them."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "wattflow"
PACKAGES = ("engine", "sim", "policy", "lab/figures")
ROOMS = {
    "live": ("live",),
    "runtime/service": tuple(
        f"runtime/{name}.py"
        for name in [
            "service",
            "actions",
            "records",
            "decider",
            "compaction",
            "recovery",
            "turns",
        ]
    ),
}
"""The two rooms that everybody passes, by name: folders and files. `Service` is cut into several modules."""

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
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
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


def _expressions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """Expressions of a function's own body: no annotations, defaults, decorators, docstrings, messages of errors."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Raise | ast.Assert | ast.JoinedStr):
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


def choose(count: int, seed: int, packages: Sequence[str] = PACKAGES) -> list[Fault]:
    """A seeded choice, as many from each package as it has of all faults' square roots: small packages count too.

    Faults are drawn by the hash of their names, so that an edit elsewhere leaves the choice as it was.
    """

    def drawn(fault: Fault) -> str:
        return hashlib.sha256(f"{seed} {fault.key}".encode()).hexdigest()

    pools = {
        package: sorted((f for path in _files(package) for f in faults_of(path)), key=drawn) for package in packages
    }
    roots = sum(len(pool) ** 0.5 for pool in pools.values())
    shares = {package: round(count * len(pool) ** 0.5 / roots) for package, pool in pools.items()}
    shares[packages[0]] += count - sum(shares.values())
    return sorted((fault for package, pool in pools.items() for fault in pool[: shares[package]]), key=drawn)


def _files(package: str) -> list[Path]:
    """List the sources of a package, or of a room by its name."""
    places = [SOURCES / place for place in ROOMS.get(package, (package,))]
    return [path for place in places for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
