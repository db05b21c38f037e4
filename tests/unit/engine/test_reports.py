"""What a driver reports: a refusal leaves everything as it was, a lost node takes a gang's other parts with it."""

from __future__ import annotations

import pytest

from wattflow.engine.tables import ASSUMED, WAITS
from wattflow.engine.tables import STARTED as STAGE_STARTED
from wattflow.live import FAILED, FINISHED, LOAD, NODE, PREEMPT, REFUSED, STARTED, TASK, Act, Engine, Kind, Power
from wattflow.live.protocol import Placement
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Function, Variant

GIB = 1 << 30
BOARD = Device("fpga", reconfigure_s=2.0, power=DeviceProfile((0.0, 1.0), (1.0, 9.0)))


def fpga_engine(**more: object) -> tuple[Engine, int, list[int]]:
    """A node with one FPGA, and a shape for each of two functions whose kernels it may hold."""
    engine = Engine("least-loaded")
    node = engine.node(Node("n", 4, 8 * GIB, **({"devices": (BOARD,)} | more)))  # type: ignore[arg-type]
    offer = Variant(cores=1, device="fpga", devices=1)
    return engine, node, [engine.shape([offer], Function(name)) for name in ("f", "g")]


def loaded(engine: Engine) -> int:
    return int(engine.state.devices.loaded[0])


def test_a_refusal_puts_the_kernel_back_that_was_loaded() -> None:
    engine, _, (f, g) = fpga_engine()
    engine.put(TASK, f)
    (placement,) = engine.step(0.0).placements
    first = loaded(engine)
    assert first >= 0
    engine.put(FINISHED, placement.attempt)
    engine.put(TASK, g)
    (placement,) = engine.step(1.0).placements
    assert loaded(engine) not in (first, -1)
    engine.put(REFUSED, placement.attempt, until_s=50.0)
    engine.step(2.0)
    assert loaded(engine) == first


def test_a_refusal_before_the_node_was_awake_leaves_the_kernel() -> None:
    """What waits for a node has loaded nothing yet, so there is nothing to put back."""
    engine, node, (f, g) = fpga_engine(sleep=Sleep(2.0, wake_s=5.0))
    engine.put(TASK, f)
    (placement,) = engine.step(0.0).placements
    first = loaded(engine)
    engine.put(FINISHED, placement.attempt)
    engine.step(1.0)
    engine.put(NODE, node, state=Power.ASLEEP)
    engine.step(2.0)
    engine.put(TASK, g)
    (placement,) = engine.step(3.0).placements
    assert loaded(engine) == first
    engine.put(REFUSED, placement.attempt, until_s=50.0)
    engine.step(4.0)
    assert loaded(engine) == first


def test_what_waited_for_a_node_goes_on_when_it_is_on() -> None:
    """Two attempts load a board each, and not before the node is awake; one that was under way is left alone."""
    engine, node, (f, g) = fpga_engine(devices=(BOARD,) * 3, sleep=Sleep(2.0, wake_s=5.0))
    engine.put(TASK, f)
    (first,) = engine.step(0.0).placements
    engine.put(FINISHED, first.attempt)
    engine.step(1.0)
    engine.put(NODE, node, state=Power.ASLEEP)
    engine.step(2.0)
    for shape in (f, g):
        engine.put(TASK, shape)
    step = engine.step(3.0)
    assert len(step.placements) == 2 and [a.kind for a in step.actions] == [Act.WAKE]
    assert sorted(engine.state.devices.loaded[:3].tolist()) == [-1, -1, 0]
    taken = [row for row in range(len(engine.state.attempts)) if engine.state.attempts.task[row] >= 0]
    assert [int(engine.state.attempts.stage[row]) for row in taken] == [WAITS, WAITS]
    engine.put(NODE, node, state=Power.ON)
    assert engine.step(8.0).placements == []
    assert [int(engine.state.attempts.stage[row]) for row in taken] == [ASSUMED, ASSUMED]
    assert {int(engine.state.devices.loaded[int(engine.state.attempts.device[row])]) for row in taken} == {0, 1}
    engine.put(STARTED, step.placements[0].attempt)
    engine.put(NODE, node, state=Power.DRAINING)
    engine.step(9.0)
    engine.put(NODE, node, state=Power.ON)
    engine.step(10.0)
    assert sorted(int(engine.state.attempts.stage[row]) for row in taken) == [ASSUMED, STAGE_STARTED]


def gang(nodes: int, cores: int, parts: int) -> tuple[Engine, list[int], list[Placement]]:
    engine = Engine("least-loaded")
    rows = [engine.node(Node(f"n{i}", cores, 8 * GIB)) for i in range(nodes)]
    engine.put(TASK, engine.shape([Variant(cores=1, memory_bytes=GIB)], parts=parts), tag=1)
    return engine, rows, list(engine.step(0.0).placements)


def test_a_lost_node_stops_the_gangs_parts_elsewhere_and_it_starts_again_when_they_are_gone() -> None:
    engine, nodes, placed = gang(nodes=3, cores=1, parts=3)
    assert sorted(p.node for p in placed) == sorted(nodes)
    gone, *others = placed
    engine.put(NODE, gone.node, state=Power.DOWN)
    step = engine.step(1.0)
    assert sorted((a.kind, a.who) for a in step.actions) == sorted((Act.STOP, p.attempt) for p in others)
    assert step.placements == []
    for part in others:
        engine.put(FAILED, part.attempt)
    assert engine.step(2.0).placements == []  # two nodes are left for three parts
    engine.put(NODE, gone.node, state=Power.ON)
    again = engine.step(3.0).placements
    assert sorted(p.node for p in again) == sorted(nodes)
    assert {p.attempt_no for p in again} == {1}


def test_a_lost_node_ends_all_parts_on_it_at_once() -> None:
    engine, nodes, placed = gang(nodes=2, cores=2, parts=4)
    engine.put(NODE, nodes[0], state=Power.DOWN)
    step = engine.step(1.0)
    elsewhere = [p.attempt for p in placed if p.node == nodes[1]]
    assert sorted(a.who for a in step.actions) == sorted(elsewhere) and len(elsewhere) == 2
    assert engine.counts["running"] == 2
    for attempt in elsewhere:
        engine.put(FAILED, attempt)
    engine.put(NODE, nodes[0], state=Power.ON)
    assert len(engine.step(2.0).placements) == 4


@pytest.mark.parametrize("end", [FAILED, FINISHED])
def test_a_preempted_task_keeps_its_place_and_its_tries(end: Kind) -> None:
    """Taken back it stands first again, with no try lost; one that was quicker than the stop has ended."""
    engine, _, (placement,) = gang(nodes=1, cores=1, parts=1)
    engine.put(TASK, engine.shape([Variant(cores=1, memory_bytes=GIB)]), tag=2)
    engine.put(PREEMPT, placement.attempt)
    assert [a.kind for a in engine.step(1.0).actions] == [Act.STOP]
    engine.put(end, placement.attempt)
    step = engine.step(2.0)
    assert [(p.tag, p.attempt_no) for p in step.placements] == [(1 if end == FAILED else 2, 0)]
    assert [e.tag for e in step.ended] == ([] if end == FAILED else [1])


def test_what_others_use_of_a_countable_resource_is_told_in_all() -> None:
    """Six pods, of which others have 5, then still 5, then 3: one task starts, and two more when there is room."""
    engine = Engine("least-loaded")
    node = engine.node(Node("n", 8, 8 * GIB), counts={"pods": 6})
    shape = engine.shape([Variant(cores=1)], counts={"pods": 1})
    for _ in range(4):
        engine.put(TASK, shape)
    started = []
    for at_s, used in ((0.0, 5), (1.0, 5), (2.0, 3), (3.0, 2)):
        engine.put(LOAD, node, counts={"pods": used})
        started.append(len(engine.step(at_s).placements))
    assert started == [1, 0, 2, 1]
