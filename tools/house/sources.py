"""What the sources of the package look like, read from their syntax trees: counts that `make house` prints."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

FOR_TOOLS = ("# fmt:", "# noqa", "# type:", "# pragma", "# ruff:", "# isort:", "#!")
"""Comments that speak to programs, not to readers."""
PUBLIC = ("_", "_fields", "_make", "_replace", "_asdict", "_mapping")
"""Names of the standard library and of SQLAlchemy that are public all the same."""


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree: walking is most of what counting takes, and several counts ask for it."""
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """The part below `wattflow` that it belongs to."""
        return _package(self.name)


def modules(source: Path, package: str = "wattflow") -> dict[str, Module]:
    """List every module below ``source``; data folders hold none."""
    found: dict[str, Module] = {}
    for path in sorted((source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        if "data" not in parts:
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path)
    return found


def by_package(source: Path) -> dict[str, list[Module]]:
    """Sort the modules below ``source`` by the part of the package that they belong to."""
    found: dict[str, list[Module]] = defaultdict(list)
    for one in modules(source).values():
        found[one.package].append(one)
    return found


def lines(some: Iterable[Module]) -> int:
    """Count lines of text."""
    return sum(len(one.text.splitlines()) for one in some)


def lines_by_branch(root: Path, ref: str, alone: Mapping[str, str] = MappingProxyType({})) -> Counter[str]:
    """Net lines of ``src`` in the commits since ``ref``, each counted for the branch whose merge brought it first.

    What no merge brought is counted for the name that ``alone`` has for the commit (by the first ten digits), if any.
    """

    def git(*asked: str) -> list[str]:
        done = subprocess.run(["git", "-C", str(root), *asked], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.splitlines()

    branch: dict[str, str] = {}
    for line in git("log", "--merges", "--reverse", "--topo-order", "--format=%P|%s", f"{ref}..HEAD"):
        parents, title = line.split("|", 1)
        first, *others = parents.split()
        name = title.removeprefix("Merge branch ").removesuffix(" into integ").replace("'", "")
        for one in git("rev-list", "--no-merges", *others, f"^{first}", f"^{ref}"):
            branch.setdefault(one, name)
    found: Counter[str] = Counter()
    at = ""
    for line in git("log", "--no-merges", "--numstat", "--format=%H", f"{ref}..HEAD", "--", "src/*.py"):
        if "\t" in line:
            more, less, _ = line.split("\t")
            found[at] += int(more) - int(less)
        elif line:
            at = branch.get(line, alone.get(line[:10], "no branch"))
    return found


def statements(some: Iterable[Module]) -> int:
    """Count statements of the syntax trees: a measure that neither wrapping nor comments move."""
    return sum(isinstance(node, ast.stmt) for one in some for node in one.nodes)


def comment_share(some: Iterable[Module]) -> float:
    """Share of lines, in per cent, that carry a comment for readers."""
    told, total = 0, 0
    for one in some:
        total += len(one.text.splitlines())
        for token in tokenize.generate_tokens(io.StringIO(one.text).readline):
            told += token.type == tokenize.COMMENT and not token.string.startswith(FOR_TOOLS)
    return 100.0 * told / max(1, total)


def equal_names(some: Iterable[Module]) -> dict[str, int]:
    """Find file names that stand in several folders, those that Python asks for left out."""
    found = Counter(one.path.name for one in some if not one.path.name.startswith("__"))
    return {name: many for name, many in found.items() if many > 1}


def imports(one: Module, known: dict[str, Module]) -> set[str]:
    """Modules that one imports, wherever in it and for whatever: an import put off is an import."""
    found: set[str] = set()
    for node in one.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, one)
            found |= {name for alias in node.names if (name := _module_of(base, alias.name, known))}
    return found - {one.name}


def _absolute(node: ast.ImportFrom, one: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = one.name.split(".")
    up = node.level - (one.path.name == "__init__.py")
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


def _module_of(base: str, name: str, known: dict[str, Module]) -> str:
    return f"{base}.{name}" if f"{base}.{name}" in known else base if base in known else ""


def cycles(known: dict[str, Module]) -> list[list[str]]:
    """Find modules that import each other in a circle (strongly connected components).

    The package's own `__init__` names everything and loads it when it is used, so it makes no circle.
    """
    edges = {name: sorted(imports(one, known) - {"wattflow"}) for name, one in known.items()}
    return [sorted(some) for some in _components(edges) if len(some) > 1]


def _components(edges: dict[str, list[str]]) -> list[list[str]]:
    """Tarjan's strongly connected components, without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            at, rest = work[-1]
            other = next(rest, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    cut = stack.index(at)
                    found.append(stack[cut:])
                    del stack[cut:]
            elif other not in index:
                index[other] = low[other] = len(index)
                stack.append(other)
                work.append((other, iter(edges[other])))
            elif other in stack:
                low[at] = min(low[at], index[other])
    return found


def private_uses(known: dict[str, Module]) -> list[str]:
    """List uses of private names of another package: imported, read from its module, or from an object of its classes.

    Of an object the class is not known: an attribute counts as a package's own where any of its modules defines one.
    """
    own: dict[str, set[str]] = defaultdict(set)
    for one in known.values():
        own[one.package] |= _defined(one)
    everywhere = set().union(*own.values())
    found = []
    for one in known.values():
        for name, line, owner in _used(one, known):
            foreign = owner != one.package if owner else name in everywhere and name not in own[one.package]
            if foreign:
                found.append(f"{one.name}:{line} {name}")
    return found


def _defined(one: Module) -> set[str]:
    """Private attributes and methods of a module's classes; a function of a module is no attribute of an object."""
    found: set[str] = set()
    for node in one.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(part.name)
                elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    found.add(part.target.id)
    return {name for name in found if _is_private(name)}


def _used(one: Module, known: dict[str, Module]) -> Iterator[tuple[str, int, str]]:
    """Private names that a module uses, where, and the package of the module they are of, if that is known."""
    aliases: dict[str, str] = {}
    for node in one.nodes:
        if isinstance(node, ast.ImportFrom) and (base := _absolute(node, one)).startswith("wattflow"):
            for alias in node.names:
                if f"{base}.{alias.name}" in known:
                    aliases[alias.asname or alias.name] = _package(f"{base}.{alias.name}")
                elif _is_private(alias.name):
                    yield alias.name, node.lineno, _package(base)
    for node in one.nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_self(node.value):
            owner = aliases.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
            yield node.attr, node.lineno, owner


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def callers(known: dict[str, Module], owner: str, method: str, leave: tuple[str, ...]) -> list[str]:
    """Functions that call ``owner.method(…)``, packages in ``leave`` left out."""
    return [
        f"{one.name}.{function.name}"
        for one in known.values()
        if not one.name.startswith(leave)
        for function in one.nodes
        if isinstance(function, ast.FunctionDef) and any(_calls(node, owner, method) for node in ast.walk(function))
    ]


def built(known: dict[str, Module], owner: str, maker: str, leave: tuple[str, ...]) -> list[str]:
    """Modules that make something by ``owner.maker(…)`` when they are loaded."""
    return [
        one.name
        for one in known.values()
        if not one.name.startswith(leave)
        for statement in one.tree.body
        if any(_calls(node, owner, maker) for node in ast.walk(statement))
    ]


def _calls(node: ast.AST, owner: str, method: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == owner
    )
