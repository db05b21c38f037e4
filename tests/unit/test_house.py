"""Rules of the house that no linter knows: what the package may import, whose private names it may use.

What is left from before stands in a list here; nothing may be added to it.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wattflow"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "data" not in path.relative_to(SOURCE).parts)


@pytest.fixture(scope="module")
def sources() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools" / "house"))
    try:
        import sources
    finally:
        sys.path.pop(0)
    return sources


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


def test_benchmarks_that_need_research_or_the_rig_are_given_the_path() -> None:
    """A script's own folder is all that Python looks in; `make` must name the others where they are imported."""
    needy = []
    for make in [*ROOT.glob("make/*.mk"), *ROOT.glob("benchmarks/*.mk"), ROOT / "Makefile"]:
        for script in re.findall(r"\$\(RUN\) benchmarks/(\w+)\.py", make.read_text(encoding="utf-8")):
            seen, todo = set[str](), [script]
            while todo:
                name = todo.pop()
                file = ROOT / "benchmarks" / f"{name}.py"
                if name not in seen and file.exists():
                    todo += imported(file)
                seen.add(name)
            needy += [f"{make.name}: {script} imports {name}" for name in ("research", "kuberig") if name in seen]
    assert needy == [], "written with $(BENCH) these are found"


def test_no_modules_import_each_other_in_a_circle(sources: ModuleType) -> None:
    found = {tuple(some) for some in sources.cycles(sources.modules(ROOT / "src"))}
    assert found == set()


def test_private_names_stay_in_their_package(sources: ModuleType) -> None:
    assert sources.private_uses(sources.modules(ROOT / "src")) == []


def test_file_names_tell_modules_apart(sources: ModuleType) -> None:
    assert len(sources.equal_names(sources.modules(ROOT / "src").values())) <= 20


def test_decisions_draw_no_numbers_of_their_own() -> None:
    """Chance comes from the run's seed alone (`kernel.random`), so numpy's generators have no place there."""
    told = [
        str(path) for path in MODULES for part in ("engine", "policy")
        if path.is_relative_to(SOURCE / part) and "np.random" in path.read_text(encoding="utf-8")
    ]  # fmt: skip
    assert told == []


def test_counts_are_what_they_say(sources: ModuleType, tmp_path: Path) -> None:
    """A package of a few lines, with one of everything that is counted."""
    for name, text in {
        "wattflow/__init__.py": "",
        "wattflow/one/__init__.py": "",
        "wattflow/one/a.py": "from wattflow.two import b\n\n_mine = 1\n\n\ndef f():\n    return b._hidden  # why\n",
        "wattflow/two/__init__.py": "",
        "wattflow/two/b.py": "_hidden = 1  # noqa: E501\n\n\ndef g():\n    from wattflow.one import a\n    return a\n",
        "wattflow/two/a.py": "import math\n\n\ndef h(functions, s):\n    functions.act(s)\n    return math.pi\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    known = sources.modules(tmp_path)
    assert sources.lines(known.values()) == 19 and sources.statements(known.values()) == 12
    assert sources.private_uses(known) == ["wattflow.one.a:7 _hidden"]
    assert sources.cycles(known) == [["wattflow.one.a", "wattflow.two.b"]]
    assert sources.equal_names(known.values()) == {"a.py": 2}
    assert sources.comment_share(known.values()) == pytest.approx(100 / 19)
    assert sources.callers(known, "functions", "act", ()) == ["wattflow.two.a.h"]
