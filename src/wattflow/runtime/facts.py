"""The one codec between the model's facts and the wire's words for them, both ways.

Variants, functions and tasks lose nothing on the way: the tests send every generated document through here and compare
what the engine is told with what the simulator is told. What the wire has no word for is refused by its name
(`unsaid`). A node's announcement says what an agent can know; what a described node has beside it is named by
`unplayed`. A workflow document becomes a submission by `submissions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields

from wattflow.levels.clock_grid import frequencies_of
from wattflow.model import cluster as model
from wattflow.model.cluster import DeviceLevels, FunctionLevels
from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.profile import DeviceProfile, PowerProfile, Provenance, Scope
from wattflow.model.workflow import Function, Task, Transfers, Variant, Workflow
from wattflow.model.workflow import Task as ModelTask
from wattflow.runtime import messages as m

BATCH = 500
KEY = re.compile(r"[^/\x00-\x1f]+\Z")
"""Ids that a server takes as keys (`messages.Key`)."""


def submissions(workflow: Workflow, objective: m.Objective | None = None, retries: int = 0) -> Iterator[m.Submission]:
    """Cut a document into batches, parents first, sealed with the last; refuse by name what a server cannot honour."""
    if problems := [Problem(f"task {task.id}", what) for task in workflow.tasks for what in _refused(task)]:
        raise InvalidInput(workflow.name, problems)
    name = m.as_name(workflow.name, "workflow")
    identity = m.workflow_id(name)
    ordered, transfers = _parents_first(workflow), Transfers(workflow)
    functions = [function_message(function) for function in workflow.functions]
    for start in range(0, len(ordered), BATCH):
        tasks = [_task(task, retries, *transfers.read(task)) for task in ordered[start : start + BATCH]]
        yield m.Submission(workflow=identity, name=name, tasks=tasks, seal=start + BATCH >= len(ordered),
                           objective=objective, deadline_s=workflow.deadline_s,
                           functions=[] if start else functions)  # fmt: skip


def _refused(task: ModelTask) -> Iterator[str]:
    if not task.command:
        yield "has no command.program to run"
    if not KEY.match(task.id) or len(task.id) > 200:
        yield "its id holds a / or a control character, or is longer than 200: rename it in the document"
    yield from unsaid(task)


def _task(task: ModelTask, retries: int, input_bytes: int, handed_bytes: dict[str, int]) -> m.Task:
    return m.Task(
        key=task.id, name=task.name[:200] or task.id, function_name=(task.function or task.name)[:200] or task.id,
        command=[task.command or "", *task.arguments], parents=list(task.parents), retries=retries,
        variants=[variant_message(variant) for variant in task.variants],
        estimate_s=task.runtime_s if task.estimate_s is None else task.estimate_s,
        deadline_s=task.deadline_s, submit_s=task.submit_s, input_bytes=input_bytes,
        handed_bytes={key: size for key, size in handed_bytes.items() if size},
    )  # fmt: skip


def _parents_first(workflow: Workflow) -> list[ModelTask]:
    by_id = {task.id: task for task in workflow.tasks}
    waiting = {task.id: len(task.parents) for task in workflow.tasks}
    children: dict[str, list[str]] = {}
    for task in workflow.tasks:
        for parent in task.parents:
            children.setdefault(parent, []).append(task.id)
    ready = [identity for identity, count in waiting.items() if count == 0]
    ordered = []
    for identity in ready:
        ordered.append(by_id[identity])
        for child in children.get(identity, ()):
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    if len(ordered) < len(by_id):
        raise InvalidInput(workflow.name, "its tasks wait for each other in a circle")
    return ordered


SLEEP_SHARE = 0.1
"""Guess of what a sleeping node draws, of its idle watts: memory that is kept, its controller, its power supply."""
_ANNOUNCED = frozenset({
    "name", "cores", "memory_bytes", "threads_per_core", "allocatable_cores", "speed", "architecture", "features",
    "power", "devices", "sleep", "keep_alive_s", "tdp_w", "embodied_kg", "lifetime_years", "zone", "price_per_hour",
})  # fmt: skip
"""Fields of a described node that are announced, or that only accounts of money and carbon read."""


def variant_of(told: m.Variant, duty: float | None = None) -> Variant:
    """Decode a variant. ``duty`` is what was measured on its GPU; without it the variant's own counts."""
    device = "fpga" if told.fpga or told.fpgas else "gpu" if told.gpu > 0 else None
    # One number on the wire: below 1 a share of one device, from 1 on whole ones.
    whole = told.gpu >= 1
    return Variant(
        name=told.name, cores=told.cpus, memory_bytes=told.memory_bytes, device=device,
        devices=max(1, told.fpgas) if device == "fpga" else int(told.gpu) if whole else int(told.gpu > 0),
        device_share=told.gpu if device == "gpu" and not whole else 1.0,
        device_memory_bytes=told.gpu_memory_bytes, device_models=told.device_models,
        runtime_factor=told.runtime_factor, architecture=told.architecture, features=told.features,
        device_duty=told.device_duty if duty is None else duty,
        device_duty_from=told.device_duty_from if duty is None or duty == 1 else "measured",
    )  # fmt: skip


def variant_message(variant: Variant) -> m.Variant:
    """Encode a variant."""
    return m.Variant(
        name=variant.name, cpus=variant.cores, memory_bytes=variant.memory_bytes,
        gpu=variant.devices * variant.device_share if variant.device == "gpu" else 0.0,
        gpu_memory_bytes=variant.device_memory_bytes, fpgas=variant.devices if variant.device == "fpga" else 0,
        runtime_factor=variant.runtime_factor, architecture=variant.architecture, features=variant.features,
        device_models=variant.device_models, device_duty=variant.device_duty,
        device_duty_from=variant.device_duty_from,  # type: ignore[arg-type]
    )  # fmt: skip


def function_of(told: m.Function) -> Function:
    """Decode a function."""
    return Function(**{field.name: getattr(told, field.name) for field in fields(Function)})


def function_message(function: Function) -> m.Function:
    """Encode a function."""
    return m.Function(**{field.name: getattr(function, field.name) for field in fields(Function)})


def unsaid(task: Task) -> Iterator[str]:
    """Name the facts of a task that no server can honour."""
    if task.parts != 1:
        yield f"parts = {task.parts}: a server starts tasks of one part"
    for variant in task.variants:
        if variant.device not in (None, "gpu", "fpga"):
            yield f"device = {variant.device!r}: a server knows gpu and fpga"
        elif variant.device is not None and variant.device_share < 1 and variant.devices != 1:
            yield f"device_share = {variant.device_share:g} of {variant.devices} devices: a share is of one device"


def node_of(told: m.Node) -> model.Node:
    """Decode a node's announcement."""
    power = None
    if told.busy:
        curve = PowerProfile(tuple(told.busy), tuple(told.watts), Scope.PACKAGE, Provenance(told.provenance))
        power = curve.up_to(max(1, int(told.cpus)))  # of a machine that is larger than what this node may use
    devices = tuple(device_of(device) for device in told.devices)
    sleep = model.Sleep(watts=asleep_w(told), wake_s=told.wake_s, wake_w=told.wake_w) if told.sleeps else None
    return model.Node(
        name=told.name, cores=max(1, int(told.cpus)), allocatable_cores=told.cpus, memory_bytes=told.memory_bytes,
        architecture=told.architecture, features=tuple(told.features), power=power, devices=devices, speed=told.speed,
        sleep=sleep, keep_alive_s=told.keep_alive_s, frequencies=frequencies_of(told.clocks_mhz),
    )  # fmt: skip


def node_message(node: model.Node) -> m.Node:
    """Encode a described node as it would announce itself."""
    power, sleep = node.power, node.sleep
    return m.Node(
        name=node.name, cpus=node.request_cores, memory_bytes=node.memory_bytes, architecture=node.architecture,
        features=list(node.features), devices=[device_message(device) for device in node.devices],
        busy=list(power.busy) if power is not None else [], watts=list(power.watts) if power is not None else [],
        provenance=power.provenance.value if power is not None else "modelled", speed=node.speed,
        sleeps=sleep is not None, wake_s=sleep.wake_s if sleep is not None else 0.0,
        wake_w=sleep.wake_w if sleep is not None else None, sleep_w=sleep.watts if sleep is not None else None,
        keep_alive_s=min(node.keep_alive_s, m.LONGEST_S),
    )  # fmt: skip


def unplayed(node: model.Node) -> list[str]:
    """Name the facts of a described node that a played one leaves out."""
    lacking = [field.name for field in fields(node) if field.name not in _ANNOUNCED and _differs(node, field)]
    if node.threads_per_core > 1 and node.smt_slowdown == 1.5:  # by default threads of a core slow each other down
        lacking.append("smt_slowdown")
    return lacking


def _differs(record: object, field: object) -> bool:
    """Return whether a field has another value than its default."""
    name, default, factory = (getattr(field, at) for at in ("name", "default", "default_factory"))
    usual = factory() if default is MISSING else default
    return bool(getattr(record, name) != usual)


def device_of(told: m.Device) -> model.Device:
    """Decode a device's announcement."""
    power = DeviceProfile()
    if told.busy:
        power = DeviceProfile(tuple(told.busy), tuple(told.watts), Provenance(told.provenance))
    elif told.idle_w is not None and told.full_w is not None:
        power = DeviceProfile((0.0, 1.0), (told.idle_w, told.full_w), Provenance.GUESSED)
    return model.Device(
        kind=told.kind, model=told.model, memory_bytes=told.memory_bytes, sharing=told.sharing, slots=told.slots,
        speed=told.speed, interference=told.interference, reconfigure_s=told.reconfigure_s,
        switch_loss=told.switch_loss, power=power,
        levels=_levels(told, power),
    )  # fmt: skip


def _levels(told: m.Device, power: DeviceProfile) -> DeviceLevels | None:
    """Return what can be set, and what it does to the functions of which that is known; None where nothing can."""
    clocks, full_w = tuple(told.clocks_mhz), power.at(1.0)
    idle_share = power.idle_w / full_w if full_w > 0 else 0.0
    rows = [
        FunctionLevels(function, tuple(costs.seconds), tuple(costs.joules))
        for function, costs in told.responses.items()
    ]
    if len(clocks) < 2:
        # A limit does not say which clock results: only what was measured counts.
        return DeviceLevels("cap_w", tuple(told.caps_w), tuple(rows)) if len(told.caps_w) > 1 else None
    for function, share in told.compute_bound.items():
        if function in told.responses:
            continue
        # Of a device whose functions are all alike this one is a row: seconds and joules by the clock.
        alike = DeviceLevels("clock_mhz", clocks, compute_share=share)
        costs = [alike.cost(function, level, idle_share) or (1.0, 1.0) for level in range(len(clocks))]
        seconds, joules = zip(*costs, strict=True)
        rows.append(FunctionLevels(function, seconds, joules, Provenance.MODELLED))
    return DeviceLevels("clock_mhz", clocks, tuple(rows))


def device_message(device: model.Device) -> m.Device:
    """Encode a described device."""
    power = device.power
    known = power != DeviceProfile()
    return m.Device(
        kind=device.kind, model=device.model, memory_bytes=device.memory_bytes, sharing=device.sharing,  # type: ignore[arg-type]
        slots=device.slots, interference=device.interference, speed=device.speed, reconfigure_s=device.reconfigure_s,
        switch_loss=device.switch_loss, busy=list(power.share) if known else [],
        watts=list(power.watts) if known else [], provenance=power.provenance.value, clocks_mhz=_clocks(device),
    )  # fmt: skip


def _clocks(device: model.Device) -> list[float]:
    levels = device.levels
    return list(levels.values) if levels is not None and levels.knob == "clock_mhz" else []


def asleep_w(node: m.Node) -> float:
    """Return what a node draws asleep: as measured, else a guess from its idle watts. Unknown is not nothing."""
    if node.sleep_w is not None:
        return node.sleep_w
    return SLEEP_SHARE * node.watts[0] if node.watts else 0.0
