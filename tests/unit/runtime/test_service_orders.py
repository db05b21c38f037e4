"""Orders to nodes, what is adopted, made again and replayed: with a played decider, driver and loop."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from wattflow.live import COLD, NODE, TASK, Act, Kind, Power, journal
from wattflow.live.protocol import Action, Placement, Step
from wattflow.model.errors import BrokenPolicy, WattflowError
from wattflow.model.workflow import Function
from wattflow.policy import registry
from wattflow.runtime import decider as deciding
from wattflow.runtime import messages as m
from wattflow.runtime import recovery
from wattflow.runtime.actions import LEAST_S, TRIES, Actions, Adopting, Cancelling, Waking, Warming
from wattflow.runtime.decider import CHOSEN, SHIELD, JournaledEngine
from wattflow.runtime.records import AttemptRecord, Attempts, Nodes, TaskRecord, WorkflowRecord
from wattflow.runtime.turns import Turns, UnderWay

from .test_recovery import task
from .test_service_rules import SMALL, end, run, running, submit

HASH, OTHER, THIRD = "a" * 64, "b" * 64, "c" * 64


class Loop:
    """Keeps what is asked for later; tests let the time come."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Any, tuple[Any, ...]]] = []
        self.cancelled: list[int] = []

    def call_later(self, after_s: float, function: Any, *args: Any) -> Any:
        number = len(self.asked)
        self.asked.append((after_s, function, args))
        return SimpleNamespace(cancel=lambda: self.cancelled.append(number))

    def ring(self) -> None:
        _, function, args = self.asked[-1]
        function(*args)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr("wattflow.runtime.actions.asyncio.get_running_loop", lambda: made)
    return made


# ---- waking


def test_a_node_is_told_three_times_and_then_given_up(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    now, woken, lost = [100.0], list[str](), list[tuple[str, str]]()
    waking = Waking(lambda: now[0], woken.append, lambda *told: lost.append(told))
    waking.order("n", 20.0)
    waking.order("n", 20.0)
    assert woken == ["n"] and [asked[0] for asked in loop.asked] == [60.0], "three times what it should take"
    for number in range(1, TRIES):
        now[0] += 60.0
        with caplog.at_level(logging.WARNING):
            loop.ring()
        assert len(woken) == number + 1 and len(loop.asked) == number + 1 and lost == []
    now[0] += 60.0
    loop.ring()
    assert TRIES == 3 and len(woken) == 3 and lost == [("n", "did not wake: told 3 times in 180 s")]
    assert waking.awake("n") is None, "it was given up"
    waking.order("n", 20.0)
    assert len(woken) == 4


def test_nobody_is_given_up_sooner_than_half_a_minute_and_what_was_learned_counts(loop: Loop) -> None:
    now = [0.0]
    waking = Waking(lambda: now[0], lambda node: None, lambda *told: None)
    waking.order("n", 2.0)
    assert loop.asked[0][0] == LEAST_S == 30.0
    now[0] = 100.0
    assert waking.awake("n") == 100.0 and loop.cancelled == [0]
    waking.order("n", 2.0)
    assert loop.asked[1][0] == 300.0
    now[0] = 110.0
    assert waking.awake("n") == pytest.approx(100.0 + 0.3 * (10.0 - 100.0)) and waking.wake_s("n") == pytest.approx(
        73.0
    )
    assert waking.wake_s("other") is None
    waking.order("m", 50.0)
    assert loop.asked[2][0] == 150.0


def test_who_is_lost_for_another_reason_is_not_waited_for(loop: Loop) -> None:
    waking = Waking(lambda: 0.0, lambda node: None, lambda *told: None)
    for node in ("a", "b", "c"):
        waking.order(node, 1.0)
    waking.forget("a")
    waking.forget("nobody")
    assert loop.cancelled == [0] and waking.awake("a") is None
    waking.close()
    assert sorted(loop.cancelled) == [0, 1, 2] and waking.awake("b") is None


def test_the_driver_is_told_after_the_order_is_noted(loop: Loop) -> None:
    found: list[float | None] = []
    waking = Waking(lambda: 5.0, lambda node: found.append(waking.awake(node)), lambda *told: None)
    waking.order("n", 1.0)
    assert found == [0.0], "a driver that answers at once finds it"


# ---- warmth


class Told:
    """A decider and a driver that keep what they are told."""

    def __init__(self, *cold: str) -> None:
        self.put_, self.warmed, self.cancelled, self.powered = [], [], [], list[tuple[str, bool]]()  # type: ignore[var-annotated]
        self.pinned: list[tuple[list[int], int | None]] = []
        self.levels: list[tuple[str, m.Level]] = []
        self.launched: list[m.Lease] = []
        self.cold = cold
        self.error: Exception | None = None

    def put(self, kind: Kind, *who: int, **fields: Any) -> None:
        self.put_.append((kind, *who, fields))

    def function_name(self, number: int) -> str:
        return ["f", "g", "command"][number]

    def cold_start_s(self, name: str) -> float:
        return {"f": 0.25, "g": 3.0}.get(name, 0.0)

    def knows(self, name: str) -> bool:
        return name in self.cold

    def pin(self, tasks: list[int], node: int | None) -> None:
        self.pinned.append((tasks, node))

    def warm(self, node: str, order: m.Warm) -> None:
        self.warmed.append((node, order))

    def cancel(self, fences: list[int]) -> None:
        self.cancelled += fences

    def power(self, node: str, *, on: bool) -> None:
        self.powered.append((node, on))

    def level(self, node: str, order: m.Level) -> None:
        self.levels.append((node, order))

    def launch(self, leases: list[m.Lease]) -> None:
        if self.error is not None:
            raise self.error
        self.launched += leases


def nodes_of(*names: str, **about: Any) -> Nodes:
    nodes = Nodes()
    for number, name in enumerate(names, 1):
        nodes.add(m.Node(name=name, cpus=1.0, memory_bytes=1, **about), number)
    return nodes


def call(name: str, *variants: m.Variant, python: str | None = "3.11", function: str | None = HASH) -> m.Task:
    return m.Task(
        key="k",
        name="k",
        function_name=name,
        function=function,
        python=python,
        variants=list(variants) or [m.Variant()],
    )


def test_a_function_is_made_of_its_objects_each_once_and_none_of_an_fpga() -> None:
    told, nodes = Told("f"), nodes_of("n")
    warming = Warming(told, told, nodes)  # type: ignore[arg-type]
    own = [m.Variant(), m.Variant(function=OTHER), m.Variant(function=OTHER), m.Variant(fpga="kernel", function=THIRD)]
    warming.seen(call("f", *own), "me")
    warming.order(Action(Act.WARM, 1, 0))
    assert told.warmed == [("n", m.Warm("f", [HASH, OTHER], "3.11", "me"))]
    warming.seen(call("f", m.Variant(function=OTHER), python=None, function=None), "you")
    warming.order(Action(Act.WARM, 1, 0))
    assert told.warmed[1:] == [("n", m.Warm("f", [OTHER], "", "you"))] and told.put_ == []
    warming.order(Action(Act.WARM, 99, 0))
    assert len(told.warmed) == 2, "a node that is gone"


def test_a_command_or_an_unknown_function_is_cold_at_once() -> None:
    told, nodes = Told("command", "f"), nodes_of("n")
    warming = Warming(told, told, nodes)  # type: ignore[arg-type]
    warming.seen(m.Task(key="k", name="k", function_name="command", command=["true"]))
    nodes["n"].warm.update({"command", "f"})
    warming.order(Action(Act.WARM, 1, 2))
    assert told.warmed == [] and told.put_ == [(COLD, 1, {"function": "command"})] and nodes["n"].warm == {"f"}
    warming.order(Action(Act.WARM, 1, 0))
    assert told.put_[1:] == [(COLD, 1, {"function": "f"})] and nodes["n"].warm == set()
    warming.order(Action(Act.WARM, 1, 1))
    assert len(told.put_) == 2, "the engine never saw it"


def test_a_container_for_any_holds_all_ready_that_start_cold() -> None:
    told, nodes = Told(), nodes_of("n")
    warming = Warming(told, told, nodes)  # type: ignore[arg-type]
    for name in ("f", "g", "quick"):
        warming.seen(call(name))
    warming.seen(m.Task(key="k", name="k", function_name="command", command=["true"]))
    warming.order(Action(Act.WARM, 1, -1))
    assert [order.function_name for _, order in told.warmed] == ["f", "g"] and told.put_ == []


def test_a_node_tells_what_is_warm_and_what_is_not_any_more() -> None:
    told, nodes = Told("f"), nodes_of("n")
    warming = Warming(told, told, nodes)  # type: ignore[arg-type]
    warming.told("n", m.Warmed("f", True, 1.5))
    assert nodes["n"].warm == {"f"} and told.put_ == []
    warming.told("n", m.Warmed("f", False, reason="evicted"))
    warming.told("nobody", m.Warmed("f", False))
    assert nodes["n"].warm == set() and told.put_ == [(COLD, 1, {"function": "f"})]


# ---- actions


def acting(told: Told, nodes: Nodes, attempts: Attempts | None = None) -> tuple[Actions, list[Any]]:
    heard: list[Any] = []

    def put_aside(what: str, who: object, error: Exception) -> str:
        heard.append((what, who))
        return str(error)

    aside = SimpleNamespace(put=put_aside)
    sink: Any = SimpleNamespace(now=lambda: 0.0, gone=lambda *what: heard.append(what), ended=heard.append, aside=aside)
    made = Actions(told, told, sink, nodes, {}, attempts or Attempts(), lambda: None, lambda *what: heard.append(what))  # type: ignore[arg-type]
    return made, heard


def record(number: int = 1, state: str = "waiting") -> TaskRecord:
    flow = WorkflowRecord("w", "w", "me", 1, {}, 0.0)
    return TaskRecord(number, flow, task("a"), 10 + number, 0.0, 0.0, state=state)


def placed(attempt: int = 1, devices: int = 0, variant: int = 0) -> Placement:
    return Placement(attempt, 0, 0, 1, 0, 0, variant, devices, 0, 1.0, 0)


def attempt_of(one: TaskRecord, fence: int, node: str = "n", devices: int = 0) -> AttemptRecord:
    return AttemptRecord.begun(one, placed(100 + fence, devices), fence, node, [], 0.0)


def test_each_action_is_one_order(loop: Loop) -> None:
    told, nodes, attempts = Told(), nodes_of("n", "m", clocks_mhz=[3600.0, 2000.0], caps=True), Attempts()
    attempt = attempt_of(record(), 7)
    attempts.add(attempt)
    acts, heard = acting(told, nodes, attempts)
    acts.do(Action(Act.STOP, 107, 0))
    acts.do(Action(Act.STOP, 999, 0))
    assert told.cancelled == [7] and attempt.stopping
    acts.do(Action(Act.SLEEP, 1, 0))
    assert told.powered == [("n", False)] and heard == []
    acts.do(Action(Act.WAKE, 2, 0))
    assert told.powered[1:] == [("m", True)] and heard == [("m", "waking")] and len(loop.asked) == 1
    acts.do(Action(Act.WAKE, 99, 0))
    acts.do(Action(Act.SLEEP, 99, 0))
    assert len(told.powered) == 2
    for kind, value in ((Act.FREQUENCY, 0), (Act.FREQUENCY, 1), (Act.FREQUENCY, 2), (Act.CAP, 90), (Act.CAP, -5)):
        acts.do(Action(kind, 1, value))
    assert told.levels == [
        ("n", m.Level("clock_mhz", 0.0)), ("n", m.Level("clock_mhz", 2000.0)), ("n", m.Level("cap_w", 90.0)),
        ("n", m.Level("cap_w", 0.0)),
    ]  # fmt: skip


def test_levels_are_ordered_of_nodes_and_drivers_that_have_them() -> None:
    told, nodes = Told(), Nodes()
    nodes.add(m.Node(name="clocks", cpus=1.0, memory_bytes=1, clocks_mhz=[3000.0, 1000.0]), 1)
    nodes.add(m.Node(name="caps", cpus=1.0, memory_bytes=1, caps=True), 2)
    acts, _ = acting(told, nodes)
    for who in (1, 2, 3):
        acts.do(Action(Act.CAP, who, 1))
        acts.do(Action(Act.FREQUENCY, who, 1))
    assert told.levels == [("clocks", m.Level("clock_mhz", 1000.0)), ("caps", m.Level("cap_w", 1.0))]
    plain: Any = SimpleNamespace(power=lambda *_: None, warm=lambda *_: None)
    sink: Any = SimpleNamespace(now=lambda: 0.0, gone=lambda *_: None)
    Actions(told, plain, sink, nodes, {}, Attempts(), lambda: None, lambda *_: None).do(Action(Act.CAP, 2, 1))  # type: ignore[arg-type]
    assert len(told.levels) == 2


def test_what_cannot_be_launched_is_refused_with_the_reason() -> None:
    told, nodes = Told(), nodes_of("n")
    acts, heard = acting(told, nodes)
    leases = [attempt_of(record(number), number).lease for number in (1, 2)]
    acts.launch(leases)
    assert told.launched == leases and heard == []
    told.error = OSError("no wire")
    acts.launch(leases)
    assert heard[0] == ("launch of attempts", [1, 2])
    assert [(one.fence, one.outcome, one.reason) for one in heard[1:]] == [
        (f, "refused", "not launched: no wire") for f in (1, 2)
    ]


# ---- adopting


def adopting(*tasks: TaskRecord) -> tuple[Adopting, Told, Attempts]:
    told, attempts = Told(), Attempts()
    return Adopting(told, nodes_of("n", "m"), {one.id: one for one in tasks}, attempts), told, attempts  # type: ignore[arg-type]


def lost(one: TaskRecord, attempts: Attempts, fence: int, devices: int = 0) -> AttemptRecord:
    attempt = attempt_of(one, fence, devices=devices)
    attempts.add(attempt)
    attempts.remove(attempt)
    one.state, one.lost, one.losses = "waiting", attempt, one.losses + 1
    return attempt


def test_tasks_that_wait_may_go_to_the_node_that_is_back_until_the_step_is_over() -> None:
    first, second, third, fourth = (record(number) for number in range(1, 5))
    adopts, told, attempts = adopting(first, second, third, fourth)
    for fence, one in enumerate((first, second, third, fourth), 1):
        lost(one, attempts, fence)
    second.state = "running"
    third.lost = attempt_of(record(9), 99)
    fourth.lost = None
    adopts.returned("n", [1, 2, 3, 4, 77])
    assert told.pinned == [([first.engine], 1)]
    adopts.settle()
    assert told.pinned[1:] == [([first.engine], None)]
    adopts.settle()
    assert len(told.pinned) == 2
    adopts.returned("nobody", [1])
    adopts.returned("n", [])
    assert len(told.pinned) == 2


def test_what_was_placed_meanwhile_is_not_set_free() -> None:
    first, second = record(1), record(2)
    adopts, told, attempts = adopting(first, second)
    lost(first, attempts, 1)
    lost(second, attempts, 2)
    adopts.returned("n", [1, 2])
    first.state = "running"
    adopts.settle()
    assert told.pinned == [([first.engine, second.engine], 1), ([second.engine], None)]


@pytest.mark.parametrize(
    ("node", "devices", "variant", "found"),
    [("n", 0b100, 0, 5), ("m", 0b100, 0, None), ("n", 0b10, 0, None), ("n", 0, 0, None), ("n", 0b100, 1, None)],
)
def test_a_process_is_adopted_on_its_node_in_its_variant_on_its_device(
    node: str, devices: int, variant: int, found: int | None
) -> None:
    one = record()
    adopts, _, attempts = adopting(one)
    lost(one, attempts, 5, devices=0b100)
    one.losses = 3
    adopts.returned("n", [5])
    assert adopts.adopted(one, node, placed(9, devices, variant)) == found
    assert one.losses == (2 if found else 3) and one.lost is None
    assert adopts.adopted(one, node, placed(9, devices, variant)) is None, "once"


def test_a_process_of_a_node_that_is_not_back_is_not_adopted() -> None:
    one = record()
    adopts, _, attempts = adopting(one)
    lost(one, attempts, 5)
    assert adopts.adopted(one, "n", placed()) is None and one.lost is None


# ---- results made again


def test_a_lost_result_is_made_again_three_times_and_its_children_start_afresh(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            made = m.Task(
                key="a", name="a", function=HASH, call=m.Blob(), python="3.11", function_name="f", estimate_s=4.0
            )
            child = m.Task(key="b", name="b", command=["true"], parents=["a"], results=["a"])
            other = m.Task(key="c", name="c", command=["true"], parents=["a"])
            await submit(service, made, child, other, seal=False)
            assert await recovery.remake(service, "o0") is None
            for number in range(4):
                lease = driver.leases[-1]
                assert lease.spec.key == "a"
                flow, before = service.next_workflow, service.workflows["w"].open
                await end(service, lease, result=m.Blob(object=f"o{number}"))
                assert service.workflows["w"].open == before - 1
                task_a, task_b, task_c = (service.tasks[i] for i in (1, 2, 3))
                task_b.refusals, task_c.refusals = 4, 4
                assert await recovery.remake(service, "unknown") is None and task_b.refusals == 4
                said = await recovery.remake(service, f"o{number}")
                if number == 3:
                    assert said is None and recovery.MOST == 3 and task_a.state == "done"
                    break
                assert said == "w/a" and task_a.remade == number + 1 and service.next_workflow == flow + 1
                assert task_b.refusals == 0 and task_c.refusals == 4, "who wanted these bytes"
                assert service.workflows["w"].open == before
                if driver.leases[-1].spec.key != "a":
                    await end(service, driver.leases[-1], "refused", reason="no bytes")
                    await end(service, driver.leases[-1])
                assert service.decider.engine.describe(task_a.engine)["estimate_s"] == 4.0
                again = await recovery.remake(service, f"o{number}")
                assert again == "w/a" and task_a.remade == number + 1, "it is under way"
                while driver.leases[-1].spec.key != "a":
                    await end(service, driver.leases[-1])

    run(body())


def test_a_result_of_a_workflow_that_is_over_is_not_made_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, m.Task(key="a", name="a", command=["true"]))
            await end(service, driver.leases[0], result=m.Blob(object="o"))
            assert service.workflows["w"].state == "done"
            assert await recovery.remake(service, "o") is None and service.tasks[1].remade == 0

    run(body())


def test_what_a_restart_learns_again_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, told = nodes_of("n"), []
    service: Any = SimpleNamespace(nodes=nodes, learning=SimpleNamespace(on_gpu=lambda *what: told.append(what)))
    spec = task("a")
    row = {"node": "n", "spec": msgspec.msgpack.encode((5, spec)), "gpu_duty": 0.5, "gpu_beside": 0.25,
           "gpu_samples": 9, "started_s": 10.0, "ended_s": 14.0, "variant": 0, "device": 1}  # fmt: skip
    recovery._gpu_use(service, row)
    recovery._gpu_use(service, row | {"gpu_beside": None, "gpu_samples": None})
    recovery._gpu_use(service, row | {"node": "gone"})
    assert told == [
        (spec, 0, nodes["n"].spec, 1, 4.0, m.GpuUse(0.5, 0.25, 9)),
        (spec, 0, nodes["n"].spec, 1, 4.0, m.GpuUse(0.5, 0.0, 0)),
    ]


# ---- the decider


def entry(name: str, *arguments: Any, **fields: Any) -> bytes:
    return journal.encode(name, arguments, fields)


def test_a_journal_is_replayed_to_its_last_step_and_policy() -> None:
    first = JournaledEngine("fifo")
    first.began_with("fifo")
    first.room(2000, 300)
    first.node(m.Node(name="n", cpus=2.0, memory_bytes=1 << 30))
    shape = first.shape([m.Variant()], "f")
    first.put(TASK, shape, tag=3)
    first.use("sjf")
    assert [p.tag for p in first.step(5.0).placements] == [3]
    first.step(9.5)
    second = JournaledEngine("fifo")
    assert second.replay(first.entries) == 9.5 and second.policy == "sjf" and second.engine.policy.name == "sjf"
    assert second.engine.counts == first.engine.counts and len(second.engine.state.tasks) == 2000
    assert second.replay([]) == 0.0
    kept = {"rows": [], "summary": {"a": 1}, "note": {}, "processor_s": 0.5}
    assert second.replay([entry(SHIELD, json.dumps(kept)), entry(CHOSEN, "fifo")]) == 0.0
    assert second.shield == kept and second.engine.policy.name == "fifo" and second.policy == "sjf", (
        "chosen, not asked for"
    )
    assert second.replay([entry("step", 12.0), entry("use", "fifo")]) == 12.0 and second.policy == "fifo"


def test_entries_of_0_1_0_are_told_as_they_were_packed() -> None:
    pack = msgspec.msgpack.encode
    node = m.Node(
        name="n", cpus=4.0, memory_bytes=1 << 30, devices=[m.Device(kind="gpu", model="a", memory_bytes=1 << 30)]
    )
    variants = [m.Variant(cpus=2.0, gpu=0.5)]
    decider = JournaledEngine("fifo")
    decider.replay([
        pack(("room", 2000, 300)), pack(("node", node)), pack(("shape", variants, "f")),
        pack(("shape", variants, "g", [0.25])), pack(("cold start", "f", 1.5)), pack(("workflow", 8, 90.0)),
    ])  # fmt: skip
    engine = decider.engine
    assert len(engine.state.tasks) == 2000 and len(engine.state.attempts) == 300 and list(engine.nodes) == ["n"]
    assert engine.functions["f"] == Function("f", cold_start_s=1.5) and list(engine.functions) == ["f", "g"]
    shapes = engine._shapes.facts
    assert [(one.function, one.variants[0].cores, one.variants[0].device_duty) for one in shapes.values()] == [
        ("f", 2.0, variants[0].device_duty), ("g", 2.0, 0.25),
    ]  # fmt: skip
    assert (engine.state.workflows.tag[1], engine.state.workflows.deadline[1]) == (8, 90.0)
    shape = engine.shape(shapes[1].variants, "f")
    last_s = decider.replay(
        [pack(("put", int(TASK), [shape], {"tag": 5})), pack(("step", 7)), pack(("use", "sjf")), pack(("twin", "fifo"))]
    )
    assert last_s == 7.0 and isinstance(last_s, float) and engine.counts["running"] == 1
    assert decider.policy == "sjf" and engine.policy.name == "fifo"
    who = engine.nodes["n"]
    assert decider.replay([pack(("put", int(NODE), [who], {"state": int(Power.DRAINING)})), pack(("step", 8.5))]) == 8.5
    assert engine.describe(who)["state"] == "DRAINING"


def test_objectives_are_served_by_one_policy_or_by_weights() -> None:
    decider = JournaledEngine("fifo")
    noted = len(decider.entries)
    decider.serve({None})
    assert decider.policy == "fifo" and len(decider.entries) == noted, "it is in use already"
    decider.serve({"energy"})
    assert decider.policy == "least-energy"
    decider.serve({"energy", None})
    assert decider.policy == deciding.WEIGHTED
    decider.serve(set())
    assert decider.policy == deciding.WEIGHTED
    decider.serve({None})
    assert decider.policy == "fifo"
    decider.serve({"makespan"})
    decider.keep()
    decider.serve({None})
    assert decider.policy == "heft"


def test_a_workflow_carries_the_weights_of_its_objective() -> None:
    decider = JournaledEngine("fifo")
    plain, saver = decider.workflow(4, None), decider.workflow(5, 60.0, "energy")
    rank = decider.engine.state.workflows.rank
    assert rank[plain & 0xFFFFFF] == 0.0 and rank[saver & 0xFFFFFF] != 0.0
    assert decider.engine.describe(saver)["deadline_s"] == 60.0 and decider.engine.describe(plain)["deadline_s"] is None


def test_what_is_stated_of_a_function_counts_while_the_engine_has_not_seen_it() -> None:
    decider = JournaledEngine("fifo")
    assert decider.cold_start_s("f") == 0.0 and not decider.knows("f")
    decider.function(m.Function(name="f", cold_start_s=2.0))
    decider.function(m.Function(name="f", cold_start_s=9.0))
    assert decider.cold_start_s("f") == 2.0 and decider.knows("f") and decider.function_name(0) == "f"
    decider.cold_start("f", 3.0)
    assert decider.cold_start_s("f") == 3.0


def test_a_shape_is_asked_for_once_and_has_the_duties_that_were_measured() -> None:
    decider = JournaledEngine("fifo")
    variants = [m.Variant(gpu=1.0), m.Variant()]
    first = decider.shape(variants, "f")
    noted = len(decider.entries)
    assert decider.shape(variants, "f") == first and len(decider.entries) == noted
    other = decider.shape(variants, "f", [0.5, 1.0])
    told = decider.engine.describe(other)["variants"]
    assert other != first and [one.device_duty for one in told] == [0.5, 1.0]


class Adviser:
    """Gives what it is told to give."""

    def __init__(self, chosen: Any = None, news: Any = None, error: Exception | None = None) -> None:
        self.chosen, self.told, self.error, self.closed = chosen, news, error, 0
        self.steps: list[Step] = []

    def note(self, engine: Any, now_s: float, step: Step) -> None:
        self.steps.append(step)

    def consider(self, engine: Any, now_s: float) -> Any:
        if self.error is not None:
            raise self.error
        return self.chosen

    def skip(self, now_s: float) -> None:
        raise AssertionError("nothing is capped here")

    def news(self) -> Any:
        return self.told

    def close(self) -> None:
        self.closed += 1


def test_a_choice_is_used_noted_and_decided_by_at_once() -> None:
    from wattflow.live.shielding import Remembered

    kept = Remembered([[1.0, 2.0]], {"kept": True}, {}, 0.5)
    adviser = Adviser(registry.load("sjf"), kept)
    decider = JournaledEngine("fifo", rehearsing=adviser)
    noted = len(decider.entries)
    step = decider.step(4.0)
    assert adviser.steps == [step] and decider.engine.policy.name == "fifo", "what was decided is handed out first"
    assert decider.look_ahead(4.0) and decider.engine.policy.name == "sjf" and decider.policy == "fifo"
    assert [json.loads(one)[0] for one in decider.entries[noted:]] == ["step", SHIELD, CHOSEN]
    assert decider.shield == {"rows": [[1.0, 2.0]], "summary": {"kept": True}, "note": {}, "processor_s": 0.5}
    adviser.chosen = adviser.told = None
    assert decider.step(5.0).wake_at == math.inf and not decider.look_ahead(5.0) and len(decider.entries) == noted + 4


def test_a_rehearsal_that_fails_is_not_asked_again() -> None:
    adviser = Adviser(error=ValueError("a bug"))
    decider = JournaledEngine("fifo", rehearsing=adviser)
    decider.step(1.0)
    assert not decider.look_ahead(1.0) and decider.rehearsing is None and adviser.closed == 1
    decider.close()
    assert adviser.closed == 1


@pytest.mark.parametrize("own", [True, False])
def test_a_policy_that_breaks_is_put_aside_for_a_plain_one(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    adviser = Adviser()
    decider = JournaledEngine("fifo", rehearsing=adviser)
    if not own:
        decider.serve({"response"})

    def broken(now_s: float) -> Step:
        raise BrokenPolicy("nan")

    monkeypatch.setattr(decider.engine, "step", broken)
    monkeypatch.setattr(decider.engine, "step_on", lambda policy: Step([], [], 7.0, [], []))
    assert decider.step(1.0).wake_at == 7.0 and decider.policy == deciding.FALLBACK
    assert decider.rehearsing is None and adviser.closed == 1
    decider.serve({None})
    assert decider.policy == (deciding.FALLBACK if own else "fifo")
    decider.policy = deciding.FALLBACK
    with pytest.raises(BrokenPolicy):
        decider.step(2.0)


@pytest.mark.parametrize("capped", [False, True])
def test_the_end_of_a_cap_brings_no_policy_back_that_broke(capped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what kept the cap broke, the policy of before the cap decides again."""
    decider = JournaledEngine("fifo")
    if capped:
        decider.cap("power-cap:watts=90")

    def broken(now_s: float) -> Step:
        raise BrokenPolicy("nan")

    monkeypatch.setattr(decider.engine, "step", broken)
    monkeypatch.setattr(decider.engine, "step_on", lambda policy: Step([], [], 7.0, [], []))
    decider.step(1.0)
    assert decider.policy == deciding.FALLBACK
    decider.cap("power-cap:watts=100")
    decider.cap(None)
    assert decider.policy == ("fifo" if capped else deciding.FALLBACK)


def test_a_call_that_the_engine_refuses_is_not_noted() -> None:
    decider = JournaledEngine("fifo")
    noted = list(decider.entries)
    with pytest.raises(WattflowError):
        decider.put(TASK, 12345)
    assert decider.entries == noted
    decider.pin([], None)
    assert decider.entries == noted


# ---- turns


def test_a_turn_is_placed_in_pieces_ends_once_and_is_planned_again_only_after() -> None:
    async def body() -> None:
        placements = [placed(number) for number in range(40)]
        log: list[Any] = []

        def place(turn: UnderWay, most: int) -> None:
            log.append(len(turn.next_placements(most)))

        turns = Turns(lambda: UnderWay(Step(placements, [], math.inf, [], []), 1.0), place, lambda turn: False,
                      lambda turn: log.append("end"), lambda error: log.append(error))  # fmt: skip
        turns.soon()
        turns.soon()
        await asyncio.sleep(0)
        assert log == [16]
        turns.soon()
        for _ in range(3):
            await asyncio.sleep(0)
        assert log == [16, 16, 8, "end", 16], "who asks meanwhile is too late for this one, and has the next"
        turns.finish()
        assert log[4:] == [16, 24, "end"]
        turns.finish()
        turns.close()
        turns.soon()
        await asyncio.sleep(0)
        assert len(log) == 7 and turns.closed and turns.under_way is None

    asyncio.run(body())


def test_a_turn_goes_on_while_the_engine_places_more_and_fails_once() -> None:
    async def body() -> None:
        log: list[Any] = []
        more = [True, False]

        def goes_on(turn: UnderWay) -> bool:
            log.append("more?")
            return more.pop(0)

        def place(turn: UnderWay, most: int) -> None:
            turn.next_placements(most)

        turns = Turns(lambda: UnderWay(Step([placed()], [], 3.0, [], []), 1.0), place, goes_on,
                      lambda turn: log.append(turn.wake_at), log.append)  # fmt: skip
        turns.soon()
        for _ in range(4):
            await asyncio.sleep(0)
        assert log == ["more?", "more?", 3.0]
        turns._begin = lambda: 1 / 0  # type: ignore[assignment,return-value]
        turns.soon()
        await asyncio.sleep(0)
        assert isinstance(log[3], ZeroDivisionError)

    asyncio.run(body())


# ---- pieces


@pytest.mark.parametrize(("count", "pauses"), [(15, 0), (16, 1), (31, 1), (32, 2)])
def test_after_each_sixteen_that_are_cancelled_others_have_a_turn_and_no_longer(
    count: int, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, soon, told = list[float](), list[int](), Told()
    usual = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await usual(0)

    monkeypatch.setattr("wattflow.runtime.actions.asyncio.sleep", sleep)
    cancelling = Cancelling(told, lambda: soon.append(1))  # type: ignore[arg-type]
    run(cancelling.cancel([record(number) for number in range(count)]))
    assert slept == [0] * pauses and len(soon) == pauses + 1 and len(told.put_) == count


@pytest.mark.parametrize(("count", "pauses"), [(15, 0), (16, 1), (32, 2)])
def test_after_each_sixteen_that_are_submitted_others_have_a_turn_and_no_longer(
    count: int, pauses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, _):
            slept, usual = list[float](), asyncio.sleep

            async def sleep(seconds: float) -> None:
                slept.append(seconds)
                await usual(0)

            monkeypatch.setattr("wattflow.runtime.service.asyncio.sleep", sleep)
            accepted = await submit(service, *(task(f"t{number}") for number in range(count)))
            monkeypatch.undo()
            assert slept == [0] * pauses and accepted.new == count

    run(body())


def test_a_driver_that_starts_anew_hears_of_the_nodes_that_are_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL, msgspec.structs.replace(SMALL, name="other")) as (service, driver):
            assert driver.nodes == []
            service.gone("other", "silent")
            await service.stored()
        async with running(tmp_path) as (_, driver):
            assert driver.nodes == [SMALL.name]

    run(body())
