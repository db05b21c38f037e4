"""Argo's workflows as they come: their graphs, priorities and deadlines, known before most of their pods exist."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from wattflow.kube import objects, tenant
from wattflow.kube.argo.collect import NODE_NAME, WORKFLOW
from wattflow.kube.argo.fetch import ENDED
from wattflow.kube.argo.graph import Graph, Raw
from wattflow.kube.reflect import DELETED
from wattflow.kube.tenant import PREFIX
from wattflow.model.errors import InvalidInput

log = logging.getLogger(__name__)
DEADLINE, OBJECTIVE = f"{PREFIX}deadline-s", f"{PREFIX}objective"
OBJECTIVES = ("energy", "makespan")


class _Status(objects.Object):
    phase: str = ""


class ArgoWorkflow(objects.Spaced):
    """A Workflow object: its spec as it stands, and of its status the phase alone."""

    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    status: _Status = msgspec.field(default_factory=_Status)

    def plain(self) -> Raw:
        """Return the object as `Graph.of` reads it."""
        spec: Raw = msgspec.json.decode(self.spec) if bytes(self.spec) else {}
        return {"metadata": {"name": self.metadata.name}, "spec": spec}


class ArgoTemplate(objects.Spaced):
    """A WorkflowTemplate or ClusterWorkflowTemplate."""

    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


@dataclass(slots=True)
class Flow:
    """One workflow that is under way.

    Attributes:
        order: Workflows in the order in which they were first seen.
        priority: The workflow's own ``spec.priority``.
        deadline_s: Seconds from its creation, where it has one; 0 where its objective is its makespan: due at once,
            so that every task goes where it ends soonest.
    """

    key: str
    graph: Graph
    order: int
    priority: int = 0
    deadline_s: float | None = None


@dataclass(slots=True)
class Flows:
    """All workflows that have not ended.

    ``on_ended`` is told the key of each that has, ``on_unread`` what of one cannot be read.
    """

    on_ended: Callable[[str], None] = lambda key: None
    on_unread: Callable[[ArgoWorkflow, str], None] = lambda workflow, what: log.warning("%s: %s", workflow.key, what)
    known: dict[str, Flow] = field(default_factory=dict)
    templates: dict[str, Raw] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def on_template(self, kind: str, template: ArgoTemplate) -> None:
        """Take up a template that workflows may refer to."""
        if kind == DELETED:
            self.templates.pop(template.key, None)
        else:
            self.templates[template.key] = {"spec": msgspec.json.decode(template.spec)}

    def on_workflow(self, kind: str, workflow: ArgoWorkflow) -> None:
        """Take up a workflow that came, changed or went."""
        key = workflow.key
        if kind == DELETED or workflow.status.phase in ENDED:
            if self.known.pop(key, None) is not None:
                self.on_ended(key)
            return
        # The spec of a workflow that runs does not change; its graph read anew would lack copies made
        # since.
        if key in self.known:
            return
        try:
            plain = workflow.plain()
            graph = Graph.of(plain, lambda name, template, whole: self._template(workflow, name, whole))
        # `RecursionError`: a tenant may nest JSON as deep as the decoder follows.
        except (InvalidInput, ValueError, RecursionError) as error:
            self.on_unread(workflow, f"spec: {error}; its pods are placed one by one")
            return
        for what in graph.unread:
            self.on_unread(workflow, what)
        spec = plain["spec"]
        priority = spec.get("priority") if isinstance(spec, dict) else None
        # `bool` is an `int` in Python, and `priority: true` is no number.
        if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
            self.on_unread(workflow, f"spec.priority is {str(priority)[:60]!r}, not a whole number: it is left out")
            priority = None
        stated = workflow.metadata.annotations.get(DEADLINE)
        if stated is not None and tenant.number(stated) is None:
            self.on_unread(workflow, f"{DEADLINE} is {stated[:60]!r}, not a number of seconds: it is left out")
        self.known[key] = Flow(key, graph, next(self._numbers), priority or 0, _due_s(workflow))

    def _template(self, workflow: ArgoWorkflow, name: str, whole: bool) -> Raw | None:
        # ClusterWorkflowTemplates have no namespace, so their keys begin with "/".
        return self.templates.get(f"{'' if whole else workflow.metadata.namespace}/{name}")

    def of(self, pod: objects.Pod) -> tuple[Flow, str] | None:
        """Return the workflow of a pod and the task it is, or None."""
        name = pod.metadata.labels.get(WORKFLOW)
        flow = self.known.get(f"{pod.metadata.namespace}/{name}") if name else None
        if flow is None:
            return None
        try:
            id = flow.graph.find(pod.metadata.annotations.get(NODE_NAME, ""))
        # Copies are made only now, of templates that nobody has looked into before: the pod goes by itself.
        except (InvalidInput, ValueError, RecursionError) as error:
            log.warning("%s: %s: %s", flow.key, pod.key, error)
            return None
        return (flow, id) if id is not None else None


def _due_s(workflow: ArgoWorkflow) -> float | None:
    """Return how long a workflow may take, by deadline or objective. What cannot be read is told and left out."""
    notes = workflow.metadata.annotations
    objective = notes.get(OBJECTIVE, OBJECTIVES[0])
    if objective not in OBJECTIVES:
        log.warning("%s: %s is %r; it may be %s", workflow.key, OBJECTIVE, objective, " or ".join(OBJECTIVES))
    # A stated deadline goes before the objective.
    deadline_s = tenant.number(notes.get(DEADLINE, ""))
    if deadline_s is not None:
        return deadline_s
    return 0.0 if objective == "makespan" else None
