"""Slots in time by hand: messages between nodes, a node that is named, gaps between what is planned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.model.cluster import Device, Network, Serverless, Zone
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape
from wattflow.policy import dewts, planning
from wattflow.policy.planning import timeline
from wattflow.policy.planning.facts import Slots, empty_slots

LINK = Network(10.0, 1.0, 5.0)
"""Ten bytes a second; a second of latency, five more from another zone."""


def near_and_far() -> planning.PlanningProblem:
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


def test_tasks_are_planned_by_priority_then_depth_then_number() -> None:
    """Of those whose parents are planned: task 0 lets 1 in, which stands behind 2, nearer the entry; then by number."""
    work = tasks([1.0] * 6, edges=edges((0, 1)))
    slots = planning.schedule(planning.problem(work, nodes(node()), {}), np.array([9.0, 5.0, 5.0, 7.0, 5.0, 8.0]))
    assert slots.start_s.tolist() == [0.0, 5.0, 3.0, 2.0, 4.0, 1.0]


def test_shares_of_devices_as_their_sharing_counts_them() -> None:
    """All of it, exclusive or by turns; as asked for; in sevenths, rounded up; and all where several are taken."""
    cards = tuple(Device("gpu", "a", 100, sharing) for sharing in ("exclusive", "time-slice", "mps", "mig"))
    shares = [0.5, 1 / 7, 0.9, 1.0]
    offers = (*(Variant(f"v{share}", 1, 0, "gpu", 1, share) for share in shares), Variant("pair", 1, 0, "gpu", 2))
    facts = planning.problem(tasks([1.0], variants=offers), nodes(node(4, devices=cards)), {}).facts
    found = [[int(timeline.share_of(facts.handle(), offer, d)) for d in range(4)] for offer in range(5)]
    assert found == [
        [1_000_000, 1_000_000, 500_000, 571_429],
        [1_000_000, 1_000_000, 142_857, 142_858],
        [1_000_000, 1_000_000, 900_000, 1_000_000],
        [1_000_000] * 4,
        [1_000_000] * 4,
    ]


def children_of(*places: int, given: float = 0.0, overlap: float = 0.0) -> tuple[planning.PlanningProblem, Slots]:
    """A task with two parents that have sent 50 and 20 bytes; they ended at 3 and 4 s on these nodes."""
    here, there = node(network=LINK, zone="a"), node(network=LINK, zone="b")
    platform = node(network=LINK, zone="a", serverless=Serverless(4.0))
    work = tasks(
        [1.0, 1.0, 2.0, 2.0], release=[0.0, 0.0, 2.0, 2.0], edges=edges((0, 2), (1, 2)),
        edge_bytes=np.array([50.0, 20.0]), input_bytes=np.array([0.0, 0.0, given, given]),
    )  # fmt: skip
    cluster = nodes(here, here, there, platform, zones=(Zone("a"), Zone("b")))
    found = planning.problem(work, cluster, {"overlap": overlap})
    slots = empty_slots(found.facts)
    slots.node[:2], slots.end_s[:2] = places, [3.0, 4.0]
    return found, slots


@pytest.mark.parametrize(
    ("places", "to", "seconds"),
    [((0, 0), 0, 0.0), ((0, 1), 0, 1.0 + 2.0), ((0, 1), 1, 1.0 + 5.0), ((0, 0), 1, 1.0 + 7.0), ((0, 2), 0, 6.0 + 2.0),
     ((0, 0), 2, 6.0 + 7.0), ((3, 3), 3, 1.0 + 7.0), ((-1, 0), 0, 1.0 + 5.0), ((2, 2), 2, 0.0)],
)  # fmt: skip
def test_a_task_fetches_what_does_not_lie_on_its_node(places: tuple[int, int], to: int, seconds: float) -> None:
    for given in (0.0, 30.0):
        found, slots = children_of(*places, given=given)
        facts = found.facts
        timeline.gather(facts.handle(), slots.handle(), 2)
        assert slots.near.tolist() == [4.0, 70.0, 2.0, math.inf]
        latency_s = 0.0 if seconds or not given else 1.0
        expected = seconds + given / 10.0 + latency_s
        assert timeline.fetch_s(facts.handle(), slots.handle(), 2, to) == pytest.approx(expected)
        assert timeline.ready_on(facts.handle(), slots.handle(), 2, to) == 4.0
        timeline.forget(facts.handle(), slots.handle(), 2)
        assert not slots.local_n.any() and not slots.local_bytes.any() and not slots.zone_n.any()
        timeline.gather(facts.handle(), slots.handle(), 3)  # no parents: from its release on
        assert slots.near.tolist() == [2.0, 0.0, 0.0, math.inf]


def test_bytes_that_travel_beside_the_run_are_awaited_one_by_one() -> None:
    found, slots = children_of(0, 1, given=30.0, overlap=1.0)
    tables = found.facts.handle(), slots.handle()
    timeline.gather(*tables, 2)
    ready = [timeline.ready_on(*tables, 2, to) for to in (0, 1, 2)]
    # on node 0 the 20 bytes of node 1 from 4 s on; on node 1 the 50 bytes of node 0 from 3 s on; on node 2 both
    assert ready == pytest.approx([4.0 + 3.0, 3.0 + 6.0, 3.0 + 11.0])
    assert timeline.ready_on(*tables, 3, 0) == pytest.approx(2.0 + 4.0)


def test_a_time_limit_keeps_long_tasks_off_a_platform() -> None:
    cluster = nodes(node(speed=0.5), node(serverless=Serverless(4.0, time_limit_s=9.0)))
    found = planning.problem(tasks([9.0, 9.1]), cluster, {})
    assert planning.schedule(found, np.array([2.0, 1.0])).node.tolist() == [1, 0]


def test_tasks_take_turns_on_devices() -> None:
    """Two cards, one twice as fast: 10 s or 5 s. A pair waits for both and goes at the pace of the slower."""
    cards = (Device("gpu", "a", 100), Device("gpu", "a", 100, speed=2.0))
    single, pair = Variant("one", 1, 0, "gpu", 1), Variant("pair", 1, 0, "gpu", 2)
    work = tasks(
        [10.0] * 4, shapes=(Shape(0, (single,)), Shape(0, (pair,))), shape=np.array([0, 0, 0, 1], np.int32)
    )  # fmt: skip
    found = planning.problem(work, nodes(node(4, devices=cards)), {})
    slots = planning.schedule(found, np.array([4.0, 3.0, 2.0, 1.0]))
    assert slots.taken.tolist() == [0b10, 0b01, 0b10, 0b11]
    assert slots.start_s.tolist() == [0.0, 0.0, 5.0, 10.0]
    assert slots.end_s.tolist() == [5.0, 10.0, 10.0, 20.0]
    slots = planning.schedule(found, np.array([2.0, 3.0, 1.0, 4.0]))  # the pair first
    assert slots.start_s.tolist() == [15.0, 10.0, 10.0, 0.0] or slots.start_s.tolist() == [10.0, 10.0, 15.0, 0.0]


def test_a_device_waits_for_cores_and_cores_for_a_device() -> None:
    """One core and one card, both taken by others at first: the core until 4 s, the card until 6 s."""
    found = planning.problem(
        tasks([3.0], variants=(Variant("g", 1, 0, "gpu", 1),)), nodes(node(1, devices=(Device("gpu", "a", 100),))), {}
    )
    slots = empty_slots(found.facts, held=2)
    timeline.occupy(slots.handle(), 0, 0.0, 4.0, 1_000_000, 0)
    timeline.occupy(slots.handle(), 1, 0.0, 6.0, 1_000_000, 0)
    timeline.occupy(slots.handle(), 0, 8.0, 9.0, 1_000_000, 0)
    timeline.gather(found.facts.handle(), slots.handle(), 0)
    timeline.try_node(found.facts.handle(), slots.handle(), 0, 0, 0)
    assert slots.best[:2].tolist() == [9.0, 12.0] and int(slots.choice[0]) == 1
    timeline.occupy(slots.handle(), 0, 8.0, 9.0, -1_000_000, 0)
    timeline.try_node(found.facts.handle(), slots.handle(), 0, 0, 0)
    assert slots.best[:2].tolist() == [6.0, 9.0]
