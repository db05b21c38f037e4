"""Writing WfFormat 1.5: standard fields where the schema has them, the ``wattflow`` extension for the rest."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wattflow.model.errors import InvalidInput
from wattflow.model.units import J_PER_KWH
from wattflow.model.workflow import Machine, Task, Workflow
from wattflow.model.workload import Workload
from wattflow.traces import documents, extension
from wattflow.traces.source import write_atomic, write_folder_atomic
from wattflow.traces.wfformat_parse import parse

SCHEMA_VERSION = "1.5"
UNKNOWN_TIME = "1970-01-01T00:00:00+00:00"
"""The schema demands a start time and a makespan: this and 0 where they are unknown; the extension then says so."""
_TASK_LETTERS = re.compile(r"[^0-9a-zA-Z\-_.#]")
_FILE_LETTERS = re.compile(r"[^0-9a-zA-Z\-_./:#]")
_RESERVED = frozenset({"name", "description", "createdAt", "schemaVersion", "workflow", "wms", extension.KEY})
_SYSTEMS = ("linux", "macos", "windows")
_NOT_STATED = frozenset({"schema_version", "tasks", "files"})


def write(workload: Workload, path: Path) -> tuple[str, ...]:
    """Write one workflow as a file; several as a folder with one file each."""
    as_file = path.name.lower().removesuffix(".gz").endswith(".json")
    # A log of many single jobs as one file: a folder of thousands of one-task documents would help
    # nobody.
    together = as_file and len(workload) > 1 and workload.one_task_each
    found, dropped = documents.of_workload(documents.as_one_workflow(workload) if together else workload)
    if together:
        dropped = (*dropped, "that each job is a workflow of its own: the file holds them as the tasks of one")
    if len(found) == 1:
        write_document(found[0], path)
    elif as_file:
        raise InvalidInput(
            str(path), f"WfFormat holds one workflow a file and this workload has {len(found)}; name a folder"
        )
    else:
        # Padded, so that files sort in the workload's order.
        width = len(str(len(found)))
        texts = [(f"{i:0{width}d}.json", dumps(one)) for i, one in enumerate(found)]
        write_folder_atomic(path, lambda folder: _write_all(folder, texts))
    return dropped


def _write_all(folder: Path, texts: list[tuple[str, str]]) -> None:
    for name, text in texts:
        (folder / name).write_text(text, encoding="utf-8")


def write_document(workflow: Workflow, path: Path) -> None:
    """Write one workflow, packed where the name ends in ``.gz``."""
    write_atomic(path, dumps(workflow).encode())


def dumps(workflow: Workflow) -> str:
    """Return the document as JSON text. Raises InvalidInput for values that JSON cannot hold."""
    try:
        # `allow_nan=False`: NaN is not JSON, though Python writes it.
        return json.dumps(to_json(workflow), indent=1, allow_nan=False) + "\n"
    except (ValueError, TypeError) as error:
        raise InvalidInput(workflow.name, f"cannot be written as JSON: {error}") from None


def to_json(workflow: Workflow) -> dict[str, object]:
    """Return the document as JSON values, valid against the schema of WfFormat 1.5."""
    if not workflow.tasks:
        raise InvalidInput(workflow.name, "WfFormat needs at least one task and there is none")
    ids = _spelled([task.id for task in workflow.tasks], _TASK_LETTERS)
    files = _spelled([file.id for file in workflow.files] + _loose_files(workflow), _FILE_LETTERS)
    children: dict[str, list[str]] = {task.id: [] for task in workflow.tasks}
    for task in workflow.tasks:
        for parent in task.parents:
            children.setdefault(parent, []).append(ids[task.id])
    entries = [_specified(task, ids, files, children[task.id]) for task in workflow.tasks]
    specification: dict[str, object] = {
        "tasks": entries,
        "files": [
            {"id": files[file.id], "sizeInBytes": file.size_bytes}
            | ({extension.KEY: {"id": file.id}} if files[file.id] != file.id else {})
            for file in workflow.files
        ],
    }
    inside: dict[str, object] = {"specification": specification}
    execution = _execution(workflow, ids)
    if execution is not None:
        inside["execution"] = execution
    raw = _head(workflow) | {"workflow": inside}
    stated = workflow.attributes.get("workflow")
    if isinstance(stated, dict):
        # Never over what we have just written.
        inside.update({key: value for key, value in stated.items() if key not in inside})
    # What a reader would now see is compared with what it should see; the differences are the extension.
    seen, problems = parse(raw)
    if seen is None:
        raise InvalidInput(workflow.name, problems)
    real = {safe: id for id, safe in ids.items()}
    for entry, was, wanted in zip(entries, seen.tasks, workflow.tasks, strict=True):
        # Ids were respelled for the schema; compared as the reader will see them after the extension is
        # applied.
        spelled = dataclasses.replace(was, parents=tuple(real[parent] for parent in was.parents))
        more = extension.differing(spelled, wanted)
        if more:
            entry[extension.KEY] = more
    outer = extension.differing(seen, workflow, _NOT_STATED)
    if outer:
        raw[extension.KEY] = {"version": extension.VERSION} | outer
    return raw


def _head(workflow: Workflow) -> dict[str, object]:
    head: dict[str, object] = {"name": workflow.name or "workflow"}
    if workflow.description:
        head["description"] = workflow.description
    if workflow.created_at:
        head["createdAt"] = workflow.created_at
    head["schemaVersion"] = SCHEMA_VERSION
    for key, value in workflow.attributes.items():
        # What the schema would refuse here survives in the extension, as a difference.
        if key in _RESERVED or not _fits(key, value):
            continue
        head[key] = value
    return head


def _fits(key: str, value: object) -> bool:
    """Tell whether the schema allows this value under this key of the document."""
    needs = {"author": ("name", "email"), "runtimeSystem": ("name", "version")}.get(key)
    if needs is None:
        return True
    return (
        isinstance(value, dict)
        and all(value.get(need) for need in needs)
        and all(isinstance(inner, str) and inner for inner in value.values())
    )


def _loose_files(workflow: Workflow) -> list[str]:
    """Return files that tasks name and the list of files does not."""
    listed = {file.id for file in workflow.files}
    return [f for task in workflow.tasks for f in (*task.inputs, *task.outputs) if f not in listed]


def _spelled(ids: list[str], letters: re.Pattern[str]) -> dict[str, str]:
    """Spell each id in letters that the schema allows, unique; ids that are fine stay."""
    # Ids that are fine keep their spelling and must not be taken by a respelled one.
    taken = {id for id in ids if id and not letters.search(id)}
    spelled: dict[str, str] = {}
    # The position is unique, so most respelled ids need no second try.
    for number, id in enumerate(dict.fromkeys(ids)):
        safe = id
        if id not in taken:
            safe, turn = f"{letters.sub('_', id)}.{number}", 0
            while safe in taken:
                turn += 1
                safe = f"{letters.sub('_', id)}.{number}.{turn}"
            taken.add(safe)
        spelled[id] = safe
    return spelled


def _specified(task: Task, ids: dict[str, str], files: dict[str, str], children: list[str]) -> dict[str, object]:
    return {
        "name": task.name or ids[task.id],
        "id": ids[task.id],
        "parents": [ids.get(parent, parent) for parent in task.parents],
        "children": children,
        "inputFiles": [files[file] for file in task.inputs],
        "outputFiles": [files[file] for file in task.outputs],
    }


def _execution(workflow: Workflow, ids: dict[str, str]) -> dict[str, object] | None:
    """Tell what was recorded; None where no runtime is known, since the schema has no execution without one."""
    origin = _moment(workflow.executed_at)
    tasks = [_executed(task, ids[task.id], origin) for task in workflow.tasks if task.runtime_s is not None]
    if not tasks:
        return None
    execution: dict[str, object] = {
        "makespanInSeconds": workflow.makespan_s if workflow.makespan_s is not None else 0.0,
        "executedAt": workflow.executed_at or UNKNOWN_TIME,
        "tasks": tasks,
    }
    machines = [_machine(machine) for machine in workflow.machines if machine.name]
    if machines:
        execution["machines"] = machines
    return execution


def _executed(task: Task, id: str, origin: datetime | None) -> dict[str, object]:
    entry: dict[str, object] = {"id": id, "runtimeInSeconds": task.runtime_s}
    if task.start_s is not None and origin is not None:
        entry["executedAt"] = (origin + timedelta(seconds=task.start_s)).isoformat()
    command: dict[str, object] = {"program": task.command} if task.command else {}
    if task.arguments and all(task.arguments):
        command["arguments"] = list(task.arguments)
    if command:
        entry["command"] = command
    first = task.variants[0]
    # One core and no memory is what a reader assumes; a fraction below one is not allowed by the
    # schema.
    if first.cores > 1 or (first.cores == 1 and first.memory_bytes):
        entry["coreCount"] = int(first.cores) if float(first.cores).is_integer() else first.cores
    values = {
        "avgCPU": task.avg_cpu_pct,
        "readBytes": task.read_bytes,
        "writtenBytes": task.written_bytes,
        "memoryInBytes": task.peak_memory_bytes,
        "energyInKWh": None if task.energy_j is None else task.energy_j / J_PER_KWH,
        "avgPowerInW": task.avg_power_w,
        "priority": task.priority,
    }
    entry |= {key: value for key, value in values.items() if value is not None}
    if task.machine:
        entry["machines"] = [task.machine]
    return entry


def _machine(machine: Machine) -> dict[str, object]:
    entry: dict[str, object] = {"nodeName": machine.name}
    if machine.system in _SYSTEMS:
        entry["system"] = machine.system
    texts = {"architecture": machine.architecture, "release": machine.release}
    entry |= {key: value for key, value in texts.items() if value}
    if machine.memory_bytes:
        entry["memoryInBytes"] = machine.memory_bytes
    cpu: dict[str, object] = {"coreCount": machine.cores} if machine.cores else {}
    # The schema wants a whole number of MHz.
    if machine.speed_mhz is not None and machine.speed_mhz >= 1 and machine.speed_mhz.is_integer():
        cpu["speedInMHz"] = int(machine.speed_mhz)
    if machine.cpu_vendor:
        cpu["vendor"] = machine.cpu_vendor
    if cpu:
        entry["cpu"] = cpu
    return entry


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
