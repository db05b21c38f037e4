"""Random frames, workloads and clusters that are valid by construction (or drawn again until they are)."""

from __future__ import annotations

import random

import numpy as np

from wattflow.frames import frame as frames
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_rules import problems_of
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload


def delay(rng: random.Random, most_s: float) -> Delay:
    """Nothing, a constant, or a distribution."""
    kind = rng.choice(["zero", "zero", "constant", "exponential", "lognormal", "choice"])
    mean = rng.choice([1e-6, 1e-3, 0.1, 1.0]) * most_s
    match kind:
        case "zero":
            return frames.NO_DELAY
        case "choice":
            return Delay(kind="choice", values_s=(0.0, mean, 3 * mean), weights=(1.0, 2.0, 1.0))
        case "lognormal":
            return Delay(mean, "lognormal", 0.8)
        case _:
            return Delay(mean, kind)


def maybe(rng: random.Random, value: object, share: float = 0.3) -> object:
    return value if rng.random() < share else None


def random_frame(rng: random.Random, faults: bool) -> Frame:
    """A frame that can work, with any mix of mechanisms."""
    for _ in range(400):
        frame = _draw(rng, faults)
        if not list(problems_of(frame)):
            return frame
    return Frame("centralised")


def _draw(rng: random.Random, faults: bool) -> Frame:
    architecture = rng.choice(frames.ARCHITECTURES)
    count = 1 if architecture == "centralised" else rng.randint(2, 4)
    late = rng.random() < 0.4
    placers = frames.Placers(
        count=count, service=delay(rng, 0.3), rule="policy" if late else rng.choice(frames.RULES),
        samples=rng.randint(1, 3),
        refresh_s=rng.choice([0.0, 0.0, 0.7]), partition=rng.choice(frames.PARTITIONS) if count > 1 else "shared",
        route=rng.choice(frames.SPREADS), binding="late" if late else "early",
        flow=rng.choice(["push", "push", "pull", "offers"]) if late else "push", hash=rng.choice(frames.HASHES),
        hash_points=5, overflow=rng.random() < 0.2, strict=rng.random() < 0.2,
    )  # fmt: skip
    preemption = frames.Preemption(
        rng.choice(frames.PREEMPTIONS),
        rng.choice([0.3, 2.0]),
        rng.random() < 0.5,
        rng.choice([0.0, 0.2]),
        rng.randint(0, 3),
    )
    stealing = frames.Stealing(
        hosts=rng.randint(0, 2), placers=rng.randint(0, 2) if count > 1 else 0, half=rng.random() < 0.5,
        short_only=architecture == "hybrid" and rng.random() < 0.5, retry_s=rng.choice([0.2, 1.0]),
    )  # fmt: skip
    trouble = frames.FaultTolerance(
        host_mtbf_s=rng.choice([None, 8.0, 40.0]), host_repair_s=3.0, heartbeat_s=rng.choice([0.0, 1.0]),
        retries=10_000,
        checkpoint_s=rng.choice([0.0, 0.5]), checkpoint_cost_s=0.05, placer_mtbf_s=rng.choice([None, 10.0]),
        placer_repair_s=2.0, failover_s=rng.choice([None, 1.0]), slow_share=rng.choice([0.0, 0.3]), slow_factor=4.0,
    )  # fmt: skip
    data = frames.DataManager(
        delay(rng, 0.1),
        rng.choice([0, 2, 50]),
        delay(rng, 0.5),
        1e6,
        rng.choice(frames.INTERMEDIATES),
        moves=rng.random() < 0.3,
    )
    return Frame(
        "random", architecture,
        messages=frames.Messages(delay(rng, 0.2), rng.choice([0.0, 0.01])),
        client=frames.Client(delay(rng, 0.1), 0.5),
        broker=maybe(rng, frames.Broker(delay(rng, 0.1), rng.choice(frames.SPREADS)), 0.7),  # type: ignore[arg-type]
        placers=placers, hosts=frames.Hosts(queue=not late or rng.random() < 0.3),
        metadata=maybe(rng, frames.MetadataService(delay(rng, 0.1)), 0.8),  # type: ignore[arg-type]
        data=maybe(rng, data, 0.5),  # type: ignore[arg-type]
        split=frames.Split(1.5, rng.choice([0.0, 0.3])) if architecture == "hybrid" else None,
        stealing=maybe(rng, stealing, 0.6),  # type: ignore[arg-type]
        rebalancing=maybe(rng, frames.Rebalancing(rng.choice(frames.REBALANCES), 0.5, 1.0)),  # type: ignore[arg-type]
        speculation=maybe(rng, frames.Speculation(rng.choice([1.0, 2.0]))),  # type: ignore[arg-type]
        preemption=maybe(rng, preemption),  # type: ignore[arg-type]
        faults=trouble if faults else None,
        hints=maybe(rng, frames.Hints(rng.choice([0.3, 5.0])), 0.2),  # type: ignore[arg-type]
        barriers=maybe(rng, frames.Barriers(late and rng.random() < 0.7, rng.random() < 0.5)),  # type: ignore[arg-type]
        elasticity=maybe(rng, frames.Elasticity(0.8, 0.4, 0.5, 1.0, 1, 5.0)),  # type: ignore[arg-type]
    )  # fmt: skip


def random_cluster(rng: random.Random) -> Cluster:
    """One to six hosts of one to four cores."""
    nodes = []
    for n in range(rng.randint(1, 6)):
        cores = rng.randint(1, 4)
        power = PowerProfile.from_form(rng.choice(["linear", "sqrt"]), cores, rng.choice([10.0, 50.0]), 120.0)
        nodes.append(Node(f"n{n}", cores, 1 << 33, speed=rng.choice([1.0, 1.0, 2.0]), power=power))
    return Cluster("random", tuple(nodes))


def random_workload(rng: random.Random, cluster: Cluster, gangs: bool, failures: bool = False) -> Workload:
    """Up to forty tasks of a few shapes, in a few jobs, some with parents."""
    most = max(node.cores for node in cluster.nodes)
    total = sum(node.cores for node in cluster.nodes)
    count = rng.randint(1, 40)
    functions = tuple(Function(f"f{k}", failure_rate=0.2 if failures else 0.0) for k in range(2))
    shapes = [Shape(rng.randint(0, 1), (Variant(cores=rng.randint(1, most), memory_bytes=rng.choice([0, 1 << 30])),))]
    shapes.append(Shape(0, (Variant(),)))
    if gangs:
        shapes.append(
            Shape(1, (Variant(),), parts=rng.randint(2, max(2, total))) if total > 1 else Shape(1, (Variant(),))
        )
    job = np.array([rng.randint(0, 3) for _ in range(count)], np.int32)
    parents: list[int] = []
    children: list[int] = []
    for t in range(1, count):
        for _ in range(rng.choice([0, 0, 1, 2])):
            parent = rng.randrange(t)
            if job[parent] == job[t] and (parent, t) not in zip(parents, children):
                parents.append(parent)
                children.append(t)
    return Workload.of_columns(
        "random",
        release_s=np.array([rng.choice([0.0, 1.0, 2.5, rng.uniform(0, 8)]) for _ in range(count)]),
        runtime_s=np.array([rng.choice([0.0, 0.5, 1.0, 3.0, rng.lognormvariate(0, 1)]) for _ in range(count)]),
        shapes=shapes,
        functions=functions,
        shape=np.array([rng.randrange(len(shapes)) for _ in range(count)], np.int32),
        workflow=job,
        edges=(np.array(parents, np.int32), np.array(children, np.int32)),
        edge_bytes=np.array([rng.choice([0.0, 1e8]) for _ in parents]),
        columns={"object": np.array([rng.randint(-1, 6) for _ in range(count)], np.int32)},
    )
