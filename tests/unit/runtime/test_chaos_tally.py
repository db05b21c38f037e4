"""Portions of `make chaos` add up, but only against the same sources."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from chaos_tally import Portion, recorded, sources, summed

FIRST = Portion(seed=1, sources="new", kills=100, tasks=900, lost=0, twice=0, silent=0, losses=9, late_s=3.1,
                late_down_s=5.0, took_s=60.0, faults={"kill_task": 60, "kill_agent": 40})  # fmt: skip


def test_portions_of_the_same_sources_are_added(tmp_path: Path) -> None:
    file = tmp_path / "out" / "chaos.json"
    assert recorded(file, replace(FIRST, sources="old", lost=5)) == [replace(FIRST, sources="old", lost=5)]
    recorded(file, FIRST)
    second = replace(FIRST, seed=2, kills=200, twice=1, late_s=2.0, faults={"kill_task": 200})
    found = recorded(file, second)
    assert found == [FIRST, second]
    every = summed(found)
    assert (every.kills, every.tasks, every.lost, every.twice, every.late_s) == (300, 1800, 0, 1, 3.1)
    assert every.faults == {"kill_task": 260, "kill_agent": 40}


def test_the_sources_have_a_name() -> None:
    assert len(sources()) == 16 and sources() == sources()
