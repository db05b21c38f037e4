"""Nodes of the rig that sleep: the power hook that our scheduler calls, and when each node was asleep.

KWOK's nodes have no switch. The hook writes down what it was told and takes as long as a machine would; while a node is
off KWOK says nothing of it, and a woken one has another boot id and a new heartbeat, as a machine's kubelet would tell.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import kuberig
import operator_kubelets
from kuberig.api import Api
from kuberig.rig import Rig

ASLEEP_W = 10.0
WAKE_S, ENTER_S = 120.0, 30.0
"""Assumed, in seconds of the workflows' own time, as the scheduler's defaults are."""


@dataclass(frozen=True, slots=True)
class Naps:
    """How long the rig's nodes take to wake and to fall asleep, and where that is written."""

    log: Path
    wake_s: float
    enter_s: float

    @classmethod
    def at(cls, log: Path, scale: float) -> Naps:
        """Naps of a run whose runtimes are multiplied by a scale: so are these."""
        log.unlink(missing_ok=True)
        return cls(log, WAKE_S * scale, ENTER_S * scale)

    def lines(self, rig: Rig) -> list[str]:
        """The part of our scheduler's configuration."""
        path = f"PYTHONPATH={Path(kuberig.__file__).parents[1]}"  # the scheduler's own is another
        words = ["env", path, sys.executable, __file__, str(rig.kubeconfig), str(self.log.resolve())]
        hook = shlex.join([*words, f"{self.wake_s:g}", f"{self.enter_s:g}"])
        times = [f"sleep_w = {ASLEEP_W:g}", f"wake_s = {self.wake_s:g}", f"enter_s = {self.enter_s:g}"]
        return ["[sleep]", f"hook = {json.dumps(hook)}", *times, "[shared]", "settle_s = 0.5"]


def asleep(log: Path, submitted_s: float) -> dict[str, list[tuple[float, float]]]:
    """When each node was asleep, in seconds since the submission."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        when_ns, what, node = line.split()
        when_s = int(when_ns) / 1e9 - submitted_s
        spans = found.setdefault(node, [])
        if what == "asleep":
            spans.append((when_s, float("inf")))
        elif spans:
            spans[-1] = (spans[-1][0], when_s)
    return found


def main(kubeconfig: str, log: str, wake_s: str, enter_s: str, what: str, node: str) -> None:
    """The hook itself: one order."""

    def note(state: str) -> None:
        line = f"{time.time_ns()} {state} {node}\n".encode()
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line)
        os.close(file)

    api = Api.of_kubeconfig(Path(kubeconfig)) if kubeconfig else None  # without one it only keeps the log
    if what == "sleep":
        time.sleep(float(enter_s))
        if api is not None:
            operator_kubelets.fall(api, node)
        note("asleep")
        return
    note("waking")
    time.sleep(float(wake_s))
    if api is not None:
        operator_kubelets.rise(api, node)


if __name__ == "__main__":
    main(*sys.argv[1:])
