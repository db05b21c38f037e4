"""The rehearsed policy on a live engine: dials come from another process, from workflows that are open."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.live import Engine, Kind
from wattflow.live.rehearsing import Rehearsing, chosen_dials, is_meant, known_workflows
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload
from wattflow.policy import registry

MONTAGE = generate.workload("montage", 25, 3)


def put(engine: Engine, workload: Workload) -> int:
    """A workflow with its estimates; returns the engine's id."""
    flow = engine.workflow()
    ids: dict[int, int] = {}
    for task in workload.topological_order().tolist():
        shape = engine.shape(workload.shapes[workload.shape[task]].variants)
        ids[task] = engine.put(Kind.TASK, shape, workflow=flow, estimate_s=float(workload.estimate_s[task]))
        for parent in workload.parents_of(task).tolist():
            engine.put(Kind.EDGE, ids[parent], ids[task])
    return flow


@pytest.fixture
def engine() -> Engine:
    return Engine("rehearsed:load=0.3", cluster=load_cluster("mixed"))


def test_what_is_open_is_known_as_it_was_put(engine: Engine) -> None:
    put(engine, MONTAGE)
    engine.step(0.0)
    known = known_workflows(engine, [1])
    assert len(known) == 1 and len(known[0]) == len(MONTAGE)
    assert sorted(known[0].runtime_s.tolist()) == pytest.approx(sorted(MONTAGE.estimate_s.tolist()))
    assert known[0].edge_count == MONTAGE.edge_count


def test_the_answer_of_the_rehearsal_is_used_once(engine: Engine) -> None:
    put(engine, MONTAGE)
    engine.step(0.0)
    with ThreadPoolExecutor(1) as here:
        twin = Rehearsing("rehearsed:load=0.3", here)
        assert twin.consider(engine, 0.0) is None  # handed over
        here.submit(int).result()  # the one before it is done
        chosen = twin.consider(engine, 0.1)
    typed = chosen_dials("rehearsed:load=0.3", known_workflows(engine, [1]), engine.cluster)
    assert chosen is not None and chosen.name == typed
    engine.use(chosen)
    engine.step(0.2)
    assert twin.consider(engine, 0.3) is None and twin._answer is None


def test_it_is_held_again_when_twice_as_many_have_been_seen(engine: Engine) -> None:
    shown: list[int] = []

    class Asked(ThreadPoolExecutor):
        def submit(self, work: object, policy: str, known: list[Workload], cluster: object) -> Future[str]:  # type: ignore[override]
            shown.append(len(known))
            answer: Future[str] = Future()
            answer.set_result(engine.policy.name)
            return answer

    twin = Rehearsing("rehearsed:load=0.3", Asked(1))
    for number in range(5):
        put(engine, MONTAGE)
        engine.step(float(number))
        assert [twin.consider(engine, float(number)) for _ in range(2)] == [None, None]
    assert shown == [1, 2, 4]
    batch = Rehearsing("rehearsed:load=0", Asked(1))
    shown.clear()
    for number in range(5, 7):
        assert [batch.consider(engine, float(number)) for _ in range(2)] == [None, None]
        put(engine, MONTAGE)
        engine.step(float(number))
    assert shown == [5, 6]


def test_workflows_one_after_another_are_counted_though_their_rows_come_again(engine: Engine) -> None:
    shown: list[list[float]] = []

    class Asked(ThreadPoolExecutor):
        def submit(self, work: object, policy: str, known: list[Workload], cluster: object) -> Future[str]:  # type: ignore[override]
            shown.append([float(one.runtime_s[0]) for one in known])
            answer: Future[str] = Future()
            answer.set_result(engine.policy.name)
            return answer

    twin, shape = Rehearsing("rehearsed:load=0.3", Asked(1)), engine.shape((Variant(cores=1),))
    rows = set()
    for number in range(4):
        flow = engine.workflow()
        for _ in range(6):
            engine.put(Kind.TASK, shape, workflow=flow, estimate_s=number + 1.0)
        placements = engine.step(10.0 * number).placements
        assert [twin.consider(engine, 10.0 * number) for _ in range(2)] == [None, None]
        rows |= set(np.flatnonzero(engine.state.workflows.open).tolist())
        engine.put(Kind.SEAL, flow)
        for placement in placements:
            engine.put(Kind.STARTED, placement.attempt)
            engine.put(Kind.FINISHED, placement.attempt)
        engine.step(10.0 * number + 1)
        assert not engine.state.workflows.open.any()
    assert len(rows) == 1, "the case does not ask enough"
    assert shown == [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0]]


def test_a_busy_process_holds_nothing_up(engine: Engine) -> None:
    class Never(ThreadPoolExecutor):
        def submit(self, *args: object, **fields: object) -> Future[str]:  # type: ignore[override]
            return Future()

    put(engine, MONTAGE)
    engine.step(0.0)
    twin = Rehearsing("rehearsed", Never(1))
    assert [twin.consider(engine, t) for t in (0.0, 0.1, 0.2)] == [None] * 3


def test_one_small_task_says_too_little(engine: Engine) -> None:
    engine.put(Kind.TASK, engine.shape(registry_shape()), estimate_s=3.0)
    engine.step(0.0)
    twin = Rehearsing("rehearsed")
    assert twin.consider(engine, 0.0) is None and twin._answer is None


def registry_shape() -> tuple[Variant, ...]:
    return MONTAGE.shapes[0].variants


def test_only_the_rehearsed_policy_means_it() -> None:
    assert is_meant("rehearsed") and is_meant("rehearsed:load=0.3") and is_meant(registry.load("rehearsed"))
    assert not is_meant("wattflow") and not is_meant(registry.load("learned"))
