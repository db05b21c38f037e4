"""The same tasks through real agents and through the simulator, under five policies (part of `make bench-runtime`).

Three agents with processes of their own stand for three unlike nodes on this machine. Their tasks sleep for as long as
they would compute on their node, so that ten CPUs fit on two: what is real are the server's engine and store, leases,
forked processes, reports. Joules of both sides are those of the nodes' curves for the schedule that came
out, idle included: modelled, by one formula.

A rank correlation says something only where policies differ by more than a run differs from the next. Work that comes
little by little is in the hands of its arrivals: with pairs every quarter of a second fifo and eft ended at the same
moment, and two others 0.2 % apart. Six chains at once leave four of ten CPUs free, so that where a task goes decides.
Of 630 workloads of such chains the one was taken on which, in the simulator alone and before any of them was run, the
two nearest of the same five policies are farthest apart (4.2 % of energy, 6.4 % of makespan). Each policy runs three
times; the interval is that of all ways to pick one run of each.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.run import Run
from wattflow.model.workflow import Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.drivers.simulated import model_curve
from wattflow.runtime.executors.forking import Zygote
from wattflow.runtime.executors.node_devices import NodeDevices
from wattflow.runtime.executors.process import ProcessExecutor
from wattflow.runtime.facts import node_message
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.payload import PYTHON
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.runtime.transport import DirectTransport
from wattflow.server.runs import make_run
from wattflow.sim.simulate import simulate
from wattflow.store import reads
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import open_store
from wattflow.store.writer import Writer

POLICIES = ("fifo", "round-robin", "most-allocated", "least-energy", "eft")
GIB = 1 << 30
CLUSTER = Cluster(name="three-unlike", nodes=(
    Node("quick", cores=2, memory_bytes=8 * GIB, speed=1.6, power=PowerProfile((0.0, 1.0, 2.0), (60.0, 120.0, 170.0))),
    Node("plain", cores=4, memory_bytes=8 * GIB, power=PowerProfile((0.0, 1.0, 4.0), (45.0, 65.0, 110.0))),
    Node("frugal", cores=4, memory_bytes=8 * GIB, speed=0.6, power=PowerProfile((0.0, 1.0, 4.0), (12.0, 20.0, 40.0))),
))  # fmt: skip
SPEEDS = {node.name: node.speed for node in CLUSTER.nodes}


def tasks(chains: int = 6, length: int = 6, seed: int = 5) -> list[Task]:
    """Chains whose tasks last about a second, all submitted at once."""
    rng = np.random.default_rng(seed)
    return [
        Task(id=f"{chain}-{place}", name="rest", function="rest", runtime_s=float(rng.uniform(0.9, 1.1)),
             variants=(Variant(cores=1.0),), parents=(f"{chain}-{place - 1}",) if place else ())
        for chain in range(chains) for place in range(length)
    ]  # fmt: skip


def rest(seconds: float, speeds: dict[str, float]) -> None:
    time.sleep(seconds / speeds[os.environ["WATTFLOW_NODE"]])


def schedule_j(run: Run) -> float:
    """Joules of a schedule: P(busy cores) of each node, from the first submission to the last end."""
    rows, total_j = run.attempts, 0.0
    end_s = float(rows["end_s"].max())
    for number, node in enumerate(run.cluster.nodes):
        assert node.power is not None
        mine = rows[rows["node"] == number]
        moments = np.unique(np.concatenate([[0.0, end_s], mine["start_s"], mine["end_s"]]))
        for began_s, until_s in itertools.pairwise(moments):
            busy = int(((mine["start_s"] <= began_s) & (mine["end_s"] >= until_s)).sum())
            total_j += float(np.interp(busy, node.power.busy, node.power.watts)) * (until_s - began_s)
    return total_j


def on_whole_cluster(run: Run) -> Run:
    """A real Run names only the nodes that were used; idle ones draw, too."""
    place = {node.name: number for number, node in enumerate(CLUSTER.nodes)}
    rows = run.attempts.copy()
    rows["node"] = [place[run.cluster.nodes[number].name] for number in run.attempts["node"]]
    return replace(run, attempts=rows, cluster=CLUSTER)


async def real(policy: str, work: Sequence[Task], folder: Path) -> Run:
    """Through the service and agents."""
    objects, database = FolderObjects(folder / "objects"), open_store(folder / "store.db")
    driver, writer = AgentsDriver(lost_after_s=30.0), Writer(database)
    service = restore(database, writer, driver, folder, policy)
    await service.start()
    agents = [_agent(node, driver, objects, folder) for node in CLUSTER.nodes]
    for agent in agents:
        await agent.start()
    function = objects.put(cloudpickle.dumps(rest))
    specs = [
        m.Task(key=task.id, name="rest", function_name="rest", function=function, python=PYTHON,
               call=m.Blob(data=cloudpickle.dumps(((task.runtime_s, SPEEDS), {}))), parents=list(task.parents),
               variants=[m.Variant(name="cpu", cpus=1.0)], isolate=False, estimate_s=task.runtime_s)
        for task in work
    ]  # fmt: skip
    await service.submit(m.Submission(workflow="w", name="w", tasks=specs, seal=True), "bench")
    await _until_over(service)
    for agent in agents:
        await agent.stop()
    await service.stop()
    writer.close()
    row = reads.workflow(database, "w")
    assert row is not None
    return on_whole_cluster(make_run(database, row))


async def _until_over(service: Service) -> None:
    after, flow = 0, service.workflows["w"]
    while flow.state == "open":
        after = (await service.outcomes("w", after, 1.0)).last


def _agent(node: Node, driver: AgentsDriver, objects: FolderObjects, folder: Path) -> Agent:
    told = node_message(node)
    energy = NodeEnergy(model_curve(told), folder / f"meter-{node.name}")
    processes = ProcessExecutor(Zygote(), node.cores)
    return Agent(DirectTransport(driver, objects), told, processes, energy, NodeDevices(), folder / f"work-{node.name}")


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy: makespan and joules, simulated once and real in each round."""

    policy: str
    said: tuple[float, float]
    true: list[tuple[float, float]]


def compared(rounds: int = 3) -> list[Compared]:
    """Each policy through the simulator, and through agents in rounds (all policies, then all again)."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    work = tasks()
    workload = Workload.of(Workflow(name="chains", tasks=tuple(work)))
    found = []
    for policy in POLICIES:
        said = simulate(workload, CLUSTER, policy)
        found.append(Compared(policy, (said.makespan_s, schedule_j(said)), []))
    for _ in range(rounds):
        for one in found:
            with tempfile.TemporaryDirectory() as folder:
                true = asyncio.run(real(one.policy, work, Path(folder)))
            one.true.append((true.makespan_s, schedule_j(true)))
    for one in found:
        for place, (name, unit) in enumerate((("makespan", "s"), ("energy", "J"))):
            values = [run[place] for run in one.true]
            print(f"# {one.policy}: {name} {one.said[place]:.2f} {unit} simulated, {min(values):.2f} to "
                  f"{max(values):.2f} real", flush=True)  # fmt: skip
    return found


def figures(found: Sequence[Compared]) -> list[tuple[str, float, str]]:
    """Rank correlations with their intervals, how far policies and runs lie apart, and errors: name, value, unit."""
    lines = []
    for place, name in enumerate(("makespan", "energy")):
        said = np.array([one.said[place] for one in found])
        runs = np.array([[run[place] for run in one.true] for one in found])
        ways = [_correlation(pick, said) for pick in itertools.product(*runs)]
        low, high = np.quantile(ways, (0.05, 0.95))
        apart = np.diff(np.sort(said)) / np.sort(said)[:-1]
        noise = (runs.max(axis=1) - runs.min(axis=1)) / runs.mean(axis=1)
        errors = 100 * (said - runs.mean(axis=1)) / runs.mean(axis=1)
        lines += [
            (f"runtime_real_{name}_rank_correlation", _correlation(runs.mean(axis=1), said), "rho"),
            (f"runtime_real_{name}_rank_correlation_p5", float(low), "rho"),
            (f"runtime_real_{name}_rank_correlation_p95", float(high), "rho"),
            (f"runtime_real_{name}_nearest_policies", 100 * float(apart.min()), "%"),
            (f"runtime_real_{name}_largest_noise", 100 * float(noise.max()), "%"),
            (f"runtime_real_{name}_error_mean", float(np.abs(errors).mean()), "%"),
        ]
        lines += [(f"runtime_real_{name}_error_{one.policy}", float(e), "%")
                  for one, e in zip(found, errors, strict=True)]  # fmt: skip
    return lines


def _correlation(true: Sequence[float] | NDArray[np.float64], said: NDArray[np.float64]) -> float:
    return float(stats.spearmanr(true, said).statistic)


if __name__ == "__main__":
    for name, value, unit in figures(compared()):
        print(f"figure {name} {value:.4g} {unit} goal none ok")
