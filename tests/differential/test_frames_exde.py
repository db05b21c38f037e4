"""ExDe's designs against their plain reference: hosts, starts, ends, misses and thefts are the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from reference_frames.exde import ExDe, Plan
from wattflow.frames import frame as frames
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_run import run_frame
from wattflow.model.cluster import Cluster, Node
from wattflow.model.workload import Workload


def _plan(rng: random.Random) -> Plan:
    kind = rng.choice(["owner", "owner", "hash"])
    owner = kind == "owner"
    return Plan(
        kind,
        placers=rng.choice([1, 2, 3, 5]) if owner else 1,
        both=owner and rng.random() < 0.5,
        slots=rng.choice([0, 1, 2]) if owner else rng.choice([1, 2]),
        forget_s=rng.choice([0.0, 0.0, 3.0]) if owner else 0.0,
        cache=rng.randint(1, 3),
    )


def _frame(plan: Plan) -> Frame:
    owner = plan.kind == "owner"
    placers = frames.Placers(
        count=plan.placers, rule="owner" if owner else "hash", hash="rendezvous", binding="early", both=plan.both,
        forget_s=plan.forget_s, route="object",
    )  # fmt: skip
    fetch = Delay(kind="choice", values_s=plan.values_s, weights=plan.weights)
    return Frame(
        "x",
        "delegated" if plan.placers > 1 else "decentralised",
        broker=frames.Broker(split="object") if plan.placers > 1 else None,
        placers=placers,
        hosts=frames.Hosts(queue=True),
        metadata=frames.MetadataService(),
        data=frames.DataManager(cache_objects=plan.cache, fetch=fetch, cached="start"),
        stealing=frames.Stealing(slots=plan.slots) if plan.slots else None,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_exde_reference_agrees(seed: int) -> None:
    rng = random.Random(seed)
    plan = _plan(rng)
    cores = [rng.randint(1, 3) for _ in range(rng.randint(1, 5))]
    busy = rng.choice([3.0, 12.0, 40.0])
    runtimes = [0.0, 0.5, *(rng.lognormvariate(0, 1) for _ in range(20))]
    tasks = [
        (rng.choice([0.0, 1.0, rng.uniform(0, busy)]), rng.choice(runtimes), rng.randint(0, 7))
        for _ in range(rng.randint(1, 60))
    ]
    expected = ExDe(plan, cores, tasks, seed).run()
    cluster = Cluster("c", tuple(Node(f"n{i}", count, 1 << 30) for i, count in enumerate(cores)))
    release, runtime, thing = (np.array(side) for side in zip(*tasks))
    workload = Workload.of_columns(
        "w", release_s=release, runtime_s=runtime, columns={"object": thing.astype(np.int32)}
    )  # fmt: skip
    run = run_frame(_frame(plan), workload, cluster, seed=seed)
    found = {int(a["task"]): (int(a["node"]), float(a["start_s"]), float(a["end_s"])) for a in run.attempts}
    assert found == {task.number: (task.host, task.start, task.end) for task in expected.tasks}
    assert run.scalars["cache_misses"] == expected.misses
    assert run.scalars["stolen"] == expected.stolen
