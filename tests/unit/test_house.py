"""Rules of the house that no linter knows: what the package may import."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wattflow"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "data" not in path.relative_to(SOURCE).parts)


def imported(path: Path) -> set[str]:
    """Top-level packages that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_the_package_does_not_need_the_research_beside_it() -> None:
    assert [str(path) for path in MODULES if "research" in imported(path)] == []
    told = [str(path) for path in MODULES if '"research.' in path.read_text(encoding="utf-8")]
    assert told == [], "nor by a name that is imported later"
