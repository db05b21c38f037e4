"""Three small runs that use every rule of the physics page, printed as text: `python tests/golden/runs.py NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wattflow.engine import view
from wattflow.model.cluster import (
    Cluster,
    Device,
    Faults,
    Frequency,
    Network,
    Node,
    Series,
    Serverless,
    Sleep,
    Zone,
)
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.run import ACCOUNTS, OUTCOMES, Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate

GIB = 2**30
CARD = DeviceProfile((0.0, 0.45, 1.0), (30.0, 210.0, 250.0))
CURVE = PowerProfile((0.0, 1.0, 2.0, 4.0, 8.0), (70.0, 95.0, 112.0, 140.0, 171.0))


def added_energy(state, task, variant, out):
    """Marginal joules, wake and cold start seconds priced at idle watts."""
    for c in range(out.size):
        waits = view.ready_in_s(state, task, variant, c)
        out[c] = view.added_w(state, task, variant, c) * view.runtime_s(state, task, variant, c)
        out[c] += view.wake_j(state, c) + waits * view.idle_w(state, c)


def shortest(state, task):
    """Estimated seconds."""
    return state.tasks.estimate[task]


def _layers(seed: int, count: int, **columns: Any) -> Workload:
    """Layers of six tasks, each task with one or two parents in the layer above."""
    rng = np.random.default_rng(seed)
    pairs = [
        (6 * (t // 6 - 1) + int(p), t)
        for t in range(6, count)
        for p in np.unique(rng.integers(0, 6, rng.integers(1, 3)))
    ]
    return Workload.of_columns(
        "layers",
        release_s=np.sort(rng.uniform(0, 12, count)) if columns.pop("arrivals", False) else np.zeros(count),
        runtime_s=rng.lognormal(1.2, 0.6, count),
        edges=(np.array([p for p, _ in pairs], np.int32), np.array([c for _, c in pairs], np.int32)),
        edge_bytes=rng.uniform(0, 4e8, len(pairs)),
        input_bytes=rng.uniform(0, 2e8, count) * (rng.random(count) < 0.5),
        **columns,
    )


def accelerators() -> Run:
    """CPU, GPU and FPGA variants; sharing modes; cold starts and transfers; two zones with carbon and price."""
    zones = (
        Zone("north", Series(20.0, (80.0, 300.0, 150.0)), Series(15.0, (0.1, 0.4)), 1.2, True, True),
        Zone("south", Series(30.0, (420.0, 380.0)), Series(60.0, (0.3,)), 1.5, True, True),
    )
    link = Network(1e8, 0.01, 0.2, 4e-9)
    gpus = tuple(Device("gpu", m, 16 * GIB, m, 3 if m == "time-slice" else 1, 2.0, 0.3, power=CARD) for m in
                 ("exclusive", "time-slice", "mps", "mig"))  # fmt: skip
    fpga = Device("fpga", speed=3.0, reconfigure_s=1.5, power=DeviceProfile((0.0, 1.0), (12.0, 40.0)))
    nodes = (
        Node("a", 4, 32 * GIB, 2, zone="north", power=CURVE, devices=gpus[:2], network=link, keep_alive_s=8),
        Node("b", 4, 32 * GIB, 2, zone="south", power=CURVE, devices=(*gpus[2:], fpga), network=link, keep_alive_s=8),
        Node("c", 8, 32 * GIB, speed=0.8, zone="south", network=link, price_per_hour=0.5, architecture="arm64"),
    )
    shapes = (
        Shape(0, (Variant(cores=2), Variant("gpu", 1, 0, "gpu", 1, 0.4, 4 * GIB, runtime_factor=0.7))),
        Shape(1, (Variant("fpga", 1, 0, "fpga", 1), Variant("cpu", 1, GIB, architecture="x86_64"))),
        Shape(0, (Variant("pair", 1, 0, "gpu", 2),)),
        Shape(1, (Variant("slice", 0.5, 0, "gpu", 1, 0.25, runtime_factor=1.2),)),
    )
    work = _layers(
        11, 36, shapes=shapes, functions=(Function("f", 1.0), Function("g", 0.4)),
        shape=np.array([0, 1, 3, 0, 1, 2] * 6, np.int32),
    )  # fmt: skip
    return simulate(work, Cluster("golden", nodes, zones), Policy("added-energy", score=added_energy))


def failures() -> Run:
    """Sleep and wake, messages, rounds, lost and reclaimed nodes, failing tasks with checkpoints, frequency levels."""
    levels = (Frequency(), Frequency(0.7, 0.45))
    sleep = Sleep(6.0, 2.5, 0.5, 90.0, 3.0)
    spot = Faults(40.0, 4.0, 1.0)
    nodes = (
        Node("a", 2, 8 * GIB, 2, power=CURVE, frequencies=levels, sleep=sleep),
        Node("b", 4, 8 * GIB, 2, power=CURVE, frequencies=levels, sleep=sleep, faults=spot),
        Node("c", 4, 8 * GIB, 2, power=CURVE, frequencies=levels, sleep=sleep, faults=spot),
    )
    work = _layers(
        12, 40, arrivals=True, shapes=(Shape(0, (Variant(cores=1.5),)), Shape(1, (Variant(cores=0.5),))),
        functions=(Function("f", 0.6, 0.7, 0.2, 1.0, 0.1), Function("g", failure_rate=0.1)),
        shape=np.array([0, 0, 1, 1] * 10, np.int32),
    )  # fmt: skip
    policy = Policy("shortest", score=added_energy, priority=shortest).with_settings(frequencies=(0, 1))
    options = SimOptions(round_s=0.25, message_s=0.05, outages=((0, 9.0, 14.5),), task_faults=((3, 0, 0.5),))
    return simulate(work, Cluster("golden", nodes), policy, seed=3, options=options)


def platform() -> Run:
    """A function platform beside fixed nodes, gangs, guarantees below the request, easy backfill, overcommitment."""
    nodes = (
        Node("a", 2, 8 * GIB, 2, allocatable_cores=5.0, power=CURVE, network=Network(2e8, 0.02)),
        Node("b", 2, 8 * GIB, 2, allocatable_cores=5.0, power=CURVE, network=Network(2e8, 0.02)),
        Node("cloud", 16, 64 * GIB, serverless=Serverless(1.0, 0.4, 5.0, 0.002, 0.01), network=Network(5e7, 0.1)),
    )
    work = _layers(
        13, 42, arrivals=True,
        shapes=(Shape(0, (Variant(cores=1, memory_bytes=GIB),)), Shape(1, (Variant(cores=1.25),), 3)),
        functions=(Function("f", 0.3), Function("g")), shape=np.array([0, 0, 1, 0, 0, 0] * 7, np.int32),
    )  # fmt: skip
    rng = np.random.default_rng(14)
    work = work.with_estimates(work.runtime_s * rng.lognormal(0, 0.4, len(work)))
    policy = Policy("least-loaded", score=_load).with_settings(guarantees=(1.0, 0.8), queue="easy-backfill")
    return simulate(work, Cluster("golden", nodes), policy, options=SimOptions(outages=((1, 20.0, 26.0),)))


def _load(state, task, variant, out):
    for c in range(out.size):
        out[c] = view.load(state, c)


RUNS: dict[str, Callable[[], Run]] = {"accelerators": accelerators, "failures": failures, "platform": platform}


def lines(run: Run) -> Iterator[str]:
    """The run as text: times to a microsecond, joules to a thousandth."""
    for row in run.attempts:
        who = f"{row['task']}.{row['part']}.{row['attempt']} n{row['node']} d{row['device']} v{row['variant']}"
        times = " ".join(f"{row[name]:.6f}" for name in ("ready_s", "placed_s", "start_s", "end_s"))
        stages = " ".join(f"{row[name]:.4f}" for name in ("message_s", "wake_s", "cold_s", "data_s"))
        joules = " ".join(f"{row[name]:.3f}" for name in ("run_j", "cold_j", "transfer_j"))
        yield f"{who} {OUTCOMES[row['outcome']]} {times} | {stages} | {joules} | {row['guarantee']:.2f}"
    for node, row in zip(run.cluster.nodes, run.energy_j, strict=True):
        yield f"{node.name}: " + ", ".join(f"{a} {j + 0.0:.3f} J" for a, j in zip(ACCOUNTS, row, strict=True) if j)
    yield "carbon g: " + " ".join(f"{g:.6f}" for g in run.carbon_g)
    yield "cost: " + " ".join(f"{c:.6f}" for c in run.cost)
    yield f"makespan {run.makespan_s:.6f} s, peak {run.peak_w:.3f} W"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(RUNS[sys.argv[1]]()))
