"""A document means the same to a server and to the simulator: what both tell their engines is compared."""

from __future__ import annotations

import asyncio
import math
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

import strategies
from unit.runtime.test_recovery import closed, opened
from wattflow.live import EDGE, TASK
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import DeviceProfile, PowerProfile, Provenance, Scope
from wattflow.model.workflow import Function, Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.runtime import facts
from wattflow.runtime import messages as m
from wattflow.runtime.clock import Clock
from wattflow.runtime.facts import submissions

_WIRE = msgspec.msgpack.Decoder(m.Submission)


class Still(Clock):
    """A clock that stands still, so that seconds after a submission can be compared."""

    def now(self) -> float:
        return 1000.0


def told_live(document: Workflow, folder: Path) -> dict[str, dict[str, Any]]:
    """Return what the engine of a server is told of each task of a document that is run there."""

    async def body() -> dict[str, dict[str, Any]]:
        service, _, writer = await opened(folder)
        service.clock = Still()
        engine, found, shapes = service.decider.engine, dict[int, dict[str, Any]](), dict[int, Any]()
        put, shape = engine.put, engine.shape

        def heard_shape(variants: list[Variant], function: str, **more: Any) -> int:
            made = shape(variants, function, **more)
            shapes[made] = (tuple(variants), function)
            return made

        def heard(kind: Any, *who: int, **told: Any) -> int:
            made = put(kind, *who, **told)
            if kind == TASK:
                found[made] = {**told, "shape": shapes[who[0]], "parents": {}}
            if kind == EDGE:
                found[who[1]]["parents"][who[0]] = told["size_bytes"]
            return made

        engine.shape, engine.put = heard_shape, heard  # type: ignore[method-assign,assignment]
        for submission in submissions(document):
            await service.submit(_WIRE.decode(m.pack(submission)), "me")
        keys = {task.engine: task.spec.key for task in service.tasks.values()}
        functions = engine.functions
        await closed(service, writer)
        return {keys[engine_id]: _plain(told, keys, functions) for engine_id, told in found.items()}

    return asyncio.run(body())


def _plain(told: dict[str, Any], keys: dict[int, str], functions: dict[str, Function]) -> dict[str, Any]:
    variants, function = told["shape"]
    release_s, deadline_s = told["release_s"], told["deadline_s"]
    return {
        "variants": variants, "function": functions[function], "estimate_s": told["estimate_s"],
        "release_s": 0.0 if release_s is None else release_s - 1000.0, "input_bytes": told["input_bytes"],
        "deadline_s": math.inf if deadline_s is None else deadline_s - 1000.0,
        "parents": {keys[parent]: size for parent, size in told["parents"].items()},
    }  # fmt: skip


def told_simulated(document: Workflow) -> dict[str, dict[str, Any]]:
    """Return what the simulator's engine is told of each task of the same document."""
    workload = Workload.of(document)
    found = {}
    for t, task in enumerate(document.tasks):
        shape = workload.shapes[workload.shape[t]]
        start = workload.parent_start[t]
        parents = workload.parents_of(t)
        found[task.id] = {
            "variants": shape.variants, "function": workload.functions[shape.function],
            "estimate_s": workload.estimate_s[t], "release_s": workload.release_s[t],
            "input_bytes": workload.input_bytes[t], "deadline_s": workload.deadline_s[t],
            "parents": {workload.task_id(p): workload.parent_bytes[start + i] for i, p in enumerate(parents.tolist())},
        }  # fmt: skip
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.workflows(max_tasks=6))
def test_a_document_says_the_same_to_a_server_and_to_the_simulator(document: Workflow) -> None:
    runnable = replace(document, submit_s=0.0, tasks=tuple(replace(t, command="true") for t in document.tasks))
    if any(task.parts > 1 for task in runnable.tasks):
        with pytest.raises(InvalidInput, match="parts"):
            list(submissions(runnable))
        runnable = replace(runnable, tasks=tuple(replace(task, parts=1) for task in runnable.tasks))
    with tempfile.TemporaryDirectory() as folder:
        live = told_live(runnable, Path(folder))
    simulated = told_simulated(runnable)
    assert live.keys() == simulated.keys()
    for key, expected in simulated.items():
        for name, value in expected.items():
            assert live[key][name] == (pytest.approx(value) if isinstance(value, float) else value), (key, name)


@given(strategies.variants())
def test_a_variant_comes_back_from_the_wire(variant: Variant) -> None:
    wire = msgspec.msgpack.decode(m.pack(facts.variant_message(variant)), type=m.Variant)
    assert facts.variant_of(wire) == variant


def test_every_fact_of_a_variant_a_function_and_a_device_has_a_word() -> None:
    odd = {
        "name": "odd", "cores": 2.5, "memory_bytes": 7, "device": "gpu", "devices": 1, "device_share": 0.25,
        "device_memory_bytes": 9, "device_models": ("A100",), "runtime_factor": 0.5, "architecture": "aarch64",
        "features": ("sgx",), "device_duty": 0.5, "device_duty_from": "measured",
    }  # fmt: skip
    assert odd.keys() == {field.name for field in fields(Variant)}
    assert facts.variant_of(facts.variant_message(Variant(**odd))) == Variant(**odd)  # type: ignore[arg-type]
    function = Function("f", 1.0, 0.5, 0.1, 60.0, 2.0)
    assert facts.function_of(facts.function_message(function)) == function
    power = DeviceProfile((0.0, 0.5, 1.0), (30.0, 200.0, 220.0), Provenance.MEASURED)
    device = Device("gpu", "H200", 1 << 37, "mps", 4, 2.0, 0.3, 1.5, power, None, 0.1)
    assert facts.device_of(facts.device_message(device)) == device


def test_a_described_node_announces_what_it_is_and_names_the_rest() -> None:
    curve = PowerProfile((0.0, 8.0), (50.0, 90.0), Scope.PACKAGE, Provenance.MEASURED)
    node = Node("n", 8, 1 << 33, speed=1.5, features=("avx512",), power=curve, sleep=Sleep(4.0, 30.0, wake_w=80.0),
                architecture="aarch64", devices=(Device("fpga", reconfigure_s=2.0),), keep_alive_s=30.0)  # fmt: skip
    assert facts.node_of(facts.node_message(node)) == replace(node, allocatable_cores=8.0)
    assert facts.unplayed(node) == []
    assert facts.unplayed(replace(node, function_speed={"f": 2.0}, threads_per_core=2)) == [
        "function_speed", "smt_slowdown",
    ]  # fmt: skip


def test_what_no_server_can_honour_is_refused_by_its_name() -> None:
    task = Task("a", "a", "f", 1.0, command="true", variants=(Variant(device="tpu", devices=1),), parts=3)
    with pytest.raises(InvalidInput) as refused:
        list(submissions(Workflow("w", (task, Task("b/c", "b", "f", 1.0, command="true")))))
    text = str(refused.value)
    assert "parts = 3" in text and "'tpu'" in text and "b/c" in text
