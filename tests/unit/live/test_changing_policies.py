"""Another policy on an engine that runs: what was watched, when idle nodes sleep, and nodes that come later."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.engine.validate import validate_state
from wattflow.live import TASK, Act, Engine
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import learned, placing, registry


def sleepers(count: int) -> list[Node]:
    power = PowerProfile((0.0, 4.0), (50.0, 90.0))
    return [Node(f"n{i}", 4, 8 << 30, power=power, sleep=Sleep(5.0, 60.0, 10.0)) for i in range(count)]


@pytest.mark.parametrize("policy", ["wattflow", "learned"])
def test_a_node_that_comes_later_does_not_fix_the_time_outs_of_those_before(policy: str) -> None:
    """A policy's own time-outs were taken for the nodes' when it was asked again: `learned` then let nobody sleep."""
    late, whole = Engine(policy), Engine(policy)
    for i, node in enumerate(sleepers(3)):
        late.node(node)
        late.step(float(i))
        whole.node(node)
    whole.step(3.0)
    late.step(3.0)
    assert late.state.classes.sleep_after_s[0] == whole.state.classes.sleep_after_s[0] < np.inf
    if policy == "learned":
        rows = [int(engine.state.memory[learned.NOTES.classes]) + learned.CLASS_N - 1 for engine in (late, whole)]
        assert late.state.memory[rows[0]] == whole.state.memory[rows[1]] < np.inf  # its sleep is still its to move


def test_other_dials_of_a_policy_go_on_with_what_it_watched_and_another_policy_does_not() -> None:
    engine = Engine("learned", Cluster("c", tuple(sleepers(2))))
    engine.put(TASK, engine.shape((Variant(cores=1),)), estimate_s=30.0)
    engine.step(0.0)
    engine.step(5.0)

    def watched() -> list[float]:
        first = int(engine.state.memory[learned.NOTES.watched])
        return engine.state.memory[first : first + placing.TIMER].tolist()

    before = watched()
    assert before[placing.SEEN] == 1.0
    engine.use("learned:wait=0.1")
    assert watched() == before
    engine.node(sleepers(3)[2])
    engine.step(5.0)
    assert watched()[placing.PACE] == before[placing.PACE]
    engine.use("wattflow")
    engine.use("learned")
    assert watched() == [0.0] * placing.TIMER


def test_nodes_that_idle_sleep_by_the_time_outs_of_the_policy_in_use() -> None:
    engine = Engine("eft", Cluster("c", tuple(sleepers(2))))
    assert engine.step(0.0).wake_at == np.inf
    engine.use(registry.load("eft:sleep=120"))
    after_s = float(engine.state.classes.sleep_after_s[0])
    step = engine.step(1.0)
    assert step.wake_at == after_s
    engine.use("eft")
    assert engine.step(after_s + 1.0).actions == []  # the look that was announced no longer counts
    engine.use(registry.load("eft:sleep=120"))
    assert [action.kind for action in engine.step(after_s + 2.0).actions] == [Act.SLEEP] * 2


def test_what_runs_keeps_its_variant_under_another_policys_offers() -> None:
    """Policies offer variants at several guarantees and frequencies, so the rows of a shape move when one follows."""
    engine = Engine("least-energy")
    power = PowerProfile((0.0, 4.0), (50.0, 90.0))
    engine.node(Node("n", 4, 8 << 30, power=power))
    engine.step(0.0)
    wide = engine.shape([Variant(cores=16), Variant(cores=12), Variant(cores=1)])
    other = engine.shape([Variant(cores=2)])
    for shape in (wide, other):
        engine.put(TASK, shape, estimate_s=10.0)
    attempts = [one.attempt for one in engine.step(1.0).placements]
    before = [engine.describe(attempt) for attempt in attempts]
    assert [told["variant"] for told in before] == [2, 0]
    for policy in ("wattflow", "hpe", "least-energy"):
        engine.use(policy)
        assert [engine.describe(attempt) for attempt in attempts] == before
        validate_state(engine.state)
