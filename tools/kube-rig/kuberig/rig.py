"""The whole rig: started, used, stopped; also found again by another command."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kuberig import accounts, argo, control, kwok, node
from kuberig.accounts import Accounts
from kuberig.api import JSON, Api
from kuberig.processes import NotReady, Process, Processes, until_ready

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class Rig:
    """A cluster on this machine. `Rig.start()` gives a control plane; the rest is added to it.

    Attributes:
        folder: Temporary folder with everything; `kubeconfig` in it is the administrator's.
        api: The administrator's access.
        start_s: Seconds from the first process to a control plane that is ready.
    """

    def __init__(self, folder: Path, processes: Processes, users: Accounts, start_s: float) -> None:
        self.folder = folder
        self.processes = processes
        self.users = users
        self.start_s = start_s
        self.api = Api.of_kubeconfig(folder / "kubeconfig")
        self.scheduler_port = 0
        self._reminder: kwok.Reminder | None = None

    @classmethod
    def start(cls, options: control.Options = control.Options(), die_with_parent: bool = False) -> Rig:  # noqa: B008
        """Starts a control plane in a new temporary folder.

        Args:
            options: What is in it.
            die_with_parent: Whether all ends with the calling thread, however that ends (tests).
        """
        folder = Path(tempfile.mkdtemp(prefix="wfrig-"))
        processes = Processes(folder, die_with_parent)
        users = Accounts(folder)
        began = time.monotonic()
        try:
            port = control.start(folder, processes, users, options).scheduler_port
            rig = cls(folder, processes, users, time.monotonic() - began)
        except BaseException:
            _end(folder, processes)
            raise
        rig.scheduler_port = port
        stored = json.dumps({"start_s": rig.start_s, "tokens": users.tokens})
        accounts.write_private(folder / "rig.json", stored)
        return rig

    @classmethod
    def attach(cls, folder: Path) -> Rig:
        """The rig that lives in a folder, started by another command."""
        stored = json.loads((folder / "rig.json").read_text())
        return cls(folder, Processes(folder, False), Accounts(folder, stored["tokens"]), stored["start_s"])

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.folder / "kubeconfig"

    @property
    def scheduler_kubeconfig(self) -> Path:
        """The kubeconfig file of an account that has a second scheduler's rights and no others."""
        return self.users.config("scheduler")

    def start_scheduler(self, qps: float | None = None, extenders: Sequence[JSON] = ()) -> Process:
        """Starts kube-scheduler (as shipped, or with its client limit at `qps`; with programs that it asks)."""
        process, port = control.start_scheduler(self.folder, self.processes, self.users, qps, extenders)
        until_ready(process, lambda: control.answers(port), 60)
        self.scheduler_port = port
        return process

    def stop_scheduler(self) -> None:
        """Ends kube-scheduler."""
        self.stop_program("kube-scheduler")

    def stop_program(self, name: str) -> None:
        """Ends one program of the rig by its name (see `processes.running`)."""
        process = self.processes.find(name)
        if process:
            self.processes.stop(process)

    def add_kwok_nodes(
        self, count: int, shapes: Sequence[kwok.Shape] = (kwok.Shape(),), first: int = 0, timeout_s: float = 180
    ) -> list[str]:
        """Adds simulated nodes and waits until all are ready."""
        if not self.processes.find("kwok"):
            process = kwok.start(self.folder, self.processes, self.users)
            self._forget_reminder()
            self._reminder = kwok.Reminder(self.api, process)
        before = len(self.api.items(f"/api/v1/nodes?labelSelector={kwok.LABEL}%3D{kwok.VALUE}"))
        names = kwok.add_nodes(self.api, count, shapes, first)
        try:
            kwok.await_ready(self.api, before + count, timeout_s)
        except TimeoutError as error:
            process = self.processes.find("kwok")
            raise NotReady(f"{error}; kwok: {process.tail() if process else 'has ended'}") from error
        return names

    def remove_kwok_nodes(self) -> None:
        """Deletes all simulated nodes."""
        self.api.request("DELETE", f"/api/v1/nodes?labelSelector={kwok.LABEL}%3D{kwok.VALUE}")

    def start_real_node(self, name: str = accounts.REAL_NODES[0], with_argo: bool = True) -> node.RealNode:
        """Starts a node that really executes pods (`real-0` or `real-1`)."""
        if name not in accounts.REAL_NODES:
            raise ValueError(f"no real node {name!r}: there are {', '.join(accounts.REAL_NODES)}")
        return node.start(self.folder, self.processes, self.users, self.api, name, with_argo)

    def real_nodes(self) -> list[node.RealNode]:
        """The real nodes that were started."""
        return [node.RealNode(n, self.folder / n) for n in accounts.REAL_NODES if (self.folder / n).is_dir()]

    def start_argo(self, requeue_s: float | None = None) -> Process:
        """Starts Argo's workflow-controller (`requeue_s`: see `argo.start`)."""
        return argo.start(self.processes, self.users, self.api, requeue_s)

    def _forget_reminder(self) -> None:
        if self._reminder:
            self._reminder.stop()
        self._reminder = None

    def stop(self) -> None:
        """Ends every process of the rig and removes its folder."""
        self._forget_reminder()
        self.api.close()
        _end(self.folder, self.processes)


def _end(folder: Path, processes: Processes) -> None:
    for name in accounts.REAL_NODES:
        if (folder / name).is_dir():
            node.stop(node.RealNode(name, folder / name), processes)
    # Clients before servers: nobody is left to wait for an answer. etcd may go hard, its data goes with it.
    for process in reversed(list(processes.running)):
        processes.stop(process, patience_s=0.5 if process.name == "etcd" else 5.0)
    shutil.rmtree(folder, ignore_errors=True)
