"""The rule that nothing skips where everything is required, and the real data; for `tests` and `research/tests`.

With WATTFLOW_REQUIRE=1 (`.ci/run` sets it) a test that skips, or a file that skips as a whole, fails: `make tools`,
`make cluster-tools` and the extra `dev` provide all that tests need, except what only the machine's kernel can give.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
REQUIRED = os.environ.get("WATTFLOW_REQUIRE") == "1"
KERNEL_MAY_LACK = ("this kernel refuses perf events", "this kernel runs no containers")
"""Beginnings of the reasons that stay reasons when nothing may skip."""

DATA = Path(os.environ.get("WATTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; tests that need it skip by name without it (`.ci/run` fails instead)."""
    if not (DATA / "MANIFEST.csv").exists():
        pytest.skip(f"needs the real data of WATTFLOW_DATA, looked in {DATA}")
    return DATA


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _required((yield))


def ungrouped(items: Sequence[pytest.Item]) -> list[str]:
    """Return the tests of a group whose name does not end with it: xdist would deal them out one by one."""
    return [item.nodeid for item in items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]


def _required(report: Report) -> Report:
    """The report, failed if it says that something was skipped and nothing may."""
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(KERNEL_MAY_LACK):
            report.outcome = "failed"
            report.longrepr = f"WATTFLOW_REQUIRE=1, and this skipped: {reason}"
    return report
