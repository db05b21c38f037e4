"""The server side of the dashboard (`make bench-web-server`): viewers, event latency, explanations, documents.

The server is real and plays a cluster in real time, 200 tasks a second. What viewers cost is the difference of the
server's processor time between spans with and without them, taken in turns on one server, for other work on the machine
comes and goes. The loop's own figures are those of `/v1/status`, which leave out the time without a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wattflow.files.columns import unpack
from wattflow.live import FINISHED, NODE, TASK, Power
from wattflow.runtime import messages as m
from wattflow.runtime.connection import Connection
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.home import Home
from wattflow.server.reader_process import ReaderProcess
from wattflow.store import journal, schema
from wattflow.store.schema import open_store

FIGURES: list[str] = []
CLUSTER = 'name = "bench"\n' + "".join(
    f'[[nodes]]\nname = "n{i}"\ncores = 32\nmemory = "128GiB"\npower = {{ busy = [0, 32], watts = [{60 + i}, 300] }}\n'
    for i in range(4)
)
RATE, BATCH_S = 200, 0.25


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    """Keep a figure for the end."""
    line = f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}"
    FIGURES.append(line)


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, Connection, Home]]:
    """A server that plays the cluster: its process, calls to it, its folder."""
    home = Home(folder / "home")
    home.make()
    (folder / "cluster.toml").write_text(CLUSTER)
    command = [sys.executable, "-m", "wattflow.server", "--home", str(home.folder), "--driver", "simulated",
               "--driver-option", f"cluster={folder / 'cluster.toml'}"]  # fmt: skip
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while home.server() is None:
        if process.poll() is not None:
            raise RuntimeError((folder / "server.log").read_text()[-2000:])
        time.sleep(0.05)
    try:
        yield process.pid, Connection(home.url(), home.token("user")), home
    finally:
        process.terminate()
        process.wait(60)


def tasks(first: int, count: int, estimate_s: float = 0.25, cpus: float = 1.0) -> list[dict[str, Any]]:
    """Commands that are played."""
    return [
        {"key": f"t{i}", "name": f"t{i}", "function_name": f"f{i % 5}", "command": ["true"], "estimate_s": estimate_s,
         "variants": [{"cpus": cpus}]}
        for i in range(first, first + count)
    ]  # fmt: skip


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def submit_for(connection: Connection, workflow: str, first: int, for_s: float) -> int:
    """Submit at the rate for a while; the number of the next task."""
    began = time.monotonic()
    per = int(RATE * BATCH_S)
    while (now := time.monotonic()) < began + for_s:
        body = {"workflow": workflow, "name": workflow, "tasks": tasks(first, per)}
        await asyncio.to_thread(connection.call, "POST", "/v1/submissions", body)
        first += per
        await asyncio.sleep(max(0.0, BATCH_S - (time.monotonic() - now)))
    return first


class Viewers:
    """Readers of `/v1/events`; the first one also notes how late it learned of placements and ends."""

    def __init__(self, home: Home, count: int) -> None:
        self._home, self._count = home, count
        self._tasks: list[asyncio.Task[None]] = []
        self.late_s: list[float] = []

    async def __aenter__(self) -> Viewers:
        self._tasks = [asyncio.create_task(self._watch(i == 0)) for i in range(self._count)]
        await asyncio.sleep(1.0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, notes: bool) -> None:
        host, port = self._home.url().removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        token = self._home.token("user")
        writer.write(f"GET /v1/events HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n".encode())
        try:
            while line := await reader.readline():
                if notes and line.startswith(b"data: "):
                    self._note(json.loads(line[6:]))
        finally:
            writer.close()

    def _note(self, body: dict[str, Any]) -> None:
        now_s = time.time()
        for one in body.get("attempts", ()):
            if "placed_s" in one:
                self.late_s.append(now_s - one["placed_s"])


async def viewers(pid: int, connection: Connection, home: Home, spans: int, span_s: float) -> None:
    """What fifty viewers cost the server, its commits and its loop; how late they learn of things."""
    first = await submit_for(connection, "load", 0, 5.0)
    begun, began_s = first, time.monotonic()
    used: dict[bool, list[float]] = {False: [], True: []}
    late_s: list[float] = []
    for number in range(2 * spans):
        watched = bool(number % 2)
        async with Viewers(home, 50 if watched else 0) as there:
            before, began = cpu_s(pid), time.monotonic()
            first = await submit_for(connection, "load", first, span_s)
            used[watched].append((cpu_s(pid) - before) / (time.monotonic() - began))
            late_s += there.late_s
    rate = (first - begun) / (time.monotonic() - began_s)
    print(f"# {rate:.0f} tasks a second were submitted, {RATE} wanted")
    connection.call("POST", "/v1/submissions", {"workflow": "load", "tasks": [], "seal": True})
    alone, beside = statistics.median(used[False]), statistics.median(used[True])
    print(f"# processor of the server: {alone:.1%} of a core alone, {beside:.1%} with 50 viewers; spans {used}")
    figure("web_viewers_50", 100 * (beside - alone), "percent_of_a_core", "<=3", beside - alone <= 0.03)
    late = statistics.quantiles(late_s, n=20)[18]
    figure("web_event_p95", 1000 * late, "ms", "<=600", late <= 0.6)


def loop_and_commits(folder: Path, span_s: float) -> None:
    """The loop's and the commits' p99 with fifty viewers against none, each on a server of its own."""
    told: dict[int, dict[str, float]] = {}
    for count in (0, 50):
        with tempfile.TemporaryDirectory(dir=folder) as place, server(Path(place)) as (_, connection, home):

            async def load(count: int = count, connection: Connection = connection, home: Home = home) -> None:
                async with Viewers(home, count):
                    await submit_for(connection, "load", 0, span_s)

            asyncio.run(load())
            told[count] = connection.call("GET", "/v1/status")
    for name, key in (("commit", "commit_p99_s"), ("turn", "turn_cpu_p99_s")):
        ratio = told[50][key] / max(1e-9, told[0][key])
        print(f"# {key}: {1e3 * told[0][key]:.3g} ms alone, {1e3 * told[50][key]:.3g} ms with 50 viewers")
        figure(f"web_{name}_p99_ratio", ratio, "of_none", "<=1.1", ratio <= 1.1)


def explained(connection: Connection) -> None:
    """Explanations of waiting tasks, and what they do to the loop."""
    connection.call("POST", "/v1/submissions", {"workflow": "wait", "tasks": tasks(0, 600, 30.0, 16.0)})
    number = connection.call("GET", "/v1/workflows/wait/tasks?after=0&most=600")[-1]["id"]
    connection.call("GET", f"/v1/tasks/{number}/explain")  # the first loads compiled code
    held_before = connection.call("GET", "/v1/status")["loop_held_p999_s"]
    took = []
    for _ in range(30):
        began = time.perf_counter()
        told = connection.call("GET", f"/v1/tasks/{number}/explain")
        took.append(time.perf_counter() - began)
        assert told["when"] == "waiting"
    middle = statistics.median(took)
    figure("web_explain_waiting", 1000 * middle, "ms", "<=50", middle <= 0.05)
    held = connection.call("GET", "/v1/status")
    print(f"# loop held: {1e3 * held_before:.2f} ms (p99.9) before, {1e3 * held['loop_held_max_s']:.2f} ms at most")
    held_s = held["loop_held_p999_s"]
    figure("web_explain_loop_held_p999", 1000 * held_s, "ms", "<=5", held_s <= 0.005)


async def past(folder: Path, entries: int) -> None:
    """A decision after so many entries of the journal, by the process beside a server, cold and warm."""
    task, before_s = write_journal(folder, entries), _children_s()
    beside = ReaderProcess(str(folder / "store.db"), folder)
    took_s = {}
    for name in ("cold", "warm"):
        began = time.perf_counter()
        told = json.loads(await beside.ask("explain", task=task, number=0))
        took_s[name] = time.perf_counter() - began
        assert told["candidates"][0]["chosen"], told
    beside.close()
    print(f"# processor seconds of that process, its start and both answers: {_children_s() - before_s:.2f}")
    print(
        f"# past, {entries} entries: {took_s['cold']:.2f} s with the start of the process, {took_s['warm']:.2f} s after"
    )
    figure("web_explain_past", took_s["cold"], "s", "<=3", took_s["cold"] <= 3)
    figure("web_explain_past_again", took_s["warm"], "s", "<=3", took_s["warm"] <= 3)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_journal(folder: Path, entries: int) -> int:
    """A store with a journal of so many turns, each with an arrival and an end, and the task that was placed last."""
    decider, rows, running, seal = JournaledEngine("least-energy"), [], list[int](), 0
    decider.began_with("least-energy")
    decider.room()
    for i in range(16):
        made = m.Node(name=f"n{i}", cpus=16, memory_bytes=1 << 34, busy=[0, 16], watts=[50 + i, 100])
        decider.put(NODE, decider.node(made), state=int(Power.ON))
    spec = m.Task(key="t", name="t", function_name="f", command=["true"])
    flow, shape = decider.workflow(1, None), decider.shape(list(spec.variants), "f")
    for number in range(1, entries + 1):
        now_s = 1000.0 + 0.01 * number
        task = decider.put(TASK, shape, workflow=flow, tag=number, estimate_s=5.0)
        if len(running) > 200:
            decider.put(FINISHED, running.pop(0))
        placed = decider.step(now_s).placements
        running += [one.attempt for one in placed]
        entry = m.pack(decider.entries)
        decider.entries.clear()
        seal = journal.chained(seal, number, entry)
        rows.append({"sequence": number, "entry": entry, "checksum": seal})
    names = {identity: name for name, identity in decider.engine.nodes.items()}
    with open_store(folder / "store.db").begin() as connection:
        connection.execute(sa.insert(schema.journal), rows)
        connection.execute(sa.insert(schema.meta), journal.head(entries, seal))
        connection.execute(sa.insert(schema.tasks), {
            "id": 1, "workflow": "w", "key": "t", "name": "t", "spec": m.pack((task, spec)), "submitted_s": now_s,
            "state": "running", "attempts": 1})  # fmt: skip
        connection.execute(sa.insert(schema.attempts), {
            "task": 1, "number": 1, "fence": 1, "node": names[placed[-1].node], "device": -1, "variant": 0,
            "ready_s": now_s, "placed_s": now_s})  # fmt: skip
    return 1


def documents(connection: Connection, count: int) -> None:
    """The document and the file of a run of many tasks, while the loop goes on. The server did nothing else before."""
    before = connection.call("GET", "/v1/status")["loop_held_max_s"]
    for name, path in (("document", "/v1/runs/many"), ("run_file", "/v1/workflows/many/run")):
        connection.raw("GET", path)
        began = time.perf_counter()
        data, _ = connection.raw("GET", path)
        size = len(gzip.compress(data)) if name == "document" else len(data)
        print(f"# {name} of {count} tasks: {time.perf_counter() - began:.2f} s")
        figure(f"web_{name}_size", size / 1e6, "MB", "<=5", size <= 5e6)
        if name == "document":
            assert len(unpack(data).tables["attempts"]["start"]) >= count
    after = connection.call("GET", "/v1/status")
    print(f"# longest hold of the loop: {1e3 * before:.1f} ms before, {1e3 * after['loop_held_max_s']:.1f} ms after")
    held_s = after["loop_held_p999_s"]
    figure("web_documents_loop_held_p999", 1000 * held_s, "ms", "<=5", held_s <= 0.005)


def run_many(connection: Connection, count: int) -> None:
    """Run a workflow of many tasks."""
    connection.call("POST", "/v1/submissions", {"workflow": "many", "tasks": tasks(0, count, 0.01, 0.1), "seal": True})
    while connection.call("GET", "/v1/workflows/many")["state"] == "open":
        time.sleep(0.5)


def main() -> int:
    """All figures; --quick takes a fifth of the time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server(folder) as (pid, connection, home):
            asyncio.run(viewers(pid, connection, home, 2 if quick else 5, 8.0 if quick else 15.0))
        with server(folder) as (_, connection, _home):
            explained(connection)
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(past(Path(place), 2_000 if quick else 20_000))
        with tempfile.TemporaryDirectory() as place:
            count = 4_000 if quick else 20_000
            with server(Path(place)) as (_, connection, _home):
                run_many(connection, count)
            with server(Path(place)) as (_, connection, _home):
                documents(connection, count)
        loop_and_commits(folder, 10.0 if quick else 30.0)
    print("\n".join(FIGURES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
