"""Tables of constraints, preferences and counters, bit by bit: what a decision reads of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattflow.engine import tallies
from wattflow.live import FINISHED, GONE, TASK, Apart, BadEvent, Constraint, Engine, Match, Spread, Taint, Together
from wattflow.live.constraints import NodeFacts, WishBook, allows, liking, tolerates
from wattflow.live.counting import CountBook, Rule, Term
from wattflow.live.growth import empty_state
from wattflow.live.protocol import Toleration, row_of
from wattflow.model.cluster import Node

from .test_engine import GIB, one_core

GOLD = Constraint(any_of=((Match("tier", "in", ("gold",)),),))


def labelled(*labels: dict[str, str], alike: bool = True) -> Engine:
    engine = Engine("fifo")
    for i, told in enumerate(labels):
        engine.node(Node(f"n{i}", 2 if alike else 2 + i, 8 * GIB), labels=told)
    engine.step(0.0)
    return engine


def facts(*taints: Taint, name: str = "n", **labels: str) -> NodeFacts:
    return NodeFacts(Node(name, 1, GIB), labels, taints, {})


def bits(engine: Engine, table: str, row: int) -> list[int]:
    """List the rows of nodes whose bit is set."""
    state, found = engine.state, []
    for node in engine._nodes.facts:
        place = int(state.classes.first[state.nodes.cls[node]]) + int(state.nodes.pos[node])
        if int(getattr(state, table)[row, place // 64]) >> (place % 64) & 1:
            found.append(node)
    return found


# What a node says itself


def test_a_constraint_wants_one_whole_term_its_names_and_no_hard_taint() -> None:
    both = Constraint(any_of=((Match("a"), Match("b")), (Match("c"),)), nodes=("n",))
    assert allows(both, facts(a="1", b="1")) and allows(both, facts(c="1"))
    assert not allows(both, facts(a="1")) and not allows(both, facts()) and not allows(both, facts(name="m", c="1"))
    hard, soft = Taint("t", "v", "NoSchedule"), Taint("t", "v", "PreferNoSchedule")
    assert not allows(Constraint(), facts(hard)) and not allows(Constraint(), facts(Taint("t", "v", "NoExecute")))
    assert allows(Constraint(), facts(soft)) and allows(Constraint(tolerates=(Toleration("t"),)), facts(hard))
    assert not allows(Constraint(tolerates=(Toleration("t"),)), facts(hard, Taint("u")))


def test_one_toleration_of_several_is_enough_and_each_must_match_whole() -> None:
    taint = Taint("t", "v", "NoSchedule")
    assert not tolerates((), taint) and tolerates((Toleration("x"), Toleration("t")), taint)
    assert tolerates((Toleration("t", "v", "NoSchedule"),), taint)
    for other in (Toleration("x", "v"), Toleration("t", "w"), Toleration("t", "v", "NoExecute")):
        assert not tolerates((other,), taint)


def test_liking_sums_the_weights_that_hold_less_one_for_each_soft_taint() -> None:
    likes = Constraint(prefer=((3.0, (Match("a"), Match("b"))), (0.5, (Match("a"),))), tolerates=(Toleration("ok"),))
    assert liking(likes, facts(a="1", b="1")) == 3.5 and liking(likes, facts(a="1")) == 0.5
    assert liking(likes, facts(b="1")) == 0.0
    soft = [Taint(key, effect="PreferNoSchedule") for key in ("s", "t", "ok")]
    assert liking(likes, facts(*soft, a="1")) == 0.5 - 2 and liking(likes, facts(Taint("h"))) == 0.0


def test_masks_have_a_bit_for_each_node_that_is_allowed() -> None:
    engine = labelled({"tier": "gold"}, {}, {"tier": "gold"}, {"tier": "tin"})
    row = row_of(engine.constraint(GOLD))
    assert row == 1 and bits(engine, "masks", row) == bits(engine, "bases", row) == [0, 2]
    assert bits(engine, "masks", 0) == [0, 1, 2, 3]
    engine.node(Node("n1", 2, 8 * GIB), labels={"tier": "gold"})
    engine.node(Node("n2", 2, 8 * GIB), labels={})
    engine.node(Node("new", 9, 8 * GIB), labels={"tier": "gold"})
    assert bits(engine, "masks", row) == bits(engine, "bases", row) == [0, 1, 4]
    named = row_of(engine.constraint(Constraint(nodes=("n3", "new", "nobody"), any_of=GOLD.any_of)))
    assert bits(engine, "masks", named) == [4]
    assert engine.state.rules.tainted[0] == 0
    engine.node(Node("bad", 2, 8 * GIB), labels={"tier": "gold"}, taints=(Taint("t"),))
    assert bits(engine, "masks", row) == [0, 1, 4] and bits(engine, "masks", 0) == [0, 1, 2, 3, 4]
    assert engine.state.rules.tainted[0] == 1


def test_rows_of_masks_double_and_are_given_out_from_the_first() -> None:
    engine = labelled({})
    made = [Constraint(nodes=(f"x{k}",)) for k in range(4)]
    rows, sizes = [], []
    for one in made:
        rows.append(row_of(engine.constraint(one)))
        sizes.append((len(engine.state.masks), len(engine.state.bases), len(engine.state.mask_rows)))
    assert rows == [1, 2, 3, 4] and sizes == [(2,) * 3, (4,) * 3, (4,) * 3, (8,) * 3]
    assert len(engine._nodes.rules.generations) == 8 and (engine._nodes.rules.generations == 1).all()
    ids = [engine.constraint(one) for one in made]
    engine.drop(ids[2])
    engine.drop(ids[1])
    assert row_of(engine.constraint(Constraint(nodes=("y",)))) == 2, "the first that is free"
    assert engine._nodes.rules.generations[:5].tolist() == [1, 1, 2, 2, 1]


def test_a_constraint_that_is_named_again_before_it_goes_stays() -> None:
    engine = labelled({"tier": "gold"})
    one = engine.constraint(GOLD)
    shape = one_core(engine, constraint=one)
    engine.drop(one)
    assert engine._nodes.rules.dropped
    assert engine.constraint(GOLD) == one and not engine._nodes.rules.dropped
    engine.drop(shape)
    assert engine.constraint(GOLD) == one


# Preferences


def wished(engine: Engine, row: int) -> list[tuple[float, list[int]]]:
    """List the levels of a row of masks: weight and nodes."""
    first, count = int(engine.state.mask_rows.wish_first[row]), int(engine.state.mask_rows.wish_n[row])
    weights = engine.state.wish_weights[first : first + count].tolist()
    return [(weight, bits(engine, "wishes", first + k)) for k, weight in enumerate(weights)]


def test_levels_of_preference_are_sorted_and_each_node_is_in_one() -> None:
    engine = labelled({"a": "1"}, {}, {"a": "1", "b": "1"}, {})
    likes = Constraint(prefer=((2.0, (Match("a"),)), (1.0, (Match("b"),))))
    row = row_of(engine.constraint(likes))
    assert wished(engine, row) == [(3.0, [2]), (2.0, [0]), (0.0, [1, 3])]
    assert engine.state.mask_rows.wish_first[row] == 1 and engine.state.rules.wishes[0] == 1
    assert len(engine.state.wishes) == len(engine.state.wish_weights) == 2 * 5, "twice what is in use"
    engine.node(Node("n1", 2, 8 * GIB), labels={"a": "1"})
    assert wished(engine, row) == [(3.0, [2]), (2.0, [0, 1]), (0.0, [3])]
    engine.node(Node("n1", 2, 8 * GIB), labels={"b": "1"})
    assert wished(engine, row) == [(3.0, [2]), (2.0, [0]), (1.0, [1]), (0.0, [3])], "a level more"
    engine.node(Node("n4", 7, 8 * GIB), labels={"b": "1"})
    assert wished(engine, row) == [(3.0, [2]), (2.0, [0]), (1.0, [1, 4]), (0.0, [3])]
    engine.drop(engine.constraint(likes))
    assert engine.state.rules.wishes[0] == 0 and engine.state.mask_rows.wish_n[row] == 0


def test_one_level_for_all_is_no_preference_and_a_soft_taint_makes_two() -> None:
    engine = labelled({}, {})
    row = row_of(engine.constraint(Constraint(prefer=((1.0, (Match("a"),)),))))
    assert wished(engine, row) == [(0.0, [0, 1])] and engine.state.rules.wishes[0] == 0
    assert engine.state.mask_rows.wish_n[0] == 0
    engine.node(Node("n1", 2, 8 * GIB), taints=(Taint("t", effect="PreferNoSchedule"),))
    assert wished(engine, row) == [(0.0, [0]), (-1.0, [1])] and engine.state.rules.wishes[0] == 1
    assert wished(engine, 0) == [(0.0, [0]), (-1.0, [1])]
    engine.node(Node("n1", 2, 8 * GIB))
    assert wished(engine, row) == [(0.0, [0, 1]), (-1.0, [])]


def test_preferences_among_no_node_are_one_level() -> None:
    engine = Engine("fifo")
    row = row_of(engine.constraint(Constraint(prefer=((1.0, (Match("a"),)),))))
    assert (engine.state.mask_rows.wish_n[row], engine.state.wish_weights[1]) == (1, 0.0)
    engine.node(Node("n", 2, 8 * GIB), labels={"a": "1"})
    assert wished(engine, row) == [(1.0, [0])]


def test_a_row_without_levels_is_filled_only_where_something_is_liked() -> None:
    state = empty_state()
    book = WishBook(state)
    plain, likes = Constraint(), Constraint(prefer=((1.0, (Match("a"),)),))
    assert not book.soft and book.node_changed(0, plain, facts(), 0) and not book.node_changed(0, likes, facts(), 0)
    book.soft = True
    assert not book.node_changed(0, plain, facts(), 0)


def test_blocks_of_levels_are_used_again() -> None:
    engine = labelled({"a": "1"}, {})
    first = engine.constraint(Constraint(prefer=((1.0, (Match("a"),)),)))
    at = int(engine.state.mask_rows.wish_first[row_of(first)])
    engine.drop(first)
    second = engine.constraint(Constraint(prefer=((5.0, (Match("a"),)),)))
    assert engine.state.mask_rows.wish_first[row_of(second)] == at
    assert wished(engine, row_of(second)) == [(5.0, [0]), (0.0, [1])]


# Counters


def test_a_term_counts_those_of_its_group_or_those_that_keep_apart_from_it() -> None:
    keeper = Rule(Constraint(apart=(Apart("g", "zone"),)), ("h",))
    assert Term("h", "zone").counts(keeper) and not Term("g", "zone").counts(keeper)
    assert Term("g", "zone", True).counts(keeper)
    assert not Term("g", "node", True).counts(keeper) and not Term("h", "zone", True).counts(keeper)


ZONES: tuple[dict[str, str], ...] = ({"zone": "a"}, {"zone": "b"}, {"zone": "a"}, {})


def spread_engine(skew: int = 1) -> tuple[Engine, int, int]:
    engine = labelled(*ZONES)
    rule = engine.constraint(Constraint(spread=(Spread("g", "zone", skew),)))
    return engine, row_of(rule), one_core(engine, constraint=rule, groups=("g",))


def test_a_counter_stands_in_the_tables_with_its_domains_and_condition() -> None:
    engine, plain, shape = spread_engine(2)
    state, book = engine.state, engine._nodes.rules.counts
    bound = int(state.shapes.constraint[row_of(shape)])
    assert plain == 1 and bound == 2 and book.terms == {Term("g", "zone"): 1}
    term = state.terms[1]
    assert (term.total, term.topology, term.bits, term.domains) == (0, 0, 0, 2)
    assert state.domains[:4, 0].tolist() == [0, 1, 0, -1] and (state.domains[:4, 1:] == -1).all()
    place = int(state.classes.first[0])
    assert place == 0 and state.domain_bits[:, 0].tolist() == [0b101, 0b010]
    first, second = int(state.mask_rows.condition[plain]), int(state.mask_rows.condition[bound])
    assert {first, second} == {1, 2} and int(term.condition) == 2
    told = state.conditions[second]
    assert (told.kind, told.term, told.row, told.skew, told.own) == (tallies.SPREAD, 1, bound, 2, 1)
    assert (told.next_term, told.next_row, state.conditions[first].own) == (first, 0, 0)
    link = int(state.shapes.counted[row_of(shape)])
    assert link == 1 and (state.counted.term[link], state.counted.next[link]) == (1, 0)
    assert bits(engine, "masks", bound) == [0, 1, 2], "a node without the label is in no domain"
    assert bits(engine, "bases", bound) == [0, 1, 2, 3]


def test_placements_and_ends_change_the_counter_of_their_domain() -> None:
    engine, _, shape = spread_engine()
    state = engine.state
    for tag in range(3):
        engine.put(TASK, shape, tag=tag)
    placed = engine.step(1.0).placements
    first = int(state.terms.first[1])
    domains = [int(state.domains[row_of(one.node), 0]) for one in placed]
    assert state.tallies[first : first + 2].tolist() == [domains.count(0), domains.count(1)]
    assert sorted(domains) in ([0, 0, 1], [0, 1, 1]) and state.terms.total[1] == 3
    engine.put(FINISHED, placed[0].attempt)
    engine.step(2.0)
    assert state.terms.total[1] == 2


def test_a_counter_that_comes_late_counts_what_runs_and_a_relabelled_node_moves_it() -> None:
    engine = labelled(*ZONES)
    shape = one_core(engine, 2.0, groups=("g",))
    for tag in range(4):
        engine.put(TASK, shape, tag=tag)
    assert len(engine.step(1.0).placements) == 4
    engine.constraint(Constraint(apart=(Apart("g", "zone"),)))
    engine.constraint(Constraint(apart=(Apart("g"),)))
    state, book = engine.state, engine._nodes.rules.counts
    by_zone, by_node = book.terms[Term("g", "zone")], book.terms[Term("g", "node")]

    def tally(term: int, count: int) -> list[int]:
        first = int(state.terms.first[term])
        return list(state.tallies[first : first + count].tolist())

    assert tally(by_zone, 2) == [2, 1] and state.terms.total[by_zone] == 3, "one is in no domain"
    assert tally(by_node, 5) == [1, 1, 1, 1, 0] and state.terms.total[by_node] == 4
    assert state.terms.topology[by_node] == -1 and state.terms.topology[by_zone] == 0
    engine.node(Node("n3", 2, 8 * GIB), labels={"zone": "c"})
    assert tally(by_zone, 3) == [2, 1, 1] and state.terms.total[by_zone] == 4
    engine.node(Node("n0", 2, 8 * GIB), labels={"zone": "b"})
    assert tally(by_zone, 3) == [1, 2, 1] and tally(by_node, 4) == [1, 1, 1, 1]
    assert state.terms.domains[by_zone] == 3 and state.domain_bits[:, 0].tolist() == [0b0100, 0b0011, 0b1000]


def test_each_topology_has_a_column_and_its_own_bits() -> None:
    engine = labelled({"zone": "a", "rack": "r"}, {"zone": "b", "rack": "r"})
    engine.constraint(Constraint(together=(Together("g", "zone"),)))
    engine.constraint(Constraint(together=(Together("g", "rack"),)))
    state, book = engine.state, engine._nodes.rules.counts
    engine.step(1.0)
    zone, rack = book.terms[Term("g", "zone")], book.terms[Term("g", "rack")]
    assert (state.terms.topology[zone], state.terms.topology[rack]) == (0, 1)
    assert (state.terms.bits[zone], state.terms.domains[zone]) == (0, 2)
    assert (state.terms.bits[rack], state.terms.domains[rack]) == (2, 1)
    assert state.domain_bits[:, 0].tolist() == [1, 2, 3]
    assert state.domains[:2, :2].tolist() == [[0, 0], [1, 0]]


def test_bits_of_domains_are_by_place_also_beyond_the_first_word() -> None:
    engine = Engine("fifo")
    for i in range(66):
        engine.node(Node(f"n{i}", 2, 8 * GIB), labels={"zone": "a" if i % 2 else "b"})
    engine.node(Node("other", 4, 8 * GIB), labels={"zone": "c"})
    engine.constraint(Constraint(apart=(Apart("g", "zone"),)))
    engine.step(0.0)
    state = engine.state
    for node, facts_of in engine._nodes.facts.items():
        place = int(state.classes.first[state.nodes.cls[node]]) + int(state.nodes.pos[node])
        domain = {"b": 0, "a": 1, "c": 2}[facts_of.labels["zone"]]
        have = [int(word) >> (place % 64) & 1 for word in state.domain_bits[:, place // 64]]
        assert have == [int(domain == d) for d in range(3)], node
    assert sum(int(word).bit_count() for word in state.domain_bits.ravel()) == 67


def test_apart_is_asked_from_both_sides_once() -> None:
    engine = labelled({}, {})
    member = one_core(engine, groups=("g",))
    rule = engine.constraint(Constraint(apart=(Apart("g"),)))
    keeper = one_core(engine, constraint=rule)
    engine.constraint(Constraint(apart=(Apart("g"),), nodes=("n0",)))
    state, book = engine.state, engine._nodes.rules.counts
    holders, members = book.terms[Term("g", "node", True)], book.terms[Term("g", "node")]

    def asked(row: int) -> list[tuple[int, int]]:
        found, c = [], int(state.mask_rows.condition[row])
        while c:
            found.append((int(state.conditions.kind[c]), int(state.conditions.term[c])))
            c = int(state.conditions.next_row[c])
        return found

    assert asked(int(state.shapes.constraint[row_of(member)])) == [(tallies.APART, holders)]
    assert asked(int(state.shapes.constraint[row_of(keeper)])) == [(tallies.APART, members)]
    engine.put(TASK, keeper, tag=1)
    (one,) = engine.step(1.0).placements
    assert state.terms.total[holders] == 1 and state.terms.total[members] == 0
    assert bits(engine, "masks", int(state.shapes.constraint[row_of(member)])) == [1 - row_of(one.node)]


def test_tables_of_rules_double() -> None:
    book = CountBook(state := empty_state())
    sizes = []
    for number in range(5):
        book._term(Term(f"g{number}", "node"))
        sizes.append(len(state.terms))
    assert sizes == [2, 4, 4, 8, 8] and book._used["terms"] == 6
    firsts = state.terms.first[1:6].tolist()
    assert firsts == [1 + 64 * k for k in range(5)], "a tally for each row of nodes"
    assert len(state.tallies) >= 1 + 5 * 64 and book._places.used == 1 + 5 * 64


def test_a_block_of_tallies_moves_with_what_it_holds_when_there_are_more_domains() -> None:
    engine = labelled({"zone": "a"}, {"zone": "b"})
    shape = one_core(engine, 2.0, groups=("g",))
    engine.constraint(Constraint(apart=(Apart("g", "zone"),)))
    for tag in range(2):
        engine.put(TASK, shape, tag=tag)
    engine.step(1.0)
    state, term = engine.state, engine._nodes.rules.counts.terms[Term("g", "zone")]
    before = int(state.terms.first[term])
    for k in range(3):
        engine.node(Node(f"m{k}", 2, 8 * GIB), labels={"zone": f"c{k}"})
    first = int(state.terms.first[term])
    assert first != before and state.tallies[first : first + 8].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert engine._nodes.rules.counts._blocks[term] == (first, 8)


@pytest.mark.parametrize(("gone", "values"), [(64, 65), (65, 66), (66, 1)])
def test_values_of_a_label_are_numbered_anew_when_most_are_of_nodes_that_are_gone(gone: int, values: int) -> None:
    book = CountBook(empty_state())
    book._column("zone")
    book._labels[0] = (("zone", "stays"),)
    for number in range(gone):
        book._domain("zone", {"zone": f"z{number}"})
    book.state.domains[0, 0] = book._domain("zone", {"zone": "stays"})
    book.node_removed(5)
    assert len(book._values[0]) == values and book.state.domains[5].tolist() == [-1] * 8
    assert book.state.domains[0, 0] == (gone if values > 1 else 0)


@pytest.mark.parametrize(
    ("rows", "used", "again"), [(64, 2, False), (65, 2, True), (65, 66, True), (65, 130, False), (66, 131, True)]
)
def test_rules_are_written_anew_when_more_than_64_and_half_of_all_are_out_of_use(
    rows: int, used: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, told = CountBook(empty_state()), []
    book._used = {"terms": 1, "conditions": used - 1, "counted": 1}
    monkeypatch.setattr(CountBook, "_write_again", lambda self: told.append(self._waste))
    book._wasted(rows - 1)
    told.clear()
    book._wasted(1)
    assert bool(told) == again and book._waste == rows


def test_rules_that_are_written_anew_say_the_same() -> None:
    engine, plain, shape = spread_engine()
    keeper = one_core(engine, constraint=engine.constraint(Constraint(apart=(Apart("g", "zone"),))))
    for tag in range(3):
        engine.put(TASK, shape, tag=tag)
    engine.put(TASK, keeper, tag=9)
    engine.step(1.0)
    state, book = engine.state, engine._nodes.rules.counts

    def said() -> dict[str, Any]:
        blocks = {
            t: (int(state.terms.total[r]), state.tallies[(f := int(state.terms.first[r])) : f + 2].tolist())
            for t, r in book.terms.items()
        }
        return {"masks": state.masks.tolist(), "terms": blocks, "rows": dict(book.rows), "shapes": dict(book.shapes)}

    before, book._waste = said(), 7
    book._write_again()
    assert said() == before and book._waste == 0 and book._used["counted"] == 3 and book._used["terms"] == 3
    assert plain in book.rows


def test_a_dropped_row_asks_nothing_and_counts_as_waste() -> None:
    engine, plain, _ = spread_engine()
    state, book = engine.state, engine._nodes.rules.counts
    c = int(state.mask_rows.condition[plain])
    book.row_dropped(plain)
    assert state.conditions.kind[c] == tallies.NOTHING and book._waste == 1 and plain not in book.rows
    book.row_dropped(plain)
    book.shape_dropped(99)
    assert book._waste == 1
    book.shape_dropped(next(iter(book.shapes)))
    assert book._waste == 2 and book.shapes == {}


def test_spread_needs_a_skew_of_one_and_eight_labels_are_enough() -> None:
    engine = labelled({})
    with pytest.raises(BadEvent, match="spread of 'g': max_skew must be at least 1, not 0"):
        engine.constraint(Constraint(spread=(Spread("g", "zone", 0),)))
    engine.constraint(Constraint(spread=(Spread("g", "zone", 1),)))
    seven = tuple(Apart("g", f"l{k}") for k in range(7))
    with pytest.raises(BadEvent, match=r"at most 8 labels make domains, not 9: l0, l1, l2, l3, l4, l5, l6, x, zone"):
        engine.constraint(Constraint(apart=(*seven, Apart("g", "node")), together=(Together("g", "x"),)))
    engine.constraint(Constraint(apart=(*seven, Apart("g", "node"))))
    with pytest.raises(BadEvent, match="not 9"):
        engine.constraint(Constraint(together=(Together("g", "x"),)))


def test_a_node_that_is_gone_counts_nowhere_and_its_domain_stays_numbered() -> None:
    engine, _, _ = spread_engine()
    state = engine.state
    engine.put(GONE, engine.nodes["n1"])
    engine.step(1.0)
    engine.step(2.0)
    assert state.domains[1].tolist() == [-1] * 8 and 1 not in engine._nodes.rules.counts._labels
    assert np.flatnonzero(state.domain_bits.any(axis=1)).tolist() == [0]
