"""Task, agent and server killed in turn while a clock is held, on played files (`make bench-levels-kills`).

A real server with the policy `dewts`, a real agent with `--levels`, a task with a late deadline that therefore runs at
a lower clock. Then one of the three gets SIGKILL, and the clock has to be as before. What was killed is started again.
Ends with one line per figure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from levels_gpu import figure

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.runtime.client import Client
from wattflow.runtime.home import Home

WHO = ("task", "agent", "server")
GOAL_S, PATIENCE_S = 5.0, 60.0


class Rig:
    """A server and an agent on a played tree, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree = folder, play_sysfs(folder / "sys")
        os.environ |= {"WATTFLOW_HOME": str(folder / "home"), "WATTFLOW_LEVELS": str(folder / "notes")}
        self.serve()
        made = self.cli("token", "create", "n", "--role", "agent")
        (folder / "token").write_text(made)
        (folder / "token").chmod(0o600)
        self.agent = self.join()

    def cli(self, *words: str) -> str:
        """Type a command."""
        done = subprocess.run(
            [sys.executable, "-m", "wattflow.cli", *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def serve(self, port: int = 0) -> None:
        """Start the server, where it was before."""
        self.cli("up", "--no-agent", "--policy", "dewts", "--port", str(port))
        self.url = str(Home.of(self.folder / "home").url())

    def join(self) -> subprocess.Popen[bytes]:
        """Start the agent."""
        words = ["server", "agent", "--server", self.url, "--token-file", str(self.folder / "token"), "--name", "n",
                 "--levels", "--folder", str(self.folder / "agent"), "--cpus", "1"]  # fmt: skip
        environment = {**os.environ, "WATTFLOW_SYSFS": str(self.tree)}
        with (self.folder / "agent.log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "wattflow.cli", *words], env=environment, stderr=log)

    def ready(self) -> bool:
        """Return whether the node is on: a plan is made when a workflow arrives, with the nodes that are there."""
        rows = json.loads(self.cli("server", "nodes", "-o", "json"))["rows"]
        return any(row["state"] == "on" for row in rows)

    def server_pid(self) -> int:
        """Find the server."""
        return int(json.loads((self.folder / "home" / "server.json").read_text())["pid"])

    def kill(self, who: str, task: Path) -> None:
        """Kill one of the three."""
        if who == "agent":
            self.agent.kill()
            self.agent.wait()
        else:
            os.kill(self.server_pid() if who == "server" else int(task.read_text()), signal.SIGKILL)

    def mend(self, who: str) -> None:
        """Start again what was killed."""
        if who == "agent":
            self.agent = self.join()
        elif who == "server":
            self.serve(int(self.url.rsplit(":", 1)[1]))

    def close(self) -> None:
        """End both."""
        self.agent.terminate()
        self.agent.wait()
        self.cli("down")


def wait(true: Callable[[], bool]) -> float:
    """Wait until something is so; seconds, at most PATIENCE_S."""
    began_s = time.monotonic()
    while not true() and time.monotonic() - began_s < PATIENCE_S:
        time.sleep(0.005)
    return time.monotonic() - began_s


def waiting(pid: str, stop: str) -> None:
    """Note the process and go on until told to end."""
    import os
    import pathlib
    import time

    pathlib.Path(pid).write_text(str(os.getpid()))
    while not pathlib.Path(stop).exists():
        time.sleep(0.02)


def slowed(rig: Rig, number: int) -> tuple[Any, Path, Path]:
    """Have a task run at a lower clock; its client, the file with its process, and the one that ends it."""
    from wattflow import task

    wait(rig.ready)
    pid, stop = rig.folder / f"pid-{number}", rig.folder / f"stop-{number}"
    client: Any = Client(deadline="1h", name=f"kill-{number}")
    client.submit(task(estimate="60s")(waiting), str(pid), str(stop))
    wait(lambda: pid.exists() and bool(pid.read_text()) and ceiling_khz(rig.tree) < FULL_KHZ)
    return client, pid, stop


def as_before(rig: Rig) -> bool:
    """Return whether every clock is as before and nothing is noted."""
    return ceiling_khz(rig.tree) == ceiling_khz(rig.tree, 1) == FULL_KHZ and not list(
        (rig.folder / "notes").glob("*.json")
    )


def main() -> None:
    """Kill and look."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    took_s: dict[str, list[float]] = {who: [] for who in WHO}
    with tempfile.TemporaryDirectory(prefix="wattflow-levels-") as folder:
        rig = Rig(Path(folder))
        try:
            for number in range(kills):
                who = WHO[number % len(WHO)]
                client, pid, stop = slowed(rig, number)
                held = ceiling_khz(rig.tree) < FULL_KHZ
                rig.kill(who, pid)
                took_s[who].append(wait(lambda: as_before(rig)) if held else PATIENCE_S)
                print(f"{number}: {who} killed, as before after {took_s[who][-1]:.2f} s", flush=True)
                stop.touch()
                rig.mend(who)
                client.shutdown(wait=False)  # with its server there again: it brings what it still has to say
                wait(lambda: as_before(rig))
        finally:
            rig.close()
    for who, seconds in took_s.items():
        if seconds:
            figure(f"levels.kills.{who}_slowest", max(seconds), "s", f"≤ {GOAL_S:g}", max(seconds) <= GOAL_S)
    good = sum(one <= GOAL_S for seconds in took_s.values() for one in seconds)
    figure("levels.kills.as_before", good, f"of {kills}", f"{kills} of {kills}", good == kills)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # clients whose server is gone for good wait for it at an ordinary exit
