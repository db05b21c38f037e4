"""The day of sleep of `make bench-operator`: what is played is what is simulated, and machines carry orders out."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from wattflow.kube import scheduler_process, settings
from wattflow.kube.engine_decider import as_requested

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("benchmarks", "tools/kube-rig"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


@pytest.fixture
def day(paths: None) -> ModuleType:
    import operator_sleep

    return operator_sleep


def test_the_rig_plays_the_policy_that_is_simulated(day: ModuleType) -> None:
    """A scheduler takes `wattflow` for the shield, a simulation for the bare rules."""
    played = scheduler_process.policy_of(settings.SchedulerSettings(policy=day.POLICY), None)
    assert played.steer is None and as_requested(played) == as_requested(day.POLICY)


class Together:
    """An API server that answers when so many have asked."""

    def __init__(self, count: int) -> None:
        self.all_asked = threading.Barrier(count)
        self.answered: list[str] = []

    def patch(self, path: str, body: Any) -> None:
        self.all_asked.wait(60)
        self.answered.append(path)

    def request(self, *_: Any) -> None:
        return


def test_a_machine_waits_for_no_other_and_its_orders_count_by_their_own_time(day: ModuleType, tmp_path: Path) -> None:
    import operator_kubelets

    _, orders = operator_kubelets.hook(tmp_path)
    names = [f"n{i}" for i in range(20)]
    api = Together(len(names))
    with operator_kubelets.Kubelets(api, orders, names, wake_s=0.0, enter_s=0.0) as kubelets:
        orders.write_text("".join(f"sleep {name} 100.5\nwake {name} 101.5\n" for name in names))
        ends_s = time.monotonic() + 60
        while len(api.answered) < 2 * len(names):
            assert time.monotonic() < ends_s, "machines wait for one another"
            time.sleep(0.01)
    assert kubelets.ordered_s == {name: [100.5, 101.5] for name in names}
    assert all(len(one) == 1 and one[0][0] < one[0][1] < float("inf") for one in kubelets.spans.values())


@pytest.mark.parametrize(("ordered_s", "touched"), [([99.0], 0), ([100.5], 0), ([101.5], 1), ([90.0, 130.0], 1)])
def test_a_cordoned_node_counts_as_touched_by_when_it_was_told(
    day: ModuleType, ordered_s: list[float], touched: int
) -> None:
    class Rig:
        class api:
            @staticmethod
            def get(path: str) -> Any:
                return {"spec": {"unschedulable": True}}

    class Kubelets:
        def __init__(self) -> None:
            self.ordered_s = {"n": ordered_s}

    assert len(day._touched(Rig, {"n": 100.0}, Kubelets(), [], 3.0)) == touched


def test_a_node_that_wakes_draws_idle_watts(day: ModuleType) -> None:
    """As in the simulator that the two rivals come from."""
    spans = {"kind0-0": [(10.0, 40.0), (50.0, 55.0), (90.0, float("inf"))]}
    idle_w = day._node("kind0-0").power.at(0.0)
    joules = day._joules(["kind0-0"], [], day.asleep(spans, 10.0), 0.0, 100.0, 1.0)
    assert joules == pytest.approx(70.0 * idle_w + (20.0 + 10.0) * day.SLEEP_W)


def test_who_waits_beside_room_is_told_from_who_waits_for_it(day: ModuleType) -> None:
    small = day.Day(np.array([0.0, 0.0, 0.0, 0.0]), np.full(4, 100.0), np.array([16, 12, 4, 8]))
    rows = [("a", 0.0, 100.0), ("b", 0.0, 100.0), ("b", 30.0, 130.0), ("a", 100.0, 200.0)]
    assert day.beside_room(small, rows, ["a", "b"], 10.0).tolist() == [0.0, 0.0, 20.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("lag_s", [0.0, 3.0])
def test_the_day_in_virtual_time_is_placed_by_the_scheduler_itself(day: ModuleType, lag_s: float) -> None:
    """Six pods after a lull in which all nodes fell asleep: each waits for a wake, all run as long as they should."""
    release_s = np.array([0.0, *(400.0 + i for i in range(6))])
    small = day.Day(release_s, np.full(7, 60.0), np.array([1, 8, 8, 8, 8, 16, 1]))
    names = [f"kind{i % 3}-{i // 3}" for i in range(6)]
    joules, waits, _ = day.decided(small, names, 10.0, 1.0, lag_s)
    assert waits[0] == 0.0 and (waits[1:] >= lag_s).all() and (waits[1:] <= 2 * (10.0 + lag_s)).all()
    idle_w = sum(day._node(name).power.at(0.0) for name in names)
    assert 0 < joules < idle_w * 470.0, "they slept"
