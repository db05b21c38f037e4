"""The recipes of CONTRIBUTING.md, followed as they stand: every block becomes its file, every test block runs."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattflow.policy import registry as policies
from wattflow.traces import registry as formats

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
BLOCK = re.compile(r"^```python\n# (?P<path>\S+)\n(?P<code>.*?)^```$", re.M | re.S)


def blocks() -> dict[str, str]:
    """Code of the page by the file it belongs into."""
    return {match["path"]: match["code"] for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, types.ModuleType]]:
    """All modules of the page, importable under their names, and the two registry lines that it gives."""
    made = {}
    for path, code in blocks().items():
        name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8")
        module = types.ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
        made[path] = module
        exec(compile(code, str(file), "exec"), vars(module))
    text = PAGE.read_text(encoding="utf-8")
    line = re.search(r'`"(coolest)": "([^"]+)"`', text)
    entry = re.search(r'`(Format\("stopwatch".*?\))`', text)
    assert line is not None
    assert entry is not None
    monkeypatch.setitem(policies.POLICIES, line[1], line[2])
    stopwatch = eval(entry[1], {"Format": formats.Format})
    monkeypatch.setattr(formats, "FORMATS", {"stopwatch": stopwatch, **formats.FORMATS})
    yield made


def test_every_recipe_has_its_file_and_its_test() -> None:
    assert len(blocks()) == 8
    assert sum(path.startswith("tests/") for path in blocks()) == 4


@pytest.mark.parametrize("path", [path for path in blocks() if path.startswith("tests/")])
def test_a_recipe_works_as_it_stands(path: str, installed: dict[str, types.ModuleType], tmp_path: Path) -> None:
    tests = {name: value for name, value in vars(installed[path]).items() if name.startswith("test_")}
    assert tests
    for number, test in enumerate(tests.values()):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        wanted = {"tmp_path": folder} if "tmp_path" in inspect.signature(test).parameters else {}
        test(**wanted)


def test_the_new_policy_is_found_by_name(installed: dict[str, types.ModuleType]) -> None:
    assert policies.load("coolest").name == "coolest"
