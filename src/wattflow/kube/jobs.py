"""Work of others as pods: one pod for each job, made, followed to its end, and taken away.

A job's files (what to run, its output, its end) lie in a folder that the pods see; the API server is only asked to run
a command and says when its pod has ended. Whose scheduler places the pod is the job's choice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from wattflow.kube import accounting, objects
from wattflow.kube.client import ApiError, Client
from wattflow.kube.reflect import DELETED, Mirror
from wattflow.kube.tenant import PREFIX

log = logging.getLogger(__name__)
MANAGED, MANAGER = "app.kubernetes.io/managed-by", "wattflow-register"
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Describe what all pods of a registered cluster have in common.

    Attributes:
        prefix: Words before every command, such as ``chroot /host``.
        mounts: Folders of the nodes by where pods see them.
        claims: Persistent volume claims by where pods see them.
    """

    namespace: str = "default"
    image: str = "wattflow"
    pull: str = "IfNotPresent"
    scheduler: str = "wattflow"
    prefix: Sequence[str] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False
    account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pod to be: its name, command and needs. ``scheduler`` empty means the template's."""

    name: str
    command: Sequence[str]
    cpus: float = 1.0
    memory_bytes: int = 0
    gpus: int = 0
    estimate_s: float | None = None
    scheduler: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gone:
    """How a pod ended; ``code`` is its container's, None where it had none to give."""

    phase: str
    reason: str
    code: int | None


def manifest(job: Job, template: Template) -> dict[str, Any]:
    """Make the pod of a job."""
    # Kubernetes counts milli-cores; a job that asks for less still gets one.
    requests: dict[str, str] = {"cpu": f"{max(1, round(job.cpus * 1000))}m"}
    limits: dict[str, str] = {}
    if job.memory_bytes:
        # Memory has a limit, CPU has none: spare cores may be used, but memory cannot be taken back.
        requests["memory"] = limits["memory"] = str(job.memory_bytes)
    if job.gpus:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(job.gpus)
    environment = {**template.environment, **job.environment}
    volumes = [{"name": f"host{i}", "hostPath": {"path": path}} for i, path in enumerate(template.mounts.values())]
    volumes += [
        {"name": f"claim{i}", "persistentVolumeClaim": {"claimName": name}}
        for i, name in enumerate(template.claims.values())
    ]
    mounted = [{"name": f"host{i}", "mountPath": where} for i, where in enumerate(template.mounts)]
    mounted += [{"name": f"claim{i}", "mountPath": where} for i, where in enumerate(template.claims)]
    container = {
        "name": "main",
        "image": template.image,
        "imagePullPolicy": template.pull,
        "command": [*template.prefix, *job.command],
        "resources": {"requests": requests, "limits": limits},
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": mounted,
    }
    # No token: work of others has no business with the API.
    spec: dict[str, Any] = {
        "schedulerName": job.scheduler or template.scheduler,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "nodeSelector": dict(template.node_selector),
        "hostNetwork": template.host_network,
        "enableServiceLinks": False,
    }
    if template.account:
        spec["serviceAccountName"] = template.account
    notes = {f"{PREFIX}runtime-s": f"{job.estimate_s:g}"} if job.estimate_s else {}
    return {
        "metadata": {"name": job.name, "labels": {**job.labels, MANAGED: MANAGER}, "annotations": notes},
        "spec": spec,
    }


class Jobs:
    """Pods of one namespace that were made here. Use between `start` and `stop`."""

    def __init__(self, client: Client, template: Template) -> None:
        self.client, self.template = client, template
        self.path = f"/api/v1/namespaces/{template.namespace}/pods"
        self._ends: dict[str, asyncio.Future[Gone]] = {}
        query = {"labelSelector": f"{MANAGED}={MANAGER}"}
        self._mirror = Mirror(client, self.path, objects.Pod, self._on_pod, query)
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow the pods. Raises what the first look at the cluster raises."""
        # First, and without the mirror's retries: a wrong address or missing rights must end `register` at
        # once.
        await self._mirror.relist()
        self._watch = asyncio.create_task(self._mirror.run())

    async def stop(self) -> None:
        """Follow them no more; what runs goes on."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def room(self) -> tuple[float, int, int]:
        """Return the CPUs and bytes that the cluster's nodes have together, and the CPUs of the largest."""
        nodes = (await self.client.list_all("/api/v1/nodes", objects.Node)).items
        wanted = self.template.node_selector.items()
        usable = [
            accounting.node_allocatable(node)
            for node in nodes
            if not node.spec.unschedulable and wanted <= node.metadata.labels.items()
        ]
        cpus = [one.get(accounting.CPU, 0) for one in usable]
        # The largest node bounds one job: a pod cannot span nodes.
        return sum(cpus) / 1000, sum(one.get(accounting.MEMORY, 0) for one in usable), max(cpus, default=0) // 1000

    async def launch(self, job: Job) -> asyncio.Future[Gone]:
        """Make a pod, or take up the one that has its name; the future ends with it. Raises ApiError."""
        future = self._ends.setdefault(job.name, asyncio.get_running_loop().create_future())
        try:
            await self.client.call("POST", self.path, manifest(job, self.template))
        except ApiError as error:
            # 409: a process before us made it. Its end may have been told already, so it is looked at now.
            if error.code != 409:
                self._ends.pop(job.name, None)
                raise
            known = self._mirror.items.get(f"{self.template.namespace}/{job.name}")
            if known is not None:
                self._on_pod("MODIFIED", known)
        return future

    async def remove(self, name: str) -> None:
        """Take a pod away; running, it ends."""
        try:
            body = {"gracePeriodSeconds": 0}
            await self.client.call("DELETE", f"{self.path}/{name}", body)
        except ApiError as error:
            if error.code != 404:
                log.warning("pod %s: not removed: %s", name, error)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("pod %s: not removed: %s", name, error)

    def _on_pod(self, kind: str, pod: objects.Pod) -> None:
        future = self._ends.get(pod.metadata.name)
        if future is None or future.done() or not (kind == DELETED or pod.ended):
            return
        states = [one.state.terminated for one in pod.status.container_statuses if one.state.terminated is not None]
        # Deleted by somebody while it ran.
        phase = pod.status.phase if pod.ended else "Deleted"
        told = f"{states[0].reason} {states[0].message}".strip() if states else ""
        # The pod's own reason (Evicted, DeadlineExceeded) says more than its container's.
        why = pod.status.reason or told[:_LONGEST_REASON]
        future.set_result(Gone(phase, why, states[0].exit_code if states else None))
        del self._ends[pod.metadata.name]
