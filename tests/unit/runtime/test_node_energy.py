"""Windows of a node's joules: short while attempts run, long while none does, and their sums close."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from wattflow.energy.virtual import DEMO_CURVE
from wattflow.runtime.messages import Window
from wattflow.runtime.node_energy import NodeEnergy


def test_an_idle_node_has_few_windows_and_an_attempt_short_ones(tmp_path: Path) -> None:
    seconds = {"machine": 0.0}
    energy = NodeEnergy(DEMO_CURVE, tmp_path / "meter", sysfs=tmp_path / "none", machine=lambda: dict(seconds))
    windows: list[Window] = []
    told = []
    for tick in range(301):
        now_s = 1000.0 + 0.2 * tick
        used = {7: 0.2 * (tick - 150)} if 150 <= tick < 175 else {}
        seconds["machine"] += 0.2 if used else 0.0
        if tick == 175:
            energy.ended(7, 5.0)
        joules, window = energy.sample(now_s, used)
        told += joules
        windows += [window] if window is not None else []
    lengths = [round(window.ended_s - window.began_s, 1) for window in windows]
    assert len(windows) < 16 and lengths[0] == 1.0 and max(lengths) == pytest.approx(10.0)
    during = [window for window in windows if window.began_s > 1030.5 and window.ended_s < 1036.0]
    assert during and all(window.ended_s - window.began_s < 1.3 for window in during)
    assert [one.fence for one in told] == [7]
    for before, after in itertools.pairwise(windows):
        assert before.ended_s == after.began_s
    for window in windows:
        assert window.counted_j == pytest.approx(window.idle_j + window.tasks_j + window.unattributed_j)
    energy.close()
