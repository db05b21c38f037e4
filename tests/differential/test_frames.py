"""Frames against the core simulator (byte for byte) and against the plain reference of three frames."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reference_frames.cases import random_cluster, random_workload
from reference_frames.simulator import Design, Reference
from wattflow.frames import frame as frames
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_run import run_frame
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.sim import simulate


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_centralised_without_delays_is_the_core(seed: int) -> None:
    """Random DAGs, gangs, memory, speeds and failing tasks: every field of every record is the same."""
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    workload = random_workload(rng, cluster, gangs=True, failures=seed % 2 == 0)
    workload = replace(workload, parent_bytes=np.zeros_like(workload.parent_bytes))
    core = simulate(workload, cluster, "fifo", seed=seed)
    frame = run_frame(Frame("centralised", barriers=frames.Barriers()), workload, cluster, seed=seed)
    assert frame.attempts.tobytes() == core.attempts.tobytes()
    assert np.allclose(frame.energy_j, core.energy_j, rtol=1e-12, atol=1e-9)


def _design(rng: random.Random) -> Design:
    kind = rng.choice(["centralised", "delegated", "hash"])
    return Design(
        kind,
        placers=1 if kind == "centralised" else rng.randint(2, 3),
        decision_s=rng.choice([0.0, 0.0, 0.01, 0.2]),
        broker_s=rng.choice([0.0, 0.02]),
        latency_s=rng.choice([0.0, 0.0, 0.001, 0.1]),
        steal=rng.randint(0, 3) if kind == "hash" else 0,
    )


def _frame(design: Design) -> Frame:
    late = design.kind == "centralised"
    return Frame(
        "x",
        "decentralised" if design.kind == "hash" else design.kind,
        messages=frames.Messages(Delay(design.latency_s)),
        broker=frames.Broker(Delay(design.broker_s)) if design.kind == "delegated" else None,
        placers=frames.Placers(
            count=design.placers,
            service=Delay(design.decision_s),
            rule="hash" if design.kind == "hash" else "policy",
            partition="disjoint" if design.kind == "delegated" else "shared",
            binding="late" if late else "early",
        ),
        hosts=frames.Hosts(queue=not late),
        stealing=frames.Stealing(hosts=design.steal) if design.steal else None,
    )


def _workload(tasks: list[tuple[float, float, int]]) -> Workload:
    release, runtime, thing = zip(*tasks)
    column = {"object": np.array(thing, np.int32)}
    return Workload.of_columns("w", release_s=np.array(release), runtime_s=np.array(runtime), columns=column)


def _seen(run: Run) -> dict[int, tuple[int, float, float]]:
    return {int(a["task"]): (int(a["node"]), float(a["start_s"]), float(a["end_s"])) for a in run.attempts}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_reference_agrees(seed: int) -> None:
    rng = random.Random(seed)
    design = _design(rng)
    cores = [rng.randint(1, 3) for _ in range(rng.randint(3, 6))]
    tasks = [
        (
            rng.choice([0.0, 1.0, rng.uniform(0, 5)]),
            rng.choice([0.0, 0.5, 1.0, rng.lognormvariate(0, 1)]),
            rng.randint(0, 5),
        )
        for _ in range(rng.randint(1, 50))
    ]
    reference = Reference(design, cores, tasks, seed).run()
    cluster = Cluster("c", tuple(Node(f"n{i}", count, 1 << 30) for i, count in enumerate(cores)))
    run = run_frame(_frame(design), _workload(tasks), cluster, seed=seed)
    expected = {t: (reference.placed[t], reference.start[t], reference.end[t]) for t in range(len(tasks))}
    assert _seen(run) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["least-energy", "eft"])
@pytest.mark.parametrize("seed", range(8))
def test_centralised_with_a_policy_of_the_engine_is_the_core(seed: int, name: str) -> None:
    """A placer that sees everything asks the policy what the core asks it: every field of every record is the same."""
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    workload = random_workload(rng, cluster, gangs=False)
    workload = replace(workload, parent_bytes=np.zeros_like(workload.parent_bytes))
    core = simulate(workload, cluster, name, seed=seed)
    frame = run_frame(Frame("centralised"), workload, cluster, f"engine:{name}", seed=seed)
    assert frame.attempts.tobytes() == core.attempts.tobytes()


def _told_apart(workload: Workload) -> Workload:
    """Every task asks for memory, and no two have the same estimate."""
    asking = tuple(
        replace(shape, variants=tuple(replace(v, memory_bytes=max(v.memory_bytes, 1 << 28)) for v in shape.variants))
        for shape in workload.shapes
    )
    runtime_s = workload.runtime_s + 1e-3 * np.arange(1, len(workload) + 1)
    return replace(workload, shapes=asking, runtime_s=runtime_s, estimate_s=runtime_s)


ENGINES_OWN: dict[str, dict[str, Any]] = {
    "sjf": {"queue": "strict"},
    "hpe": {"guarantees": (1.0,)},
    "kubernetes": {"pods": 0, "samples": False},
}
"""What the engine has and a frame has not: the core is the frame's without it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ENGINES_OWN))
def test_what_only_the_engine_has_is_all_that_differs(name: str) -> None:
    """As frames' policies these three differ from the core by one setting each; `kubernetes` only on large clusters."""
    differ = 0
    for seed in range(12):
        rng = random.Random(seed)
        cluster = random_cluster(rng)
        workload = _told_apart(random_workload(rng, cluster, gangs=False))
        workload = replace(workload, parent_bytes=np.zeros_like(workload.parent_bytes))
        frame = run_frame(Frame("centralised"), workload, cluster, f"engine:{name}", seed=seed).attempts.tobytes()
        policy = registry.load(name)
        assert (
            frame
            == simulate(workload, cluster, policy.with_settings(**ENGINES_OWN[name]), seed=seed).attempts.tobytes()
        )
        differ += frame != simulate(workload, cluster, policy, seed=seed).attempts.tobytes()
    assert (differ > 0) == (name != "kubernetes")


def test_a_frame_knows_no_110_pods() -> None:
    """120 small tasks and one large node: `kubernetes` places 110 of them, the frame all that fit."""
    tasks = [(0.0, 5.0, -1)] * 120
    cluster = Cluster("c", (Node("n", 128, 1 << 40, power=PowerProfile((0.0, 128.0), (10.0, 100.0))),))
    workload = _told_apart(_workload(tasks))
    core = simulate(workload, cluster, "kubernetes").attempts
    frame = run_frame(Frame("centralised"), workload, cluster, "engine:kubernetes").attempts
    assert [int((rows["start_s"] == 0.0).sum()) for rows in (core, frame)] == [110, 120]
