"""Many requests at once, sent by a small Go program: Python would take the CPU that it measures."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from kuberig.accounts import write_private
from kuberig.api import JSON
from kuberig.parts import program
from kuberig.rig import Rig


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a batch. Times are seconds since 1970, in the order of the requests."""

    seconds: float
    ok: int
    failed: int
    failure: str
    sent: tuple[float, ...]
    answered: tuple[float, ...]


def send(rig: Rig, requests: Iterable[JSON], rate: float = 0.0, connections: int = 32) -> Report:
    """Sends `{"method", "path", "body"}` requests as the administrator, all at once or at `rate` a second."""
    token = write_private(rig.folder / "load.token", rig.users.tokens["admin"])
    command = [
        str(program("load")),
        f"--server={rig.api.server}",
        f"--ca={rig.folder / 'certs' / 'apiserver.crt'}",
        f"--token-file={token}",
        f"--connections={connections}",
        f"--rate={rate}",
        "--times",
    ]
    lines = "\n".join(json.dumps(request) for request in requests)
    done = json.loads(subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout)
    ok = sum(count for status, count in done["status"].items() if status in ("200", "201"))
    failed = sum(done["status"].values()) - ok
    sent, answered = tuple(done.get("sent", ())), tuple(done.get("answered", ()))
    return Report(done["seconds"], ok, failed, done.get("failure", ""), sent, answered)


def create(path: str, body: JSON) -> JSON:
    """A request that creates an object."""
    return {"method": "POST", "path": path, "body": body}


def binding(namespace: str, pod: str, node: str) -> JSON:
    """A request that binds a pod to a node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    return create(f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)
