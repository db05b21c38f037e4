"""The page that the package carries is what its sources build, stays small and asks nobody else for anything."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from .files_page import WEB as BUILT
from .node import WEB as SOURCES
from .node import need_node

MOST_BYTES = 250_000


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_the_sources_build_the_page_that_is_kept(tmp_path: Path) -> None:
    node = need_node()
    for command in (["typescript/bin/tsc", "--noEmit"], ["vite/bin/vite.js", "build", "--outDir", str(tmp_path)]):
        program = str(SOURCES / "node_modules" / command[0])
        done = subprocess.run([node, program, *command[1:]], cwd=SOURCES, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert files(tmp_path) == files(BUILT), "the page is older than its sources: `make web` builds it"


def test_the_page_with_all_views_is_small() -> None:
    assert 0 < sum(len(gzip.compress(content)) for content in files(BUILT).values()) <= MOST_BYTES


def test_nothing_on_the_page_is_inline_or_from_elsewhere() -> None:
    page = files(BUILT)["index.html"].decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == [] and "<style" not in page and "style=" not in page
    assert re.findall(r'(?:src|href)="((?!\./assets/|data:,)[^"]*)"', page) == []


def test_the_lock_names_no_registry() -> None:
    lock = (SOURCES / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock and "://" not in re.sub(r'"url": "[^"]*"', "", lock)
