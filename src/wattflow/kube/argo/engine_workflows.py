"""Workflows inside the engine: every task of the graph is there before its pod, held back by a gate until it comes.

The engine then ranks and plans with the whole workflow. A gate is a placeholder that is sealed when the pod appears, so
nothing is placed that does not exist. Argo decides when a pod exists; the engine's own edges must never hold one back:
where they would (an OR in ``depends``, a retry, a shape that was guessed wrong) the pod goes outside the structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from wattflow.kube import accounting, objects
from wattflow.kube.argo.graph import GraphTask
from wattflow.kube.argo.watching import Flow, Flows
from wattflow.kube.estimates import FUNCTION, INPUT, OUTPUT, Estimates, stated_bytes, stated_s
from wattflow.live import Engine, protocol


@dataclass(slots=True)
class Inside:
    """A workflow in the engine: ids of its tasks and gates, the shapes guessed, and what has ended."""

    workflow: int
    tasks: dict[str, int] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    ends_s: dict[str, float] = field(default_factory=dict)
    estimates_s: dict[str, float] = field(default_factory=dict)
    cores_m: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)


class Structure:
    """Opens workflows in an engine and answers which of its tasks a pod is.

    Args:
        shape_of: The engine's shape for a pod like another, with these amounts and this function.
        next_tag: A fresh tag; whichever pod takes the task gets it.
        data: Whether what tasks say of their data counts: a task on another node than its parent waits for it.
    """

    def __init__(
        self,
        engine: Engine,
        flows: Flows,
        shape_of: Callable[[objects.Pod, accounting.Amounts, str | None], int],
        next_tag: Callable[[], int],
        estimates: Estimates,
        data: bool = False,
    ) -> None:
        self.engine, self.flows, self.estimates, self._data = engine, flows, estimates, data
        self._shape_of, self._next_tag = shape_of, next_tag
        self._inside: dict[str, Inside] = {}
        self._by_uid: dict[str, tuple[str, str]] = {}
        self._past: dict[str, set[str]] = {}
        flows.on_ended = self.close

    def enter(self, pod: objects.Pod, shape: int, now_s: float) -> tuple[int, int] | None:
        """Find the engine's task for a pod, and its tag, and open its gate. None: outside the structure."""
        found = self.flows.of(pod)
        if found is None:
            return None
        flow, id = found
        inside = self._inside.get(flow.key) or self._open(flow, pod, now_s)
        # Not guessed right, or taken already by an earlier try of the same task.
        if id not in inside.gates or id in inside.used or inside.shapes[id] != shape:
            return None
        # Argo made the pod, so it may run (an OR in `depends`); the engine's edges would still hold its
        # task back.
        if not set(inside.parents[id]) <= inside.done:
            return None
        inside.used.add(id)
        self._by_uid[pod.metadata.uid] = (flow.key, id)
        # A sealed placeholder without parents ends at once, and the task behind it is ready.
        self.engine.put(protocol.SEAL, inside.gates[id])
        return inside.tasks[id], inside.tags[id]

    def started(self, uid: str, now_s: float) -> None:
        """Note that a pod of a workflow runs; where its runtime is known, so is when it will end."""
        key, id = self._by_uid.get(uid, ("", ""))
        inside = self._inside.get(key)
        if inside is not None and id in inside.estimates_s:
            inside.ends_s[id] = now_s + inside.estimates_s[id]

    def coming_m(self, now_s: float, within_s: float) -> int:
        """Sum the milli-cores of tasks without a pod whose parents are all done or end within so many seconds."""
        total = 0
        for inside in self._inside.values():
            # Parents that are late have passed their expected end and still count: their children come any
            # moment.
            soon = {id for id, end_s in inside.ends_s.items() if end_s <= now_s + within_s and id not in inside.done}
            if soon:
                total += sum(
                    inside.cores_m[id]
                    for id, parents in inside.parents.items()
                    if id in inside.gates
                    and id not in inside.used
                    # At least one parent must be about to end, or the task would have been ready already and has a
                    # pod by now.
                    and not soon.isdisjoint(parents)
                    and soon | inside.done >= set(parents)
                )
        return total

    def past(self, pod: objects.Pod) -> None:
        """Note a pod that ended well before we came: its task is no part of what is opened later."""
        found = self.flows.of(pod)
        if found is not None and found[0].key not in self._inside:
            self._past.setdefault(found[0].key, set()).add(found[1])

    def left(self, uid: str) -> None:
        """Note that a pod's task was cancelled: tasks that follow go outside the structure."""
        key, id = self._by_uid.pop(uid, ("", ""))
        inside = self._inside.get(key)
        if inside is None:
            return
        lost = [id]
        # All descendants: the engine will never see the cancelled parent end.
        while lost:
            parent = lost.pop()
            after = [child for child, parents in inside.parents.items() if parent in parents and child in inside.gates]
            for child in after:
                del inside.gates[child]
            lost += after

    def ended(self, uid: str) -> None:
        """Note the end of a pod of a workflow."""
        key, id = self._by_uid.pop(uid, ("", ""))
        if key in self._inside:
            self._inside[key].done.add(id)

    def close(self, key: str) -> None:
        """Cancel what is left in the engine of a workflow that has ended."""
        self._past.pop(key, None)
        inside = self._inside.pop(key, None)
        if inside is not None:
            self.engine.put(protocol.CANCEL, inside.workflow)

    def _open(self, flow: Flow, pod: objects.Pod, now_s: float) -> Inside:
        # From when its first pod is seen: the engine's clock is not the one that dates the workflow's
        # creation.
        deadline = None if flow.deadline_s is None else now_s + flow.deadline_s
        inside = Inside(self.engine.workflow(deadline_s=deadline))
        self._inside[flow.key] = inside
        own = self.flows.of(pod)
        # What Argo adds is taken to be the same for every pod of a workflow.
        extra = _overhead(pod, flow.graph.tasks[own[1]]) if own is not None else {}
        # Tasks that ended before we came are no part of it, and edges from them are left out below.
        inside.done = self._past.pop(flow.key, set())
        for id, task in flow.graph.tasks.items():
            if id not in inside.done:
                self._add(inside, id, task, pod, extra)
        for id in inside.tasks:
            for parent in flow.graph.tasks[id].parents:
                if parent in inside.tasks:
                    size = _bytes_between(flow.graph.tasks[parent], flow.graph.tasks[id]) if self._data else 0.0
                    self.engine.put(protocol.EDGE, inside.tasks[parent], inside.tasks[id], size)
        return inside

    def _add(self, inside: Inside, id: str, task: GraphTask, pod: objects.Pod, extra: accounting.Amounts) -> None:
        inside.parents[id] = task.parents
        # No gate: nothing is ever placed for it, it only keeps its children behind it in the ranks.
        if task.placeholder:
            inside.tasks[id] = self.engine.put(protocol.TASK, protocol.PLACEHOLDER, workflow=inside.workflow)
            inside.shapes[id] = protocol.PLACEHOLDER
            return
        amounts = {**extra}
        for name, value in accounting.amounts(task.requests).items():
            amounts[name] = amounts.get(name, 0) + value
        amounts = accounting.within(amounts) | {accounting.PODS: 1}
        shape = inside.shapes[id] = self._shape_of(pod, amounts, task.annotations.get(FUNCTION))
        inside.gates[id] = self.engine.put(protocol.TASK, protocol.PLACEHOLDER, workflow=inside.workflow)
        inside.tags[id] = self._next_tag()
        inside.cores_m[id] = amounts.get(accounting.CPU, 0)
        estimate_s = self._estimate_s(task, pod)
        if estimate_s is not None:
            inside.estimates_s[id] = estimate_s
        inside.tasks[id] = self.engine.put(
            protocol.TASK, shape, workflow=inside.workflow, estimate_s=estimate_s, tag=inside.tags[id]
        )
        # The gate is a parent of its own task: what has no pod yet is never ready.
        self.engine.put(protocol.EDGE, inside.gates[id], inside.tasks[id])

    def _estimate_s(self, task: GraphTask, pod: objects.Pod) -> float | None:
        stated = stated_s(task.annotations)
        if stated is not None:
            return stated
        kind = f"{pod.metadata.namespace}/{task.annotations.get(FUNCTION) or task.template}"
        return self.estimates.of_kind(kind, task.annotations)


def _bytes_between(parent: GraphTask, child: GraphTask) -> float:
    """Tell what goes from one task to another at most: all that the one writes, and no more than the other reads."""
    written, read = stated_bytes(parent.annotations, OUTPUT), stated_bytes(child.annotations, INPUT)
    return 0.0 if math.isnan(written) else written if math.isnan(read) else min(written, read)


def _overhead(pod: objects.Pod, task: GraphTask) -> accounting.Amounts:
    """Tell what Argo's own containers add to a template's requests, seen at one pod."""
    stated = accounting.amounts(task.requests)
    return {
        name: value - stated.get(name, 0)
        for name, value in accounting.pod_requests(pod).items()
        if name != accounting.PODS
    }
