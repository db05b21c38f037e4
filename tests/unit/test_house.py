"""Rules of the house that no linter knows: what the package may import, whose private names it may use.

What is left from before stands in a list here; nothing may be added to it.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wattflow"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "data" not in path.relative_to(SOURCE).parts)


pytestmark = pytest.mark.xdist_group("house")  # one process reads all sources, once


@pytest.fixture(scope="module")
def sources() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools" / "house"))
    try:
        import sources
    finally:
        sys.path.pop(0)
    return sources


@pytest.fixture(scope="module")
def known(sources: ModuleType) -> Iterator[dict[str, Any]]:
    """Every module, read once; without the collector, which would look through all trees again and again."""
    gc.disable()
    found: dict[str, Any] = sources.modules(ROOT / "src")
    for one in found.values():
        assert one.nodes
    yield found
    gc.enable()


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Top-level packages that a module imports, wherever in it."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_the_package_does_not_need_the_research_beside_it(known: dict[str, Any]) -> None:
    assert [name for name, one in known.items() if "research" in imported(one.nodes)] == []
    told = [name for name, one in known.items() if '"research.' in one.text]
    assert told == [], "nor by a name that is imported later"


def test_processes_of_ours_look_for_no_module_in_the_users_folder(known: dict[str, Any]) -> None:
    """`python -m` puts the current folder first: a `copy.py` there would be taken for Python's own."""
    assert [
        name for name, one in known.items() if re.search(r"""executable(, "-m"|} -m)|_python}" -m""", one.text)
    ] == []


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
                    todo += imported(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
                seen.add(name)
            needy += [f"{make.name}: {script} imports {name}" for name in ("research", "kuberig") if name in seen]
    assert needy == [], "written with $(BENCH) these are found"


def test_no_modules_import_each_other_in_a_circle(sources: ModuleType, known: dict[str, Any]) -> None:
    found = {tuple(some) for some in sources.cycles(known)}
    assert found == set()


def test_private_names_stay_in_their_package(sources: ModuleType, known: dict[str, Any]) -> None:
    assert sources.private_uses(known) == []


def test_file_names_tell_modules_apart(sources: ModuleType, known: dict[str, Any]) -> None:
    assert len(sources.equal_names(known.values())) <= 20


SHARED_NAMES = {
    "Kubernetes' own word, beside ours for the same thing or another": {
        "Constraint", "Counter", "Device", "Lease", "Node", "Service", "Spread", "Taint", "Toleration", "Template",
        "Workload",
    },
    "a fact of the model, as the runtime's messages carry it, and as Nextflow writes it down": {
        "Device", "Function", "Node", "Task", "Variant",
    },
    "a versioned interface has it, and renaming it would break those who built on it": {
        "Driver", "Ended", "Energy", "Outcome", "Plan", "TaskEnergy", "Window",
    },
    "files hold it by its name: models, an engine's snapshot": {"Keyed", "Names", "Offer"},
    "each is the client of its own protocol: a role in a frame, the runtime's, the API server's": {"Client"},
    "the role, as a frame describes it and as Kubernetes runs it": {"Broker"},
    "the same idea, of the engine and of Kubernetes": {"Answer", "Replicas", "Shadow"},
}  # fmt: skip
"""Names of several classes, by the reason why they stand."""


def test_class_names_tell_classes_apart(known: dict[str, Any]) -> None:
    found: dict[str, list[str]] = {}
    for name, one in known.items():
        for node in one.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name)
    shared = set().union(*SHARED_NAMES.values())
    assert {name: where for name, where in found.items() if len(where) > 1 and name not in shared} == {}
    assert {name for name in shared if len(found.get(name, ())) < 2} == set(), "they need no exception any more"


def test_policies_and_the_engine_open_nothing(known: dict[str, Any]) -> None:
    """What the import contracts cannot see: built-in `open` and `print`, and numpy's readers and writers."""
    calls = {"open", "print", "input", "np.load", "np.save", "np.savez", "np.loadtxt", "np.fromfile", "np.memmap"}
    told = [
        f"{name}:{node.lineno} {ast.unparse(node.func)}"
        for name, one in known.items()
        if one.package in ("wattflow.engine", "wattflow.policy") and name not in LOADERS
        for node in one.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in calls
    ]
    assert told == []


LOADERS = ("wattflow.policy.spec", "wattflow.policy.weights")
"""Make a policy out of what a user named, a file perhaps, before anything is decided."""


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
    parts = {place: sources.lines(some) for place, some in sources.by_package(tmp_path).items()}
    assert parts == {"wattflow": 0, "wattflow.one": 7, "wattflow.two": 12}
    assert sources.private_uses(known) == ["wattflow.one.a:7 _hidden"]
    assert sources.cycles(known) == [["wattflow.one.a", "wattflow.two.b"]]
    assert sources.equal_names(known.values()) == {"a.py": 2}
    assert sources.comment_share(known.values()) == pytest.approx(100 / 19)
    assert sources.callers(known, "functions", "act", ()) == ["wattflow.two.a.h"]


def test_lines_belong_to_the_branch_that_brought_them(sources: ModuleType, tmp_path: Path) -> None:
    def git(*told: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *told], check=True, capture_output=True)

    def commit(name: str, lines: int) -> None:
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / name).write_text("x = 1\n" * lines)
        git("add", ".")
        git("commit", "-m", name)

    git("init", "-b", "main")
    commit("a.py", 9)
    git("tag", "before")
    git("checkout", "-b", "lean")
    commit("a.py", 4)
    git("mv", "src/a.py", "moved.py")
    commit("b.py", 3)
    git("checkout", "main")
    commit("c.py", 7)
    git("merge", "--no-ff", "-m", "Merge branch 'lean' into integ", "lean")
    assert sources.lines_by_branch(tmp_path, "before") == {"lean": -6, "no branch": 7}
    asked = ["git", "-C", str(tmp_path), "rev-parse", "--short=10", "HEAD^1"]
    alone = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    assert sources.lines_by_branch(tmp_path, "before", {alone: "ours"}) == {"lean": -6, "ours": 7}


def test_docstrings_say_what_something_does_and_not_what_or_whether(known: dict[str, Any]) -> None:
    told = [
        f"{name}: {node.name}"
        for name, one in known.items()
        for node in one.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (ast.get_docstring(node) or "").startswith(("What ", "Whether "))
    ]
    # A string below an attribute or a constant documents it.
    told += [
        f"{name}: {node.value.value!r}"
        for name, one in known.items()
        for node in one.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        and str(node.value.value).startswith(("What ", "Whether "))
    ]  # fmt: skip
    assert told == []


def test_a_module_reads_whatever_is_packaged(known: dict[str, Any]) -> None:
    """Measurements that only benchmarks and papers read belong into research/data: the wheel carries them in vain."""
    by_name = ("clusters", "designs", "profiles", "assets")  # whole folders, of which a user names a file
    text = "\n".join(one.text for one in known.values())
    files = [path for path in (SOURCE / "data").rglob("*") if path.is_file() and path.parent.name not in by_name]
    assert files and [path.name for path in files if path.name not in text and path.name != "SOURCES.md"] == []


def test_a_wheel_packed_anew_holds_the_same_in_fewer_bytes(tmp_path: Path) -> None:
    wheel, folder = tmp_path / "a-1-py3-none-any.whl", "a/naïve.py"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(folder, "x = 1\n" * 99)
        archive.writestr("a/__init__.py", "")
    with zipfile.ZipFile(wheel) as archive:
        before = [(one.filename, one.date_time, one.external_attr, one.CRC) for one in archive.infolist()]
    size = wheel.stat().st_size
    subprocess.run([sys.executable, str(ROOT / "tools" / "pack_wheel.py"), str(wheel)], check=True)
    with zipfile.ZipFile(wheel) as archive:
        assert [(one.filename, one.date_time, one.external_attr, one.CRC) for one in archive.infolist()] == before
        assert archive.testzip() is None and archive.read(folder) == b"x = 1\n" * 99
    assert wheel.stat().st_size < size and [path.name for path in tmp_path.iterdir()] == [wheel.name]
