"""A thousand played agents and two hundred tasks a second: what the server costs, and whether it grows.

The server is a real one with no machine of its own; this process plays all agents, each on its connection as a real
one is: a poll that waits for leases, news of ends, joules of attempts and of nodes. It speaks HTTP by hand,
since a thousand clients of any library would need more processor time than the server that is measured.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec
from trust_rig import calls, house, lasting, wait_for
from trust_tally import Portion

from wattflow.runtime import messages as m
from wattflow.runtime.home import Home

RATE, BATCH = 204, 20
"""A little above 200, so that what is measured can reach it."""
RUN_S, USERS = 2.0, 8
POLL_S, WINDOW_S = 1.0, 10.0
NODE_W, TASK_J = 60.0, 1.0
SETTLED = 0.3
"""Part of the time after which growth is counted: tables and caches fill at first."""
_ORDERS = msgspec.msgpack.Decoder(m.Orders)


class Played:
    """One agent."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet, self.name = fleet, f"played-{number:04}"
        self.held: dict[int, float] = {}
        self.ended = 0
        self._window_s = time.time()

    async def live(self, after_s: float) -> None:
        """Announce the node, then take leases and tell of ends, until the fleet is over."""
        await asyncio.sleep(after_s)
        node = m.Node(name=self.name, cpus=4, memory_bytes=16 << 30, busy=[0.0, 4.0], watts=[NODE_W, 120.0])
        orders = m.Orders(announce=True)
        while not self.fleet.over:
            if orders.announce:
                await self.fleet.call("/v1/nodes", m.Announcement(node, self.name, m.PROTOCOL), self.name)
            orders = _ORDERS.decode(await self.fleet.call("/v1/agents/sync", self._sync(), self.name))
            now_s = time.time()
            self.held.update({lease.fence: now_s for lease in orders.leases})
            for fence in orders.stop:
                self.held.pop(fence, None)

    def _sync(self) -> m.Sync:
        """Tell what is over by now; wait for leases until the next is."""
        now_s = time.time()
        over = {fence: began_s for fence, began_s in self.held.items() if now_s - began_s >= RUN_S}
        for fence in over:
            del self.held[fence]
        self.ended += len(over)
        energy = m.Energy(TASK_J, 0.5, 1.5, "modelled")
        windows = []
        if now_s - self._window_s >= WINDOW_S:
            drawn_j = NODE_W * (now_s - self._window_s)
            windows = [m.Window(self._window_s, now_s, drawn_j, drawn_j, 0.0, 0.0, "modelled")]
            self._window_s = now_s
        next_s = min((began_s + RUN_S - now_s for began_s in self.held.values()), default=POLL_S)
        return m.Sync(
            node=self.name, boot=self.name, holding=list(self.held), wait_s=max(0.0, min(POLL_S, next_s)),
            ended=[m.Ended(fence=fence, outcome="done", started_s=began_s, ended_s=began_s + RUN_S, cpu_s=RUN_S)
                   for fence, began_s in over.items()],
            energy=[m.TaskEnergy(fence, energy) for fence in over], windows=windows,
            load=m.Load(cpu_busy=0.25 * len(self.held)),
        )  # fmt: skip


class Fleet:
    """All agents, on a connection each."""

    def __init__(self, home: Home, nodes: int) -> None:
        self._port = int(home.url().rpartition(":")[2])
        self._head = (
            f"host: x\r\nauthorization: Bearer {home.token('agent')}\r\ncontent-type: application/msgpack\r\n"
            "accept: application/msgpack\r\ncontent-length: "
        ).encode()
        self._open: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self.over = False
        self.agents = [Played(self, number) for number in range(nodes)]

    async def call(self, path: str, body: msgspec.Struct, who: str) -> bytes:
        """One request on the connection of an agent; the body of its answer."""
        if who not in self._open:
            self._open[who] = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._open[who]
        data = m.pack(body)
        writer.write(b"POST %s HTTP/1.1\r\n%s%d\r\n\r\n%s" % (path.encode(), self._head, len(data), data))
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await reader.readexactly(size) if size else b""
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise RuntimeError(f"{path}: {head[:60]!r} {answer[:200]!r}")
        return answer

    async def begin(self, over_s: float) -> list[asyncio.Task[None]]:
        """Start all agents, over a while."""
        step_s = over_s / len(self.agents)
        return [asyncio.create_task(agent.live(number * step_s)) for number, agent in enumerate(self.agents)]


def portion(folder: Path, seed: int, seconds: float, nodes: int) -> Portion:
    """Tasks at a steady rate for so long."""
    began_s = time.monotonic()
    # A generator that waits for a processor is no lost agent.
    with house(folder / "home", "--no-agent", "--lost-after", "20s") as home:
        told = asyncio.run(_played(home, seconds, nodes))
    worst = {name: told[name] for name in ("cpu", "growth", "rate")}
    failures = [f"{told['nodes']:.0f} of {nodes} nodes are left"] if told["nodes"] < nodes else []
    return Portion(part="fleet", seed=seed, took_s=time.monotonic() - began_s, failures=failures, worst=worst,
                   counts={"tasks": told["tasks"], "seconds": told["seconds"], "agents": nodes})  # fmt: skip


async def _played(home: Home, seconds: float, nodes: int) -> dict[str, float]:
    fleet, loop = Fleet(home, nodes), asyncio.get_running_loop()
    agents = await fleet.begin(over_s=20.0)
    boss = calls(home)
    await asyncio.to_thread(wait_for, lambda: boss.call("GET", "/v1/status")["nodes"] >= nodes, "fleet", 300.0)
    serving = [pid for pid, kind in lasting(home.folder).items() if kind in ("server", "writer")]
    rss: list[tuple[float, int]] = []
    start_s, start_cpu_s, own_cpu_s = loop.time(), _cpu_s(serving), time.process_time()
    users = [asyncio.create_task(_submit(home, name, seconds)) for name in range(USERS)]
    while not all(one.done() for one in users):
        rss.append((loop.time() - start_s, _rss(serving)))
        for gone in [one for one in agents if one.done()]:
            gone.result()
        await asyncio.sleep(0.5)
    submitted = sum(one.result() for one in users)
    took_s, cpu_s, own_s = loop.time() - start_s, _cpu_s(serving) - start_cpu_s, time.process_time() - own_cpu_s
    ended = sum(agent.ended for agent in fleet.agents)
    status = await asyncio.to_thread(boss.call, "GET", "/v1/status")
    fleet.over = True
    for one in agents:
        one.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    settled = next(size for at_s, size in rss if at_s >= SETTLED * seconds)
    print(f"# {submitted} tasks, {ended} ended; RSS {settled >> 20} to {rss[-1][1] >> 20} MiB; the players took "
          f"{own_s / took_s:.2f} cores", flush=True)  # fmt: skip
    return {"tasks": submitted, "seconds": took_s, "cpu": cpu_s / took_s, "nodes": status["nodes"],
            "growth": 100 * (rss[-1][1] / settled - 1), "rate": ended / max(1e-9, took_s - RUN_S)}  # fmt: skip


async def _submit(home: Home, name: int, seconds: float) -> int:
    """One of several users who submit side by side: a commit that takes long holds up the others' tasks no more than
    its own."""
    user, submitted, start_s = calls(home, "user"), 0, time.monotonic()
    while time.monotonic() - start_s < seconds:
        tasks = [{"key": str(submitted + n), "name": "step", "command": ["true"], "estimate_s": RUN_S}
                 for n in range(BATCH)]  # fmt: skip
        sent = {"workflow": f"{name}-{submitted // 500}", "tasks": tasks, "seal": (submitted + BATCH) % 500 == 0}
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
