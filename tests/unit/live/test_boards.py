"""Kept costs (`engine.boards`) decide as a look at every candidate does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattflow.engine import boards, tables
from wattflow.live import FINISHED, GONE, LOAD, NODE, REFUSED, TASK, Constraint, Engine, Match
from wattflow.live.fork import fork, load, save
from wattflow.live.protocol import Apart, Power, Spread
from wattflow.model.cluster import Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant

GIB = 1 << 30
KINDS = [PowerProfile((0.0, 8.0), (20.0 + k, 60.0)) for k in range(3)]


def node_named(name: str, at: int) -> tuple[Node, dict[str, Any]]:
    node = Node(name, 8 + at % 3, (16 + at % 5) * GIB, power=KINDS[at % 3])
    return node, {"labels": {"pool": str(at % 4)}, "counts": {"pods": 6}}


class Pair:
    """The same calls for an engine that keeps costs and one that does not."""

    def __init__(self, policy: str, nodes: int, limit: int = 0) -> None:
        self.limit = limit
        self.both = [Engine(policy, score_limit=limit), Engine(policy, score_limit=limit)]
        self.plainly()
        self.ids = [self.call("node", n[0], **n[1]) for n in (node_named(f"n{i}", i) for i in range(nodes))]
        self.running: list[int] = []
        self.now = 0.0

    def plainly(self) -> None:
        """The second engine forgets what it keeps; without a limit it has no room to keep more."""
        if self.limit:
            self.both[1].state.boards["owner"] = 0
        else:
            self.both[1].state.replace(**tables.no_boards())

    def call(self, name: str, *arguments: Any, **fields: Any) -> Any:
        first, _ = (getattr(engine, name)(*arguments, **fields) for engine in self.both)
        self.plainly()
        return first

    def step(self) -> list[Any]:
        self.now += 1.0
        first, second = (list(engine.step(self.now).placements) for engine in self.both)
        assert [tuple(p) for p in first] == [tuple(p) for p in second]
        self.running += [p.attempt for p in first]
        return first


def shapes_of(pair: Pair, rng: np.random.Generator) -> list[int]:
    rules = [
        None, pair.call("constraint", Constraint(any_of=((Match("pool", "in", ("1", "2")),),))),
        pair.call("constraint", Constraint(apart=(Apart("a"),))),
        pair.call("constraint", Constraint(spread=(Spread("b", "pool", 2),))),
    ]  # fmt: skip
    made = []
    for k in range(24):
        cores, memory = int(rng.integers(0, 30)) / 10, int(rng.integers(1, 40)) << 27
        variants = [Variant(cores=cores, memory_bytes=memory)]
        if k % 6 == 0:
            variants.append(Variant(cores=cores / 2, memory_bytes=2 * memory))
        groups, counts = ("a",) if k % 4 == 2 else ("b",), {"pods": 1} if k % 2 else {}
        made.append(pair.call("shape", variants, constraint=rules[k % 4], groups=groups, counts=counts))
    return made


@pytest.mark.parametrize(
    ("policy", "limit"), [("kubernetes", 0), ("least-loaded", 0), ("most-allocated", 0), ("kubernetes", 70)]
)
def test_kept_costs_decide_as_a_look_at_all_nodes(policy: str, limit: int) -> None:
    rng = np.random.default_rng(7)
    pair = Pair(policy, 160, limit)
    for k, node in enumerate(pair.ids):
        pair.call("put", LOAD, node, cores=(1 + k) / 1000, memory_bytes=(1 + k) << 20)
    shapes = shapes_of(pair, rng)
    used = 0
    for turn in range(120):
        for shape in rng.choice(shapes, 6).tolist():
            pair.call("put", TASK, shape, estimate_s=5.0)
        for _ in range(min(len(pair.running), int(rng.integers(0, 9)))):
            attempt = pair.running.pop(int(rng.integers(0, len(pair.running))))
            pair.call("put", REFUSED if rng.random() < 0.2 else FINISHED, attempt)
        chance = rng.random()
        at = int(rng.integers(0, len(pair.ids)))
        if chance < 0.1:
            pair.call("put", GONE, pair.ids.pop(at))
        elif chance < 0.3:
            made = node_named(f"m{turn}", turn)
            pair.ids.append(pair.call("node", made[0], **made[1]))
        elif chance < 0.4:
            pair.call("put", NODE, pair.ids[at], state=Power.DRAINING if chance < 0.35 else Power.ON)
        elif chance < 0.45:
            pair.call("put", LOAD, pair.ids[at], cores=1.5, memory_bytes=turn * GIB // 100)
        elif chance < 0.5:
            shapes.append(pair.call("shape", [Variant(cores=turn / 50, memory_bytes=GIB)]))
            pair.call("drop", shapes.pop(0))
        pair.step()
        used += int((pair.both[0].state.boards.owner > 0).any())
        assert int(pair.both[0].state.counts.active_n[0]) >= boards.WORTH_IT
    assert used > 100


def test_a_cap_counts_nodes_that_take_the_task_and_no_other() -> None:
    engine = Engine("kubernetes", score_limit=64)
    rule = engine.constraint(Constraint(any_of=((Match("only", "in", ("here",)),),)))
    for k in range(400):
        node = engine.node(Node(f"n{k}", 8, 16 * GIB), labels={"only": "here"} if k == 333 else {})
        engine.put(LOAD, node, cores=(1 + k) / 1000, memory_bytes=(1 + k) << 20)
    shapes = [engine.shape([Variant(cores=1, memory_bytes=GIB)], constraint=c) for c in (rule, None)]
    engine.step(0.0)
    for turn in range(20):
        before = engine.counts["scored"]
        task = engine.put(TASK, shapes[turn % 2], estimate_s=1.0)
        (placement,) = engine.step(1.0 + turn).placements
        assert placement.task == task
        assert engine.counts["scored"] - before <= 64 + turn or turn < 2
        engine.put(FINISHED, placement.attempt)


def test_costs_are_kept_for_few_variants_at_a_time_and_not_across_policies() -> None:
    pair = Pair("kubernetes", 140)
    for k, node in enumerate(pair.ids):
        pair.call("put", LOAD, node, cores=(1 + k) / 1000, memory_bytes=(1 + k) << 20)
    for k in range(300):  # more than there are boards
        pair.call("put", TASK, pair.call("shape", [Variant(cores=k / 1000, memory_bytes=GIB)]), estimate_s=1.0)
    pair.step()
    assert (pair.both[0].state.boards.owner > 0).all()
    pair.call("use", "most-allocated")
    pair.call("put", TASK, pair.call("shape", [Variant(cores=0.2, memory_bytes=GIB)]), estimate_s=1.0)
    assert len(pair.step()) == 1
    pair.call("use", "least-energy")
    assert len(pair.both[0].state.boards) == 0


def test_forks_and_files_leave_kept_costs_out(tmp_path: Any) -> None:
    pair = Pair("kubernetes", 140)
    shape = pair.call("shape", [Variant(cores=0.1, memory_bytes=GIB)])
    for k, node in enumerate(pair.ids):
        pair.call("put", LOAD, node, cores=(1 + k) / 1000, memory_bytes=(1 + k) << 20)
    pair.call("put", TASK, shape, estimate_s=1.0)
    pair.step()
    engine = pair.both[0]
    save(engine, tmp_path / "engine")
    for copy in (fork(engine), load(tmp_path / "engine")[0]):
        assert len(copy.state.boards) == len(engine.state.boards)
        assert not copy.state.boards.owner.any()
        copy.put(TASK, shape, estimate_s=1.0)
        pair.both[1].put(TASK, shape, estimate_s=1.0)
        assert [p.node for p in copy.step(5.0).placements] == [p.node for p in fork(pair.both[1]).step(5.0).placements]
        pair.both[1]._inbox.count = 0
