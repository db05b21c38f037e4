"""Slurm executes, we place: one job per attempt, pinned to the node that the engine chose.

Lease, output and end of an attempt are files in a folder that all nodes see. Slurm is asked by its own commands, a few
times a second for all jobs together; the folder, not Slurm, says how an attempt ended. Joules come from Slurm's own
accounting where a site has it (an energy plugin and a database): it counts the joules of a job's node while the job
ran, whoever else was there. A job is given its CPUs' share of them; the band goes up to all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.aside import Background
from wattflow.runtime.drivers.base import Reporting, Sink
from wattflow.runtime.executors.once import brought_home, errand_of, modelled, write_whole
from wattflow.store.objects import Objects

log = logging.getLogger(__name__)
Run = Callable[..., Awaitable[tuple[int, str]]]
TRIES = 4
PAUSE_S = 1.0
"""The database hears of a job's end a little later than we do."""
COUNTER_ERROR = 0.02


class SlurmEnergy:
    """Asks `sacct`; a site without accounting is asked once.

    Args:
        run: Runs a command and returns its status and output.
    """

    def __init__(self, run: Run, pause_s: float = PAUSE_S) -> None:
        self._run, self._pause_s = run, pause_s
        self.there: bool | None = None

    async def of_job(self, job: str, fence: int, share: float) -> m.TaskEnergy | None:
        """Joules of a job that is over and had this share of its node's CPUs; None where Slurm does not know."""
        for _ in range(TRIES):
            if self.there is False:
                return None
            counted_j = await self._consumed_j(job)
            if counted_j is not None:
                own_j = counted_j * min(1.0, share)
                low_j, high_j = own_j * (1 - COUNTER_ERROR), counted_j * (1 + COUNTER_ERROR)
                return m.TaskEnergy(fence, m.Energy(own_j, low_j, high_j, "attributed", own_j))
            await asyncio.sleep(self._pause_s)
        return None

    async def _consumed_j(self, job: str) -> float | None:
        """Of the job's row and those of its steps the largest: Slurm 22.05 leaves the job's own empty where it has a
        batch step only, and steps that ran at the same time count the same node."""
        try:
            code, out = await self._run("sacct", "-n", "-P", "-j", job, "-o", "State,ConsumedEnergyRaw")
        except OSError:
            code, out = 127, "there is no sacct"
        if code != 0:
            log.info("no energy from Slurm's accounting: %s", out.strip()[:200])
            self.there = False
            return None
        rows = [row.partition("|")[::2] for row in out.split("\n") if row]
        joules = [float(told) for _, told in rows if told.strip().isdecimal()]
        if not joules or any(state.startswith(("RUNNING", "PENDING")) for state, _ in rows):
            return None
        self.there = True
        return max(joules) or None


POLL_S = 0.5
NODES_S = 2.0
MISSING_S = 5.0
WATTS_PER_CPU = 10.0
_DOWN = ("down", "drain", "fail", "unknown", "not_responding", "power_down", "powered_down", "reboot")
_ENDED: dict[str, tuple[m.Ending, str]] = {
    "TIMEOUT": ("time_limit", "Slurm ended it at its time limit"),
    "OUT_OF_MEMORY": ("failed", "used more memory than it asked for (Slurm)"),
    "NODE_FAIL": ("node_lost", "its node failed (Slurm)"),
    "PREEMPTED": ("node_lost", "preempted by Slurm"),
    "CANCELLED": ("cancelled", "cancelled"),
}


@dataclass(frozen=True, slots=True)
class Stated:
    """Facts of nodes, or of GPUs, that `sinfo` does not tell and an operator states.

    Attributes:
        clocks: In MHz, falling, the first of them full; empty: jobs ask for none.
        watts: Idle and full; empty: unknown.
    """

    clocks: Sequence[float] = ()
    watts: Sequence[float] = ()


class SlurmDriver(Reporting):
    """Nodes are those of a partition.

    Args:
        folder: Seen by all nodes under the same path.
        partition: Slurm's default one where None.
        nodes: What is stated of each node's processors.
        gpus: What is stated of each GPU; without it none is announced.
    """

    name = "slurm"
    queues = False

    def __init__(
        self,
        objects: Objects,
        folder: Path,
        partition: str | None = None,
        nodes: Stated | None = None,
        gpus: Stated | None = None,
    ) -> None:
        self._objects, self._folder, self._partition = objects, folder.absolute(), partition
        self._stated, self._gpus = nodes or Stated(), gpus
        self._refused: set[str] = set()
        self._jobs: dict[int, str] = {}
        self._missing: dict[int, float] = {}
        self._logged: dict[int, int] = {}
        self._started: set[int] = set()
        self._nodes: dict[str, bool] = {}
        self._cpus: dict[str, float] = {}
        self._shares: dict[int, float] = {}
        self._energy = SlurmEnergy(_run)
        self._loops: list[asyncio.Task[None]] = []
        self._errands = Background()
        self._slots = asyncio.Semaphore(4)

    async def start(self, sink: Sink) -> None:
        """Announce Slurm's nodes; watch them and the jobs."""
        if shutil.which("sbatch") is None:
            raise InvalidInput("--driver slurm", "sbatch is not here; run the server where Slurm's commands are")
        self._sink = sink
        self._folder.mkdir(parents=True, exist_ok=True)
        await self._look_at_nodes()
        self._loops = [
            asyncio.create_task(self._every(NODES_S, self._look_at_nodes)),
            asyncio.create_task(self._every(POLL_S, self._look_at_jobs)),
        ]

    async def stop(self) -> None:
        """Jobs go on; the next server finds their ends in the folder."""
        for task in (*self._loops, *self._errands):
            task.cancel()
        await asyncio.gather(*self._loops, *self._errands, return_exceptions=True)

    def resume(self, nodes: Sequence[str], leases: Sequence[m.Lease]) -> None:
        """Jobs that were submitted are watched again; the others are submitted now."""
        for lease in leases:
            with contextlib.suppress(FileNotFoundError):
                self._jobs[lease.fence] = (self._place(lease.fence) / "job").read_text()
        self.launch([lease for lease in leases if lease.fence not in self._jobs])

    def launch(self, leases: Sequence[m.Lease]) -> None:
        """Submit one pinned job for each."""
        for lease in leases:
            self._errands.begin(self._submit(lease))

    def cancel(self, fences: Sequence[int]) -> None:
        """Cancel the jobs; their ends are seen like any others."""
        for fence in fences:
            self._errands.begin(self._cancel(fence))

    def warm(self, node: str, order: m.Warm) -> None:
        """Cannot be."""
        told = m.Warmed(order.function_name, False, reason="a Slurm job begins with a process of its own")
        self.sink.warmed(node, told)

    def power(self, node: str, *, on: bool) -> None:
        """Slurm's own power saving: its SuspendProgram and ResumeProgram do the work."""
        self._errands.begin(self._power(node, on))

    def level(self, node: str, order: m.Level) -> None:
        """Cannot be: Slurm sets clocks with a job, not of jobs that run. The node announces no clocks any more."""
        if order.value <= 0 or node in self._refused:
            return
        log.warning("%s: Slurm cannot change the clock of jobs that run; the node has full clock from now on", node)
        self._refused.add(node)
        # Announced anew, or told to be gone, by the next look at the nodes.
        if self._nodes.get(node):
            del self._nodes[node]

    # ---- jobs

    async def _submit(self, lease: m.Lease) -> None:
        place = self._place(lease.fence)
        spec, variant = lease.spec, lease.spec.variants[lease.variant]
        command = ["sbatch", "--parsable", "-w", lease.node, "-N", "1", "-n", "1",
                   "-c", str(max(1, math.ceil(variant.cpus))), "-J", f"wattflow-{lease.task}.{lease.number}",
                   "-o", str(place / "log"), "--export", "ALL", "--oversubscribe", "--no-requeue"]  # fmt: skip
        command += ["-p", self._partition] if self._partition else []
        command += ["--mem", f"{max(1, variant.memory_bytes >> 20)}M"] if variant.memory_bytes else []
        command += ["-t", str(max(1, math.ceil(spec.timeout_s / 60)))] if spec.timeout_s else []
        command += [f"--gres=gpu:{max(1, math.ceil(variant.gpu))}"] if variant.gpu else []
        command += level_flags(lease.level)
        command += ["--wrap", f"exec {sys.executable} -P -m wattflow.runtime.executors.once {place}"]
        try:
            place.mkdir(parents=True, exist_ok=True)
            write_whole(place / "lease", m.pack(errand_of(lease, self._objects)))
            async with self._slots:
                code, out = await _run(*command)
        except (OSError, KeyError) as error:
            code, out = 1, str(error)
        if code != 0:
            self.sink.ended(m.Ended(fence=lease.fence, outcome="refused", reason=f"Slurm took no job: {out[:500]}"))
            return
        job = out.strip().splitlines()[-1].split(";")[0]
        self._jobs[lease.fence] = job
        self._shares[lease.fence] = max(1, math.ceil(variant.cpus)) / self._cpus.get(lease.node, 1.0)
        write_whole(place / "job", job.encode())

    async def _cancel(self, fence: int) -> None:
        job = self._jobs.get(fence)
        if job is not None:
            await _run("scancel", job)
        else:
            self.sink.ended(m.Ended(fence=fence, outcome="cancelled", reason="cancelled before it was submitted"))

    async def _look_at_jobs(self) -> None:
        """Ends first from the folder; a job that Slurm has forgotten and that left none is asked after."""
        if not self._jobs:
            return
        for fence in list(self._jobs):
            self._follow(fence)
            self._take_end(fence)
        if not self._jobs:
            return
        code, out = await _run("squeue", "-h", "-o", "%i %T")
        if code != 0:
            log.warning("squeue: %s", out.strip()[:300])
            return
        known = dict(line.split(None, 1) for line in out.splitlines() if " " in line)
        for fence, job in list(self._jobs.items()):
            if known.get(job) in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED"):
                self._missing.pop(fence, None)
            elif not self._take_end(fence):
                await self._maybe_lost(fence, job)

    def _take_end(self, fence: int) -> bool:
        try:
            data = (self._place(fence) / "ended").read_bytes()
        except FileNotFoundError:
            return False
        end = brought_home(msgspec.msgpack.decode(data, type=m.Ended), self._objects)
        self._follow(fence)
        job, share = self._jobs.get(fence), self._shares.pop(fence, 1.0)
        self._forget(fence)
        self.sink.ended(end)
        self._errands.begin(self._tell_energy(end, job, share))
        return True

    async def _tell_energy(self, end: m.Ended, job: str | None, share: float) -> None:
        """Slurm's joules where it counts them, else a guess."""
        counted = await self._energy.of_job(job, end.fence, share) if job is not None else None
        self.sink.energy(counted or modelled(end, WATTS_PER_CPU))

    async def _maybe_lost(self, fence: int, job: str) -> None:
        """The job is over for Slurm and left no end: say what Slurm says, once the folder had time to show one."""
        since_s = self._missing.setdefault(fence, time.monotonic())
        _, out = await _run("scontrol", "-o", "show", "job", job)
        # Slurm forgets jobs minutes after their end: no state is an answer, too.
        state = next((part[9:] for part in out.split() if part.startswith("JobState=")), "")
        if state in _ENDED or time.monotonic() - since_s > MISSING_S:
            outcome, reason = _ENDED.get(
                state, ("failed", f"its job {job} ended without a result (Slurm: {state or 'gone'})")
            )
            # Looked at once more: the file may have come through the shared file system after Slurm's answer.
            if self._take_end(fence):
                return
            self._forget(fence)
            self.sink.ended(m.Ended(fence=fence, outcome=outcome, reason=reason))

    def _follow(self, fence: int) -> None:
        """Pass on new output, and the start."""
        place, seen = self._place(fence), self._logged.get(fence, 0)
        with contextlib.suppress(OSError):
            if fence not in self._started and (place / "started").exists():
                self._started.add(fence)
                self.sink.started(fence, (place / "started").stat().st_mtime, 0.0)
            with (place / "log").open("rb") as file:
                file.seek(seen)
                data = file.read(1 << 20)
            if data:
                self.sink.log(fence, seen, data)
                self._logged[fence] = seen + len(data)

    def _forget(self, fence: int) -> None:
        self._jobs.pop(fence, None)
        self._missing.pop(fence, None)
        self._logged.pop(fence, None)
        self._started.discard(fence)
        shutil.rmtree(self._place(fence), ignore_errors=True)

    # ---- nodes

    async def _look_at_nodes(self) -> None:
        # GPUs of which nothing is stated are not announced, so nobody asks for them.
        command = ["sinfo", "-h", "-N", "-o", "%N|%c|%m|%T|" + ("%G" if self._gpus else "")]
        code, out = await _run(*command, *(["-p", self._partition] if self._partition else []))
        if code != 0:
            log.warning("sinfo: %s", out.strip()[:300])
            return
        for line in dict.fromkeys(out.splitlines()):
            name, cpus, memory, state, gres = line.split("|")
            self._cpus[name] = float(cpus)
            up = not (state.endswith("*") or any(word in state for word in _DOWN))
            if up and not self._nodes.get(name):
                self.sink.announce(self._node(name, int(cpus), int(memory), gres))
            elif not up and self._nodes.get(name, True):
                self.sink.gone(name, f"Slurm says {state}")
            self._nodes[name] = up

    def _node(self, name: str, cpus: int, memory_mib: int, gres: str) -> m.Node:
        """Make the announcement of a node."""
        # Whoever ordered a clock that was refused would order it again.
        clocks = [] if name in self._refused else list(self._stated.clocks)
        node = m.Node(name=name, cpus=float(cpus), memory_bytes=memory_mib << 20, keep_alive_s=0.0,
                      clocks_mhz=clocks, devices=gpus_of(gres, self._gpus) if self._gpus else [])  # fmt: skip
        if not self._stated.watts:
            return node
        return msgspec.structs.replace(
            node, busy=[0.0, float(cpus)], watts=list(self._stated.watts), provenance="guessed"
        )

    async def _power(self, node: str, on: bool) -> None:
        state = "POWER_UP" if on else "POWER_DOWN"
        code, out = await _run("scontrol", "update", f"NodeName={node}", f"State={state}")
        if code != 0:
            log.warning("scontrol %s %s: %s", node, state, out.strip()[:300])
        elif not on:
            self._nodes[node] = False
            self.sink.asleep(node)

    async def _every(self, seconds: float, call: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await call()
            except (OSError, ValueError) as error:
                log.warning("slurm: %s", error)

    def _place(self, fence: int) -> Path:
        return self._folder / f"attempt-{fence}"


def gpus_of(gres: str, stated: Stated) -> list[m.Device]:
    """Return the GPUs of a node's generic resources (``gpu:h200:4(S:0-1),shard:8``) with what is stated of them."""
    idle_w, full_w = stated.watts or (None, None)
    return [
        m.Device(kind="gpu", model=model or "generic", idle_w=idle_w, full_w=full_w, clocks_mhz=list(stated.clocks))
        for model, count in re.findall(r"(?:^|,)gpu(?::([^:,(]+))??:(\d+)(?=[,(]|$)", gres)
        for _ in range(int(count))
    ]


def level_flags(level: m.Level | None) -> list[str]:
    """Say a level in Slurm's words: `--cpu-freq` in kHz for processors, `--gpu-freq` in MHz for GPUs. It has none for
    power limits."""
    if level is None or level.kind != "clock_mhz" or level.value <= 0:
        return []
    return [f"--cpu-freq={round(level.value * 1000)}" if level.device < 0 else f"--gpu-freq={round(level.value)}"]


async def _run(*command: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode(errors="replace")
