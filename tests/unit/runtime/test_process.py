"""Processes of tasks: results, logs, limits, versions, reuse, deaths."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from wattflow.runtime.executors.forking import SPARES, Zygote
from wattflow.runtime.executors.limits import ControlGroups, CpuBinding
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor
from wattflow.runtime.payload import load_failure
from wattflow.runtime.processes import started
from wattflow.server import bodies

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def call(fence: int, function: Callable[..., Any], *args: object, **about: Any) -> AttemptWork:
    blobs = (cloudpickle.dumps(function), cloudpickle.dumps((args, {})))
    return AttemptWork(fence=fence, python=PYTHON, function=str(hash(blobs[0])), blobs=blobs, **about)


def on_executor(
    body: Callable[[ProcessExecutor], Coroutine[Any, Any, None]], groups: ControlGroups | None = None
) -> None:
    async def main() -> None:
        executor = ProcessExecutor(Zygote(), workers=2, groups=groups)
        await executor.start()
        try:
            await body(executor)
        finally:
            await executor.close()

    asyncio.run(main())


def value(finish: Finish) -> object:
    assert finish.outcome == "done", finish
    assert finish.result is not None
    return cloudpickle.loads(finish.result)


def test_a_call_returns_its_value_log_and_usage() -> None:
    logged: list[bytes] = []

    def work(x: int) -> int:
        print("hello")
        return x + sum(range(2_000_000)) * 0

    async def body(executor: ProcessExecutor) -> None:
        finish = await executor.run(call(1, work, 41, on_log=logged.append))
        assert value(finish) == 41
        assert finish.cpu_s > 0.005 and finish.peak_bytes > 1 << 20
        assert finish.ended_s >= finish.started_s and finish.cold_s < 1.0

    on_executor(body)
    assert b"".join(logged) == b"hello\n"


def test_every_task_has_a_process_of_its_own_unless_told() -> None:
    def pid() -> int:
        return os.getpid()

    async def body(executor: ProcessExecutor) -> None:
        alone = {value(await executor.run(call(n, pid))) for n in range(3)}
        reused = {value(await executor.run(call(10 + n, pid, isolate=False))) for n in range(3)}
        assert len(alone) == 3 and len(reused) == 1

    on_executor(body)


def test_a_process_waits_for_the_next_task_and_one_that_died_meanwhile_is_not_used() -> None:
    async def body(executor: ProcessExecutor) -> None:
        first = value(await executor.run(call(1, os.getpid)))
        spares = await _spares(executor)
        assert first not in spares and executor.zygote.children == 0
        os.kill(spares[0], 9)
        while not executor.zygote._spares[0].ended.done():
            await asyncio.sleep(0.01)
        assert executor.zygote.children == 0
        assert value(await executor.run(call(2, os.getpid))) == spares[1]

    async def _spares(executor: ProcessExecutor) -> list[int]:
        while len(executor.zygote._spares) < 2 or any(spare.pid is None for spare in executor.zygote._spares):
            await asyncio.sleep(0.01)
        return [spare.pid for spare in executor.zygote._spares if spare.pid is not None]

    on_executor(body)


def test_a_task_may_fork_beside_its_threads_as_in_any_python() -> None:
    def threads_after_a_fork() -> int:
        import threading

        over = threading.Event()
        threading.Thread(target=over.wait).start()
        pid = os.fork()
        if pid == 0:
            os._exit(threading.active_count())
        over.set()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    async def body(executor: ProcessExecutor) -> None:
        assert value(await executor.run(call(1, threads_after_a_fork))) == 1

    on_executor(body)


def control_groups(name: str) -> ControlGroups:
    groups = ControlGroups.find(name)
    if groups is None:
        pytest.skip("needs control groups that can be made: run as root, with /sys/fs/cgroup writable")
    return groups


def test_a_process_made_ahead_waits_in_a_control_group_which_is_used_again() -> None:
    groups = control_groups(f"ahead-{os.getpid()}")

    async def body(executor: ProcessExecutor) -> None:
        for n in range(40):
            assert value(await executor.run(call(n, abs, -n))) == n
        while not executor.zygote._spares or executor.zygote._spares[0].pid is None:
            await asyncio.sleep(0.01)
        spare = executor.zygote._spares[0]
        assert spare.hold is not None and not spare.hold.limits
        while str(spare.pid) not in Path(spare.hold.joins[0]).read_text().split():
            await asyncio.sleep(0.01)
        assert len(groups._made) <= 2 * SPARES

    on_executor(body, groups)


def test_a_worker_that_is_used_again_is_told_its_limits_once() -> None:
    """Joining a control group takes milliseconds: not with every call."""

    async def body(executor: ProcessExecutor) -> None:
        for n in range(3):
            assert value(await executor.run(call(n, abs, -n, isolate=False))) == n
            assert [worker.process.terms for worker in executor._workers] == [{}]

    on_executor(body)


def test_an_error_carries_its_type_and_trace() -> None:
    logged: list[bytes] = []

    def fails() -> None:
        raise ValueError("no such thing")

    async def body(executor: ProcessExecutor) -> None:
        finish = await executor.run(call(1, fails, on_log=logged.append))
        assert finish.outcome == "failed" and finish.reason == "ValueError: no such thing"
        error = load_failure(finish.result, finish.reason)
        assert isinstance(error, ValueError) and "no such thing" in str(error.__cause__)

    on_executor(body)
    assert b"Traceback" in b"".join(logged)


def test_another_python_is_refused_before_the_payload_is_loaded() -> None:
    async def body(executor: ProcessExecutor) -> None:
        work = AttemptWork(fence=1, python="3.9", function="f", blobs=(b"not a pickle", b"nor this"))
        finish = await executor.run(work)
        assert finish.outcome == "refused" and "3.9" in (finish.reason or "")

    on_executor(body)


def test_commands_exit_codes_and_missing_programs() -> None:
    logged: list[bytes] = []

    async def body(executor: ProcessExecutor) -> None:
        good = await executor.run(AttemptWork(fence=1, command=["sh", "-c", "echo $WORD"], environment={"WORD": "out"},
                                       on_log=logged.append))  # fmt: skip
        bad = await executor.run(AttemptWork(fence=2, command=["sh", "-c", "exit 3"]))
        none = await executor.run(AttemptWork(fence=3, command=["no-such-program-anywhere"], on_log=logged.append))
        assert good.outcome == "done"
        assert (bad.outcome, bad.reason) == ("failed", "exit code 3")
        assert (none.outcome, none.reason) == ("failed", "exit code 127")

    on_executor(body)
    assert logged[0] == b"out\n" and b"No such file" in logged[1]


@pytest.mark.parametrize("isolate", [True, False])
def test_time_limit_ends_it_with_its_children(isolate: bool) -> None:
    def forever() -> None:
        import subprocess

        subprocess.run(["sleep", "1000"], check=False)

    async def body(executor: ProcessExecutor) -> None:
        began = time.monotonic()
        finish = await executor.run(call(1, forever, timeout_s=0.3, isolate=isolate))
        assert finish.outcome == "time_limit" and time.monotonic() - began < 60
        after = await executor.run(call(2, lambda: "alive", isolate=isolate))
        assert value(after) == "alive"

    on_executor(body)


def test_a_death_is_told_and_spares_the_calls_behind_it() -> None:
    def die() -> None:
        os._exit(9)

    async def body(executor: ProcessExecutor) -> None:
        alone = await executor.run(call(1, die))
        assert alone.outcome == "failed" and "9" in (alone.reason or "")
        kills = [executor.run(call(2 + n, die, isolate=False)) for n in range(2)]
        after = [executor.run(call(4 + n, lambda: "kept", isolate=False)) for n in range(6)]
        finishes = await asyncio.gather(*kills, *after)
        assert [f.outcome for f in finishes[:2]] == ["failed", "failed"]
        assert {value(f) for f in finishes[2:]} == {"kept"}

    on_executor(body)


def test_cancelling_kills_it() -> None:
    async def body(executor: ProcessExecutor) -> None:
        running = asyncio.create_task(executor.run(AttemptWork(fence=5, command=["sleep", "1000"])))
        while 5 not in executor.running():
            await asyncio.sleep(0.01)
        executor.stop(5)
        assert (await running).outcome == "cancelled"

    on_executor(body)


def test_memory_is_limited_with_groups_and_without() -> None:
    def greedy() -> int:
        return len(bytearray(400 << 20))

    for groups in (None, ControlGroups.find(f"test-{os.getpid()}")):

        async def body(executor: ProcessExecutor) -> None:
            finish = await executor.run(call(1, greedy, memory_bytes=100 << 20))
            assert finish.outcome == "failed", finish
            assert "memory" in (finish.reason or "").lower(), finish
            assert value(await executor.run(call(2, greedy, memory_bytes=800 << 20))) == 400 << 20

        on_executor(body, groups)


def test_tasks_without_a_group_are_bound_to_as_many_processors_as_they_asked_for() -> None:
    places = CpuBinding([0, 1, 2, 3])
    first = places.take(1.5)
    assert first == (0, 1) and places.take(0.02) == (2,) and places.take(2) == (3, 0)
    places.give_back(first)
    assert places.take(1.0) == (1,) and places.take(4.0) == () and places.take(0.0) == ()

    async def body(executor: ProcessExecutor) -> None:
        seen = value(await executor.run(call(1, lambda: len(os.sched_getaffinity(0)), cpus=1.0)))
        assert seen == 1

    on_executor(body)


def test_a_dead_zygote_fails_its_tasks_and_is_started_again() -> None:
    async def body(executor: ProcessExecutor) -> None:
        running = asyncio.create_task(executor.run(AttemptWork(fence=5, command=["sleep", "1000"])))
        while 5 not in executor.running():
            await asyncio.sleep(0.01)
        assert executor.zygote._process is not None
        executor.zygote._process.kill()
        finish = await asyncio.wait_for(running, 60)
        assert finish.outcome == "failed" and "zygote" in (finish.reason or "")
        assert value(await executor.run(call(6, lambda: 1))) == 1

    on_executor(body)


def test_a_zygote_that_dies_while_it_is_asked_fails_the_attempt_and_nothing_else() -> None:
    async def body(executor: ProcessExecutor) -> None:
        zygote = executor.zygote
        ask = zygote._ask

        async def dies(order: dict[str, Any], fds: list[int]) -> None:
            zygote._lost()  # what the loop does when it reads the end of the control socket
            await ask(order, fds)

        zygote._ask = dies  # type: ignore[method-assign]
        finish = await executor.run(call(1, abs, -1))
        assert (finish.outcome, finish.reason) == ("failed", "the zygote of its environment died")
        zygote._ask = ask  # type: ignore[method-assign]
        assert value(await executor.run(call(2, abs, -2))) == 2

    on_executor(body)


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize(
    "how",
    [b"\xff\xff\xff\xff", b"\0\0\0\x02{]", b"\0\0\0\x11" + b'{"sizes": [1e99]}', b"\0\0\0\x0d" + b'{"sizes":[-1]}'],
)
def test_what_is_no_answer_fails_the_task_alone(isolate: bool, how: bytes) -> None:
    def garbage(how: bytes) -> None:
        """Write on every socket that this process has, as a task could."""
        import os
        import stat
        import time

        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    os.write(fd, how)
            except OSError:
                continue
        time.sleep(600)

    async def body(executor: ProcessExecutor) -> None:
        finish = await asyncio.wait_for(executor.run(call(1, garbage, how, isolate=isolate)), 60)
        assert finish.outcome == "failed" and "no answer on its channel" in str(finish.reason)
        assert value(await executor.run(call(2, abs, -1, isolate=isolate))) == 1

    on_executor(body)


@pytest.mark.parametrize("isolate", [True, False])
def test_a_result_that_is_too_large_fails_its_task_alone(isolate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from wattflow.runtime.executors import zygote

    assert bodies.OBJECT_BYTES == zygote.RESULT_BYTES
    monkeypatch.setattr(zygote, "RESULT_BYTES", 1 << 20)  # the agent's own limit: a child may not keep its

    async def body(executor: ProcessExecutor) -> None:
        finish = await asyncio.wait_for(executor.run(call(1, bytes, 2 << 20, isolate=isolate)), 60)
        assert finish.outcome == "failed" and "its result has 2097" in str(finish.reason)
        assert value(await executor.run(call(2, abs, -1, isolate=isolate))) == 1

    on_executor(body)


def test_exceptions_that_cannot_be_told_are_told_as_well_as_they_can() -> None:
    def odd() -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        raise Odd

    def name() -> None:
        raise OSError("no such file: \udcff")

    async def body(executor: ProcessExecutor) -> None:
        assert "its text raises RuntimeError" in str((await executor.run(call(1, odd))).reason)
        assert (await executor.run(call(2, name))).reason == r"OSError: no such file: \udcff"

    on_executor(body)


def daemonise() -> int:
    """Leave a process behind that is nobody's child and in nobody's group."""
    import os
    import time

    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def left_behind(name: str) -> list[int]:
    return [int(pid) for file in Path("/sys/fs/cgroup").glob(f"**/wattflow-{name}/*/cgroup.procs")
            for pid in file.read_text().split()]  # fmt: skip


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
def test_what_a_task_leaves_behind_ends_with_it(memory_bytes: int) -> None:
    name = f"test-{os.getpid()}"
    groups = control_groups(name)

    leave = daemonise
    leave.__module__ = "__main__"  # travels by value

    async def body(executor: ProcessExecutor) -> None:
        await executor.run(call(1, leave, memory_bytes=memory_bytes))
        while len(executor.zygote._spares) < 2 or any(spare.pid is None for spare in executor.zygote._spares):
            await asyncio.sleep(0.01)
        assert set(left_behind(name)) <= {spare.pid for spare in executor.zygote._spares}  # they wait in groups, too

    on_executor(body, groups)


def test_what_an_earlier_life_left_in_its_groups_is_ended() -> None:
    name = f"test-{os.getpid()}"
    groups = control_groups(name)
    with subprocess.Popen(["sleep", "60"]) as child:
        for path in groups.hold().joins:
            Path(path).write_text(str(child.pid))
        again = ControlGroups.find(name)
        assert again is not None and child.wait(30) == -signal.SIGKILL
        again.close()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/wattflow-{name}"))


def test_tasks_die_with_a_zygote_that_dies_with_its_agent() -> None:
    code = """
import asyncio, cloudpickle, sys
from wattflow.runtime.executors.forking import Zygote
from wattflow.runtime.executors.process import AttemptWork, ProcessExecutor
async def main():
    executor = ProcessExecutor(Zygote(), workers=1)
    await executor.start()
    asyncio.ensure_future(executor.run(AttemptWork(fence=1, command=["sleep", "60"])))
    while not executor.running():
        await asyncio.sleep(0.01)
    print(executor.zygote._process.pid, *executor.running().values(), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        zygote, child = map(int, agent.stdout.readline().split())
        os.kill(agent.pid, signal.SIGSTOP)  # nobody reads what the zygote says
        for pid in (agent.pid, zygote):
            os.kill(pid, signal.SIGKILL)
        end_s = time.monotonic() + 30
        while started(child) is not None and time.monotonic() < end_s:
            time.sleep(0.01)
        assert started(child) is None and started(zygote) is None
