"""A real server that plays a cluster, for tests of what the page calls: started, killed and started again."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kuberig.processes import free_row

from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home

CLUSTER = """
name = "played"
[[nodes]]
name = "quick"
cores = 4
memory = "8GiB"
speed = 2.0
power = { busy = [0, 4], watts = [50, 130] }
[[nodes]]
name = "slow"
cores = 4
memory = "8GiB"
power = { busy = [0, 4], watts = [20, 60] }
"""


class Server:
    """A server in a process of its own."""

    def __init__(self, folder: Path, policy: str = "least-energy") -> None:
        self.home, self._policy = Home(folder / "home"), policy
        self.home.make()
        (folder / "cluster.toml").write_text(CLUSTER)
        self._cluster = folder / "cluster.toml"
        self.port = free_row(1)
        self.start()

    def start(self) -> None:
        """Start it, on the same port each time, and wait until it answers."""
        played = ["--driver", "simulated", "--driver-option", f"cluster={self._cluster}"]
        command = [sys.executable, "-m", "wattflow.server", "--home", str(self.home.folder), "--policy", self._policy,
                   "--port", str(self.port), *played]  # fmt: skip
        with (self.home.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end_s = time.monotonic() + 300
        while self.home.server() is None:
            said = (self.home.folder / "server.log").read_text()
            assert self.process.poll() is None and time.monotonic() < end_s, said
            time.sleep(0.05)

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> None:
        """In peace."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def connection(self, role: str = "user", token: str = "") -> Connection:
        """Calls as a role, or with a token."""
        return Connection(f"http://127.0.0.1:{self.port}", token or self.home.token(role))

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """A call as a browser makes it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        read = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return read

    def submit(self, workflow: str, tasks: list[dict[str, Any]], token: str = "", seal: bool = True) -> None:
        """Send tasks; each has a key, an estimate and perhaps parents."""
        made = [
            {"key": task["key"], "name": task["key"], "function_name": task.get("function", "work"),
             "command": ["true"], "estimate_s": task.get("estimate_s", 0.2), "parents": task.get("parents", []),
             "variants": [{"cpus": task.get("cpus", 1.0)}]}
            for task in tasks
        ]  # fmt: skip
        self.connection(token=token).call(
            "POST", "/v1/submissions", {"workflow": workflow, "name": workflow, "tasks": made, "seal": seal}
        )

    def until_over(self, workflow: str, token: str = "", for_s: float = 120.0) -> dict[str, Any]:
        """The workflow, once it is over."""
        connection, end_s = self.connection(token=token), time.monotonic() + for_s
        while True:
            about: dict[str, Any] = connection.patiently("GET", f"/v1/workflows/{workflow}")
            if about["state"] != "open":
                return about
            assert time.monotonic() < end_s, about
            time.sleep(0.1)

    def until_billed(self, workflow: str, for_s: float = 120.0) -> None:
        """Wait until every attempt of a workflow that is over has its joules."""
        connection, end_s = self.connection(), time.monotonic() + for_s
        while any(row["energy_j"] is None for row in connection.call("GET", f"/v1/workflows/{workflow}/attempts")):
            assert time.monotonic() < end_s, workflow
            time.sleep(0.1)


class Watcher(threading.Thread):
    """Reads events as an EventSource does: reconnects by itself, with the last id it saw."""

    def __init__(self, server: Server, token: str) -> None:
        super().__init__(daemon=True)
        self._server, self._token = server, token
        self.last_id = ""
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self._read()
            except (OSError, http.client.HTTPException):
                time.sleep(0.2)

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=30)
        headers = {"authorization": f"Bearer {self._token}"} | ({"last-event-id": self.last_id} if self.last_id else {})
        connection.request("GET", "/v1/events", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        name = data = ""
        identity = self.last_id
        while not self.over.is_set() and (line := answer.readline().decode().rstrip("\n")) is not None:
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id:"):
                identity = line[3:].strip()
            elif line.startswith("data: "):
                data = line[6:]
            elif line == "" and data:
                self.events.append((name, json.loads(data)))
                self.last_id, name, data = identity, "", ""
            elif line == "" and answer.isclosed():
                break
        connection.close()

    def changes(self, kind: str) -> list[dict[str, Any]]:
        """All entries of one list so far."""
        return [entry for name, body in list(self.events) if name == "batch" for entry in body.get(kind, [])]

    def until(self, condition: Any, for_s: float = 60.0) -> None:
        """Wait until it holds."""
        end_s = time.monotonic() + for_s
        while not condition():
            assert time.monotonic() < end_s, self.events[-5:]
            time.sleep(0.05)


def new_token(server: Server, name: str) -> str:
    """A token of a user's own."""
    made = server.connection("operator").call("POST", "/v1/tokens", {"name": name, "role": "user"})
    return str(made["token"])
