"""A real Run's joules and peak: what its meters' windows say, and unknown where nobody measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InvalidInput
from wattflow.model.run import ACCOUNTS
from wattflow.server import runs
from wattflow.server.energy import from_time, read_zone


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


def test_carbon_and_cost_follow_the_hour_of_the_day(tmp_path: Path) -> None:
    (tmp_path / "zone.toml").write_text("pue = 2.0\ncarbon = { step = 3600, values = [100, 300] }\nprice = 0.5\n")
    zone = from_time(read_zone(tmp_path), 3 * 3600.0)  # an odd hour: the second value first
    assert zone.carbon.values == (300.0, 100.0) and zone.price_known
    cluster = Cluster("live", (Node("a", 1, 1), Node("b", 1, 1)), (zone,))
    windows = [window("a", 3 * 3600.0, 3 * 3600.0 + 1, 3.6e6), window("a", 4 * 3600.0, 4 * 3600.0 + 1, 3.6e6)]
    carbon_g, cost = runs._supply(windows, cluster, 3 * 3600.0)
    assert carbon_g.tolist() == [pytest.approx(2 * (300 + 100)), 0.0]
    assert cost.tolist() == [pytest.approx(2.0), 0.0]
    assert not read_zone(tmp_path / "nowhere").carbon_known
    (tmp_path / "zone.toml").write_text("carbn = 3\n")
    with pytest.raises(InvalidInput, match=r"zone\.toml"):
        read_zone(tmp_path)


def test_gaps_between_windows_are_not_nothing() -> None:
    windows = [window("a", 0.0, 1.0, 50.0, 20.0), window("a", 1.0, 2.0, 60.0, 20.0), window("a", 5.0, 6.0, 40.0, 20.0)]
    log = runs._power_log(windows, {"a": 0, "b": 1}, (0.0, 8.0))
    assert log is not None
    mine = [(row["time_s"], row["watts"], row["idle_w"]) for row in log if row["node"] == 0]
    assert [time_s for time_s, _, _ in mine] == [0.0, 1.0, 2.0, 5.0, 6.0]
    assert [watts for _, watts, _ in mine if watts == watts] == [50.0, 60.0, 40.0]
    assert [(row["time_s"], row["watts"] != row["watts"]) for row in log if row["node"] == 1] == [(0.0, True)]
    assert runs._power_log([], {"a": 0}, (0.0, 8.0)) is None


def test_a_task_too_short_for_a_joule_still_says_where_its_nought_is_from() -> None:
    row = {"node": "a", "started_s": 1.0, "ended_s": 1.01, "cpu_s": 0.0, "peak_bytes": 0, "energy_j": 0.0,
           "low_j": 0.0, "high_j": 0.0, "provenance": "attributed"}  # fmt: skip
    found = runs._recorded([row], 0.0)
    assert found["energy_j"] == 0.0 and found["energy_provenance"] == "attributed" and "energy_error" not in found
    assert "energy_provenance" not in runs._recorded([row | {"energy_j": None}], 0.0)
