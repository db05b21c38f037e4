"""A real Run's joules and peak: what its meters' windows say, and unknown where nobody measured."""

from __future__ import annotations

from typing import Any

import pytest

from wattflow.model.run import ACCOUNTS
from wattflow.server import runs


def window(node: str, began_s: float, ended_s: float, counted_j: float, idle_j: float = 0.0) -> dict[str, Any]:
    return {"node": node, "began_s": began_s, "ended_s": ended_s, "counted_j": counted_j, "idle_j": idle_j,
            "tasks_j": counted_j - idle_j, "unattributed_j": 0.0}  # fmt: skip


def test_the_peak_is_the_sum_of_what_nodes_drew_at_the_same_time() -> None:
    windows = [
        window("a", 0, 1, 50.0),
        window("a", 1, 2, 80.0),
        window("b", 0.5, 1.5, 10.0),
        window("b", 1.5, 2.5, 40.0),
    ]
    assert runs.peak_w(windows, {"a", "b"}) == pytest.approx(120.0)
    assert runs.peak_w(windows[:2], {"a"}) == pytest.approx(80.0)


def test_a_node_that_nobody_measured_makes_the_peak_unknown_not_nought() -> None:
    assert runs.peak_w([], {"a"}) is None
    assert runs.peak_w([window("a", 0, 1, 50.0)], {"a", "b"}) is None
    assert "tasks alone on b" in runs._covered([window("a", 0, 1, 50.0)], {"a", "b"})


def test_a_window_at_the_edge_counts_by_the_time_that_is_in_the_run() -> None:
    windows = [window("a", -0.5, 0.5, 20.0, idle_j=20.0), window("a", 0.5, 1.5, 30.0, idle_j=20.0)]
    rows = [{"node": "a", "outcome": "done", "energy_j": 10.0}]
    joules = dict(zip(ACCOUNTS, runs._energy(windows, {"a": 0}, rows, (0.0, 1.0))[0], strict=True))
    assert joules["idle"] == pytest.approx(10.0 + 10.0) and joules["run"] == pytest.approx(10.0)
    assert joules["unattributed"] == pytest.approx(0.0)
