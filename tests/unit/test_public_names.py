"""What `import wattflow` offers, and what it costs."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

import wattflow


def test_every_public_name_is_there_and_there_are_few() -> None:
    assert len(wattflow.__all__) <= 25
    assert sorted(wattflow.__all__) == wattflow.__all__ == dir(wattflow)
    for name in wattflow.__all__:
        assert getattr(wattflow, name) is not None


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
    for heavy in ("numpy", "numba", "pyarrow", "matplotlib"):
        assert f"'{heavy}'" not in seen, heavy


@pytest.mark.parametrize(
    ("arguments", "goal_s"), [(("-c", "import wattflow"), 0.15), (("-m", "wattflow.cli", "--help"), 0.3)]
)
def test_starting_is_quick(arguments: tuple[str, ...], goal_s: float) -> None:
    """Processor time, best of three: wall time on a busy machine says little. `make bench-start` shows both."""

    def spent_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(spent_s() for _ in range(3)) < goal_s
