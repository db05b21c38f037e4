"""A finished Argo workflow as a WfFormat document: runtimes, machines and joules of each task.

Structure comes from the spec, everything else from pods. Joules are *modelled*: the CPU time that a pod's control group
counted (or its requests, where nobody counted) goes through the node's power curve, and P(k) − P(0) of each moment is
shared by the busy threads of the moment. Kubernetes tells times to the second, so short runtimes are coarse; a runtime
is never less than its counted CPU time allows. Joules that Kepler attributed to a pod stand in place of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from wattflow.energy import enrich
from wattflow.kube import accounting, objects
from wattflow.kube.argo.graph import Graph
from wattflow.kube.power import threads_of
from wattflow.kube.tenant import PREFIX
from wattflow.model.profile import PowerProfile, Provenance
from wattflow.model.workflow import Machine, Task, Variant, Workflow

NODE_NAME = "workflows.argoproj.io/node-name"
WORKFLOW = "workflows.argoproj.io/workflow"
_MAIN = "main"
PowerOf = Callable[[objects.Node], PowerProfile | None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One pod of a task that ran."""

    pod: objects.Pod
    node: str
    start_s: float
    end_s: float
    cpu_s: float | None

    @property
    def threads(self) -> float:
        """Return the busy threads over its time: counted, or as requested."""
        if self.cpu_s is not None:
            # Times are whole seconds, so a pod may start and end in the same one.
            return self.cpu_s / max(1e-3, self.end_s - self.start_s)
        return accounting.cores(accounting.pod_requests(self.pod))


def moment_s(text: str | None) -> float | None:
    """Return an API time as seconds since 1970."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def attempt_of(pod: objects.Pod, threads: int, cpu_s: float | None) -> Attempt | None:
    """Return the run of a pod that has ended; None where it never ran."""
    ended = [one for one in pod.status.container_statuses if one.state.terminated is not None]
    # Argo adds containers of its own ("wait", "init"); "main" is the task. Pods of other makers may
    # name theirs freely.
    chosen = next((one for one in ended if one.name == _MAIN), ended[0] if ended else None)
    if chosen is None or chosen.state.terminated is None:
        return None
    start, end = moment_s(chosen.state.terminated.started_at), moment_s(chosen.state.terminated.finished_at)
    if start is None or end is None:
        return None
    if cpu_s is not None:
        # Whole seconds again: counted CPU time cannot have been used in less than this.
        end = max(end, start + cpu_s / max(1, threads))
    return Attempt(pod, pod.spec.node_name, start, max(start, end), cpu_s)


def collect(
    workflow: Mapping[str, object],
    graph: Graph,
    pods: Iterable[objects.Pod],
    nodes: Mapping[str, objects.Node],
    power_of: PowerOf,
    cpu_s: Mapping[str, float],
    attributed_j: Mapping[str, float] | None = None,
) -> Workflow:
    """Build the document. Tasks that never had a pod (conditions, placeholders) are left out; order passes through.

    ``attributed_j`` (by pod uid) stands before the model where all pods of a task have it.
    """
    runs: dict[str, list[Attempt]] = {}
    for pod in pods:
        id = graph.find(pod.metadata.annotations.get(NODE_NAME, ""))
        threads = threads_of(nodes[pod.spec.node_name]) if pod.spec.node_name in nodes else 1
        attempt = attempt_of(pod, threads, cpu_s.get(pod.metadata.uid))
        if id is not None and attempt is not None:
            runs.setdefault(id, []).append(attempt)
    for attempts in runs.values():
        # The last one is the attempt that counts for runtime and machine (`_task`); joules are those of
        # all.
        attempts.sort(key=lambda one: one.start_s)
    joules = _joules(runs, nodes, power_of)
    meter = attributed_j or {}
    # All or none: a sum of attributed and modelled joules would have no provenance.
    metered = {id for id, all_ in runs.items() if all(one.pod.metadata.uid in meter for one in all_)}
    for id in metered:
        joules[id] = sum(meter[one.pod.metadata.uid] for one in runs[id])
    origin_s = min((one.start_s for attempts in runs.values() for one in attempts), default=0.0)
    end_s = max((one.end_s for attempts in runs.values() for one in attempts), default=0.0)
    names = {id: _given(attempts[-1].pod, id, graph.name) for id, attempts in runs.items()}
    parents = _parents(graph, set(runs))
    tasks = tuple(
        _task(names[id], attempts, tuple(names[p] for p in parents[id]), (joules.get(id), id in metered, origin_s))
        for id, attempts in runs.items()
    )
    used = sorted({one.node for attempts in runs.values() for one in attempts})
    started = datetime.fromtimestamp(origin_s).astimezone().isoformat()
    return Workflow(
        name=_annotation(workflow, "workflow") or graph.name,
        tasks=tasks,
        machines=tuple(_machine(nodes[name]) for name in used if name in nodes),
        makespan_s=end_s - origin_s,
        executed_at=started,
        attributes={"runtimeSystem": {"name": "Argo Workflows", "version": "4"}},
    )


def _annotation(workflow: Mapping[str, object], key: str) -> str | None:
    metadata = workflow.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    return str(notes[PREFIX + key]) if isinstance(notes, dict) and PREFIX + key in notes else None


def _given(pod: objects.Pod, id: str, workflow: str) -> str:
    """Return the task's own id where the manifest carries one, else Argo's name without the workflow's."""
    stated = pod.metadata.annotations.get(f"{PREFIX}task-id")
    return stated or id.removeprefix(workflow).lstrip(".") or id


def _joules(
    runs: Mapping[str, list[Attempt]], nodes: Mapping[str, objects.Node], power_of: PowerOf
) -> dict[str, float]:
    """Model the joules of each task above idle, on nodes whose curve is known."""
    by_node: dict[str, list[enrich.BusyStretch]] = {}
    for id, attempts in runs.items():
        for one in attempts:
            # A span of no length has no joules; a millisecond keeps the task in the account.
            end_s = max(one.end_s, one.start_s + 1e-3)
            by_node.setdefault(one.node, []).append(enrich.BusyStretch(id, one.start_s, end_s, one.threads))
    total: dict[str, float] = {}
    for name, work in by_node.items():
        curve = power_of(nodes[name]) if name in nodes else None
        if curve is None:
            continue
        # From the first start to the last end on this node: what it draws idle outside is nobody's here.
        begin_s, end_s = min(one.start_s for one in work), max(one.end_s for one in work)
        for id, task_j in enrich.node_energy(work, curve, begin_s, end_s).task_j.items():
            total[id] = total.get(id, 0.0) + task_j
    return total


def _parents(graph: Graph, ran: set[str]) -> dict[str, tuple[str, ...]]:
    """Find the parents that ran; one that did not stands for its own parents, a placeholder for its copies."""
    copies: dict[str, list[str]] = {}
    for id in ran:
        holder = graph.placeholder_of(id)
        if holder is not None:
            copies.setdefault(holder, []).append(id)

    def real(id: str) -> list[str]:
        if id in ran:
            return [id]
        if copies.get(id):
            return sorted(copies[id])
        return [found for parent in graph.tasks[id].parents for found in real(parent)] if id in graph.tasks else []

    return {id: tuple(dict.fromkeys(f for p in graph.tasks[id].parents for f in real(p) if f != id)) for id in ran}


def _task(
    name: str, attempts: list[Attempt], parents: tuple[str, ...], facts: tuple[float | None, bool, float]
) -> Task:
    energy_j, metered, origin_s = facts
    source = Provenance.ATTRIBUTED if metered else Provenance.MODELLED
    last = attempts[-1]
    runtime_s = last.end_s - last.start_s
    requests = accounting.pod_requests(last.pod)
    notes = last.pod.metadata.annotations
    counted = all(one.cpu_s is not None for one in attempts)
    cores = accounting.cores(requests, 1000)
    return Task(
        id=name,
        name=name,
        # A copy's name ends in "(0:item)"; all copies are one function.
        function=notes.get(f"{PREFIX}function") or notes.get("workflows.argoproj.io/template") or name.split("(")[0],
        runtime_s=runtime_s,
        variants=(Variant(cores=cores, memory_bytes=requests.get(accounting.MEMORY, 0)),),
        parents=parents,
        machine=last.node,
        start_s=last.start_s - origin_s,
        command=notes.get(f"{PREFIX}program") or None,
        avg_cpu_pct=100 * last.threads if counted else None,
        energy_j=energy_j,
        avg_power_w=energy_j / runtime_s if energy_j is not None and runtime_s > 0 else None,
        energy_provenance=None if energy_j is None else source,
    )


def _machine(node: objects.Node) -> Machine:
    capacity = accounting.amounts(node.status.capacity)
    return Machine(
        node.metadata.name,
        cores=threads_of(node),
        memory_bytes=capacity.get(accounting.MEMORY),
        architecture={"amd64": "x86_64", "arm64": "aarch64"}.get(node.status.node_info.architecture),
        system="linux",
        release=node.status.node_info.kernel_version or None,
    )
