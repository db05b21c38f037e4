"""Faults at random against a running server, and what must hold all the same (`make chaos`).

A server, three agents (one behind a virtual link in a network namespace) and a client that submits small tasks all
the time. Faults
are drawn from a seed: the server, an agent, a zygote or a task's own process is killed; an agent is stopped and goes
on later (an orphan
that finishes); the link is cut; the disk is full for a while; the wall clock of the server jumps. Then: every task
ended well (none
lost), no task has two committed attempts (none twice), a dead agent was noticed within 3 s and a heartbeat, and
whatever waited
had a reason.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from wattflow.model.errors import WattflowError
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Denied, Unreachable

HEARTBEAT_S = 1.0
LOST_S = 3.0
START_S = 20.0
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, t);
    if (id == CLOCK_REALTIME) {
        FILE *f = fopen(getenv("CHAOS_CLOCK"), "r");
        long step = 0;
        if (f) { if (fscanf(f, "%ld", &step) != 1) step = 0; fclose(f); }
        t->tv_sec += step;
    }
    return code;
}
"""


class Rig:
    """The processes under attack."""

    def __init__(self, folder: Path, seed: int, small_disk: bool) -> None:
        self.small_disk = small_disk
        self.folder, self.random = folder, random.Random(seed)
        self.home = Home(folder / "home")
        self.home.make()
        self.link = Link() if Link.possible() else None
        self.host = self.link.host if self.link is not None else "127.0.0.1"
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://{self.host}:{self.port}"
        self.clock = self._faketime()
        self.server: subprocess.Popen[bytes] | None = None
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.killed_s: dict[str, list[float]] = {}
        self.counts: dict[str, int] = {}
        self.ahead_s = 0.0
        self.server_starts_s: list[float] = []

    def start(self) -> None:
        self.start_server()
        for name in ("a", "b", "c"):
            self.start_agent(name)

    def start_server(self) -> None:
        env = dict(os.environ)
        if self.clock is not None:
            env |= {"LD_PRELOAD": str(self.clock), "CHAOS_CLOCK": str(self.folder / "clock")}
            # The service's clock never goes back, so a restart keeps the furthest it ever was.
            self.ahead_s = max(self.ahead_s, float((self.folder / "clock").read_text()))
        command = [sys.executable, "-m", "wattflow.server", "--home", str(self.home.folder), "--host", self.host,
                   "--port", str(self.port)]  # fmt: skip
        self.server = self._spawn("server", command, env)
        self.server_starts_s.append(time.time() + self.ahead_s)

    def start_agent(self, name: str) -> None:
        command = [
            sys.executable,
            "-m",
            "wattflow.cli",
            "agent",
            "--server",
            self.url,
            "--name",
            name,
            "--cpus",
            "4",
            "--token-file",
            str(self.home.token_file("agent")),
            "--folder",
            str(self.folder / f"agent-{name}"),
        ]
        if self.link is not None and name == "c":
            command = self.link.inside(command)
        while not self.home.token_file("agent").exists():
            time.sleep(0.05)
        self.agents[name] = self._spawn(f"agent-{name}", command, dict(os.environ))

    def stop(self) -> None:
        for process in [*self.agents.values(), *([self.server] if self.server else [])]:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.link is not None:
            self.link.close()

    # ---- faults

    def fault(self) -> None:
        """One fault of a random kind."""
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill_server, 3), (self.kill_agent, 4), (self.kill_task, 6), (self.kill_zygote, 3),
            (self.pause_agent, 1),
            (self.cut_link, 1 if self.link is not None else 0), (self.fill_disk, 1 if self.small_disk else 0),
            (self.step_clock, 1 if self.clock is not None else 0),
        ]  # fmt: skip
        chosen = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        self.counts[chosen.__name__] = self.counts.get(chosen.__name__, 0) + 1
        chosen()

    @property
    def kills(self) -> int:
        """Processes killed so far."""
        return sum(count for name, count in self.counts.items() if name.startswith("kill"))

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()
        time.sleep(self.random.uniform(0, 0.5))
        self.start_server()

    def kill_agent(self) -> None:
        name = self.random.choice(sorted(self.agents))
        process = self.agents[name]
        for pid in _tree(process.pid)[::-1]:  # behind `ip netns exec` the agent is not the first
            if b"agent" in _cmdline(pid):
                _kill(pid)
        process.wait()
        self.killed_s.setdefault(name, []).append(time.time() + self.ahead_s)
        time.sleep(self.random.uniform(0, 1.0))
        self.start_agent(name)

    def kill_zygote(self) -> None:
        self._kill_below(lambda pid: b"zygote.py" in _cmdline(pid) and _parent(pid) in self._roots())

    def kill_task(self) -> None:
        self._kill_below(lambda pid: b"zygote.py" in _cmdline(pid) and _parent(pid) not in self._roots())

    def pause_agent(self) -> None:
        """Long enough to be given up; what it ran meanwhile is an orphan when it goes on."""
        name = self.random.choice(sorted(self.agents))
        process = self.agents[name]
        process.send_signal(signal.SIGSTOP)
        self.killed_s.setdefault(name, []).append(time.time() + self.ahead_s)
        time.sleep(LOST_S + 2)
        process.send_signal(signal.SIGCONT)

    def cut_link(self) -> None:
        assert self.link is not None
        self.link.cut()
        self.killed_s.setdefault("c", []).append(time.time() + self.ahead_s)
        time.sleep(LOST_S + 2)
        self.link.mend()

    def fill_disk(self) -> None:
        filler = self.home.folder / "filler"
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(b"\0" * (1 << 20))
        except OSError:
            time.sleep(1.0)
        finally:
            filler.unlink(missing_ok=True)

    def step_clock(self) -> None:
        (self.folder / "clock").write_text(str(self.random.choice([-7200, -3600, 0, 3600, 7200])))

    # ---- parts

    def _kill_below(self, wanted: Callable[[int], bool]) -> None:
        found = [pid for root in self.agents.values() for pid in _tree(root.pid) if wanted(pid)]
        if found:
            _kill(self.random.choice(found))

    def _roots(self) -> set[int]:
        return {pid for root in self.agents.values() for pid in _tree(root.pid) if b"agent" in _cmdline(pid)}

    def _spawn(self, name: str, command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as out:
            return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def _faketime(self) -> Path | None:
        """A library that adds seconds to the wall clock of the process that loads it; None without a compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        source, made = self.folder / "clock.c", self.folder / "clock.so"
        source.write_text(CLOCK)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
        (self.folder / "clock").write_text("0")
        return made


class Link:
    """A pair of virtual links: one end here, one in a network namespace of its own."""

    def __init__(self) -> None:
        number = os.getpid() % 200
        self.name = f"wfchaos{os.getpid()}"
        self.out, self.within = f"wfo{os.getpid()}", f"wfi{os.getpid()}"
        self.host = f"10.213.{number}.1"
        for command in (
            f"ip netns add {self.name}", f"ip link add {self.out} type veth peer name {self.within}",
            f"ip link set {self.within} netns {self.name}", f"ip addr add {self.host}/24 dev {self.out}",
            f"ip link set {self.out} up",
            f"ip netns exec {self.name} ip addr add 10.213.{number}.2/24 dev {self.within}",
            f"ip netns exec {self.name} ip link set {self.within} up", f"ip netns exec {self.name} ip link set lo up",
        ):  # fmt: skip
            subprocess.run(command.split(), check=True)

    @staticmethod
    def possible() -> bool:
        """Whether namespaces can be made here."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            return False
        name = f"wfprobe{os.getpid()}"
        if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
            return False
        veth = subprocess.run(["ip", "link", "add", f"wfp{os.getpid()}", "type", "veth", "peer", "name",
                               f"wfq{os.getpid()}"], capture_output=True, check=False).returncode == 0  # fmt: skip
        subprocess.run(["ip", "link", "del", f"wfp{os.getpid()}"], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], check=False)
        return veth

    def inside(self, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        subprocess.run(["ip", "link", "set", self.out, "down"], check=True)

    def mend(self) -> None:
        subprocess.run(["ip", "link", "set", self.out, "up"], check=True)

    def close(self) -> None:
        subprocess.run(["ip", "link", "del", self.out], check=False)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


def _tree(pid: int) -> list[int]:
    """A process and all below it, from the top."""
    found, at = [pid], 0
    while at < len(found):
        try:
            for thread in Path(f"/proc/{found[at]}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            pass
        at += 1
    return found


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def work(key: int, seconds: float) -> int:
    import time as clock

    clock.sleep(seconds)
    return key


class Load(threading.Thread):
    """Submits tasks until told to stop, a few at a time, some of them children of others."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(daemon=True)
        self._rig = rig
        self.stop_now = threading.Event()
        self.results: dict[int, int] = {}
        self.errors: list[str] = []
        self.submitted = 0

    def run(self) -> None:
        import cloudpickle

        import wattflow

        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        draws = random.Random(7)
        plain = wattflow.task(cpus=0.5, retries=1000)(work)
        reused = wattflow.task(cpus=0.5, retries=1000, isolate=False)(work)
        client = wattflow.Client(self._rig.url, self._rig.home.token("user"), name="chaos")
        futures = []
        while not self.stop_now.is_set():
            waiting = [future for _, future in futures if not future.done()]
            for _ in range(max(0, 24 - len(waiting))):
                function = plain if draws.random() < 0.7 else reused
                key: object = self.submitted
                if draws.random() < 0.2 and futures:
                    key = futures[-1][1]
                    expected = futures[-1][0]
                else:
                    expected = self.submitted
                futures.append((expected, client.submit(function, key, draws.uniform(0, 0.4))))
                self.submitted += 1
            self.stop_now.wait(0.05)
        for number, (expected, future) in enumerate(futures):
            try:
                self.results[number] = future.result(180)
                if self.results[number] != expected:
                    self.errors.append(f"task {number} returned {self.results[number]}, not {expected}")
            except Exception as error:
                self.errors.append(f"task {number}: {type(error).__name__}: {error}")
        client.shutdown()


def without_reason(rig: Rig) -> int:
    """Waiting tasks whose `why` says nothing."""
    try:
        connection = Connection(rig.url, rig.home.token("user"), timeout_s=5)
        silent = 0
        for workflow in connection.call("GET", "/v1/workflows"):
            for task in connection.call("GET", f"/v1/workflows/{workflow['id']}/tasks?most=10000"):
                if task["state"] == "waiting":
                    silent += not connection.call("GET", f"/v1/tasks/{task['id']}/why")["why"]
        return silent
    except (Unreachable, Denied):
        return 0


def detection_s(rig: Rig) -> tuple[float, float]:
    """The longest time from an agent's loss to the end of its attempts in the store: while the server was there all the
    time, and where it was killed in between and had to start again first."""
    with contextlib.closing(sqlite3.connect(rig.home.store)) as store:
        rows = store.execute("select node, ended_s from attempts where outcome = 'node_lost'").fetchall()
    worst = worst_down = 0.0
    for node, ended_s in rows:
        before = [killed for killed in rig.killed_s.get(node, ()) if 0 <= ended_s - killed < 120]
        if not before:
            continue
        killed_s = max(before)
        # A server that was started shortly before was not ready yet.
        if any(killed_s - START_S < start_s < ended_s for start_s in rig.server_starts_s):
            worst_down = max(worst_down, ended_s - killed_s)
        else:
            worst = max(worst, ended_s - killed_s)
    return worst, worst_down


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the end of a block still tidies up
    folder = Path(tempfile.mkdtemp(prefix="wattflow-chaos-"))
    mounted = _small_disk(folder / "home")
    rig = Rig(folder, options.seed, mounted)
    try:
        return attack(rig, options.kills)
    finally:
        rig.stop()
        if mounted:
            subprocess.run(["umount", str(folder / "home")], check=False)
        if not os.environ.get("CHAOS_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def attack(rig: Rig, kills: int) -> int:
    rig.start()
    _until_it_answers(rig)
    load = Load(rig)
    load.start()
    silent = 0
    while rig.kills < kills:
        time.sleep(rig.random.uniform(0.1, 0.6))
        rig.fault()
        if rig.kills % 10 == 0:
            silent += without_reason(rig)
    load.stop_now.set()
    load.join(300)
    return tell(rig, load, silent)


def tell(rig: Rig, load: Load, silent: int) -> int:
    time.sleep(2)
    with contextlib.closing(sqlite3.connect(rig.home.store)) as store:
        twice = store.execute("select count(*) from (select task from attempts where outcome = 'done' group by task "
                              "having count(*) > 1)").fetchone()[0]  # fmt: skip
        stored = store.execute("select count(*) from tasks where state = 'done'").fetchone()[0]
    lost = load.submitted - len(load.results)
    print(f"# faults: {rig.counts}; {load.submitted} tasks, {stored} done in the store")
    for error in load.errors[:10]:
        print(f"# {error}")
    late_s, late_down_s = detection_s(rig)
    bad = 0
    for name, value, unit, goal, ok in (
        ("chaos_kills", rig.kills, "kills", "none", True),
        ("chaos_tasks_lost", lost + len(load.errors), "tasks", "0", lost == 0 and not load.errors),
        ("chaos_committed_twice", twice, "tasks", "0", twice == 0),
        ("chaos_loss_detected", late_s, "s", f"<={LOST_S + HEARTBEAT_S:g}", late_s <= LOST_S + HEARTBEAT_S),
        ("chaos_loss_detected_server_down_meanwhile", late_down_s, "s", "none", True),
        ("chaos_waiting_without_reason", silent, "tasks", "0", silent == 0),
    ):
        print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
        bad += not ok
    return 1 if bad else 0


def _until_it_answers(rig: Rig) -> None:
    end_s = time.monotonic() + 600  # the first start compiles
    while time.monotonic() < end_s:
        try:
            status = Connection(rig.url, rig.home.token("user")).call("GET", "/v1/status")
            if status["nodes"] == 3:
                return
        except (Unreachable, Denied, WattflowError):
            time.sleep(0.2)
    raise TimeoutError(f"the server does not answer; its log is in {rig.folder}")


def _small_disk(folder: Path) -> bool:
    """A disk of its own that can be full without harm to others."""
    folder.mkdir()
    if os.geteuid() != 0:
        return False
    return (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)], check=False).returncode == 0
    )


if __name__ == "__main__":
    sys.exit(main())
