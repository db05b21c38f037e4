"""Argo Workflows, written only: a WfFormat document becomes a Workflow manifest that runs as it stands.

Every task becomes one pod that keeps its recorded cores busy for its recorded processor time and waits for the rest of
its runtime; nothing but a shell is needed. Files are not moved between pods, since a manifest has no storage of its
own; their sizes, the recorded program and whatever a scheduler wants to know travel as annotations of each pod.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.model.workflow import Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.traces import documents
from wattflow.traces.source import Probe, write_atomic

PREFIX = "wattflow.io/"
"""Start of the names of all annotations and labels that wattflow reads or writes on Kubernetes."""
IMAGE = "busybox:1.36"
_LETTERS = re.compile(r"[^a-z0-9]+")
# `ulimit -t` ends a loop by its own processor time, so a task on a crowded node does the same work
# and takes longer; a busy loop by the clock would do less.
_PROGRAM = (
    'n=0; while [ $n -lt "$2" ]; do (ulimit -t "$1"; while :; do :; done) 2>/dev/null & n=$((n+1)); done; wait; '
    'sleep "$3"; exit 0'
)
"""$1 whole processor seconds of each busy loop, $2 loops, $3 seconds of waiting."""


def claims(probe: Probe) -> bool:
    """Claim nothing: manifests are written, not read; `wattflow kube collect` brings finished workflows back."""
    return False


def read(path: Path) -> NoReturn:
    """Refuse, with the way that there is."""
    raise InvalidInput(str(path), "Argo manifests are only written; `wattflow kube collect` reads finished workflows")


def write(workload: Workload, path: Path) -> tuple[str, ...]:
    """Write one manifest per workflow, as documents of one YAML file. Returns what a manifest cannot hold."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("writing Argo manifests needs PyYAML: pip install 'wattflow[kube]'") from None
    found, dropped = documents.of_workload(workload)
    notes = list(dropped)
    if any(task.inputs or task.outputs for one in found for task in one.tasks):
        notes.append("contents of files (their sizes are annotations)")
    if any(task.command for one in found for task in one.tasks):
        notes.append("programs (each pod does their processor time; names are annotations)")
    manifests = [manifest(one) for one in found]
    text = yaml.safe_dump_all(manifests, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
    write_atomic(path, text.encode())
    return tuple(notes)


def manifest(workflow: Workflow) -> dict[str, object]:
    """Make one Workflow object as JSON values."""
    if not workflow.tasks:
        raise InvalidInput(workflow.name, "an Argo workflow needs at least one task and there is none")
    names = _named([task.id for task in workflow.tasks])
    kinds = _kinds(workflow.tasks)
    sizes = {file.id: file.size_bytes for file in workflow.files}
    # Names of Kubernetes objects: lower case, digits and dashes; 50 leave room for what Argo appends to
    # pods.
    labels = {_LETTERS.sub("-", workflow.name.lower()).strip("-")[:50] or "workflow": None}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": next(iter(labels)), "annotations": {f"{PREFIX}workflow": workflow.name}},
        "spec": {
            "entrypoint": "workflow",
            "arguments": {"parameters": [{"name": "image", "value": IMAGE}]},
            "templates": [
                {"name": "workflow", "dag": {"tasks": [_task(task, names, kinds, sizes) for task in workflow.tasks]}},
                *(_template(name, variant) for (_, variant), name in kinds.items()),
            ],
        },
    }


def _named(ids: Iterable[str]) -> dict[str, str]:
    """Give each id a name in the letters of Argo's tasks, unique."""
    taken: set[str] = set()
    names = {}
    for number, id in enumerate(ids):
        name = _LETTERS.sub("-", id.lower()).strip("-")[:60] or "task"
        # Two ids may become one name once their letters are replaced; the position is unique.
        if name in taken:
            name = f"{name[:50]}-{number}"
        taken.add(name)
        names[id] = name
    return names


def _kinds(tasks: Iterable[Task]) -> dict[tuple[str, Variant], str]:
    """Make one template for each function and need."""
    keys = list(dict.fromkeys((task.function, task.variants[0]) for task in tasks))
    names = _named(f"{function} {number}" if number else function for number, function in _counted(keys))
    return dict(zip(keys, names.values(), strict=True))


def _counted(keys: list[tuple[str, Variant]]) -> list[tuple[int, str]]:
    # The DAG's own template is called "workflow".
    seen: dict[str, int] = {"workflow": 1}
    found = []
    for function, _ in keys:
        found.append((seen.get(function.lower(), 0), function))
        seen[function.lower()] = seen.get(function.lower(), 0) + 1
    return found


def _template(name: str, variant: Variant) -> dict[str, object]:
    notes = ("task-id", "function", "runtime-s", "input-bytes", "output-bytes", "program")
    shown = {f"{PREFIX}{one}": f"{{{{inputs.parameters.{one}}}}}" for one in notes}
    return {
        "name": name,
        "inputs": {"parameters": [{"name": one} for one in (*notes, "cpu-s", "loops", "wait-s")]},
        "metadata": {"annotations": shown | _gpu(variant)},
        "container": {
            "image": "{{workflow.parameters.image}}",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", _PROGRAM, "task"],
            "args": [f"{{{{inputs.parameters.{one}}}}}" for one in ("cpu-s", "loops", "wait-s")],
            "resources": {"requests": _requests(variant)},
        },
    }


def _gpu(variant: Variant) -> dict[str, str]:
    # Whole GPUs are requested from the device plugin (`_requests`), shares by our annotations.
    if variant.device != "gpu" or variant.device_share >= 1:
        return {}
    return {f"{PREFIX}gpu-share": f"{variant.device_share:g}", f"{PREFIX}gpu-memory": str(variant.device_memory_bytes)}


def _requests(variant: Variant) -> dict[str, str]:
    # Up: a request below the need would overcommit the node.
    found = {"cpu": f"{math.ceil(variant.cores * 1000)}m"}
    if variant.memory_bytes:
        found["memory"] = str(variant.memory_bytes)
    if variant.device == "gpu" and variant.device_share >= 1:
        found["nvidia.com/gpu"] = str(max(1, variant.devices))
    return found


def _task(
    task: Task, names: dict[str, str], kinds: dict[tuple[str, Variant], str], sizes: dict[str, int]
) -> dict[str, object]:
    variant = task.variants[0]
    # A task without any time becomes one of a second, as on loading.
    runtime_s = task.runtime_s if task.runtime_s is not None else task.estimate_s or 1.0
    loops = max(1, math.ceil(variant.cores))
    busy = 1.0 if task.avg_cpu_pct is None else min(1.0, task.avg_cpu_pct / 100 / loops)
    # `ulimit -t` takes whole seconds; the rest is waited for.
    cpu_s = math.floor(runtime_s * busy)
    values = {
        "task-id": task.id,
        "function": task.function,
        "runtime-s": f"{runtime_s:.6g}",
        "input-bytes": str(sum(sizes.get(file, 0) for file in task.inputs)),
        "output-bytes": str(sum(sizes.get(file, 0) for file in task.outputs)),
        "program": task.command or "",
        "cpu-s": str(cpu_s),
        # No loop for less than a second: Linux lets a process with a limit of 0 run for one.
        "loops": str(loops if cpu_s else 0),
        "wait-s": f"{runtime_s - cpu_s:.3f}",
    }
    entry: dict[str, object] = {"name": names[task.id], "template": kinds[task.function, variant]}
    if task.parents:
        entry["dependencies"] = [names[parent] for parent in task.parents]
    entry["arguments"] = {"parameters": [{"name": key, "value": value} for key, value in values.items()]}
    return entry
