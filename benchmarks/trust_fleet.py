"""A thousand played agents and two hundred tasks a second: what the server costs, and whether it grows.

The server is a real one with no machine of its own; this process plays all agents, each on its connection as a real
one is: a poll that waits for leases, news of ends, joules of attempts and of nodes. It speaks HTTP by hand, on the
server's own event loop library: a thousand clients of any other would need more processor time than the server that is
measured, and on two cores they would be what limits the rate.
"""

from __future__ import annotations

import asyncio
import functools
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from trust_rig import calls, house, lasting, wait_for
from trust_tally import Portion

from wattflow.runtime import messages as m
from wattflow.runtime.home import Home

RATE, BATCH, FLOW = 204, 20, 100
"""Tasks a second (a little above 200, so that what is measured can reach it), of a submission, of a workflow."""
RUN_S, USERS = 2.0, 32
"""Several users, so that a commit that takes long on a busy machine holds up its own tasks and not the rate."""
POLL_S, WINDOW_S = 1.0, 10.0
NODE_W, TASK_J = 60.0, 1.0
MIB = float(1 << 20)
WARM_UP_S, LOOK_S = 120.0, 10.0
"""Growth is counted from here to the end, between means of so many seconds. Tables fill at first: a workflow of 100
tasks takes 16 s, and what is over leaves the server's memory a minute later. What grew before is told beside it."""
_ORDERS = msgspec.msgpack.Decoder(m.Orders)


class Played(asyncio.Protocol):
    """One agent, on a connection of its own. There is always one request under way, as of a real one's poll."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet, self.name = fleet, f"played-{number:04}"
        self._held: dict[int, float] = {}
        self.ended = 0
        self._window_s = time.time()
        self._got = b""
        self._idle = fleet.request("/v1/agents/sync", self._sync({}, []))
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._announce()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._fleet.over:
            self._fleet.failures.append(f"{self.name}: the server closed its connection")

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < size:
            return
        self._got = body[size:]
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            self._fleet.failures.append(f"{self.name}: {head[:60]!r} {body[:200]!r}")
        elif not self._fleet.over:
            self._answered(body[:size])

    def _announce(self) -> None:
        node = m.Node(name=self.name, cpus=4, memory_bytes=16 << 30, busy=[0.0, 4.0], watts=[NODE_W, 120.0])
        self._send(self._fleet.request("/v1/nodes", m.Announcement(node, self.name, m.PROTOCOL)))

    def _send(self, request: bytes) -> None:
        self._transport.write(request)

    def _answered(self, body: bytes) -> None:
        """Take the orders, then ask for the next, telling what is over by now."""
        now_s = time.time()
        # Nearly all answers order nothing, in the same bytes: they are not worth a thousand decodings a second.
        if body not in self._fleet.nothing:
            orders = _ORDERS.decode(body)
            if orders.announce:
                self._announce()
                return
            self._held.update({lease.fence: now_s for lease in orders.leases})
            for fence in orders.stop:
                self._held.pop(fence, None)
            if not (orders.leases or orders.stop):
                self._fleet.nothing.add(body)
        if not self._held and now_s - self._window_s < WINDOW_S:
            self._send(self._idle)
            return
        over = {fence: began_s for fence, began_s in self._held.items() if now_s - began_s >= RUN_S}
        for fence in over:
            del self._held[fence]
        self.ended += len(over)
        windows = []
        if now_s - self._window_s >= WINDOW_S:
            drawn_j = NODE_W * (now_s - self._window_s)
            windows = [m.Window(self._window_s, now_s, drawn_j, drawn_j, 0.0, 0.0, "modelled")]
            self._window_s = now_s
        self._send(self._fleet.request("/v1/agents/sync", self._sync(over, windows)))

    def _sync(self, over: dict[int, float], windows: list[m.Window]) -> m.Sync:
        """Tell of ends and joules; wait for leases until the next end."""
        next_s = min((began_s + RUN_S - time.time() for began_s in self._held.values()), default=POLL_S)
        energy = m.Energy(TASK_J, 0.5, 1.5, "modelled")
        ended = [m.Ended(fence=fence, outcome="done", started_s=began_s, ended_s=began_s + RUN_S, cpu_s=RUN_S)
                 for fence, began_s in over.items()]  # fmt: skip
        return m.Sync(
            node=self.name, boot=self.name, holding=list(self._held), wait_s=max(0.0, min(POLL_S, next_s)),
            ended=ended, energy=[m.TaskEnergy(fence, energy) for fence in over], windows=windows,
            load=m.Load(cpu_busy=0.25 * len(self._held)),
        )  # fmt: skip


class Fleet:
    """All agents.

    Attributes:
        nothing: Answers that ordered nothing, as bytes.
        failures: Refusals and lost connections.
    """

    def __init__(self, home: Home, nodes: int) -> None:
        self._port = int(home.url().rpartition(":")[2])
        self._head = (
            f"host: x\r\nauthorization: Bearer {home.token('agent')}\r\ncontent-type: application/msgpack\r\n"
            "accept: application/msgpack\r\ncontent-length: "
        ).encode()
        self.over = False
        self.nothing: set[bytes] = set()
        self.failures: list[str] = []
        self.agents = [Played(self, number) for number in range(nodes)]

    def request(self, path: str, body: msgspec.Struct) -> bytes:
        """A request as it goes over the wire."""
        data = m.pack(body)
        return b"POST %s HTTP/1.1\r\n%s%d\r\n\r\n%s" % (path.encode(), self._head, len(data), data)

    async def begin(self, over_s: float) -> None:
        """Connect all agents, over a while."""
        loop, step_s = asyncio.get_running_loop(), over_s / len(self.agents)
        for agent in self.agents:
            await loop.create_connection(functools.partial(_same, agent), "127.0.0.1", self._port)
            await asyncio.sleep(step_s)


def _same(agent: Played) -> Played:
    return agent


def portion(folder: Path, seed: int, seconds: float, nodes: int) -> Portion:
    """Tasks at a steady rate for so long."""
    began_s = time.monotonic()
    # A generator that waits for a processor is no lost agent.
    with house(folder / "home", "--no-agent", "--lost-after", "20s") as home:
        told, failures = uvloop.run(_played(home, seconds, nodes))
    worst = {name: told[name] for name in ("cpu", "growth", "growth_whole", "rate", "players")}
    failures += [f"{told['nodes']:.0f} of {nodes} nodes are left"] if told["nodes"] < nodes else []
    return Portion(part="fleet", seed=seed, took_s=time.monotonic() - began_s, failures=failures, worst=worst,
                   counts={"tasks": told["tasks"], "seconds": told["seconds"], "agents": nodes})  # fmt: skip


async def _played(home: Home, seconds: float, nodes: int) -> tuple[dict[str, float], list[str]]:
    fleet, loop = Fleet(home, nodes), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(USERS + 2))  # a thread for each user who waits for a commit
    await fleet.begin(over_s=20.0)
    boss = calls(home)
    await asyncio.to_thread(wait_for, lambda: boss.call("GET", "/v1/status")["nodes"] >= nodes, "fleet", 300.0)
    serving = [pid for pid, kind in lasting(home.folder).items() if kind in ("server", "writer")]
    rss: list[tuple[float, int]] = []
    start_s, start_cpu_s, own_cpu_s = loop.time(), _cpu_s(serving), time.process_time()
    users = [asyncio.create_task(_submit(home, name, seconds)) for name in range(USERS)]
    while not all(one.done() for one in users):
        rss.append((loop.time() - start_s, _rss(serving)))
        await asyncio.sleep(0.5)
    submitted = sum(one.result() for one in users)
    took_s, cpu_s, own_s = loop.time() - start_s, _cpu_s(serving) - start_cpu_s, time.process_time() - own_cpu_s
    ended = sum(agent.ended for agent in fleet.agents)
    status = await asyncio.to_thread(boss.call, "GET", "/v1/status")
    fleet.over = True
    first, settled, last = (_mean(rss, at_s) for at_s in (0.0, min(WARM_UP_S, took_s / 2), took_s - LOOK_S))
    print(
        f"# {submitted} tasks, {ended} ended; RSS {first / MIB:.1f} MiB at first, {settled / MIB:.1f} after "
        f"{min(WARM_UP_S, took_s / 2):.0f} s, {last / MIB:.1f} after {took_s:.0f} s, at most "
        f"{max(size for _, size in rss) / MIB:.1f}; the players took {own_s / took_s:.2f} cores",
        flush=True,
    )
    told = {"tasks": submitted, "seconds": took_s, "cpu": cpu_s / took_s, "nodes": status["nodes"],
            "growth": 100 * (last / settled - 1), "growth_whole": 100 * (last / first - 1),
            "rate": ended / max(1e-9, took_s - RUN_S), "players": own_s / took_s}  # fmt: skip
    return told, fleet.failures[:20]


def _mean(rss: list[tuple[float, int]], from_s: float) -> float:
    """The mean of the readings of a while."""
    return statistics.mean(size for at_s, size in rss if from_s <= at_s < from_s + LOOK_S)


async def _submit(home: Home, name: int, seconds: float) -> int:
    """One of several users who submit side by side: a commit that takes long holds up the others' tasks no more than
    its own."""
    user, submitted, start_s = calls(home, "user"), 0, time.monotonic()
    while time.monotonic() - start_s < seconds:
        tasks = [{"key": str(submitted + n), "name": "step", "command": ["true"], "estimate_s": RUN_S}
                 for n in range(BATCH)]  # fmt: skip
        sent = {"workflow": f"{name}-{submitted // FLOW}", "tasks": tasks, "seal": (submitted + BATCH) % FLOW == 0}
        await asyncio.to_thread(user.patiently, "POST", "/v1/submissions", sent)
        submitted += BATCH
        await asyncio.sleep(max(0.0, submitted * USERS / RATE - (time.monotonic() - start_s)))
    return submitted


def _cpu_s(pids: list[int]) -> float:
    stats = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def _rss(pids: list[int]) -> int:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")
