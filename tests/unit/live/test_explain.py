"""`explain` and `describe`: terms that sum to the cost, decisions of the past, facts of every kind of id."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from wattflow.live import FINISHED, GONE, STARTED, TASK, Constraint, Engine, Match
from wattflow.live.journal import Journal
from wattflow.live.past_decision import explain_past
from wattflow.live.protocol import Explained, UnknownId
from wattflow.model.cluster import Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import learned, placing, power_cap, registry, weights
from wattflow.policy.base import Policy

GIB = 1 << 30


LIVE = [name for name in registry.names() if not registry.load(name).knows_future]


def engine_of(policy: str | Policy) -> Engine:
    engine = Engine(policy)
    for i, (idle, full) in enumerate(((40.0, 120.0), (20.0, 200.0), (30.0, 100.0))):
        curve = PowerProfile((0.0, 4.0), (idle, full))
        engine.node(Node(f"n{i}", 4, 8 * GIB, power=curve, sleep=Sleep(2.0, wake_s=5.0, after_s=30.0)))
    return engine


@pytest.mark.parametrize("policy", LIVE)
def test_terms_sum_to_the_cost_of_each_candidate(policy: str) -> None:
    engine = engine_of(policy)
    shape = engine.shape([Variant(cores=1, memory_bytes=GIB), Variant(cores=2)])
    first = engine.put(TASK, shape, estimate_s=50.0)
    placed = engine.step(0.0).placements
    assert bool(engine.explain(first)) != bool(placed), "nothing is left to explain of a task that is placed"
    hand = engine.by_hand()
    task = engine.put(TASK, shape, estimate_s=20.0) if placed else first
    hand.open(1.0)
    _, rows = hand.wanted()
    found = engine.explain(task)
    if policy == "random":  # draws anew each time it is asked
        assert len(found) == len(rows)
    else:
        assert [one.cost for one in found] == sorted(float(row) for row in rows["cost"])
    for one in found:
        assert sum(one.terms.values()) == pytest.approx(one.cost, rel=1e-9) or math.isinf(one.cost)
    if policy == "least-energy":
        assert set(found[0].terms) == {"run", "wake", "cold start", "transfer"}
    if policy in ("wattflow", "learned"):
        assert {"added", "kept awake", "seconds", "late", "taken"} <= set(found[0].terms)
    assert bool(found[0].moved) == (policy == "learned")


def asked(policy: Policy) -> list[Explained]:
    """One of two tasks on idle nodes: nothing is taken from anybody, so a cost is a price and its correction."""
    engine = engine_of(policy)
    hand = engine.by_hand()
    shape = engine.shape([Variant(cores=1, memory_bytes=GIB), Variant(cores=2)])
    task = engine.put(TASK, shape, estimate_s=20.0)
    engine.put(TASK, shape, estimate_s=30.0)
    hand.open(1.0)
    return [one for one in engine.explain(task) if math.isfinite(one.cost)]


def log_ratio(one: Explained) -> float:
    """The correction as it is counted in the cost."""
    price = sum(one.terms[name] for name in ("added", "kept awake", "seconds", "late"))
    return math.log1p(one.terms["correction"] / price)


def test_a_feature_that_alone_has_a_weight_is_all_that_moves_and_moves_everything() -> None:
    theta = np.zeros(weights.SIZE)
    theta[weights.PLACE + placing.AROUND_N + placing.CANDIDATE.index("idle watts")] = -0.7
    found = asked(learned.with_weights(theta))
    assert all(set(one.moved) <= {"idle watts"} for one in found)
    first, last = found[0], found[-1]
    for one in found:
        f = one.moved.get("idle watts", 0.0)
        assert log_ratio(one) == pytest.approx(f / (1.0 + abs(f) / learned.MOST), rel=1e-9)
    assert first.against(last)["idle watts"] != 0.0


def test_the_rules_terms_are_told_exactly() -> None:
    names, values = weights.heads(weights.load(weights.shipped())[0])["f"]
    counted = {name for name, value in zip((*names, "constant"), values, strict=True) if value}
    for one in asked(learned.LEARNED):
        assert set(one.moved) <= counted and one.moved
        f = sum(one.moved.values())
        assert log_ratio(one) == pytest.approx(f / (1.0 + abs(f) / learned.MOST), rel=1e-9)


def test_a_past_decision_is_explained_from_snapshot_and_journal(tmp_path: Path) -> None:
    engine = engine_of("least-energy")
    with Journal(engine, tmp_path / "j"):
        shape = engine.shape([Variant(cores=2)])
        tasks = [engine.put(TASK, shape, estimate_s=10.0 + i) for i in range(4)]
        placed = {one.task: one for one in engine.step(0.0).placements}
        engine.put(FINISHED, placed[tasks[0]].attempt)
        engine.put(TASK, shape, estimate_s=1.0)
        engine.step(5.0)
        for task in tasks:
            past = explain_past(tmp_path / "j", task)
            assert past.at_s == 0.0 and list(past.placements) == [placed[task]]
            assert past.candidates[0].node == placed[task].node
            assert sum(past.candidates[0].terms.values()) == pytest.approx(past.candidates[0].cost)
        with pytest.raises(UnknownId, match="was not placed since the snapshot"):
            explain_past(tmp_path / "j", 12345)
    assert engine.counts["open"] == 4


def test_describe_tells_the_facts_of_every_kind_of_id() -> None:
    engine = engine_of("least-energy")
    node = engine.node(Node("big", 8, GIB), labels={"pool": "a"}, counts={"pods": 3})
    rule = engine.constraint(Constraint(any_of=((Match("pool", "in", ("a",)),),)))
    shape = engine.shape([Variant(cores=2)], constraint=rule, counts={"pods": 1}, groups=("web",))
    flow = engine.workflow(tag=5)
    task = engine.put(TASK, shape, workflow=flow, estimate_s=4.0, tag=9)
    placement = engine.step(1.0).placements[0]
    engine.put(STARTED, placement.attempt)
    engine.step(2.0)
    told = engine.describe(node)
    assert (told["name"], told["state"], told["cores_used"], told["counts_free"]) == ("big", "ON", 2.0, {"pods": 2})
    told = engine.describe(task)
    assert (told["state"], told["tag"], told["workflow"], told["shape"]) == ("placed", 9, flow, shape)
    told = engine.describe(placement.attempt)
    assert (told["stage"], told["node"], told["started_s"], told["cores"]) == ("started", node, 2.0, 2.0)
    assert engine.describe(shape)["groups"] == ["web"]
    assert engine.describe(flow)["tag"] == 5
    engine.put(FINISHED, placement.attempt)
    engine.step(6.0)
    assert engine.describe(placement.attempt)["gone"] is True
    for wrong in (17, rule, task + 100_000):
        with pytest.raises(UnknownId):
            engine.describe(wrong)


def test_a_power_cap_is_kept_live_while_nodes_come_and_go() -> None:
    engine = engine_of("power-cap")
    shape = engine.shape([Variant(cores=1)])
    engine.put(GONE, engine.nodes["n0"])
    for _ in range(3):
        engine.put(TASK, shape, estimate_s=5.0)
    assert engine.step(0.0).placements
    engine.node(Node("n9", 4, GIB, power=PowerProfile((0.0, 4.0), (10.0, 90.0))))
    engine.put(TASK, shape, estimate_s=5.0)
    engine.step(1.0)
    state = engine.state
    block = int(state.memory[power_cap.NOTES.capped])
    there = np.asarray(state.nodes["pos"]) >= 0
    assert np.array_equal(state.memory[block : block + len(there)], there.astype(float))
