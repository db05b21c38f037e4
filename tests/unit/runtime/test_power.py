"""Sleep and waking: hooks, learned times, nodes that do not come."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from wattflow.levels.power_hooks import CommandHook, HookFailed, WakeOnLan, magic_packet
from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.actions import TRIES, Waking
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.facts import node_of
from wattflow.testing.check_driver import HearingSink


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def now(self) -> float:
        return self.s


def test_wake_times_are_learned() -> None:
    async def main() -> None:
        clock, woken = Clock(), list[str]()
        waking = Waking(clock.now, woken.append, lambda *_: None)
        for took_s in (40.0, 60.0):
            waking.order("n", 10.0)
            waking.order("n", 10.0)  # on its way already
            clock.s += took_s
            waking.awake("n")
        assert woken == ["n", "n"]
        assert waking.wake_s("n") == pytest.approx(46.0)
        assert waking.awake("n") is None

    asyncio.run(main())


def test_a_node_that_does_not_wake_is_told_again_and_then_given_up() -> None:
    async def main() -> None:
        woken, lost = list[str](), asyncio.get_running_loop().create_future()
        waking = Waking(Clock().now, woken.append, lambda node, why: lost.set_result((node, why)), least_s=0.01)
        waking.order("n", 0.0)
        node, why = await asyncio.wait_for(lost, 30)
        assert node == "n" and "did not wake" in why and len(woken) == TRIES

    asyncio.run(main())


def test_commands_are_run_with_the_nodes_name(tmp_path: Path) -> None:
    hook = CommandHook(f"touch '{tmp_path}/{{node}} sleeps'", "sh -c 'echo no power >&2; exit 3'")
    asyncio.run(hook.suspend("n1"))
    assert (tmp_path / "n1 sleeps").exists()
    with pytest.raises(HookFailed, match="no power"):
        asyncio.run(hook.resume("n1"))
    with pytest.raises(HookFailed, match="there-is-no-such"):
        asyncio.run(CommandHook("there-is-no-such-program", "true").suspend("n1"))
    with pytest.raises(InvalidInput, match="no command"):
        CommandHook("", "true")


def test_a_magic_packet_wakes() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.0.0.1", 0))
        card.settimeout(30)
        hook = WakeOnLan("true", {"n1": "3c:ec:ef:12:34:56"}, "127.0.0.1", card.getsockname()[1])
        assert hook.covers("n1") and not hook.covers("n2")
        asyncio.run(hook.resume("n1"))
        assert card.recv(200) == b"\xff" * 6 + bytes.fromhex("3cecef123456") * 16
    with pytest.raises(InvalidInput, match="hardware address"):
        magic_packet("3c:ec:ef")


class Listening(HearingSink):
    """Also hears of sleep, on a clock that tests set."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping: list[str] = []
        self.s = 100.0

    def asleep(self, node: str) -> None:
        self.sleeping.append(node)
        self.changed.set()

    def now(self) -> float:
        return self.s


def test_a_node_sleeps_by_its_hook_is_not_lost_meanwhile_and_comes_back(tmp_path: Path) -> None:
    async def main() -> None:
        sink, node = Listening(), m.Node(name="n", cpus=1.0, memory_bytes=1 << 30)
        driver = AgentsDriver(hook=CommandHook(f"touch {tmp_path}/asleep", f"touch {tmp_path}/woken"))
        await driver.start(sink)
        driver.announce(node, "boot")
        assert sink.nodes["n"].sleeps and sink.nodes["n"].wake_s > 0
        driver.power("n", on=False)
        assert await sink.until(lambda: sink.sleeping == ["n"], 30)
        sink.s += 5.0  # longer than an agent may be silent
        driver.announce(node, "boot")  # what the agent said before the machine fell asleep
        await asyncio.sleep(0.3)
        assert sink.lost == [] and sink.sleeping == ["n"] and not driver.knows("n", "boot")
        driver.power("n", on=True)
        while not (tmp_path / "woken").exists():
            await asyncio.sleep(0.01)
        driver.announce(node, "boot")
        assert driver.knows("n", "boot")
        await driver.stop()

    asyncio.run(main())


def test_a_node_with_work_does_not_sleep(tmp_path: Path) -> None:
    async def main() -> None:
        sink = Listening()
        driver = AgentsDriver(hook=CommandHook(f"touch {tmp_path}/asleep", "true"))
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1 << 30), "boot")
        spec = m.Task(key="t", name="t", command=["true"])
        driver.launch([m.Lease(fence=1, task=1, number=1, node="n", workflow="w", spec=spec)])
        sink.nodes.clear()
        driver.power("n", on=False)
        assert await sink.until(lambda: "n" in sink.nodes, 30)  # told that it is on
        assert sink.sleeping == [] and not (tmp_path / "asleep").exists()
        await driver.stop()

    asyncio.run(main())


def test_what_a_node_draws_while_it_wakes_is_learned(tmp_path: Path) -> None:
    async def main() -> None:
        hook = CommandHook("true", f"touch {tmp_path}/woken", "echo 'Instantaneous power reading: 180 Watts'")
        driver, sink = AgentsDriver(hook=hook), Listening()
        await driver.start(sink)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "one")
        driver.power("n", on=True)
        while not driver._waking_w.get("n"):
            await asyncio.sleep(0.01)
        driver.announce(m.Node(name="n", cpus=1.0, memory_bytes=1), "one")
        known = driver._agents["n"].node
        assert known is not None and known.wake_w == 180.0 and known.sleeps
        assert known.sleep_w == 180.0  # read once before it was woken
        await driver.stop()

    asyncio.run(main())


def test_a_watts_command_without_a_number_is_told() -> None:
    with pytest.raises(HookFailed, match="no number"):
        asyncio.run(CommandHook("true", "true", "echo unknown").watts("n"))
    assert asyncio.run(CommandHook("true", "true").watts("n")) is None


def test_what_a_sleeping_node_draws_is_guessed_where_nobody_measured_it() -> None:
    node = m.Node(name="n", cpus=1.0, memory_bytes=1, sleeps=True, wake_s=5.0, busy=[0.0, 1.0], watts=[60.0, 100.0])
    asleep = node_of(node).sleep
    assert asleep is not None and asleep.watts == pytest.approx(6.0)
    measured = node_of(msgspec.structs.replace(node, sleep_w=2.5)).sleep
    assert measured is not None and measured.watts == 2.5
