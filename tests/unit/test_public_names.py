"""What `import wattflow` offers, and what it costs."""

from __future__ import annotations

import inspect
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import wattflow

ANY = re.compile(r"\bAny\b")


def test_every_public_name_is_there_and_there_are_few() -> None:
    assert len(wattflow.__all__) <= 25
    assert sorted(wattflow.__all__) == wattflow.__all__ == dir(wattflow)
    for name in wattflow.__all__:
        assert getattr(wattflow, name) is not None


def test_no_public_signature_says_any() -> None:
    """`NDArray` is a name of its own here: annotations are looked at as they are written."""
    said = []
    for name in wattflow.__all__:
        thing = getattr(wattflow, name)
        members = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
        for member, value in members:
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(function) and (member == "__init__" or not member.startswith("_")):
                said += [f"{name}.{member}: {a}" for a in map(str, function.__annotations__.values()) if ANY.search(a)]
        said += [f"{name}: {a}" for a in map(str, getattr(thing, "__annotations__", {}).values()) if ANY.search(a)]
    assert not said


def test_no_module_is_longer_than_500_lines() -> None:
    sources = Path(wattflow.__file__).parent
    modules = [p for p in sources.rglob("*.py") if "data" not in p.relative_to(sources).parts]
    long = {str(p): n for p in modules if (n := len(p.read_text(encoding="utf-8").splitlines())) > 500}
    assert len(modules) > 300 and not long


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wattflow.nothing  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, wattflow; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "numba", "pyarrow", "matplotlib", "typer", "rich"):
        assert f"'{heavy}'" not in seen, heavy


def test_the_command_line_starts_without_the_compiler() -> None:
    code = "import sys, wattflow.cli.main; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "numba", "pyarrow", "matplotlib", "asyncio"):
        assert f"'{heavy}'" not in seen, heavy


@pytest.mark.parametrize(
    ("arguments", "goal_s"), [(("-c", "import wattflow"), 0.15), (("-m", "wattflow.cli", "--help"), 0.3)]
)
def test_starting_is_quick(arguments: tuple[str, ...], goal_s: float) -> None:
    """Processor time, best of ten: wall time on a busy machine says little, and processor time grows with what others
    do to the caches. `make bench-start` shows both."""

    def spent_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert any(spent_s() < goal_s for _ in range(10))


def test_the_version_stands_in_one_place_and_what_repeats_it_agrees() -> None:
    root = Path(__file__).parents[2]
    chart = (root / "deploy" / "helm" / "wattflow" / "Chart.yaml").read_text()
    assert re.findall(r'^(?:version|appVersion): "?([\d.]+)"?$', chart, re.M) == [wattflow.__version__] * 2
    for part in ("base", "claims", "levels"):
        tag = re.search(r'newTag: "([\d.]+)"', (root / "deploy" / part / "kustomization.yaml").read_text())
        assert tag is not None and tag[1] == wattflow.__version__
    project = (root / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project and 'attr = "wattflow.__version__"' in project
