"""A WfFormat document, parsed from JSON, as a Workflow: every field by each of its names, every problem told."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime

from wattflow.model.errors import Problem
from wattflow.model.units import J_PER_KWH
from wattflow.model.workflow import File, Machine, Task, Variant, Workflow
from wattflow.traces import extension
from wattflow.traces.wfformat_schema import VERSIONS, Check, check_graph, check_task

_RUNTIME = {"runtimeInSeconds": 1.0, "runtime": 1.0}
_CORES = {"coreCount": 1.0, "cores": 1.0}
# Unit factors by key: the old names of versions up to 1.3 are in kB of 1,000 bytes.
_MEMORY = {"memoryInBytes": 1.0, "memory": 1000.0}
_READ = {"readBytes": 1.0, "bytesRead": 1000.0}
_WRITTEN = {"writtenBytes": 1.0, "bytesWritten": 1000.0}
_ENERGY_KWH = {"energyInKWh": 1.0, "energy": 1.0}
_POWER = {"avgPowerInW": 1.0, "avgPower": 1.0}
_SIZE = {"sizeInBytes": 1.0, "size": 1.0}
_TOP = frozenset({"name", "description", "createdAt", "schemaVersion", "workflow", "wms", extension.KEY})
_INSIDE = frozenset(
    {"specification", "execution", "jobs", "tasks", "machines", "makespan", "makespanInSeconds", "executedAt"}
)
# Lazy, so that "ID0001" and "_00002" both go to the number, not to the name.
_NUMBERED = re.compile(r"(.+?)[_.-]?(?:ID)?\d+")


def parse(raw: object, name: str = "workflow") -> tuple[Workflow | None, tuple[Problem, ...]]:
    """Turn a parsed JSON document into a Workflow, or None with the problems that stand against it."""
    check = Check()
    workflow = _Document(raw, check).workflow(name) if isinstance(raw, dict) else None
    if not isinstance(raw, dict):
        check.problem("$", f"must be an object with the key 'workflow', not {extension.shown(raw)}")
    return (None if check.problems else workflow), tuple(check.problems)


class _Document:
    """One document being read."""

    def __init__(self, raw: dict[str, object], check: Check) -> None:
        self.raw, self.check = raw, check
        self.inside = check.inner(raw, "workflow", "$") or {}
        if not self.inside and not check.problems:
            check.problem("$", "has no 'workflow' object")
        self.specification = check.inner(self.inside, "specification", "workflow")
        self.execution = check.inner(self.inside, "execution", "workflow") or {}
        flat = self.specification is None
        # Flat documents have facts of the run beside the tasks, later ones in `execution`.
        self.facts = self.inside if flat else self.execution
        self.facts_at = "workflow" if flat else "workflow.execution"
        self.executed_at = check.text(self.facts, "executedAt", self.facts_at)
        self.origin = parse_time(self.executed_at)

    def workflow(self, name: str) -> Workflow | None:
        check, raw = self.check, self.raw
        version = check.text(raw, "schemaVersion", "$")
        if version is not None and version not in VERSIONS:
            check.problem("$.schemaVersion", f"{version!r} is not known; known: {', '.join(VERSIONS)}")
        tasks, files = self._flat() if self.specification is None else self._split()
        workflow = Workflow(
            name=check.text(raw, "name", "$") or name,
            tasks=tuple(tasks),
            files=tuple(files),
            machines=self._machines(),
            makespan_s=check.number(self.facts, {"makespanInSeconds": 1.0, "makespan": 1.0}, self.facts_at),
            executed_at=self.executed_at,
            created_at=check.text(raw, "createdAt", "$"),
            description=check.text(raw, "description", "$"),
            schema_version=version,
            attributes=self._attributes(),
        )
        outer = raw.get(extension.KEY)
        if isinstance(outer, dict):
            # Our extension's version is no field of a workflow.
            outer = {key: value for key, value in outer.items() if key != "version"}
        return extension.merged(workflow, outer, f"$.{extension.KEY}", check)

    def _attributes(self) -> dict[str, object]:
        kept = {key: value for key, value in self.raw.items() if key not in _TOP}
        if "wms" in self.raw:
            # Up to 1.4 the key was `wms`.
            kept.setdefault("runtimeSystem", self.raw["wms"])
        inside = {key: value for key, value in self.inside.items() if key not in _INSIDE}
        return kept | ({"workflow": inside} if inside else {})

    def _split(self) -> tuple[list[Task], list[File]]:
        """Return tasks and files of specification and execution (1.5 and later)."""
        check, specification = self.check, self.specification or {}
        at = "workflow.specification"
        executed: dict[str, tuple[str, dict[str, object]]] = {}
        for where, entry in check.objects(self.execution, "tasks", "workflow.execution"):
            id = check.text(entry, "id", where)
            if not id:
                check.problem(where, "has no 'id'")
            elif id in executed:
                check.problem(where, f"the id {id!r} is already used by {executed[id][0]}")
            else:
                executed[id] = (where, entry)
        files, renamed = self._files(specification, at)
        places, tasks, natives = list[str](), list[Task](), list[str]()
        children: list[tuple[str, ...]] = []
        for where, entry in check.objects(specification, "tasks", at):
            id = check.text(entry, "id", where) or ""
            if not id:
                check.problem(where, "has no 'id'")
            # Popped: what is left afterwards was executed and never specified.
            run_at, run = executed.pop(id, (where, {}))
            task = self._task(id, entry, (run_at, run))
            task = dataclasses.replace(
                task,
                # Names of files and tasks may have been respelled for the schema; the extension has the real ones.
                inputs=tuple(renamed.get(f, f) for f in check.texts(entry, "inputFiles", where)),
                outputs=tuple(renamed.get(f, f) for f in check.texts(entry, "outputFiles", where)),
                parents=tuple(dict.fromkeys(check.texts(entry, "parents", where))),
            )
            children.append(check.texts(entry, "children", where))
            # Before the extension is merged, which may give the task another id; lists of children use this
            # one.
            natives.append(id)
            places.append(where)
            # After the standard fields, so that it can be compared with them (`extension.merged`).
            task = extension.merged(task, entry.get(extension.KEY), f"{where}.{extension.KEY}", check)
            check_task(check, f"{where}.{extension.KEY}", task)
            tasks.append(task)
        for id, (where, _) in executed.items():
            check.problem(where, f"the task {id!r} was executed but is not in the specification")
        return self._graph(places, tasks, natives, children), files

    def _files(self, specification: dict[str, object], at: str) -> tuple[list[File], dict[str, str]]:
        """Return the files, and for ids that the schema's letters could not spell, how they are really called."""
        found: dict[str, File] = {}
        renamed: dict[str, str] = {}
        for where, entry in self.check.objects(specification, "files", at):
            id = self.check.text(entry, "id", where)
            if not id:
                self.check.problem(where, "has no 'id'")
                continue
            size = self.check.whole(entry, _SIZE, where) or 0
            file = extension.merged(File(id, size), entry.get(extension.KEY), f"{where}.{extension.KEY}", self.check)
            if file.id != id:
                renamed[id] = file.id
            # The same file may be listed by several tasks; only a contradiction is a problem.
            if file.id in found and found[file.id].size_bytes != size:
                self.check.problem(where, f"the file {file.id!r} is listed before with another size")
            found.setdefault(file.id, file)
        return list(found.values()), renamed

    def _flat(self) -> tuple[list[Task], list[File]]:
        """Return tasks with their files inside (1.0 to 1.4)."""
        check = self.check
        key = "jobs" if "jobs" in self.inside else "tasks"
        places, tasks, natives = list[str](), list[Task](), list[str]()
        children: list[tuple[str, ...]] = []
        files: dict[str, File] = {}
        by_name: dict[str, str] = {}
        for where, entry in check.objects(self.inside, key, "workflow"):
            name = check.text(entry, "name", where) or ""
            id = check.text(entry, "id", where) or name
            if not id:
                check.problem(where, "has neither 'name' nor 'id'")
            # Older documents name parents by task name, not by id; of equal names the first counts.
            by_name.setdefault(name, id)
            task = self._task(id, entry, (where, entry))
            inputs, outputs = self._links(entry, where, files)
            parents = tuple(dict.fromkeys(check.texts(entry, "parents", where)))
            tasks.append(dataclasses.replace(task, inputs=inputs, outputs=outputs, parents=parents))
            children.append(check.texts(entry, "children", where))
            natives.append(id)
            places.append(where)
        # Both lists together: a parent may come after its child in the document.
        known = set(natives)
        tasks = [
            dataclasses.replace(task, parents=tuple(p if p in known else by_name.get(p, p) for p in task.parents))
            for task in tasks
        ]
        children = [tuple(c if c in known else by_name.get(c, c) for c in names) for names in children]
        return self._graph(places, tasks, natives, children), list(files.values())

    def _links(
        self, entry: dict[str, object], where: str, files: dict[str, File]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return input and output file names of a flat task; sizes go into ``files``."""
        sides: dict[str, dict[str, None]] = {"input": {}, "output": {}}
        for at, link in self.check.objects(entry, "files", where):
            name = self.check.text(link, "name", at)
            side = (self.check.text(link, "link", at) or "").lower()
            if not name or side not in sides:
                self.check.problem(at, "needs a 'name' and a 'link' that is input or output")
                continue
            # Old documents split a file's name into path and name.
            name = (self.check.text(link, "path", at) or "") + name
            size = self.check.whole(link, _SIZE, at) or 0
            files.setdefault(name, File(name, size))
            sides[side][name] = None
        return tuple(sides["input"]), tuple(sides["output"])

    def _task(self, id: str, entry: dict[str, object], run: tuple[str, dict[str, object]]) -> Task:
        """Tell what both forms say of a task: ``entry`` holds its name, ``run`` what was measured."""
        check, (at, facts) = self.check, run
        name = check.text(entry, "name", at) or id
        command = check.inner(facts, "command", at) or {}
        memory = check.whole(facts, _MEMORY, at)
        # Versions differ: a list, or one name.
        machines = check.texts(facts, "machines", at) or ((check.text(facts, "machine", at) or ""),)
        energy_kwh = check.number(facts, _ENERGY_KWH, at)
        start = parse_time(check.text(facts, "executedAt", at))
        return Task(
            id=id,
            name=name,
            function=check.text(entry, "category", at) or function_of(name),
            runtime_s=check.number(facts, _RUNTIME, at),
            # Zero cores are written by some tools for "unknown".
            variants=(Variant(cores=check.number(facts, _CORES, at) or 1.0, memory_bytes=memory or 0),),
            machine=machines[0] or None,
            start_s=start - self.origin if start is not None and self.origin is not None else None,
            command=check.text(command, "program", f"{at}.command"),
            arguments=check.texts(command, "arguments", f"{at}.command") or check.texts(facts, "arguments", at),
            avg_cpu_pct=check.number(facts, {"avgCPU": 1.0}, at),
            peak_memory_bytes=memory,
            read_bytes=check.whole(facts, _READ, at),
            written_bytes=check.whole(facts, _WRITTEN, at),
            # Priorities may be negative.
            priority=check.number(facts, {"priority": 1.0}, at, minimum=None),
            energy_j=None if energy_kwh is None else energy_kwh * J_PER_KWH,
            avg_power_w=check.number(facts, _POWER, at),
        )

    def _graph(
        self, places: list[str], tasks: list[Task], natives: list[str], children: list[tuple[str, ...]]
    ) -> list[Task]:
        """Resolve names of parents, add the edges that only children lists have, and check the graph's laws."""
        if not tasks:
            self.check.problem("workflow", "has no tasks")
        real = {native: task.id for native, task in zip(natives, tasks, strict=True)}
        extra: dict[str, list[str]] = {}
        for place, task, below in zip(places, tasks, children, strict=True):
            for child in below:
                if child not in real:
                    self.check.problem(place, f"its child {child!r} is not in the workflow")
                else:
                    extra.setdefault(real[child], []).append(task.id)
        joined = []
        for task in tasks:
            # Union of both directions: some documents fill only one of the lists.
            parents = dict.fromkeys([real.get(parent, parent) for parent in task.parents] + extra.get(task.id, []))
            joined.append(dataclasses.replace(task, parents=tuple(parents)))
        check_graph(self.check, places, [task.id for task in joined], [task.parents for task in joined])
        return joined

    def _machines(self) -> tuple[Machine, ...]:
        check, found = self.check, []
        for where, entry in check.objects(self.facts, "machines", self.facts_at):
            cpu = check.inner(entry, "cpu", where) or {}
            name = check.text(entry, "nodeName", where)
            if not name:
                check.problem(where, "has no 'nodeName'")
            found.append(
                Machine(
                    name=name or "",
                    cores=check.whole(cpu, {"coreCount": 1.0, "count": 1.0}, f"{where}.cpu"),
                    memory_bytes=check.whole(entry, _MEMORY, where),
                    speed_mhz=check.number(cpu, {"speedInMHz": 1.0, "speed": 1.0}, f"{where}.cpu"),
                    cpu_vendor=check.text(cpu, "vendor", f"{where}.cpu"),
                    architecture=check.text(entry, "architecture", where),
                    system=check.text(entry, "system", where),
                    release=check.text(entry, "release", where),
                )
            )
        return tuple(found)


def function_of(name: str) -> str:
    """Tell what a task executes, by its name without the number that makes it unique: ``blast_00002`` is ``blast``."""
    match = _NUMBERED.fullmatch(name)
    return match[1] if match else name


def parse_time(text: str | None) -> float | None:
    """Parse seconds since 1970 of an ISO 8601 time; without a zone it is UTC. None where it is not one."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        # Times without a zone are taken for UTC, so that differences within a document are right.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
