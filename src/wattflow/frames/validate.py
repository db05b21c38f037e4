"""Which frames can work."""

from __future__ import annotations

from wattflow.frames.frame import Frame


def check(frame: Frame) -> None:
    """Later."""
