"""Limits of a task's processes: control groups (version 2 or 1) where they can be written, else the process's own.

Every task has a group, also one without limits: what it starts and leaves behind ends with it, however it hides. Such a
group is in one hierarchy only and costs a fifth of a millisecond. Groups are kept and used again: making one costs more
than changing its numbers. An agent that finds groups of its own name ends what is in them: an earlier life of it was
killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 100_000
_V1 = ("memory", "cpu", "cpuacct")
_HOLD = "hold"
_V1_HOLD = ("freezer", "pids", "cpuacct")
"""Hierarchies of version 1 that may hold tasks without limits: the first one that is there."""
END_S = 0.5
"""Longest wait for the end of what was killed: the agent's loop waits with it."""


@dataclass(slots=True)
class ControlGroup:
    """One control group: its folders by controller (one folder for all in version 2)."""

    folders: dict[str, Path]
    unified: bool
    killed_before: int = 0

    @property
    def joins(self) -> list[str]:
        """Files to write a process id into."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self.folders.values())]

    @property
    def limits(self) -> bool:
        """Return whether it limits what is in it."""
        return _HOLD not in self.folders

    def limit(self, cpus: float | None, memory_bytes: int) -> None:
        """Set what it may use; None and 0 mean no limit."""
        quota = int(cpus * PERIOD_US) if cpus else 0
        if self.unified:
            _write(self.folders["cpu"] / "cpu.max", f"{quota} {PERIOD_US}" if quota else "max")
            _write(self.folders["memory"] / "memory.max", str(memory_bytes) if memory_bytes else "max")
        else:
            _write(self.folders["cpu"] / "cpu.cfs_quota_us", str(max(1000, quota)) if quota else "-1")
            _write(self.folders["memory"] / "memory.limit_in_bytes", str(memory_bytes or -1))
        self.killed_before = self._killed()

    def out_of_memory(self) -> bool:
        """Say whether the kernel ended a process of it for its memory since `limit`."""
        return self.limits and self._killed() > self.killed_before

    def end(self) -> bool:
        """Kill whatever is left in it; False where that does not end."""
        return end_all(next(iter(self.folders.values())))

    def _killed(self) -> int:
        file = self.folders["memory"] / ("memory.events" if self.unified else "memory.oom_control")
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


def end_all(folder: Path) -> bool:
    """Kill all processes of a control group, and those that they start meanwhile; False where they do not end."""
    end_s = time.monotonic() + END_S
    while pids := _pids(folder):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end_s:
            return False
        time.sleep(0.001)
    return True


def _pids(folder: Path) -> list[int]:
    try:  # 0 stands for a process that is not seen from here; as a number to signal it would be this one's own group
        return [pid for line in (folder / "cgroup.procs").read_text().split() if (pid := int(line)) > 0]
    except OSError:
        return []


class ControlGroups:
    """A pool of control groups below one name."""

    def __init__(self, roots: dict[str, Path], unified: bool) -> None:
        self._roots, self._unified = roots, unified
        self._free: dict[bool, list[ControlGroup]] = {True: [], False: []}
        self._made: list[ControlGroup] = []

    @classmethod
    def find(cls, name: str, root: Path = Path("/sys/fs/cgroup")) -> ControlGroups | None:
        """Groups where this user may make them; None where not. What an earlier life left in them is ended."""
        label = f"wattflow-{name}"
        for top in (root / label, *(one / label for one in root.glob("*") if (one / label).is_dir())):
            # Of an agent that was killed: its tasks' processes run on beside the new attempts otherwise.
            _clear(top)
        try:
            # Version 2 where its memory controller is there; on hybrid hosts the files exist and control nothing.
            if "memory" in (root / "cgroup.controllers").read_text().split():
                top = root / label
                top.mkdir(exist_ok=True)
                (top / "cgroup.subtree_control").write_text("+cpu +memory")
                return cls(dict.fromkeys((*_V1, _HOLD), top), True)
        except OSError:
            pass  # not version 2, or not ours to write: version 1 is tried
        try:
            # Any one hierarchy holds processes as well as all; joining each of them costs a migration.
            hold = next(one for one in _V1_HOLD if one == _V1_HOLD[-1] or (root / one).is_dir())
            roots = {controller: root / controller / label for controller in _V1} | {_HOLD: root / hold / label}
            for folder in roots.values():
                if not folder.parent.is_dir():
                    return None
                folder.mkdir(exist_ok=True)
            return cls(roots, False)
        except OSError:
            return None

    def take(self, cpus: float | None, memory_bytes: int) -> ControlGroup:
        """A group with these limits."""
        group = self._free[True].pop() if self._free[True] else self._make(_V1)
        group.limit(cpus, memory_bytes)
        return group

    def hold(self) -> ControlGroup:
        """A group without limits."""
        return self._free[False].pop() if self._free[False] else self._make((_HOLD,))

    def give_back(self, group: ControlGroup) -> None:
        """The group's task has ended; so does what it left behind."""
        # A group with something unkillable in it (a process in the kernel's hands) is never given to another task.
        if group.end():
            self._free[group.limits].append(group)

    def close(self) -> None:
        """Remove all groups."""
        for group in self._made:
            group.end()
        for folder in [*(f for g in self._made for f in g.folders.values()), *self._roots.values()]:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _make(self, controllers: Sequence[str]) -> ControlGroup:
        number = len(self._made)
        folders = {controller: self._roots[controller] / f"slot-{number}" for controller in controllers}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        group = ControlGroup(folders, self._unified)
        self._made.append(group)
        return group


def _clear(top: Path) -> None:
    """End what is in the groups of a folder, and remove them."""
    with contextlib.suppress(OSError):
        for folder in (*(one for one in top.iterdir() if one.is_dir()), top):
            end_all(folder)
            folder.rmdir()


def _write(path: Path, text: str) -> None:
    """A limit that the kernel refuses (below what is in use, not offered) is left as it was."""
    with contextlib.suppress(OSError):
        path.write_text(text)


class CpuBinding:
    """Processors that tasks are bound to where no group limits them: each gets as many as it asked for, the least
    used ones. It costs microseconds and holds, but it is coarse: half a processor is a whole one."""

    def __init__(self, processors: Sequence[int]) -> None:
        self._used = dict.fromkeys(processors, 0)

    def take(self, cpus: float) -> tuple[int, ...]:
        """Processors for a task; none where it may use all."""
        count = math.ceil(cpus)
        if not 0 < count < len(self._used):
            return ()
        # Ties go to the lower number, so that equal loads are bound alike in every run.
        chosen = sorted(self._used, key=lambda processor: (self._used[processor], processor))[:count]
        for processor in chosen:
            self._used[processor] += 1
        return tuple(chosen)

    def give_back(self, chosen: Sequence[int]) -> None:
        """The task is over."""
        for processor in chosen:
            self._used[processor] -= 1


def process_limits(memory_bytes: int, group: ControlGroup | None, pinned: Sequence[int]) -> dict[str, object]:
    """Tell a new process what to keep to: its group, or what it can limit by itself."""
    if group is not None:
        return {"groups": group.joins}
    limits: dict[str, object] = {"cpus": list(pinned)} if pinned else {}
    return limits | ({"memory_bytes": memory_bytes} if memory_bytes else {})


TIMES = 2.0
"""Attempts begin at once while they ask together for no more than so many times the processors: one starts while
another ends, and policies that promise less than was asked for place more than fit."""
LONGEST_S = 0.05
"""Whoever was held back for so long begins anyhow: those before it are not short after all."""


class ProcessorDemand:
    """Processors asked for by the attempts that run."""

    def __init__(self, processors: float) -> None:
        self._room = TIMES * processors
        self._taken = 0.0
        self._queue: deque[tuple[float, asyncio.Future[None]]] = deque()

    async def take(self, cpus: float) -> None:
        """Wait for a turn, not for long."""
        # Behind those who wait already, whatever would fit: a small one must not overtake for ever.
        if self._queue or (self._taken and self._taken + cpus > self._room):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append((cpus, turn))
            timer = asyncio.get_running_loop().call_later(LONGEST_S, _begin, turn)
            try:
                await turn
            except asyncio.CancelledError:
                turn.cancel()
                raise
            finally:
                timer.cancel()
        self._taken += cpus

    def give_back(self, cpus: float) -> None:
        """An attempt is over; those whose turn it is now begin."""
        self._taken = max(0.0, self._taken - cpus)
        coming = self._taken
        while self._queue:
            asked, turn = self._queue[0]
            if not turn.done() and coming and coming + asked > self._room:
                return
            self._queue.popleft()
            # One that was let go by its timer has counted itself already, in `take`.
            coming += 0.0 if turn.done() else asked
            _begin(turn)


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
