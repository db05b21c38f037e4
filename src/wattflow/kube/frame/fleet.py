"""All processes of a frame on one machine: one for each placer, one for the broker; they end together."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from wattflow.frames.frame import Frame
from wattflow.kube.settings import SchedulerSettings
from wattflow.model.errors import WattflowError

_LOOK_S, _PATIENCE_S = 0.5, 15.0


def placer_settings(chosen: SchedulerSettings, index: int) -> SchedulerSettings:
    """Return what placer number ``index`` runs with: a lease of its own."""
    return dataclasses.replace(chosen, lease_name=f"{chosen.lease}-placer-{index}")


def broker_settings(chosen: SchedulerSettings) -> SchedulerSettings:
    """Return what the broker runs with."""
    return dataclasses.replace(chosen, lease_name=f"{chosen.lease}-broker")


def roles(frame: Frame, port: int) -> list[list[str]]:
    """Return the options that make a process one part of the frame; ports are counted on from the first one's."""
    # 0 asks for any free port, which must not become 1, 2, …
    ports = [port + index if port else 0 for index in range(frame.placers.count)]
    found = [["--placer", str(index), "--port", str(port)] for index, port in enumerate(ports)]
    return found + ([["--broker"]] if frame.broker is not None else [])


@dataclass(slots=True)
class _Told(Exception):
    number: int


def run(frame: Frame, words: Sequence[str], port: int) -> None:
    """Start `wattflow WORDS ROLE` for each role; when one ends, or we are told to, all end."""

    def told(number: int, at: FrameType | None) -> None:
        raise _Told(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    started: list[tuple[str, subprocess.Popen[bytes]]] = []
    try:
        for role in roles(frame, port):
            # The interpreter that runs us, whatever is on the PATH.
            command = [sys.executable, "-P", "-m", "wattflow.cli", *words, *role]
            started.append((" ".join(role), subprocess.Popen(command)))
        while all(process.poll() is None for _, process in started):
            time.sleep(_LOOK_S)
        name, process = next(one for one in started if one[1].poll() is not None)
        raise WattflowError(f"{name} ended with code {process.returncode}; its frame ends with it")
    except _Told:
        return
    finally:
        _end([process for _, process in started])


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    # After all were told: they stop at the same time, and each has its patience to itself.
    for process in processes:
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
