"""Slots in time by hand: messages between nodes, a node that is named, gaps between what is planned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.model.cluster import Network, Serverless, Zone
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import dewts, planning
from wattflow.policy.planning import timeline
from wattflow.policy.planning.facts import Slots, empty_slots

LINK = Network(10.0, 1.0, 5.0)
"""Ten bytes a second; a second of latency, five more from another zone."""


def near_and_far() -> planning.Problem:
    """Nodes 0 and 1 in one zone, 2 in another, 3 a platform, which keeps no data, in the first."""
    here, there = node(network=LINK, zone="a"), node(network=LINK, zone="b")
    platform = node(network=LINK, zone="a", serverless=Serverless(4.0))
    return planning.problem(tasks([1.0]), nodes(here, here, there, platform, zones=(Zone("a"), Zone("b"))), {})


@pytest.mark.parametrize(
    ("source", "to", "size", "seconds"),
    [
        (0, 0, 50.0, 0.0), (0, 1, 50.0, 6.0), (0, 2, 50.0, 11.0), (2, 1, 50.0, 11.0), (2, 2, 50.0, 0.0),
        (3, 3, 50.0, 6.0), (0, 2, 0.0, 0.0), (-1, 0, 50.0, 6.0), (-1, 2, 50.0, 6.0), (3, 2, 10.0, 7.0),
    ],
)  # fmt: skip
def test_a_message_takes_latency_the_way_to_another_zone_and_its_bytes(
    source: int, to: int, size: float, seconds: float
) -> None:
    facts = near_and_far().facts
    assert timeline.message_s(facts.handle(), source, to, size) == pytest.approx(seconds)


def test_a_task_goes_where_it_ends_first_or_where_it_is_told() -> None:
    """Node 1 is twice as fast. Told to go to node 0, 10 s there; free, 5 s on node 1, and behind that still there."""
    found = planning.problem(tasks([10.0, 10.0, 10.0]), nodes(node(), node(speed=2.0)), {})
    slots = planning.schedule(found, np.array([3.0, 2.0, 1.0]), only=np.array([0, -1, -1]))
    assert slots.node.tolist() == [0, 1, 1]
    assert (slots.start_s.tolist(), slots.end_s.tolist()) == ([0.0, 0.0, 5.0], [10.0, 5.0, 10.0])
    slots = planning.schedule(found, np.array([3.0, 2.0, 1.0]), only=np.array([1, 1, 0]))
    assert (slots.node.tolist(), slots.start_s.tolist()) == ([1, 1, 0], [0.0, 5.0, 0.0])


def test_a_bias_makes_a_class_dearer() -> None:
    found = planning.problem(tasks([10.0]), nodes(node(), node(speed=2.0)), {})
    for bias, chosen in ((4.9, 1), (5.0, 0), (5.1, 0)):
        row = np.zeros((1, 2))
        row[0, found.facts.cls[1]] = bias
        assert planning.schedule(found, np.zeros(1), bias=row).node.tolist() == [chosen]


def planned(*held: tuple[float, float, int]) -> Slots:
    """One node of 2 cores with these (start, end, cores) taken."""
    found = planning.problem(tasks([1.0] * 4), nodes(node(2)), {})
    slots = empty_slots(found.facts, held=len(held))
    slots.near[3] = math.inf
    for start_s, end_s, cores in held:
        timeline.occupy(slots.handle(), 0, start_s, end_s, cores * 1_000_000, 0)
    return slots


@pytest.mark.parametrize(
    ("after_s", "long_s", "cores", "start_s"),
    [
        (0.0, 2.0, 1, 0.0), (0.0, 2.0, 2, 0.0), (0.0, 2.1, 2, 8.0), (0.0, 2.1, 1, 0.0), (1.0, 9.0, 1, 6.0),
        (5.0, 1.0, 1, 6.0), (4.0, 0.5, 1, 6.0), (6.0, 1.0, 2, 8.0), (9.0, 1.0, 2, 9.0),
    ],
)  # fmt: skip
def test_the_earliest_slot_is_the_first_gap_that_is_wide_and_long_enough(
    after_s: float, long_s: float, cores: int, start_s: float
) -> None:
    """One core is taken from 2 to 8 s, the other from 4 to 6 s."""
    slots = planned((2.0, 8.0, 1), (4.0, 6.0, 1))
    assert timeline.earliest(slots.handle(), 0, after_s, long_s, cores * 1_000_000, 0) == start_s
    slots.near[3] = start_s + long_s
    assert timeline.earliest(slots.handle(), 0, after_s, long_s, cores * 1_000_000, 0) == math.inf  # no gain any more


@pytest.mark.parametrize(
    ("after_s", "until_s", "long_s", "cores", "start_s"),
    [
        (0.0, 10.0, 2.0, 2, 8.0), (0.0, 9.0, 2.0, 2, 0.0), (0.0, 9.0, 2.5, 2, -math.inf), (0.0, 9.0, 3.0, 1, 6.0),
        (0.0, 7.0, 2.0, 1, 2.0), (3.0, 7.0, 1.5, 1, -math.inf), (0.0, 1.0, 1.0, 2, 0.0), (0.0, 10.0, 4.5, 1, -math.inf),
    ],
)  # fmt: skip
def test_the_latest_slot_ends_in_time(
    after_s: float, until_s: float, long_s: float, cores: int, start_s: float
) -> None:
    slots = planned((2.0, 8.0, 1), (4.0, 6.0, 1))
    assert timeline.latest(slots.handle(), 0, after_s, until_s, long_s, cores * 1_000_000, 0) == start_s


def test_room_given_back_is_free_again() -> None:
    slots = planned((2.0, 8.0, 2))
    timeline.occupy(slots.handle(), 0, 2.0, 8.0, -2_000_000, 0)
    assert timeline.earliest(slots.handle(), 0, 0.0, 20.0, 2_000_000, 0) == 0.0


def test_children_wait_for_their_parents_and_their_bytes() -> None:
    """Two seconds on node 0, then 1 + 30 / 10 s to node 1 against 2 s of waiting for node 0: it stays."""
    work = tasks([2.0, 6.0, 1.0], edges=edges((0, 1), (0, 2)), edge_bytes=np.array([30.0, 30.0]))
    found = planning.problem(work, nodes(node(network=LINK), node(network=LINK)), {})
    slots = planning.schedule(found, planning.upward_rank(found))
    assert slots.node.tolist() == [0, 0, 1]
    assert slots.start_s.tolist() == [0.0, 2.0, 2.0]
    assert slots.end_s.tolist() == pytest.approx([2.0, 8.0, 2.0 + 4.0 + 1.0])


def test_a_wide_task_takes_all_its_cores_at_once() -> None:
    found = planning.problem(tasks([4.0, 4.0], variants=(Variant(cores=2),)), nodes(node(3)), {})
    assert planning.schedule(found, np.zeros(2)).start_s.tolist() == [0.0, 4.0]


def test_dewts_keeps_the_fullest_nodes_and_of_equal_ones_the_frugal() -> None:
    """Nodes 0 and 1 have two tasks each: 10 s of 20 W, or 5 s of 50 W at twice the speed. Node 2 has one, 3 none."""
    kinds = [(1.0, 20.0), (2.0, 50.0), (1.0, 1.0), (1.0, 2.0)]
    cluster = nodes(*(node(1, speed=speed, power=PowerProfile((0.0, 1.0), (0.0, w))) for speed, w in kinds))
    found = planning.problem(tasks([10.0] * 5), cluster, {})
    slots = empty_slots(found.facts)
    slots.node[:] = [0, 0, 1, 1, 2]
    assert dewts.node_order(found, slots).tolist() == [0, 1, 2, 3]
    slots.node[:] = [0, 1, 1, 3, 3]
    assert dewts.node_order(found, slots).tolist() == [3, 1, 0, 2]
