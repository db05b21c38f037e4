"""A pytest plugin: a test that takes more than WATTFLOW_LIMIT_S of CPU time fails. A fault may make a loop endless."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from types import FrameType

import pytest

LIMIT_S = float(os.environ["WATTFLOW_LIMIT_S"])


class NoEnd(BaseException):
    """No `Exception`: what catches those must not catch this."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise NoEnd(f"no end after {LIMIT_S:.0f} CPU seconds")

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
