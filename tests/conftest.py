"""What holds for all tests: nothing skips where everything is required (`required`), no process is left behind."""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from required import data_dir, pytest_make_collect_report, pytest_runtest_makereport, ungrouped

__all__ = ["data_dir", "pytest_make_collect_report", "pytest_runtest_makereport"]

# The same examples in every run, so that a failure is a change's own. WATTFLOW_FUZZ=1 draws new ones.
settings.register_profile("same", derandomize=not os.environ.get("WATTFLOW_FUZZ"), deadline=None)
settings.load_profile("same")

os.environ.setdefault("WATTFLOW_TASKS_AS", "self")  # tasks of tests write into folders that are only the tests' own
os.environ.setdefault("WATTFLOW_FIRST_RUN", "compile")  # no test leaves a process behind that compiles

# typer reads the annotations of all commands anew for each call; tests type hundreds.
vars(typer.testing)["_get_command"] = functools.cache(typer.main.get_command)

TOGETHER = {"live": ("kube", "live", "runtime"), "sim": ("cli", "lab", "learn", "plan", "policy", "sim")}
"""Rooms of unit tests that need the same code compiled, many seconds of it: two workers would do that at once."""
GROUPS = {room: group for group, rooms in TOGETHER.items() for room in rooms}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the unit tests of a room with one worker (`--dist loadgroup`): it sets up and compiles once for all."""
    if not config.pluginmanager.hasplugin("xdist"):  # as in the environments of `make test-numba`
        return
    unit = Path(__file__).parent / "unit"
    for item in items:
        if item.path.is_relative_to(unit) and item.get_closest_marker("xdist_group") is None:
            room = item.path.relative_to(unit).parts[0]
            item.add_marker(pytest.mark.xdist_group(GROUPS.get(room, room)))


@pytest.hookimpl(tryfirst=True)  # before xdist tells what was collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse groups without effect; then keep what was imported out of later collections of garbage."""
    if session.config.getoption("loadgroup", False) and (lost := ungrouped(session.items)):
        raise RuntimeError(
            f"this pytest-xdist cannot group tests under this pytest: {lost[0]} and {len(lost) - 1} more"
        )
    freeze()


def freeze() -> None:
    """Keep what is loaded out of later collections of garbage: numba and compiled code are millions of objects."""
    gc.collect()
    gc.freeze()


def _processes() -> dict[int, str]:
    """Return the command lines of this process's children that run, less Python's own tracker of shared memory."""
    found: dict[int, str] = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in listed.read_text().split():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            if command and "resource_tracker" not in command:  # one that has ended and was not waited for has none
                found[int(pid)] = command
    return found


@pytest.fixture(autouse=True, scope="module")
def _leaves_no_process() -> Iterator[None]:
    """Fail where a module's tests leave a process behind: it takes the processor of the tests after it."""
    before = _processes()
    yield
    until = time.monotonic() + 60.0
    while (left := {pid: command for pid, command in _processes().items() if pid not in before}) and (
        time.monotonic() < until
    ):
        time.sleep(0.05)  # one that was told to end may take a while
    freeze()  # what a module loaded stays loaded
    assert not left, f"processes that the tests of this module left behind: {left}"
