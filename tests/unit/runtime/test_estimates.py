"""Runtimes and speeds learned from ends."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wattflow.predict.online import Corrector
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.learned_facts import ENOUGH, LearnedEstimates, Learning
from wattflow.runtime.messages import Ended, Node


def end(seconds: float) -> Ended:
    return Ended(fence=1, outcome="done", started_s=10.0, ended_s=10.0 + seconds)


def test_a_function_is_known_once_it_ended() -> None:
    estimates = LearnedEstimates()
    assert estimates.runtime_s("f") is None
    estimates.finished("f", end(4.0), "n", speed=0.5)
    assert estimates.runtime_s("f") is not None and abs(estimates.runtime_s("f") - 2.0) < 1e-9  # type: ignore[operator]


def test_a_node_that_is_half_as_fast_as_it_said_is_found_out() -> None:
    estimates, draws = LearnedEstimates(), random.Random(1)
    speeds = {"honest": 1.0, "boaster": 0.5}
    told: dict[str, float] = {}
    for number in range(400):
        node = ("honest", "boaster")[number % 2]
        function, seconds = draws.choice([("f", 1.0), ("g", 5.0)])
        estimates.finished(function, end(seconds / speeds[node] * draws.uniform(0.95, 1.05)), node)
        found = estimates.news(node, 1.0)
        told |= {node: found} if found is not None else {}
    assert 1.7 < told["honest"] / told["boaster"] < 2.3


def test_nodes_that_are_as_they_said_are_left_alone() -> None:
    estimates, draws = LearnedEstimates(), random.Random(2)
    for number in range(10 * ENOUGH):
        node, said = (("a", 1.0), ("b", 2.0))[number % 2]
        estimates.finished("f", end(3.0 / said * draws.uniform(0.95, 1.05)), node, said)
        assert estimates.news(node, said) is None


def test_what_nothing_is_learned_of_does_not_overflow() -> None:
    """Ends without sizes say nothing of slopes: with forgetting, their variance grew until speeds were no numbers, and
    after 100,000 tasks no node could come back."""
    corrector = Corrector(forgetting=0.9)
    for number in range(8_000):
        corrector.finished("f", f"n{number % 8}", 0.1 * (number % 3))
    assert np.isfinite(corrector.solver.covariance).all() and corrector.solver.covariance.max() < 1e4
    assert all(abs(corrector.correction("f", f"n{n}")) < 1.0 for n in range(8))


def test_what_the_engine_does_not_take_is_not_believed() -> None:
    decider = JournaledEngine("fifo")
    learning = Learning(decider)
    node = Node(name="n", cpus=1.0, memory_bytes=1 << 30)
    with pytest.raises(ValueError, match="speed"):
        learning._tell(node, speed=float("nan"))
    decider.node(learning.as_learned(node))
