"""With WATTFLOW_REQUIRE=1 nothing skips but what only a machine's kernel can give."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from required import ungrouped

TESTS = """
import pytest

def test_called():
    pytest.skip("no such program")

@pytest.mark.skipif(True, reason="no such library")
def test_marked():
    pass

def test_kernel():
    pytest.skip("this kernel refuses perf events: not permitted")

@pytest.mark.xfail(strict=True)
def test_expected():
    assert False
"""


@pytest.mark.parametrize(
    ("required", "outcome"), [("0", "4 skipped, 1 xfailed"), ("1", "1 failed, 1 skipped, 1 xfailed, 2 errors")]
)
def test_what_skips_fails_where_everything_is_required(tmp_path: Path, required: str, outcome: str) -> None:
    for name in ("conftest.py", "required.py"):
        shutil.copy(Path(__file__).parents[1] / name, tmp_path)
    (tmp_path / "test_skips.py").write_text(TESTS)
    (tmp_path / "test_whole.py").write_text('import pytest\npytest.importorskip("no_such_module")\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors", str(tmp_path)],
        env=os.environ | {"WATTFLOW_REQUIRE": required, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert outcome in done.stdout, done.stdout


def test_a_group_that_does_not_reach_the_name_of_a_test_has_no_effect() -> None:
    def item(nodeid: str, grouped: bool) -> Any:
        return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda _: "cli" if grouped else None)

    items = [item("a.py::one", False), item("a.py::two@cli", True), item("a.py::three[1]", True)]
    assert ungrouped(items) == ["a.py::three[1]"]
