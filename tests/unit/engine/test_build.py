"""From a workload and a cluster to tables: rules that follow from the facts, and tasks that nothing could run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine.build import build_state, class_key, container_table, uniform_grid
from wattflow.engine.offer_rows import offers_to
from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Device, Faults, Frequency, Network, Node, Serverless, Sleep, Zone
from wattflow.model.errors import InfeasibleTask
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape


def rule(name: str, *, cold_s: float = 0.0, edge_bytes: float = 0.0, limit_s: float = np.inf) -> int:
    work = tasks(
        [1.0, 1.0], function=Function("f", cold_start_s=cold_s), edges=edges((0, 1)), edge_bytes=np.array([edge_bytes])
    )
    state = build_state(work, nodes(node(), node(serverless=Serverless(1.0, time_limit_s=limit_s))))
    return int(state.rules[name][0])


def test_rules_say_what_the_workload_has() -> None:
    assert [rule("cold"), rule("cold", cold_s=0.1)] == [0, 1]
    assert [rule("has_data"), rule("has_data", edge_bytes=0.5)] == [0, 1]
    assert [rule("limits"), rule("limits", limit_s=900.0)] == [0, 1]


def refusal(cluster_nodes: tuple[Node, ...], *variants: Variant, parts: int = 1, count: int = 1) -> str:
    work = tasks([1.0] * count, shapes=(Shape(0, variants, parts),))
    with pytest.raises(InfeasibleTask) as error:
        build_state(work, nodes(*cluster_nodes))
    return str(error.value)


def test_a_task_that_no_node_could_run_says_what_its_first_variant_lacks() -> None:
    small = (node(4, memory_bytes=100, devices=(Device("gpu", "a"),)),)
    assert "needs 9 cores, the most on one node is 4" in refusal(small, Variant(cores=9), Variant(memory_bytes=999))
    assert "needs 101 bytes of memory, a node has 100" in refusal(small, Variant(memory_bytes=101))
    assert "needs architecture riscv" in refusal(small, Variant(architecture="riscv"))
    assert "needs the feature 'sgx'" in refusal(small, Variant(features=("sgx",)))
    assert "needs 2 gpu(s) that fit, a node has 1" in refusal(small, Variant(device="gpu", devices=2))
    assert "of model b or c that fit, a node has 0" in refusal(small, Variant(device="gpu", device_models=("b", "c")))


def test_a_refusal_counts_the_other_tasks_like_it() -> None:
    assert "(and 2 more tasks like it)" in refusal((node(),), Variant(cores=2), count=3)
    assert "more task" not in refusal((node(),), Variant(cores=2), count=1)


def test_parts_that_the_empty_cluster_cannot_hold_at_once() -> None:
    """Two nodes of 4 cores and 100 bytes hold 2 x 4 parts of a core, and 2 x 3 of 33 bytes."""
    pair = (node(4), node(4))
    assert "needs 9 parts of 1 cores at once; the empty cluster holds 8" in refusal(pair, Variant(), parts=9)
    assert "the empty cluster holds 6" in refusal(pair, Variant(memory_bytes=33), parts=7)
    for fitting in (Shape(0, (Variant(),), 8), Shape(0, (Variant(memory_bytes=33),), 6)):
        build_state(tasks([1.0], shapes=(fitting,)), nodes(*pair))


def test_a_curve_on_an_even_grid_is_the_curve() -> None:
    values, per_unit = uniform_grid((0.0, 1.0, 4.0), (10.0, 40.0, 70.0), 4.0)
    assert (values.tolist(), per_unit) == ([10.0, 40.0, 50.0, 60.0, 70.0], 1.0)
    assert uniform_grid((0.0,), (5.0,), 0.0)[0].tolist() == [5.0]


def test_a_class_row_holds_what_its_nodes_are() -> None:
    """Two cores of two threads that together do the work of 4 / 1.6 = 2.5: the further two threads add 0.5 in all."""
    curve = PowerProfile((0.0, 4.0), (10.0, 50.0))
    kind = build_state(tasks([1.0]), nodes(node(2, threads_per_core=2, smt_slowdown=1.6, power=curve))).classes[0]
    assert (kind.cores, kind.threads, kind.idle_w, kind.full_w, kind.tdp_w) == (2.0, 4.0, 10.0, 50.0, 50.0)
    assert kind.smt_gain == pytest.approx(0.25)
    assert (kind.sleepable, kind.serverless, kind.limit_s, kind.mtbf_s) == (0, 0, np.inf, np.inf)


def test_at_first_every_list_is_empty_and_nothing_is_anywhere() -> None:
    """Heads of lists and places that are not known yet are −1."""
    state = build_state(tasks([1.0, 1.0]), nodes(node(2, devices=(Device("gpu", "a"),)), node(2)))
    for table, names in (
        (state.nodes, ("first_attempt", "first_container")),
        (state.shapes, ("head", "tail")),
        (state.functions, ("first_container",)),
        (state.devices, ("loaded",)),
        (state.tasks, ("node", "pinned", "pinned_variant", "next", "previous")),
        (state.counts, ("held_first", "free_container", "hot_container")),
        (state.attempts, ("task",)),
    ):
        for name in names:
            assert set(table[name].tolist()) == {-1}, name
    assert set(state.freed.tolist()) == set(state.blocks.tolist()) == {-1}
    assert (int(state.choice.reserved[0]), int(state.clock.epoch[0]), float(state.clock.retry_at[0])) == (-2, 1, np.inf)
    assert (int(state.counts.open[0]), int(state.rules.max_retries[0]), int(state.counts.waiting[0])) == (2, 3, 0)
    assert state.attempts.next.tolist() == [*range(1, len(state.attempts)), -1]
    table = container_table(3)
    assert table.next_node.tolist() == [1, 2, -1]


def test_nodes_of_a_class_stand_together_in_their_order() -> None:
    state = build_state(tasks([1.0]), nodes(node(2), node(4), node(2), node(4), node(4)))
    assert state.nodes.cls.tolist() == [0, 1, 0, 1, 1]
    assert state.nodes.pos.tolist() == [0, 0, 1, 1, 2]
    assert state.class_nodes.tolist() == [0, 2, 1, 3, 4]
    assert [(int(row.first), int(row.count), int(row.room)) for row in state.classes] == [(0, 2, 2), (2, 3, 3)]
    assert state.nodes.capacity_u.tolist() == state.nodes.request_u.tolist() == [c * 1_000_000 for c in (2, 4, 2, 4, 4)]
    assert state.nodes.capacity_mem.tolist() == [100] * 5


OTHER: dict[str, object] = {
    "cores": 3, "memory_bytes": 101, "threads_per_core": 2, "smt_slowdown": 1.3, "allocatable_cores": 5.0, "speed": 2.0,
    "function_speed": {"f": 2.0}, "architecture": "arm64", "features": ("x",), "zone": "b", "tdp_w": 9.0,
    "power": PowerProfile((0.0, 2.0), (1.0, 2.0)), "devices": (Device("gpu", "a"),), "network": Network(5.0),
    "frequencies": (Frequency(), Frequency(0.5, 0.5)), "sleep": Sleep(1.0, 2.0), "keep_alive_s": 3.0,
    "cold_start_factor": 2.0, "serverless": Serverless(1.0), "faults": Faults(100.0), "price_per_hour": 1.0,
    "sharing": "pinned",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_nodes_that_differ_in_anything_are_of_two_classes(name: str) -> None:
    changed: dict[str, Any] = {name: OTHER[name]}
    other = replace(node(2), **changed)
    assert class_key(node(2)) == class_key(node(2)) != class_key(other)


def test_a_row_says_all_of_a_class() -> None:
    card = Device("gpu", "a", power=DeviceProfile((0.0, 1.0), (5.0, 25.0)))
    kind = node(
        2, power=PowerProfile((0.0, 2.0), (10.0, 50.0)), tdp_w=44.0, devices=(card, card), zone="b", price_per_hour=7.2,
        sleep=Sleep(1.5, 30.0, 4.0, after_s=60.0), serverless=Serverless(3.0, 0.5, 40.0, 1e-5, 1e-6),
        network=Network(10.0, 0.1, 0.5, 2.0), keep_alive_s=8.0, cold_start_factor=1.5, features=("x", "z"),
        faults=Faults(1000.0, 20.0, 3.0), frequencies=(Frequency(), Frequency(0.5, 0.4)), function_speed={"f": 3.0},
    )  # fmt: skip
    state = build_state(tasks([1.0]), nodes(node(1, features=("y",)), kind, zones=(Zone(), Zone("b"))))
    row = state.classes[1]
    expected = {
        "zone": 1, "known_power": 1, "serverless": 1, "sleepable": 1, "frequency_n": 2, "cores": 2.0, "threads": 2.0,
        "smt_gain": 0.0, "idle_w": 20.0, "full_w": 50.0, "tdp_w": 44.0, "device_idle_w": 10.0, "sleep_w": 1.5,
        "wake_s": 30.0, "enter_s": 4.0, "wake_w": 20.0, "sleep_after_s": 60.0, "burst_u": 3e6, "ramp_u_s": 5e5,
        "limit_s": 40.0, "use_price": 1e-5, "call_price": 1e-6, "bandwidth": 10.0, "latency_s": 0.1,
        "zone_latency_s": 0.5, "j_per_byte": 2.0, "keep_alive_s": 8.0, "cold_factor": 1.5, "mtbf_s": 1000.0,
        "repair_s": 20.0, "notice_s": 3.0, "price_s": 0.002, "request_u": 2_000_000, "memory": 100, "features": 0b101,
        "grid_per_core": 0.5, "grid_n": 2,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert state.frequency_speed.tolist() == [[1.0, 0.0], [1.0, 0.5]]
    assert state.frequency_power.tolist() == [[1.0, 0.0], [1.0, 0.4]]
    assert state.speed[:, 0].tolist() == [1.0, 3.0]
    plain = state.classes[0]
    names = ("known_power", "serverless", "sleepable", "sleep_w", "idle_w", "full_w", "tdp_w")
    assert [float(plain[name]) for name in names] == [0.0] * 7
    assert [float(plain[name]) for name in ("limit_s", "burst_u", "mtbf_s", "sleep_after_s")] == [np.inf] * 4


def test_a_row_says_all_of_a_variant() -> None:
    cards = tuple(Device("gpu", model, 100) for model in "abc")
    offers = (
        Variant("cpu", 1.5, 30, runtime_factor=2.0),
        Variant("two", 1, 0, "gpu", 2, 1.0, 7, device_models=("a", "c"), device_duty=0.25),
        Variant("some", 1, 0, "gpu", 0, 0.5, 7),
    )
    work = tasks([1.0], variants=offers)
    state = build_state(work, nodes(node(2, devices=cards)), PolicySettings(guarantees=(1.0, 0.5)))
    assert (int(state.shapes.variant_first[0]), int(state.shapes.variant_n[0]), int(state.rules.bare[0])) == (0, 6, 1)
    rows = state.variants
    assert rows.cores_u.tolist() == [1_500_000] * 2 + [1_000_000] * 4
    assert rows.need_u.tolist() == [1_500_000, 750_000, 1_000_000, 500_000, 1_000_000, 500_000]
    assert rows.origin.tolist() == [0, 0, 1, 1, 2, 2]
    assert rows.guarantee.tolist() == [1.0, 0.5] * 3
    assert (rows.memory.tolist()[:2], rows.factor.tolist()[:2]) == ([30, 30], [2.0, 2.0])
    assert (rows.device.tolist(), rows.devices.tolist()) == ([0, 0, 1, 1, 1, 1], [0, 0, 2, 2, 1, 1])
    assert rows.share_u.tolist() == [0, 0, 1_000_000, 1_000_000, 500_000, 500_000]
    assert (rows.duty_u.tolist()[2], rows.duty_u.tolist()[4], rows.device_memory.tolist()[2]) == (250_000, 1_000_000, 7)
    assert rows.models.tolist() == [0, 0, 0b101, 0b101, 0, 0]
    full = build_state(tasks([1.0], variants=(Variant(memory_bytes=1),)), nodes(node()))
    assert int(full.rules.bare[0]) == 0


def test_tasks_edges_and_workflows_are_those_of_the_workload() -> None:
    work = tasks(
        [3.0, 2.0, 1.0], release=[0.0, 1.0, 2.0], edges=edges((0, 2), (1, 2)), edge_bytes=np.array([5.0, 6.0]),
        deadline_s=np.array([np.inf, 9.0, np.inf]), workflow=np.array([0, 1, 1], np.int32),
    )  # fmt: skip
    state = build_state(work, nodes(node()))
    assert (state.tasks.release.tolist(), state.tasks.estimate.tolist()) == ([0.0, 1.0, 2.0], [3.0, 2.0, 1.0])
    assert (state.tasks.pending.tolist(), state.tasks.workflow.tolist()) == ([0, 0, 2], [0, 1, 1])
    assert (state.workflows.open.tolist(), int(state.counts.extra_n[0])) == ([1, 2], 3)
    assert state.extra.deadline.tolist() == [np.inf, 9.0, np.inf]
    links = state.links
    assert (links.child_n.tolist(), links.parent_n.tolist()) == ([1, 1, 0], [0, 0, 2])
    assert state.child[links.child_first[[0, 1]]].tolist() == [2, 2]
    first = int(links.parent_first[2])
    assert (state.parent[first:].tolist(), state.parent_bytes[first:].tolist()) == ([0, 1], [5.0, 6.0])
    plain = build_state(tasks([1.0] * 3), nodes(node()))
    assert (int(plain.counts.extra_n[0]), len(plain.extra), len(plain.child), len(plain.parent)) == (1, 1, 1, 1)
    fed = build_state(tasks([1.0], input_bytes=np.array([4.0])), nodes(node()))
    assert (int(fed.rules.has_data[0]), int(fed.counts.extra_n[0]), fed.extra.input_bytes.tolist()) == (
        1,
        2,
        [4.0, 0.0],
    )


def test_offers_that_are_known_already_are_those_of_a_first_look() -> None:
    """Kept from State to State: other nodes, settings or shapes must not meet what was found for these."""
    wide, narrow = (Shape(0, (Variant(cores=cores), Variant(name="b", memory_bytes=50))) for cores in (3.0, 1.0))
    gpu = Shape(0, (Variant(device="gpu", devices=1, device_models=("a",)),))
    roomy = nodes(node(8, memory_bytes=100, devices=(Device("gpu", "b"), Device("gpu", "a"))), node(2))
    small = nodes(node(4, memory_bytes=100, devices=(Device("gpu", "a"),)))
    kinds = [(roomy, PolicySettings()), (small, PolicySettings()), (roomy, PolicySettings(guarantees=(0.5, 1.0)))]
    found: list[list[bytes]] = []
    for warm in (False, True):
        seen = []
        for cluster, settings in kinds:
            for shapes in ((wide, narrow, gpu), (gpu, wide)):
                if not warm:
                    offers_to.cache_clear()
                state = build_state(tasks([1.0, 1.0], shapes=shapes), cluster, settings)
                seen += [getattr(state, name).tobytes() for name in ("shapes", "variants", "class_ok")]
        found.append(seen)
    assert found[0] == found[1] and len(set(found[0])) > 6
