"""A server that stands still, and one that is gone while another stands by."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from trust_rig import _by_value, cli, house, kill, lasting, processes
from trust_stateful import work
from trust_tally import Portion

from wattflow.runtime.home import Home


def paused(folder: Path, seed: int, seconds: float) -> Portion:
    """The server's process is stopped while tasks run, as by a migration of its machine; none runs twice."""
    import wattflow

    began_s = time.monotonic()
    with house(folder / "home", "--cpus", "4") as home:
        task = wattflow.task(cpus=0.5, retries=1000)(_by_value(work))
        with wattflow.Client(home.url(), home.token("user"), name="pause", patience="10min") as client:
            client.submit(task, 0, 0.0).result(120)
            futures = [client.submit(task, n, seconds + 5) for n in range(4)]
            futures += [client.submit(task, n, seconds / 4) for n in range(4, 8)]
            while not all(future.running() for future in futures):
                time.sleep(0.1)
            server = next(pid for pid, kind in lasting(home.folder).items() if kind == "server")
            kill(server, signal.SIGSTOP)
            time.sleep(seconds)
            kill(server, signal.SIGCONT)
            wrong = [n for n, future in enumerate(futures) if future.result(300) != n]
            repeated = sum(len(future.attempts()) - 1 for future in futures)
    failures = [f"task {n} returned something else" for n in wrong]
    return Portion(part="pause", seed=seed, took_s=time.monotonic() - began_s, failures=failures,
                   counts={"repeated": repeated, "tasks": len(futures), "wrong": len(wrong)},
                   worst={"paused_s": seconds})  # fmt: skip


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL of its own on loopback; its address."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        raise RuntimeError("PostgreSQL is not installed: `make cluster-tools`")
    data, as_user = folder / "postgres", ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    if os.geteuid() == 0:
        data.mkdir()
        for path in (folder, data):
            path.chmod(0o755)
        shutil.chown(data, "postgres", "postgres")
    else:
        as_user = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True, "cwd": "/"}
    subprocess.run([*as_user, programs[-1] / "initdb", "-D", data, "-U", "wattflow", "-A", "trust"], **quiet)  # type: ignore[call-overload]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=on"
    control = [*as_user, programs[-1] / "pg_ctl", "-D", data, "-w"]
    subprocess.run([*control, "-o", options, "-l", data / "log", "start"], **quiet)  # type: ignore[call-overload]
    try:
        yield f"postgresql://wattflow@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **quiet)  # type: ignore[call-overload]


def taken_over(folder: Path, seed: int, tasks: int = 40) -> Portion:
    """The server is killed while tasks run; another that stood by goes on with all of them, each ended once."""
    import wattflow

    began_s = time.monotonic()
    with postgres(folder) as store:
        try:
            objects = str(folder / "objects")
            first, second = Home(folder / "first"), Home(folder / "second")
            common = ("--port", "0", "--quiet", "--store", store, "--objects", objects)
            for home, more in ((first, ("--cpus", "4")), (second, ("--standby",))):
                started = cli(home.folder, "up", *common, *more)
                if started.returncode != 0:
                    raise RuntimeError(started.stderr.strip()[-500:])
            servers = f"{first.url()},{second.url()}"
            task = wattflow.task(cpus=0.25, retries=1000)(_by_value(work))
            client = wattflow.Client(servers, first.token("user"), name="standby", patience="5min")
            futures = [client.submit(task, n, 0.5) for n in range(tasks)]
            futures[0].result(120)
            killed_s = time.monotonic()
            for pid, kind in processes(first.folder).items():
                if kind in ("server", "writer"):
                    kill(pid)
            took_s = _serves_after(client, task, killed_s)
            lost = sum(_lost(future, n) for n, future in enumerate(futures))
            doubled = sum(sum(row["outcome"] == "done" for row in future.attempts()) > 1 for future in futures)
            client.shutdown(wait=False)
        finally:
            for home in (first, second):
                cli(home.folder, "down", "--quiet")
                for pid in processes(home.folder):
                    kill(pid)
    return Portion(part="standby", seed=seed, took_s=time.monotonic() - began_s, worst={"takeover_s": took_s},
                   counts={"lost": lost, "doubled": doubled, "tasks": tasks})  # fmt: skip


def _serves_after(client: object, task: object, killed_s: float) -> float:
    """Seconds until a new task has ended under the other server."""
    client.submit(task, -1, 0.0).result(300)  # type: ignore[attr-defined]
    return time.monotonic() - killed_s


def _lost(future: object, expected: int) -> bool:
    try:
        return bool(future.result(300) != expected)  # type: ignore[attr-defined]
    except Exception:
        return True
