"""Processes that outlive the command that started them, known by number *and* start: a number alone may be another's.

A *mark* is a JSON file with both and whatever else its writer notes. Nothing is ever signalled whose mark does not fit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattflow.files.whole import write_text

LOOK_S = 0.02


def started(pid: int) -> str | None:
    """When a process began, in the kernel's words; None where there is none, or only its body is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    # With the machine's boot: process numbers and start ticks begin anew with it, and could fit by chance.
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def mark(path: Path, pid: int, **about: object) -> None:
    """Note a process in a file."""
    write_text(path, json.dumps({"pid": pid, "started": started(pid), **about}))


def marked(path: Path, command: str = "wattflow.") -> dict[str, Any] | None:
    """The process of a mark, if it is alive and still that one. ``command`` tells one of version 0.1.0, which noted no
    start: it is part of its command line."""
    try:
        about = json.loads(path.read_text())
        about = {"pid": about} if isinstance(about, int) else about
        return about if is_alive(about, command) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_alive(about: Mapping[str, Any], command: str = "wattflow.") -> bool:
    """Return whether a marked process is alive and still that one, whatever became of its mark."""
    pid = int(about["pid"])
    if "started" in about:
        return about["started"] is not None and started(pid) == about["started"]
    # Of version 0.1.0, which noted no start: its command has to tell.
    return started(pid) is not None and command.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def end(path: Path, patience_s: float, *, forget: bool = True, command: str = "wattflow.") -> bool:
    """End the process of a mark: asked first, by force after a while. Returns whether there was one; the mark goes,
    unless it is more than that."""
    about = marked(path, command)
    if about is not None:
        # Looked up by `marked` just before: whoever got the number since has another start, and is never signalled.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(about["pid"]), number)
            if wait(about, patience_s):
                break
    if forget:
        path.unlink(missing_ok=True)
    return about is not None


def wait(about: Mapping[str, Any], patience_s: float) -> bool:
    """Wait for the end of a marked process; False where it takes longer."""
    end_s = time.monotonic() + patience_s
    while is_alive(about):
        if time.monotonic() > end_s:
            return False
        time.sleep(LOOK_S)
    return True
