"""Rules that count other tasks, and preferences: held by the engine itself, within one step and over many."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from wattflow.engine import tallies
from wattflow.engine.validate import validate_state
from wattflow.live import FINISHED, GONE, REFUSED, TASK, Constraint, Engine, Match, Taint
from wattflow.live import fork as copies
from wattflow.live.protocol import Apart, BadEvent, Spread, Together
from wattflow.model.cluster import Node
from wattflow.model.workflow import Variant

ONE = [Variant(cores=1)]


def cluster(policy: str = "least-loaded", nodes: int = 6, zones: int = 3) -> tuple[Engine, list[int]]:
    engine = Engine(policy)
    ids = [engine.node(Node(f"n{i}", 8, 1 << 34), labels={"zone": f"z{i % zones}"}) for i in range(nodes)]
    return engine, ids


def where(engine: Engine, shape: int, count: int, now: float = 0.0) -> list[int]:
    for _ in range(count):
        engine.put(TASK, shape)
    return [placement.node for placement in engine.step(now).placements]


def test_apart_on_nodes_allows_one_each_and_the_next_when_one_ends() -> None:
    engine, ids = cluster()
    rule = engine.constraint(Constraint(apart=(Apart("port/tcp/80"),)))
    shape = engine.shape(ONE, constraint=rule, groups=("port/tcp/80",))
    for _ in range(8):
        task = engine.put(TASK, shape)
    first = engine.step(0.0).placements
    assert sorted(placement.node for placement in first) == sorted(ids)
    assert str(engine.why(task)) == "0/6: 6 apart from port/tcp/80"
    engine.put(FINISHED, first[2].attempt)
    assert [placement.node for placement in engine.step(1.0).placements] == [first[2].node]


def test_apart_is_mutual_and_counts_whole_domains() -> None:
    engine, ids = cluster()
    alone = engine.shape(ONE, constraint=engine.constraint(Constraint(apart=(Apart("web", "zone"),))))
    web = engine.shape(ONE, groups=("web",))
    assert where(engine, alone, 1) == [ids[0]]
    assert {ids.index(node) % 3 for node in where(engine, web, 4, 1.0)} == {1, 2}
    assert where(engine, alone, 1, 2.0) == [ids[3]], "zone z0 is the only one without web"


def test_together_begins_anywhere_if_it_counts_itself_and_else_waits() -> None:
    engine, ids = cluster()
    rule = engine.constraint(Constraint(together=(Together("db", "zone"),)))
    client, own = engine.shape(ONE, constraint=rule), engine.shape(ONE, constraint=rule, groups=("db",))
    assert where(engine, client, 1) == []
    placed = where(engine, own, 5, 1.0)
    assert len(placed) == 6, "the client follows the first of its group within the step, or at the latest with the next"
    assert len({ids.index(node) % 3 for node in placed}) == 1


def test_spread_keeps_domains_within_the_skew_and_ignores_nodes_without_the_label() -> None:
    engine, ids = cluster("most-allocated")
    bare = engine.node(Node("bare", 64, 1 << 34))
    rule = engine.constraint(Constraint(spread=(Spread("app", "zone"),)))
    placed = where(engine, engine.shape(ONE, constraint=rule, groups=("app",)), 14)
    assert bare not in placed
    zones = Counter(ids.index(node) % 3 for node in placed)
    assert sorted(zones.values()) == [4, 5, 5]


def test_spread_looks_at_a_domain_that_comes_or_goes() -> None:
    engine, _ = cluster(nodes=2, zones=2)
    rule = engine.constraint(Constraint(spread=(Spread("app", "zone"),)))
    shape = engine.shape(ONE, constraint=rule, groups=("app",))
    assert len(where(engine, shape, 4)) == 4
    third = engine.node(Node("n3", 8, 1 << 34), labels={"zone": "z3"})
    assert where(engine, shape, 2, 1.0) == [third, third], "an empty zone must fill up first"
    engine.put(GONE, third)
    engine.step(2.0)
    assert len(where(engine, shape, 2, 3.0)) >= 1


def test_a_gang_with_apart_takes_as_many_nodes_as_it_has_parts() -> None:
    engine, ids = cluster()
    rule = engine.constraint(Constraint(apart=(Apart("gang"),)))
    shape = engine.shape(ONE, parts=6, constraint=rule, groups=("gang",))
    assert sorted(where(engine, shape, 1)) == sorted(ids)
    seven = engine.shape(ONE, parts=7, constraint=rule, groups=("gang",))
    assert where(engine, seven, 1, 1.0) == []


def test_a_rule_made_later_counts_what_runs_already_and_labels_may_change() -> None:
    engine, ids = cluster()
    web = engine.shape(ONE, groups=("web",))
    assert where(engine, web, 1) == [ids[0]]
    rule = engine.constraint(Constraint(apart=(Apart("web", "zone"),)))
    shape = engine.shape(ONE, constraint=rule)
    assert {ids.index(node) % 3 for node in where(engine, shape, 4, 1.0)} == {1, 2}
    engine.node(Node("n0", 8, 1 << 34), labels={"zone": "z9"})  # the web task moves to a zone of its own
    found = where(engine, shape, 8, 2.0)
    assert ids[3] in found and ids[0] not in found


def test_refusal_undoes_the_counters_too() -> None:
    engine, _ = cluster()
    rule = engine.constraint(Constraint(apart=(Apart("web"),), spread=(Spread("web", "zone"),)))
    shape = engine.shape(ONE, constraint=rule, groups=("web",))
    engine.step(0.0)
    before = engine.state.tallies.copy(), engine.state.masks.copy()
    engine.put(TASK, shape)
    engine.put(REFUSED, engine.step(1.0).placements[0].attempt, until_s=99.0)
    engine.step(2.0)
    assert np.array_equal(before[0], engine.state.tallies) and np.array_equal(before[1], engine.state.masks)


def test_preferences_decide_among_equals_and_split_a_group() -> None:
    engine, ids = cluster()
    likes = Constraint(prefer=((10.0, (Match("zone", "in", ("z2",)),)), (1.0, (Match("zone", "in", ("z1",)),))))
    shape = engine.shape(ONE, constraint=engine.constraint(likes))
    engine.put(TASK, shape)
    hand = copies.fork(engine).by_hand()
    hand.open(0.0)
    assert [int(row) for row in hand.wanted()[1]["node"]] == [ids[2], ids[1], ids[0]], "one group, three candidates"
    assert [placement.node for placement in engine.step(0.0).placements] == [ids[2]]
    assert where(engine, shape, 2, 1.0) == [ids[5], ids[1]]
    plain = engine.shape(ONE)
    assert where(engine, plain, 1, 2.0) == [ids[0]]


def test_a_softly_tainted_node_comes_last_among_equals() -> None:
    engine = Engine("least-loaded")
    engine.node(Node("a", 4, 1 << 34), taints=(Taint("old", effect="PreferNoSchedule"),))
    clean = engine.node(Node("b", 4, 1 << 34))
    assert where(engine, engine.shape(ONE), 1) == [clean]


def test_rules_that_cannot_be_counted_are_refused() -> None:
    engine, _ = cluster()
    with pytest.raises(BadEvent, match="max_skew must be at least 1"):
        engine.constraint(Constraint(spread=(Spread("a", "zone", 0),)))
    with pytest.raises(BadEvent, match="at most 8 labels"):
        engine.constraint(Constraint(apart=tuple(Apart("a", f"t{k}") for k in range(9))))
    assert len(engine._nodes.rules.rows) == 1


def plain_check(engine: Engine) -> None:
    """Recount every counter from the attempts that run, and every mask from the counters."""
    book, state = engine._nodes.rules, engine.state
    book.freshen()
    for term, row in book.counts.terms.items():
        true: Counter[int] = Counter()
        for a in np.flatnonzero(state.attempts.task >= 0).tolist():
            shape = int(state.tasks.form[state.attempts.task[a]])
            rule = book.counts.shapes.get(shape)
            node = int(state.attempts.node[a])
            labels = engine._nodes.facts[node].labels
            domain = node if term.topology == "node" else book.counts._domain(term.topology, labels)
            if rule is not None and term.counts(rule) and domain >= 0:
                true[domain] += 1
        first, room = book.counts._blocks[row]
        kept = {d: int(n) for d, n in enumerate(state.tallies[first : first + room].tolist()) if n}
        assert kept == dict(true), (term, kept, true)
        assert int(state.terms.total[row]) == sum(true.values())
    before = state.masks.copy()
    for row in book.counts.rows:
        tallies.refresh(state.handle(), row)
    assert np.array_equal(before, state.masks), "a mask was not what its conditions say"


@pytest.mark.parametrize("seed", range(3))
def test_counters_and_masks_are_what_a_plain_recount_says(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    engine, ids = cluster("least-energy", nodes=5)
    running: list[int] = []
    shapes: list[int] = []
    now = 0.0
    groups = ("a", "b", "c")
    for turn in range(250):
        if rng.random() < 0.2 or not shapes:
            own = tuple(sorted({groups[i] for i in rng.integers(0, 3, int(rng.integers(0, 3)))}))
            kind, group = int(rng.integers(5)), groups[int(rng.integers(3))]
            topology = ("node", "zone", "rack")[int(rng.integers(3))]
            constraint = (
                Constraint(), Constraint(apart=(Apart(group, topology),)),
                Constraint(together=(Together(group, topology),)), Constraint(spread=(Spread(group, topology, 2),)),
                Constraint(apart=(Apart(group, topology),), prefer=((2.0, (Match("rack", "in", ("r1",)),)),)),
            )[kind]  # fmt: skip
            rule = engine.constraint(constraint)
            shape = engine.shape([Variant(cores=0.25)], constraint=rule, groups=own, parts=int(rng.integers(1, 3)))
            if shape not in shapes:  # equal values give the same id, and a drop takes it from everybody
                shapes.append(shape)
            engine.drop(rule)
        if rng.random() < 0.15 and len(shapes) > 3:
            engine.drop(shapes.pop(int(rng.integers(len(shapes)))))
        draw = rng.random()
        if draw < 0.15:
            number = int(rng.integers(0, 9))
            labels = {"zone": f"z{rng.integers(3)}"} | ({"rack": f"r{rng.integers(3)}"} if rng.random() < 0.7 else {})
            ids.append(engine.node(Node(f"n{number}", 4, 1 << 34), labels=labels))
        elif draw < 0.25 and len(engine.nodes) > 2:
            engine.put(GONE, list(engine.nodes.values())[int(rng.integers(len(engine.nodes)))])
        for _ in range(int(rng.integers(0, 3))):
            engine.put(TASK, shapes[int(rng.integers(len(shapes)))], estimate_s=1.0)
        while running and rng.random() < 0.6:
            attempt = running.pop(int(rng.integers(len(running))))
            engine.put(REFUSED if rng.random() < 0.2 else FINISHED, attempt)
        now += 1.0
        running += [placement.attempt for placement in engine.step(now).placements]
        validate_state(engine.state)
        plain_check(engine)
        if turn % 60 == 59:
            copies.save(engine, tmp_path / "e")
            engine, _ = copies.load(tmp_path / "e")
            engine = copies.fork(engine)
    engine._sweep()
    assert set(engine._nodes.rules.rules) <= {0, *engine._shapes.constraints}, "rows of dropped constraints are free"
