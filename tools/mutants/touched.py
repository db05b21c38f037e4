"""A pytest plugin: which functions of wattflow each test calls, and how long it takes, uncompiled.

Appends one line per test to the file that WATTFLOW_MAP names. A test that is in it already is left out, so the map can
be made in portions, unless WATTFLOW_CHANGED names its file; one that takes more than MOST_S or fails uncompiled is
noted and never chosen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest
from recording import rows

MAP = Path(os.environ["WATTFLOW_MAP"])
CHANGED = os.environ["WATTFLOW_CHANGED"].split(os.pathsep)
MOST_S = 20.0


class TooLong(BaseException):
    """No `Exception`: what catches those must not catch this."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the map has."""
    known = {row["test"] for row in rows(MAP)}
    items[:] = [item for item in items if item.nodeid not in known or item.nodeid.partition("::")[0] in CHANGED]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    called: dict[int, CodeType] = {}

    def note(frame: FrameType, event: str, given: object) -> None:
        code = frame.f_code
        called[id(code)] = code

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"more than {MOST_S:.0f} s")

    # By processor time: on a busy machine a quick test takes long, and would never be chosen.
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    started = time.process_time()
    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        _append(item, called, time.process_time() - started)


def _append(item: pytest.Item, called: dict[int, CodeType], seconds: float) -> None:
    functions = {
        f"{code.co_filename.rpartition('/wattflow/')[2]} {code.co_name}"
        for code in called.values()
        if "/wattflow/" in code.co_filename
    }
    row = {"test": item.nodeid, "seconds": round(seconds, 3), "passed": item.nodeid not in _FAILED}
    line = json.dumps(row | {"functions": sorted(functions)}) + "\n"
    file = os.open(MAP, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())  # in one piece: other processes append to the same file
    os.close(file)


_FAILED: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that does not pass uncompiled proves nothing about a fault."""
    if report.outcome != "passed":
        _FAILED.add(report.nodeid)
