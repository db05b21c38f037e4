"""The frames that ship with wattflow: known systems and the plain designs of the benchmarks."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from wattflow.frames.frame import Frame
from wattflow.frames.frame_toml import parse_frame, read_frame
from wattflow.model.errors import unknown_name


def _folder() -> Traversable:
    return resources.files("wattflow") / "data" / "frames"


def frame_names() -> list[str]:
    """Return all frames that ship with wattflow, sorted."""
    return sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml"))


def frame_text(name: str) -> str:
    """Return the file of a shipped frame."""
    if name not in frame_names():
        raise unknown_name(
            "frame", name, frame_names(), "`wattflow lab frames` lists all; a path ending in .toml is read"
        )
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def load_frame(name: str) -> Frame:
    """Return a shipped frame by name, or one from a file when the name ends in ``.toml``."""
    if name.endswith(".toml"):
        return read_frame(Path(name))
    return parse_frame(frame_text(name), f"frame {name}")
