"""The graph of an Argo workflow from its spec: dag, steps, nested templates, templateRef and fan-out.

Names are those that Argo gives its nodes (``wf.task``, ``wf[0].step``, ``wf.task(2:item)``), which it also writes into
the annotation of each pod, so a pod finds its task without a look at the workflow's status. Where the number of copies
is not known yet, one placeholder stands for them until pods appear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from wattflow.kube import quantity
from wattflow.model.errors import InvalidInput

_REFERENCE = re.compile(r"\{\{\s*workflow\.parameters\.([\w.-]+)\s*\}\}")
_MOST = 20_000
"""More copies than this are left to a placeholder."""


def parameters(spec: Raw) -> dict[str, str]:
    """Read the values of the workflow's own parameters."""
    arguments = spec.get("arguments")
    listed = arguments.get("parameters") if isinstance(arguments, dict) else None
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and "name" in entry and "value" in entry:
            value = entry["value"]
            # Kept as JSON where it is no text: `withParam` reads it as JSON again.
            found[str(entry["name"])] = value if isinstance(value, str) else json.dumps(value)
    return found


def items(step: Raw, known: Mapping[str, str]) -> list[str] | None:
    """List the texts of a step's copies: empty for a single run without fan-out, None where nobody knows yet.

    A text is what Argo writes into the node's name after the index.
    """
    if isinstance(step.get("withItems"), list):
        return _few([item_text(_filled(item, known)) for item in cast(list[object], step["withItems"])])
    if step.get("withSequence") is not None:
        return _sequence(step["withSequence"], known)
    if step.get("withParam") is not None:
        try:
            listed = json.loads(_text(step["withParam"], known))
        except ValueError:
            # Not a list yet: an expression over another task's output, which only that task will tell.
            return None
        return _few([item_text(item) for item in listed]) if isinstance(listed, list) else None
    return []


def fans_out(step: Raw) -> bool:
    """Tell whether the step asks for copies at all."""
    return any(step.get(key) is not None for key in ("withItems", "withSequence", "withParam"))


def item_text(item: object) -> str:
    """Spell an item as Argo does in the name of a node."""
    if isinstance(item, dict):
        # Argo prints a map item as sorted "key:value" pairs.
        return ",".join(sorted(f"{key}:{_plain(value)}" for key, value in item.items()))
    return _plain(item)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        # JSON's words, not Python's "True".
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _filled(item: object, known: Mapping[str, str]) -> object:
    return _text(item, known) if isinstance(item, str) else item


def _text(raw: object, known: Mapping[str, str]) -> str:
    text = raw if isinstance(raw, str) else json.dumps(raw)
    return _REFERENCE.sub(lambda found: known.get(found[1], found[0]), text)


def _few(texts: list[str]) -> list[str] | None:
    return texts if len(texts) <= _MOST else None


def _sequence(raw: object, known: Mapping[str, str]) -> list[str] | None:
    if not isinstance(raw, dict):
        return None
    try:
        start = int(_text(raw.get("start", "0"), known))
        if raw.get("count") is not None:
            numbers = range(start, start + int(_text(raw["count"], known)))
        else:
            end = int(_text(raw["end"], known))
            # `end` is included, and may lie below `start`.
            numbers = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    except (ValueError, KeyError):
        return None
    if abs(numbers.stop - numbers.start) > _MOST:  # before any is made: a tenant may ask for 10^18
        return None
    return [str(number) for number in numbers]


Raw = Mapping[str, object]
WITH_POD = ("container", "script", "resource", "data", "containerSet")
WITHOUT_POD = ("suspend", "http", "plugin")
_DEEP = 40
_MOST_CALLS, _MOST_EDGES = 50_000, 1_000_000
"""Uses of templates and edges of one workflow: a template that calls itself twice doubles at every level."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_WORDS = frozenset({"Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed"})
_INPUT = re.compile(r"\{\{\s*inputs\.parameters\.([\w.-]+)\s*\}\}")
_RETRY = re.compile(r"\(\d+\)$")
_BARE = re.compile(r"\(\d+\)")  # a retried template of templates has its number in the middle
_INDEX = re.compile(r"\((\d+):[^()]*\)")


@dataclass(frozen=True, slots=True)
class GraphTask:
    """One pod to come, or a placeholder for an unknown number of them.

    Attributes:
        id: Argo's name of the node, items left out: ``wf.a(0).b``.
        template: The template that it runs.
        placeholder: Stands for copies whose number only a finished task will tell.
        maybe: Has a condition, so it may never run.
    """

    id: str
    template: str
    parents: tuple[str, ...] = ()
    requests: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    placeholder: bool = False
    maybe: bool = False


Library = Callable[[str, str, bool], Raw | None]
"""Finds a template by the name of its WorkflowTemplate, its own name, and whether that is of the whole cluster."""


@dataclass(slots=True)
class Graph:
    """The tasks of one workflow in an order in which parents come first."""

    name: str
    tasks: dict[str, GraphTask] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: dict[str, None] = field(default_factory=dict)
    """Parts of its templates that are left out, each once."""
    _fans: dict[str, tuple[_Call, tuple[str, ...]]] = field(default_factory=dict)
    _builder: _Builder | None = None

    @classmethod
    def of(cls, workflow: Raw, library: Library | None = None) -> Graph:
        """Read a Workflow object (``metadata`` and ``spec``)."""
        metadata = _mapping(workflow.get("metadata"))
        # A Workflow as written to a file may have only `generateName`.
        graph = cls(str(metadata.get("name") or metadata.get("generateName") or "workflow"))
        spec = _whole_spec(_mapping(workflow.get("spec")), library, graph.name)
        builder = _Builder(graph, spec, library)
        graph._builder = builder
        entry = spec.get("entrypoint")
        if not isinstance(entry, str) or entry not in builder.templates:
            raise InvalidInput(graph.name, f"the entrypoint {entry!r} is not among its templates")
        builder.expand(_Call(builder.templates[entry], {}, False), graph.name, (), 0)
        return graph

    def find(self, node_name: str) -> str | None:
        """Find the task of a pod by Argo's node name, or None. Copies of a placeholder are made when first seen."""
        # As it stands first, then without the numbers of retries in its middle (`_BARE`); a copy's index
        # carries its item, so it stays.
        for id in (task_id(node_name), task_id(_BARE.sub("", node_name))):
            if id not in self.tasks:
                self._open_fans(id)
            if id in self.tasks:
                return id
        return None

    def _open_fans(self, id: str) -> None:
        """Make the copy of an unknown fan-out that this task belongs to."""
        # A list first: expanding may open fans within this one.
        for base in [base for base in self._fans if id.startswith(f"{base}(")]:
            end = id.find(")", len(base))
            call, parents = self._fans[base]
            if end > 0 and self._builder is not None:
                self._builder.expand(call, id[: end + 1], parents, 1)

    def placeholder_of(self, id: str) -> str | None:
        """Return the placeholder whose copy a task is, or None."""
        return next((f"{base}(*)" for base in self._fans if id.startswith(f"{base}(") and id != f"{base}(*)"), None)


def task_id(node_name: str) -> str:
    """Return Argo's node name without items and without the number of a retry."""
    # Two patterns share their brackets: "(2:item)" is a copy and keeps its index, "(1)" at the end is a
    # retry and goes. The "@" marks copies while retries are taken off.
    return _RETRY.sub("", _INDEX.sub(r"(\1@)", node_name)).replace("@)", ")")


@dataclass(frozen=True, slots=True)
class _Call:
    """One use of a template."""

    template: Raw
    scope: Mapping[str, Raw]
    maybe: bool
    arguments: Mapping[str, str] = field(default_factory=dict)


def _mapping(raw: object) -> Raw:
    return cast(Raw, raw) if isinstance(raw, dict) else {}


def _list(raw: object) -> list[Raw]:
    return [cast(Raw, entry) for entry in raw if isinstance(entry, dict)] if isinstance(raw, list) else []


def _whole_spec(spec: Raw, library: Library | None, name: str) -> Raw:
    """Return the spec with what a ``workflowTemplateRef`` brings; the workflow's own keys win."""
    reference = _mapping(spec.get("workflowTemplateRef"))
    if not reference:
        return spec
    found = library(str(reference.get("name")), "", bool(reference.get("clusterScope"))) if library else None
    if found is None:
        raise InvalidInput(name, f"the WorkflowTemplate {reference.get('name')!r} is not known")
    # As Argo merges them: keys of the Workflow over keys of the template.
    return {**_mapping(found.get("spec")), **spec}


class _Builder:
    """Walks templates and adds tasks to a graph."""

    def __init__(self, graph: Graph, spec: Raw, library: Library | None) -> None:
        self.graph, self.library = graph, library
        self.templates = {str(entry.get("name")): entry for entry in _list(spec.get("templates"))}
        self.known = parameters(spec)
        self.calls = self.edges = 0

    def expand(self, call: _Call, name: str, parents: tuple[str, ...], depth: int) -> tuple[str, ...]:
        """Add all tasks of one template's use; returns those that must end before what follows."""
        template = call.template
        # Counted before anything is made: a small spec can ask for exponentially many tasks.
        self.calls, self.edges = self.calls + 1, self.edges + len(parents)
        if self.calls > _MOST_CALLS or self.edges > _MOST_EDGES:
            raise InvalidInput(
                self.graph.name, f"its templates make more than {_MOST_CALLS:,} steps or {_MOST_EDGES:,} edges"
            )
        if depth > _DEEP:
            return self._placeholder(call, name, parents, f"templates nest deeper than {_DEEP}")
        if "dag" in template:
            return self._dag(call, name, parents, depth)
        if "steps" in template:
            return self._steps(call, name, parents, depth)
        if any(kind in template for kind in WITHOUT_POD):
            # No pod: what follows waits for what came before.
            return parents
        return self._leaf(call, name, parents)

    def _leaf(self, call: _Call, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        template = call.template
        # Order matters little: a template has one kind. Requests of a containerSet stand in its containers
        # and are not read.
        body = next((_mapping(template[kind]) for kind in WITH_POD if kind in template), {})
        requests = _mapping(_mapping(body.get("resources")).get("requests"))
        annotations = _mapping(_mapping(template.get("metadata")).get("annotations"))
        self.graph.tasks[name] = GraphTask(
            name,
            str(template.get("name", "")),
            parents,
            dict(self._readable(str(template.get("name", "")), requests)),
            {
                key: _INPUT.sub(lambda one: call.arguments.get(one[1], one[0]), str(value))
                for key, value in annotations.items()
            },
            maybe=call.maybe,
        )
        return (name,)

    def _readable(self, template: str, requests: Raw) -> Iterator[tuple[str, str]]:
        """Leave out amounts that nobody can read; the pod that Argo makes says what it needs."""
        for key, value in requests.items():
            try:
                quantity.exact(str(value))
            except InvalidInput:
                what = f"requests.{key} of template {template[:60]} is {str(value)[:60]!r}, no quantity: it is left out"
                self.graph.unread[what] = None
            else:
                yield key, str(value)

    def _placeholder(self, call: _Call, name: str, parents: tuple[str, ...], why: str) -> tuple[str, ...]:
        self.graph.notes.append(f"{name}: {why}")
        self.graph.tasks[name] = GraphTask(
            name, str(call.template.get("name", "")), parents, placeholder=True, maybe=call.maybe
        )
        return (name,)

    def _dag(self, call: _Call, name: str, parents: tuple[str, ...], depth: int) -> tuple[str, ...]:
        steps = {str(task.get("name")): task for task in _list(_mapping(call.template["dag"]).get("tasks"))}
        needs = {key: dependencies(task, steps) for key, task in steps.items()}
        exits: dict[str, tuple[str, ...]] = {}
        for key in in_order(needs, self.graph.name):
            # A DAG task without dependencies waits for whatever its whole DAG waits for.
            above = tuple(dict.fromkeys(exit for need in needs[key] for exit in exits[need])) or parents
            exits[key] = self._step(steps[key], f"{name}.{key}", above, call, depth)
        # Leaves of the DAG; what follows the template waits for all of them.
        last = [key for key in steps if not any(key in needs[other] for other in steps)]
        return tuple(dict.fromkeys(exit for key in last for exit in exits[key])) or parents

    def _steps(self, call: _Call, name: str, parents: tuple[str, ...], depth: int) -> tuple[str, ...]:
        groups = call.template["steps"]
        for number, group in enumerate(groups if isinstance(groups, list) else []):
            inner = _list(group if isinstance(group, list) else _mapping(group).get("steps"))
            exits = [
                exit
                for step in inner
                for exit in self._step(step, f"{name}[{number}].{step.get('name')}", parents, call, depth)
            ]
            # A group of steps without a pod passes on what came before it.
            parents = tuple(dict.fromkeys(exits)) or parents
        return parents

    def _step(self, step: Raw, name: str, parents: tuple[str, ...], outer: _Call, depth: int) -> tuple[str, ...]:
        template, scope = self._resolve(step, outer.scope)
        maybe = outer.maybe or "when" in step
        if template is None:
            self.graph.notes.append(f"{name}: its template is not known")
            return self._placeholder(_Call({}, scope, maybe), name, parents, "unknown template")
        call = _Call(template, scope, maybe, parameters(step))
        copies = items(step, self.known)
        if copies is None:
            # Kept, so that pods which appear later can make their copies (`_open_fans`).
            self.graph._fans[name] = (call, parents)
            return self._placeholder(call, f"{name}(*)", parents, "the number of copies is not known yet")
        if not fans_out(step):
            return self.expand(call, name, parents, depth + 1)
        exits = [exit for i in range(len(copies)) for exit in self.expand(call, f"{name}({i})", parents, depth + 1)]
        return tuple(dict.fromkeys(exits)) or parents

    def _resolve(self, step: Raw, scope: Mapping[str, Raw]) -> tuple[Raw | None, Mapping[str, Raw]]:
        """Return the template that a step uses, and the templates that it can name in turn."""
        if isinstance(step.get("inline"), dict):
            return _mapping(step["inline"]), scope
        reference = _mapping(step.get("templateRef"))
        if reference:
            where, wanted = str(reference.get("name")), str(reference.get("template"))
            holder = self.library(where, wanted, bool(reference.get("clusterScope"))) if self.library else None
            inside = {
                str(entry.get("name")): entry for entry in _list(_mapping((holder or {}).get("spec")).get("templates"))
            }
            return inside.get(wanted), inside
        wanted = str(step.get("template"))
        # Templates of the WorkflowTemplate that we are in go before the workflow's own of the same name.
        return scope.get(wanted) or self.templates.get(wanted), scope


def dependencies(task: Raw, steps: Iterable[str]) -> tuple[str, ...]:
    """Tell what a DAG task waits for: ``dependencies``, or the names in a ``depends`` expression."""
    listed = task.get("dependencies")
    if isinstance(listed, list):
        return tuple(str(name) for name in listed)
    known = set(steps)
    words = _NAME.findall(str(task.get("depends") or ""))
    # A task may be called "Failed": such a name is a task, though it is a word of the language too.
    return tuple(dict.fromkeys(word for word in words if word in known and word not in _WORDS - known))


def in_order(needs: Mapping[str, tuple[str, ...]], where: str) -> list[str]:
    """Sort keys so that everything they need comes before them. Raises InvalidInput on a cycle or an unknown name."""
    unknown = sorted({need for all_needs in needs.values() for need in all_needs} - set(needs))
    if unknown:
        raise InvalidInput(where, f"a task depends on {', '.join(unknown)}, which the DAG does not have")
    # Sets: `depends` may name one task several times ("a.Succeeded || a.Skipped").
    waiting = {key: len(set(all_needs)) for key, all_needs in needs.items()}
    below: dict[str, list[str]] = {}
    for key, all_needs in needs.items():
        for need in set(all_needs):
            below.setdefault(need, []).append(key)
    ready = [key for key, count in waiting.items() if count == 0]
    for key in ready:  # grows while we walk
        for child in below.get(key, []):
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    if len(ready) < len(needs):
        raise InvalidInput(where, f"the DAG has a cycle through {', '.join(sorted(set(needs) - set(ready)))}")
    return ready
