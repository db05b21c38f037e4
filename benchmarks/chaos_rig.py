"""The processes that `make chaos` attacks, and the faults: kills, stops, a cut link, a full disk, a jumping clock."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from wattflow.runtime import addresses
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home, NotRunning
from wattflow.runtime.transport import Unreachable

LOST_S = 3.0
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
        os.environ[addresses.VARIABLE] = "1"  # the link ends on this machine
        self.clock = self._faketime()
        self.server: subprocess.Popen[bytes] | None = None
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.counts: dict[str, int] = {}
        self.ended_alone: dict[str, int] = {}
        self.killed: list[tuple[str, float]] = []
        self.server_starts_s: list[float] = []

    def start(self) -> None:
        self.start_server()
        for name in ("a", "b", "c"):
            self.start_agent(name)

    def start_server(self) -> None:
        env = dict(os.environ)
        if self.clock is not None:
            env |= {"LD_PRELOAD": str(self.clock), "CHAOS_CLOCK": str(self.folder / "clock")}
        command = [sys.executable, "-m", "wattflow.server", "--home", str(self.home.folder), "--host", self.host,
                   "--port", str(self.port), "--clear-text"]  # fmt: skip
        self.server = self._spawn("server", command, env)
        self.server_starts_s.append(time.monotonic())

    def start_agent(self, name: str) -> None:
        command = [sys.executable, "-m", "wattflow.cli", "agent", "--server", self.url, "--name", name, "--cpus", "4",
                   "--token-file", str(self._token(name)), "--folder",
                   str(self.folder / f"agent-{name}")]  # fmt: skip
        if self.link is not None and name == "c":
            command = self.link.inside(command)
        self.agents[name] = self._spawn(f"agent-{name}", command, dict(os.environ))

    def _token(self, name: str) -> Path:
        """A token for the agent of one node: beyond loopback the server takes no other."""
        path = self.folder / f"{name}.token"
        while not path.exists():
            try:
                operator = Connection(self.url, self.home.token("operator"))
                made = operator.call("POST", "/v1/tokens", {"name": name, "role": "agent", "node": name})
                path.write_text(made["token"])
            except (Unreachable, NotRunning):
                time.sleep(0.2)
        return path

    def supervise(self) -> None:
        """Start again what ended by itself, as a site's service manager would; counted."""
        if self.server is not None and self.server.poll() is not None:
            self.ended_alone["server"] = self.ended_alone.get("server", 0) + 1
            self.start_server()
        for name, process in self.agents.items():
            if process.poll() is not None:
                self.ended_alone["agent"] = self.ended_alone.get("agent", 0) + 1
                self.start_agent(name)

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
        kinds: list[tuple[Callable[[], bool | None], int]] = [
            (self.kill_server, 3), (self.kill_agent, 4), (self.kill_task, 6), (self.kill_zygote, 3),
            (self.kill_writer, 2), (self.pause_agent, 1),
            (self.cut_link, 1 if self.link is not None else 0), (self.fill_disk, 1 if self.small_disk else 0),
            (self.step_clock, 1 if self.clock is not None else 0),
        ]  # fmt: skip
        chosen = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        if chosen() is not False:
            self.counts[chosen.__name__] = self.counts.get(chosen.__name__, 0) + 1

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
        self.killed.append((name, time.monotonic()))
        time.sleep(self.random.uniform(0, 1.0))
        self.start_agent(name)

    def kill_zygote(self) -> bool:
        return self._kill_below(lambda pid: b"zygote.py" in _cmdline(pid) and _parent(pid) in self._roots())

    def kill_task(self) -> bool:
        return self._kill_below(lambda pid: b"zygote.py" in _cmdline(pid) and _parent(pid) not in self._roots())

    def kill_writer(self) -> bool:
        """The process that commits what the server decides, maybe in the midst of a commit."""
        assert self.server is not None
        found = [pid for pid in _tree(self.server.pid) if b"wattflow.store.writing" in _cmdline(pid)]
        for pid in found:
            _kill(pid)
        return bool(found)

    def pause_agent(self) -> None:
        """Long enough to be given up; what it ran meanwhile is an orphan when it goes on."""
        name = self.random.choice(sorted(self.agents))
        process = self.agents[name]
        process.send_signal(signal.SIGSTOP)
        self.killed.append((name, time.monotonic()))
        time.sleep(LOST_S + 2)
        process.send_signal(signal.SIGCONT)

    def cut_link(self) -> None:
        assert self.link is not None
        self.link.cut()
        self.killed.append(("c", time.monotonic()))
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

    def _kill_below(self, wanted: Callable[[int], bool]) -> bool:
        """Kill one of the processes that are wanted; False where there is none."""
        found = [pid for root in self.agents.values() for pid in _tree(root.pid) if wanted(pid)]
        if found:
            _kill(self.random.choice(found))
        return bool(found)

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
