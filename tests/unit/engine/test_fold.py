"""Changes of State beside decisions: platforms that grow, caps as frequency levels."""

from __future__ import annotations

import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import fold
from wattflow.engine.build import build_state
from wattflow.kernel import jit
from wattflow.model.cluster import Frequency, Serverless
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape
from wattflow.sim import simulate


def starts(runtimes: list[float], platform: Serverless, parts: int = 1, cores: float = 1.0) -> list[float]:
    work = tasks(runtimes, shapes=(Shape(0, (Variant(cores=cores),), parts),))
    return sorted(simulate(work, nodes(node(8, serverless=platform)), "fifo").attempts["start_s"].tolist())


def test_a_platform_takes_the_next_task_when_it_has_grown_enough() -> None:
    """One core at once and one more every 10 s: four tasks of 100 s start 10 s apart."""
    assert starts([100.0] * 4, Serverless(1.0, 0.1)) == pytest.approx([0.0, 10.0, 20.0, 30.0])
    assert starts([100.0] * 2, Serverless(1.0, 0.1), cores=1.5) == pytest.approx([5.0, 20.0])


def test_a_platform_takes_a_gang_when_it_has_grown_enough_for_all_parts() -> None:
    assert starts([50.0], Serverless(1.0, 0.1), parts=3) == pytest.approx([20.0] * 3)


def test_a_platform_that_does_not_grow_makes_tasks_wait_for_an_end() -> None:
    assert starts([7.0, 7.0], Serverless(1.0, 0.0)) == [0.0, 7.0]


@jit.jit
def level_below(state, node, watts):
    return fold.level_below(state, node, watts)


@pytest.mark.parametrize(("watts", "level"), [(200.0, 0), (110.0, 0), (109.0, 2), (80.0, 2), (79.0, 1), (20.0, 1)])
def test_a_cap_becomes_the_fastest_level_within_it(watts: float, level: int) -> None:
    """10 W idle and 110 full; level 1 draws 60 W at half the speed and level 2 80 W at 0.8: 59 W has no level."""
    levels = (Frequency(), Frequency(0.5, 0.5), Frequency(0.8, 0.7))
    kind = node(2, power=PowerProfile((0.0, 2.0), (10.0, 110.0)), frequencies=levels)
    state = build_state(tasks([1.0]), nodes(kind))
    assert level_below(state.handle(), 0, watts) == level
