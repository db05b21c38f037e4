"""Compiling, seen by a person: told when it takes long, and for a small first simulation not waited for at all.

Compiling the simulator takes half a minute of one core, a small simulation without it a second; both give the same
figures (``NUMBA_DISABLE_JIT=1``, kept by the golden tests), so that one runs as plain Python while a process aside
compiles. ``WATTFLOW_FIRST_RUN=compile`` compiles first instead.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from wattflow.cli.screen import remark

MOST_TASKS, MOST_BYTES = 200, 128 * 1024
"""Of a generated workload and of a trace: about ten seconds without compiled code, on a slow machine."""
QUICK = ("fifo", "kubernetes", "least-energy", "wattflow", "eft", "hpe", "sjf")
"""Policies that cost about a millisecond a task without compiled code; searches cost much more."""
SERVED = "least-energy"
"""The policy of a server that was told none: its first start should find it compiled."""
LONGEST_S = 600.0
NOTICE_S = 1.0
"""Compiling that takes longer is told; small functions are not worth a word."""
TOLD = "compiling for this machine, once for this kind of run: up to a minute; it starts at once then"
_COMPILERS = ("wattflow.kernel.jit", "wattflow.predict.compiled")
"""Modules without which nothing is compiled; both load numba."""
_MARK = "compiling.pid"
of_own_process = False
"""Set by the console script alone: who calls a command from Python has a process with numba as it is."""


def tell_of_compiling() -> None:
    """Have the person told once when compiling takes a while, whichever function of whichever command it is."""
    sys.meta_path.insert(0, _BeforeCompilers())


class _BeforeCompilers(importlib.abc.MetaPathFinder):
    """Notices that numba is about to be used: loading it only to listen would slow every command down."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find nothing, and begin to listen before the first module that compiles is loaded."""
        if fullname in _COMPILERS and self in sys.meta_path:
            sys.meta_path.remove(self)
            from wattflow.runtime.compile_notice import on_compiling

            on_compiling(lambda: remark(TOLD), NOTICE_S)


def prepare(workflow: str, policy: str, quiet: bool) -> None:
    """Settle whether this process compiles; called before anything imports the kernel."""
    # Whoever has loaded the kernel already has compiled functions; changing numba's mode would not
    # reach them.
    if not of_own_process or "wattflow.kernel.jit" in sys.modules or os.environ.get("WATTFLOW_FIRST_RUN") == "compile":
        return
    from wattflow.kernel import cache  # without numba's compiler

    base = cache.base()
    place = cache.name("kernel", "engine", "sim")
    # Compiled here, or carried by the package.
    if base is None or any(_holds_code(folder / place) for folder in (base, cache.CARRIED)):
        return
    if not (is_small(workflow) and policy.split(":")[0] in QUICK):
        # Too large for plain Python: rather wait for the other process than compile beside it.
        _wait_for(base / _MARK, quiet)
        return
    import numba

    # The environment for children, the setting for this process: numba has read it already.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    settings: Any = numba.config
    settings.reload_config()
    if not _is_alive(base / _MARK):
        _compile_aside(base, policy)
    remark("this run is plain Python: the simulator is compiled aside for the next ones, once, about a minute", quiet)


def is_small(workflow: str) -> bool:
    """Tell by what was typed whether a workload has few tasks; a folder counts as large."""
    try:
        status = Path(workflow).stat()
    except (OSError, ValueError):  # no file: a recipe, or something that is refused later
        status = None
    if status is not None:
        # Size on disk says little about packed files.
        return stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES and not workflow.endswith(".gz")
    told = re.search(r"[:,]tasks=(\d+)", workflow)
    return told is not None and int(told[1]) <= MOST_TASKS


def _holds_code(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _compile_aside(base: Path, policy: str) -> None:
    """Start a process that compiles simulator, live engine and this policy, and outlives this one."""
    base.mkdir(parents=True, exist_ok=True)
    policies = list(dict.fromkeys([policy.split(":")[0], SERVED]))
    # The child must compile.
    variables = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"}
    with contextlib.suppress(OSError):  # without it the next run compiles, as it always did
        process = subprocess.Popen(
            # Nice: the run that the user waits for goes first.
            ["nice", "-n", "5", sys.executable, "-P", "-m", "wattflow.live.warm", *policies],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
        )
        (base / _MARK).write_text(f"{process.pid}\n")


def _is_alive(mark: Path) -> bool:
    """Tell whether the process of a mark still compiles."""
    try:
        pid = int(mark.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
    # The number may be another process's by now.
    return b"wattflow.live.warm" in command


def _wait_for(mark: Path, quiet: bool) -> None:
    """Let the process that compiles end: two that compile the same take twice as long."""
    if _is_alive(mark):
        remark("waiting for the simulator to be compiled, once", quiet)
    end_s = time.monotonic() + LONGEST_S
    while _is_alive(mark) and time.monotonic() < end_s:
        time.sleep(0.2)
