"""A workflow as a document: tasks by name, files, recorded machines. What readers of WfFormat see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattflow.model.profile import Provenance


@dataclass(frozen=True, slots=True)
class File:
    """A file that tasks read or write."""

    id: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a task, with its needs.

    Attributes:
        cores: Hardware threads it keeps busy; the request and the limit.
        device: ``"gpu"``, ``"fpga"`` or None.
        devices: How many devices on one node; 0 without a device.
        device_share: Share of each device (part of its SMs), 0 < share ≤ 1; below 1 only with one device.
        device_duty: Part of the run for which it keeps that share busy, 0 < duty ≤ 1; the rest is spent on the host.
        device_duty_from: ``measured`` or ``assumed``.
        runtime_factor: Runtime relative to the task's ``runtime_s``.
        features: Tags that the node must have.
    """

    name: str = "cpu"
    cores: float = 1.0
    memory_bytes: int = 0
    device: str | None = None
    devices: int = 0
    device_share: float = 1.0
    device_memory_bytes: int = 0
    device_models: tuple[str, ...] = ()
    runtime_factor: float = 1.0
    architecture: str | None = None
    features: tuple[str, ...] = ()
    device_duty: float = 1.0
    device_duty_from: str = "assumed"


@dataclass(frozen=True, slots=True)
class Function:
    """Name what a task executes. Tasks of one function share warm containers and per-function speeds.

    Attributes:
        cold_start_s: Time to make a container for it.
        compute_bound: Share of the runtime that scales with frequency; the rest does not.
        failure_rate: Probability that an attempt fails.
        checkpoint_s: Seconds of work between checkpoints; 0 means none.
        checkpoint_cost_s: Extra work at each checkpoint.
    """

    name: str
    cold_start_s: float = 0.0
    compute_bound: float = 1.0
    failure_rate: float = 0.0
    checkpoint_s: float = 0.0
    checkpoint_cost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a workflow. Unknown values are None.

    Attributes:
        runtime_s: Seconds on a node of speed 1, alone.
        variants: Ways to run it; the first is the recorded or usual one.
        parts: Equal parts that start together on any nodes (gang, multi-node job).
        submit_s: Earliest start, seconds after the workflow's own submission.
        deadline_s: Seconds after the workflow's submission.
    """

    id: str
    name: str
    function: str
    runtime_s: float | None
    variants: tuple[Variant, ...] = (Variant(),)
    parents: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parts: int = 1
    submit_s: float = 0.0
    deadline_s: float | None = None
    estimate_s: float | None = None
    machine: str | None = None
    start_s: float | None = None
    command: str | None = None
    arguments: tuple[str, ...] = ()
    avg_cpu_pct: float | None = None
    peak_memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    priority: float | None = None
    energy_j: float | None = None
    avg_power_w: float | None = None
    energy_provenance: Provenance | None = None
    energy_error: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine named in a recorded workflow. ``speed_mhz`` is the momentary clock at capture, not a rating."""

    name: str
    cores: int | None = None
    memory_bytes: int | None = None
    speed_mhz: float | None = None
    cpu_vendor: str | None = None
    architecture: str | None = None
    system: str | None = None
    release: str | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """A DAG of tasks with what was recorded about its execution."""

    name: str
    tasks: tuple[Task, ...]
    files: tuple[File, ...] = ()
    machines: tuple[Machine, ...] = ()
    functions: tuple[Function, ...] = ()
    submit_s: float = 0.0
    deadline_s: float | None = None
    makespan_s: float | None = None
    executed_at: str | None = None
    created_at: str | None = None
    description: str | None = None
    schema_version: str | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


class Transfers:
    """Bytes that the tasks of a workflow read: a file that a parent wrote comes from it, any other from storage."""

    def __init__(self, workflow: Workflow) -> None:
        self._sizes = {file.id: file.size_bytes for file in workflow.files}
        # A list: some recorded workflows write one file from several tasks.
        self._writers: dict[str, list[str]] = {}
        for task in workflow.tasks:
            for file in task.outputs:
                self._writers.setdefault(file, []).append(task.id)

    def read(self, task: Task) -> tuple[int, dict[str, int]]:
        """Return the bytes that a task reads from storage, and those that each parent hands over."""
        outside, handed = 0, dict.fromkeys(task.parents, 0)
        for file in task.inputs:
            # Of several writers of one file, the one that this task waits for hands it over.
            giver = next((writer for writer in self._writers.get(file, ()) if writer in handed), None)
            size = self._sizes.get(file, 0)
            if giver is None:
                outside += size
            else:
                handed[giver] += size
        return outside, handed

    def written(self, task: Task) -> int:
        """Return the bytes that a task writes."""
        return sum(self._sizes.get(file, 0) for file in task.outputs)
