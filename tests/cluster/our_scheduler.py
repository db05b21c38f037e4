"""Our scheduler as a process beside a rig, as a user would start it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from urllib.error import URLError
from urllib.request import urlopen

from kuberig.processes import free_row
from kuberig.rig import Rig

SOURCES = Path(__file__).resolve().parents[2] / "src"


class OurScheduler:
    """`wattflow kube scheduler` with a configuration of its own; a context manager.

    Attributes:
        policy: What it decides by.
        url: Where it serves metrics and health.
    """

    def __init__(
        self, rig: Rig, policy: str = "least-energy", text: str = "", name: str = "wattflow", more: Sequence[str] = ()
    ) -> None:
        self.rig, self.policy, self.name, self.more = rig, policy, name, more
        # a frame's other processes listen at the ports after it
        port = free_row(8)
        self.url = f"http://127.0.0.1:{port}"
        self.folder = tempfile.TemporaryDirectory(prefix="wf-scheduler-")
        self.config = Path(self.folder.name) / "scheduler.toml"
        self.log = Path(self.folder.name) / "log"
        base = f'name = "{name}"\npolicy = "{policy}"\n'
        sections = "[http]\nport = PORT\n[energy]\nprofiles = false\n[workflows]\nargo = false\n"
        # who is not asked about leases must not lose one where the machine is busy: it would end
        sections += "[lease]\nlease_s = 60\nrenew_s = 40\n"
        self.config.write_text(base + (text or sections).replace("PORT", str(port)))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OurScheduler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._tell()
        self.stop()
        if kind is not None:
            print(self.log.read_text()[-4000:])
        self.folder.cleanup()

    def _tell(self) -> None:
        """After a failure: how each of its pods stands."""
        for pod in self.rig.api.items("/api/v1/pods"):
            if pod["spec"].get("schedulerName") == self.name:
                said = {one["type"]: one.get("message", one["status"]) for one in pod["status"].get("conditions", [])}
                went = pod["metadata"].get("deletionTimestamp", "")
                print(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"].get("phase"), went, said)

    def start(self, timeout_s: float = 240.0) -> None:
        """Start it and wait until it is ready."""
        environment = os.environ | {"PYTHONPATH": str(SOURCES)}
        words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "-v"]
        words += ["--config", str(self.config), "--kubeconfig", str(self.rig.scheduler_kubeconfig), *self.more]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        ends = time.monotonic() + timeout_s
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the scheduler did not become ready: {self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            return bool(urlopen(f"{self.url}/readyz", timeout=2).status == 200)
        except (URLError, OSError):
            return False

    def metrics(self) -> str:
        """Its metrics page."""
        return str(urlopen(f"{self.url}/metrics", timeout=5).read().decode())

    def stop(self, hard: bool = False) -> None:
        """End it; ``hard`` leaves it no time to give its lease back."""
        if self.process is None:
            return
        if hard:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(20)
        self.process = None
