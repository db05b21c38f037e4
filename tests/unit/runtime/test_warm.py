"""Functions held warm ahead of need: templates on a node, orders of the policy, what the engine believes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wattflow.live import COLD, FINISHED, NODE, STARTED, TASK, Act, BadEvent, Engine, Power
from wattflow.live.protocol import Action, row_of
from wattflow.model.cluster import Node
from wattflow.model.workflow import Function, Variant
from wattflow.runtime import messages as m
from wattflow.runtime.executors.forking import Unfit, Zygote
from wattflow.runtime.executors.process import ProcessExecutor

from .test_process import call, on_executor, value
from .test_recovery import closed, opened, task

LOAD_S = 0.4


class Slow:
    """A function that takes a while to load."""

    def __init__(self, seconds: float = LOAD_S, begin: str = "") -> None:
        self.seconds, self.begin = seconds, begin

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        time.sleep(self.seconds)
        if self.begin == "thread":
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        elif self.begin == "fail":
            raise ValueError("no such thing")

    def __call__(self) -> int:
        return os.getppid()


def with_executor(body: Callable[[ProcessExecutor], Any], keep_s: float) -> None:
    async def main() -> None:
        executor = ProcessExecutor(Zygote(), workers=2, keep_s=keep_s)
        await executor.start()
        try:
            await body(executor)
        finally:
            await executor.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def by_value() -> None:
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("isolate", [True, False])
def test_a_function_that_was_warmed_starts_warm(isolate: bool) -> None:
    async def body(executor: ProcessExecutor) -> None:
        work = call(1, Slow(), isolate=isolate)
        took_s = await executor.templates.warm(work.function, work.blobs[0])
        assert took_s >= LOAD_S
        assert await executor.templates.warm(work.function, work.blobs[0]) == 0.0
        finish = await executor.run(work)
        assert value(finish) != os.getpid()
        assert finish.cold_s < LOAD_S

    on_executor(body)


def test_a_cold_start_counts_the_loading_and_leaves_the_function_warm() -> None:
    async def body(executor: ProcessExecutor) -> None:
        first = await executor.run(call(1, Slow()))
        assert first.cold_s >= LOAD_S and first.ended_s - first.started_s < LOAD_S
        again = await executor.run(call(2, Slow()))  # waits for the template that is being made, at most
        third = await executor.run(call(3, Slow()))
        assert value(again) == value(third) != value(first)
        assert third.cold_s < LOAD_S

    on_executor(body)


def test_a_quick_function_is_not_held() -> None:
    async def body(executor: ProcessExecutor) -> None:
        before = value(await executor.run(call(1, Slow(0.0))))
        assert value(await executor.run(call(2, Slow(0.0)))) == before

    on_executor(body)


@pytest.mark.parametrize(("begin", "reason"), [("thread", "start threads"), ("fail", "no such thing")])
def test_what_cannot_be_forked_is_told_and_runs_cold(begin: str, reason: str) -> None:
    async def body(executor: ProcessExecutor) -> None:
        work = call(1, Slow(0.1, begin))
        with pytest.raises(Unfit, match=reason):
            await executor.templates.warm(work.function, work.blobs[0])
        finish = await executor.run(work)
        assert finish.outcome == ("failed" if begin == "fail" else "done")

    on_executor(body)


@pytest.mark.slow
def test_the_end_of_keep_alive_lets_go_but_not_of_what_runs() -> None:
    async def body(executor: ProcessExecutor) -> None:
        gone = asyncio.Event()
        executor.templates.on_gone = lambda function: gone.set()
        sleeper = call(1, lambda: time.sleep(1.0))
        await executor.templates.warm(sleeper.function, sleeper.blobs[0])
        running = asyncio.create_task(executor.run(sleeper))
        finish = await running
        assert finish.outcome == "done"  # its template outlived its own keep-alive
        await asyncio.wait_for(gone.wait(), 30)
        assert await executor.templates.zygote(sleeper.function) is None

    with_executor(body, keep_s=0.3)


def test_a_node_that_keeps_nothing_says_so() -> None:
    async def body(executor: ProcessExecutor) -> None:
        work = call(1, Slow(0.1))
        with pytest.raises(Unfit, match="keeps nothing"):
            await executor.templates.warm(work.function, work.blobs[0])
        before = value(await executor.run(work))
        assert value(await executor.run(work)) == before

    with_executor(body, keep_s=0.0)


def test_a_template_that_is_killed_is_replaced_by_a_cold_start() -> None:
    async def body(executor: ProcessExecutor) -> None:
        work = call(1, Slow(0.1))
        await executor.templates.warm(work.function, work.blobs[0])
        template = value(await executor.run(work))
        assert isinstance(template, int)
        os.kill(template, 9)
        zygote = executor.templates._ready["", work.function]
        while zygote.alive:
            await asyncio.sleep(0.01)
        assert (await executor.run(work)).outcome == "done"

    on_executor(body)


# ---- orders of the policy


def test_an_order_reaches_the_driver_with_the_objects_of_all_variants(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(m.Node(name="n", cpus=1.0, memory_bytes=1 << 30))
        own, other = "a" * 64, "b" * 64
        variants = [m.Variant(), m.Variant(name="gpu", gpu=0.5, function=other), m.Variant(name="f", fpga="fir")]
        spec = m.Task(key="k", name="k", function_name="f", function=own, python="3.11", call=m.Blob(data=b""),
                      variants=variants)  # fmt: skip
        await service.submit(m.Submission(workflow="w", tasks=[spec, task("c", function_name="command")]), "me")
        node = service.nodes["n"].engine
        numbers = {service.decider.function_name(n): n for n in range(len(service.decider.engine.functions))}
        service.actions.do(Action(Act.WARM, node, numbers["f"]))
        assert driver.warmed == [("n", m.Warm("f", [own, other], "3.11", "me"))]
        service.actions.do(Action(Act.WARM, node, numbers["command"]))
        service.actions.do(Action(Act.WARM, node, -1))  # any function: those that start cold, and none is known to
        assert len(driver.warmed) == 1
        service.decider.cold_start("f", 2.0)
        service.actions.do(Action(Act.WARM, node, -1))
        assert len(driver.warmed) == 2
        service.warmed("n", m.Warmed("f", True, 1.5))
        assert service.nodes["n"].warm == {"f"}
        service.warmed("n", m.Warmed("f", False, reason="given up"))
        assert service.nodes["n"].warm == set()
        await service.stored()
        await closed(service, writer)
        again, driver, writer = await opened(tmp_path)  # COLD is in the journal; open tasks tell their functions again
        again.actions.do(Action(Act.WARM, node, -1))
        assert [order.function_name for _, order in driver.warmed] == ["f"]
        await closed(again, writer)

    asyncio.run(body())


# ---- the engine's belief


def engine_with_a_warm_function() -> tuple[Engine, int, int]:
    engine = Engine("fifo")
    node = engine.node(Node(name="n", cores=4, memory_bytes=1 << 30))
    engine.put(NODE, node, state=int(Power.ON))
    shape = engine.shape([Variant(name="v", cores=1, memory_bytes=0)], function=Function("f", cold_start_s=5.0))
    engine.put(TASK, shape)
    placement = engine.step(0.0).placements[0]
    engine.put(STARTED, placement.attempt)
    engine.put(FINISHED, placement.attempt)
    engine.step(10.0)
    return engine, node, shape


def idle_containers(engine: Engine, node: int) -> int:
    state, count = engine.state, 0
    c = int(state.nodes.first_container[row_of(node)])
    while c >= 0:
        count, c = count + 1, int(state.containers.next_node[c])
    return count


def test_a_report_of_a_cold_function_ends_the_belief_that_it_is_warm() -> None:
    engine, node, _ = engine_with_a_warm_function()
    assert idle_containers(engine, node) == 1
    engine.put(COLD, node, function="f")
    engine.step(11.0)
    assert idle_containers(engine, node) == 0


def test_a_cold_report_about_an_unknown_function_is_refused() -> None:
    engine, node, _ = engine_with_a_warm_function()
    with pytest.raises(BadEvent, match="no function named 'g'"):
        engine.put(COLD, node, function="g")
