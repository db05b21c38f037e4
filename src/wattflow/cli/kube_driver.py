"""A Kubernetes cluster as one node of the server: its attempts become pods, which the cluster's scheduler places.

This is where the runtime and the Kubernetes package meet; neither knows the other.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from wattflow.energy.virtual import DEMO_CURVE
from wattflow.kube import jobs
from wattflow.kube.client import ApiError, Client
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.executors.node_devices import NodeDevices
from wattflow.runtime.executors.once import Errand, write_whole
from wattflow.runtime.executors.process import AttemptWork, Finish
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.transport import Transport

SCHEDULER = "WATTFLOW_SCHEDULER"
"""Variable of a task's environment: the scheduler that places its pod, instead of the one that was registered."""
_LOOK_S = 0.1


class Pods(NodeDevices):
    """Runs attempts as pods: the agent's executor and its devices at once.

    Args:
        folder: Seen by this process and by all pods under the same path.
        python: The interpreter inside the pods.
    """

    def __init__(self, made: jobs.Jobs, folder: Path, python: str = sys.executable) -> None:
        super().__init__()
        self._jobs, self._folder, self._python = made, folder, python
        self._stopped: dict[int, asyncio.Event] = {}
        # CPU seconds of pods that have ended; a running pod's are not known here.
        self._over_s = 0.0
        self.largest = float("inf")

    async def start(self) -> None:
        """Follow the pods."""
        await self._jobs.start()

    async def close(self) -> None:
        """Follow them no more."""
        await self._jobs.stop()

    async def run(self, lease: m.Lease, work: AttemptWork, processes: object) -> Finish:
        """Run an attempt in a pod of its own."""
        # Monotonic: a step of the wall clock must not end a task.
        variant, began_s = lease.spec.variants[lease.variant], time.monotonic()
        if variant.cpus > self.largest:
            told = f"needs {variant.cpus:g} CPUs, and the cluster's largest node has {self.largest:g}"
            return Finish("refused", 0.0, 0.0, reason=told)
        place = self._folder / f"{lease.fence:x}"
        place.mkdir(parents=True, exist_ok=True)
        # Whole: a pod may start before this process has written the last byte.
        write_whole(place / "lease", m.pack(Errand(lease, list(work.blobs))))
        stopped = self._stopped[lease.fence] = asyncio.Event()
        name = f"wattflow-{lease.fence:x}"
        try:
            ended = await self._jobs.launch(self._job(lease, name, place, variant))
            outcome, reason = await self._follow(place, work, ended, stopped, began_s)
            return self._finish(place, outcome, reason, began_s)
        except ApiError as error:
            return Finish("refused", 0.0, 0.0, reason=f"Kubernetes took no pod: {error}")
        # In any case: a pod or folder that is left would be found by the next attempt of the same name.
        finally:
            del self._stopped[lease.fence]
            await self._jobs.remove(name)
            shutil.rmtree(place, ignore_errors=True)

    def stop(self, fence: int) -> None:
        """End an attempt."""
        if fence in self._stopped:
            self._stopped[fence].set()

    def cpu_s(self) -> Mapping[int, float]:
        """Return nothing: a pod's CPU time is unknown before its end."""
        return {}

    def machine(self) -> Mapping[str, float]:
        """Return CPU seconds of what has ended in the cluster for us."""
        return {"machine": self._over_s}

    def _job(self, lease: m.Lease, name: str, place: Path, variant: m.Variant) -> jobs.Job:
        # not as the container's process 1, which cannot end itself by a signal
        errand = f'"{self._python}" -P -m wattflow.runtime.executors.once "{place}" > "{place}/log" 2>&1'
        script = f'{errand} & child=$!; trap "kill $child" TERM; wait $child'
        environment = dict(lease.spec.environment)
        return jobs.Job(
            name=name,
            command=["sh", "-c", script],
            cpus=variant.cpus,
            memory_bytes=variant.memory_bytes,
            # Whole GPUs, rounded up: a pod cannot have a part of one.
            gpus=-(-int(variant.gpu * 1000) // 1000),
            estimate_s=lease.spec.estimate_s,
            scheduler=environment.pop(SCHEDULER, ""),
        )

    async def _follow(
        self, place: Path, work: AttemptWork, ended: asyncio.Future[jobs.Gone], stopped: asyncio.Event, began_s: float
    ) -> tuple[m.Ending, str | None]:
        """Pass output on until the pod has ended, left its end, was stopped or ran too long."""
        seen, limit_s = 0, work.timeout_s
        while True:
            # Counted from when the program began: waiting for a node is not running.
            late = limit_s is not None and time.monotonic() - _started_s(place, began_s) > limit_s
            # Asked before the log is read, so that the last output is passed on after the end was seen.
            over = ended.done() or (place / "ended").exists() or stopped.is_set() or late
            if (place / "log").exists():
                data = (place / "log").read_bytes()[seen:]
                seen += len(data)
                if data:
                    work.on_log(data)
            if over:
                break
            # Woken by the pod's end; files are only seen by looking.
            await asyncio.wait([ended], timeout=_LOOK_S)
        # What the program wrote itself goes before anything else: a pod may be deleted right after.
        if (place / "ended").exists():
            return "done", None
        if stopped.is_set():
            return "cancelled", "cancelled"
        if late:
            return "time_limit", f"ran longer than its {limit_s:g} s"
        gone = ended.result()
        if gone.phase == "Deleted":
            return "node_lost", "its pod was taken away"
        return "failed", f"its pod ended before it answered: {gone.reason or gone.phase}, exit code {gone.code}"

    def _finish(self, place: Path, outcome: m.Ending, reason: str | None, began_s: float) -> Finish:
        if not (place / "ended").exists():
            return Finish(outcome, _started_s(place, began_s), time.monotonic(), reason=reason)
        end = msgspec.msgpack.decode((place / "ended").read_bytes(), type=m.Ended)
        self._over_s += end.cpu_s
        shift_s = time.monotonic() - time.time()  # pods tell the wall's time
        result = end.result.data if end.result is not None else None
        return Finish(
            end.outcome,
            (end.started_s or 0.0) + shift_s,
            (end.ended_s or 0.0) + shift_s,
            cpu_s=end.cpu_s,
            peak_bytes=end.peak_bytes,
            result=result,
            reason=end.reason,
        )


def _started_s(place: Path, began_s: float) -> float:
    """Return when the pod's program began, on the monotonic clock; the launch where it has not yet."""
    try:
        # The file's time is the wall's.
        return (place / "started").stat().st_mtime + time.monotonic() - time.time()
    except FileNotFoundError:
        return began_s


async def make_agent(
    transport: Transport, client: Client, template: jobs.Template, folder: Path, name: str, **about: Any
) -> Agent:
    """Make an agent whose node is a whole cluster."""
    made = jobs.Jobs(client, template)
    cpus, memory, largest = await made.room()
    if not cpus:
        raise InvalidInput(client.access.server, "the cluster has no node that pods could go to")
    # Absolute: pods know nothing of this process's working folder.
    pods = Pods(made, folder.absolute(), **about)
    pods.largest = float(largest)
    energy = NodeEnergy(DEMO_CURVE, folder / "meter", machine=pods.machine)
    energy.provenance = Provenance.GUESSED  # the curve is of no node of this cluster
    node = m.Node(name=name, cpus=cpus, memory_bytes=max(1, memory), features=["kubernetes"])
    return Agent(transport, node, pods, energy, pods, folder / "work")
