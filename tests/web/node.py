"""Node, its packages and a browser, found or skipped by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"


def need_node() -> str:
    """Path of node; skips where it or the packages of web/ are missing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, version 20.19 or later")
    if not (WEB / "node_modules" / "vite").is_dir():
        pytest.skip("needs the packages of web/ (`make web-tools`)")
    return node


def need_browser() -> str:
    """Path of Chromium; skips without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("needs chromium (`make tools`)")
