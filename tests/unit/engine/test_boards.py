"""Kept costs by hand: 136 nodes that are all in use a little differently, and `least-loaded` among them."""

from __future__ import annotations

import pytest

from wattflow.engine.boards import WORTH_IT
from wattflow.live import FINISHED, LOAD, NODE, TASK, Act, Constraint, Engine, Match, Power
from wattflow.live.protocol import Placement
from wattflow.model.cluster import Node, Sleep
from wattflow.model.workflow import Variant

GIB = 1 << 30
NODES, CORES = 136, 8.0


class Fleet:
    """Node k is used by others for (k + 1) / 1000 cores, or as given."""

    def __init__(self, loads: dict[int, float] | None = None, rest: float | None = None, limit: int = 0) -> None:
        self.engine = Engine("least-loaded", score_limit=limit)
        sleep = Sleep(2.0, wake_s=5.0)
        self.ids = [
            self.engine.node(Node(f"n{k}", int(CORES), 64 * GIB, sleep=sleep), labels={"pool": str(k % 3)})
            for k in range(NODES)
        ]
        usual = {k: (0.0 if rest is None else rest) + (k + 1) / 1000 for k in range(NODES)}
        self.used = usual | (loads or {})
        for k, cores in self.used.items():
            self.engine.put(LOAD, self.ids[k], cores=cores)
        self.engine.step(0.0)
        assert int(self.engine.state.counts.active_n[0]) >= WORTH_IT
        self.now_s = 0.0

    def place(self, cores: float = 1.0, **more: object) -> tuple[int, Placement]:
        """Where a task goes, and its placement."""
        offers = more.pop("variants", [Variant(cores=cores, memory_bytes=GIB)])
        self.engine.put(TASK, self.engine.shape(offers, **more), estimate_s=5.0)  # type: ignore[arg-type]
        self.now_s += 1.0
        self.step = self.engine.step(self.now_s)
        (placement,) = self.step.placements
        node = self.ids.index(placement.node)
        self.used[node] += cores
        return node, placement

    def least(self, cores: float, nodes: range = range(NODES)) -> int:
        """The least loaded node with room, of equal ones the first: a look at every one."""
        return min((k for k in nodes if self.used[k] + cores <= CORES), key=lambda k: (round(self.used[k], 6), k))


def test_each_task_goes_to_the_least_loaded_node_of_all() -> None:
    fleet = Fleet()
    running = []
    for turn in range(12):
        cores = (1.0, 0.25, 3.0)[turn % 3]
        expected = fleet.least(cores)
        node, placement = fleet.place(cores)
        assert node == expected
        running.append((node, cores, placement.attempt))
        if turn % 4 == 3:  # what ends makes its node cheap again
            node, cores, attempt = running.pop(1)
            fleet.engine.put(FINISHED, attempt)
            fleet.used[node] -= cores
    assert (fleet.engine.state.boards.owner > 0).sum() == 3  # a board for each kind of task, and all were asked


def test_under_a_cap_words_of_64_nodes_take_turns() -> None:
    fleet = Fleet(limit=64)
    words = [range(64), range(64, 128), range(128, NODES)]
    for turn in range(7):
        expected = fleet.least(1.0, words[turn % 3])
        assert fleet.place()[0] == expected


@pytest.mark.parametrize("limit", [0, 64])
def test_a_node_takes_what_fills_it_and_not_more(limit: int) -> None:
    fleet = Fleet({40: 2.0, 70: 2.001}, rest=7.0, limit=limit)
    assert fleet.place(6.0)[0] == 40
    fleet.engine.put(TASK, fleet.engine.shape([Variant(cores=6.0)]), estimate_s=1.0)
    assert fleet.engine.step(9.0).placements == []


@pytest.mark.parametrize(("limit", "chosen"), [(0, [1, 2, 4, 0]), (64, [1, 65, 130, 0])])
def test_a_rule_leaves_out_the_nodes_that_it_does_not_allow(limit: int, chosen: list[int]) -> None:
    """Nodes of one in three pools; under a cap the words of 64 nodes take turns."""
    fleet = Fleet(limit=limit)
    rules = [fleet.engine.constraint(Constraint(any_of=((Match("pool", "in", (pool,)),),))) for pool in "12"]
    found = [fleet.place(constraint=rule)[0] for rule in (rules[0], rules[1], rules[0])]
    assert [*found, fleet.place()[0]] == chosen


def test_of_equal_nodes_and_equal_costs_the_first_wins() -> None:
    """Nodes 5 and 9 are alike, and both variants cost the same there: the lower node by the variant named first."""
    fleet = Fleet({5: 0.0, 9: 0.0})
    offers = [Variant("a", 1, GIB), Variant("b", 1, 2 * GIB)]
    node, placement = fleet.place(variants=offers)
    assert (node, placement.variant) == (5, 0)
    node, placement = fleet.place(variants=offers)
    assert (node, placement.variant) == (9, 0)


def test_where_none_that_is_on_fits_a_sleeping_node_is_woken() -> None:
    fleet = Fleet({100: 0.0}, rest=7.5)
    fleet.engine.put(NODE, fleet.ids[100], state=Power.ASLEEP)
    fleet.engine.step(0.5)
    assert fleet.place()[0] == 100
    assert [(a.kind, a.who) for a in fleet.step.actions] == [(Act.WAKE, fleet.ids[100])]


def test_a_node_that_is_on_is_preferred_to_one_asleep() -> None:
    fleet = Fleet({100: 0.0, 120: 3.0}, rest=7.5)
    fleet.engine.put(NODE, fleet.ids[100], state=Power.ASLEEP)
    fleet.engine.step(0.5)
    assert fleet.place()[0] == 120
    assert fleet.step.actions == []
