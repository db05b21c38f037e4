"""The same tasks through real agents and through the simulator, under five policies (part of `make bench-runtime`).

Three agents with processes of their own stand for three unlike nodes on this machine. Their tasks sleep for as long as
they would compute on their node, so that ten CPUs fit on two: what is real are the server's engine and store, leases,
forked processes, reports. Joules of both sides are those of the nodes' curves for the schedule that came
out, idle included: modelled, by one formula.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
import numpy as np
from scipy import stats

from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.run import Run
from wattflow.model.workflow import Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.drivers.simulated import message_node, model_curve
from wattflow.runtime.executors.devices import Devices
from wattflow.runtime.executors.process import ProcessExecutor, Zygote
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.payload import PYTHON
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.runtime.transport import DirectTransport
from wattflow.server.runs import make_run
from wattflow.sim.simulate import simulate
from wattflow.store import reads
from wattflow.store.database import open_store
from wattflow.store.objects import FolderObjects
from wattflow.store.writer import Writer

POLICIES = ("fifo", "round-robin", "most-allocated", "least-energy", "eft")
GIB = 1 << 30
CLUSTER = Cluster(name="three-unlike", nodes=(
    Node("quick", cores=2, memory_bytes=8 * GIB, speed=1.6, power=PowerProfile((0.0, 1.0, 2.0), (60.0, 120.0, 170.0))),
    Node("plain", cores=4, memory_bytes=8 * GIB, power=PowerProfile((0.0, 1.0, 4.0), (45.0, 65.0, 110.0))),
    Node("frugal", cores=4, memory_bytes=8 * GIB, speed=0.6, power=PowerProfile((0.0, 1.0, 4.0), (12.0, 20.0, 40.0))),
))  # fmt: skip
SPEEDS = {node.name: node.speed for node in CLUSTER.nodes}


def tasks(count: int = 64, seed: int = 5) -> list[Task]:
    """Pairs: the second of each waits for the first; a pair comes every quarter of a second."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        pair, second = divmod(number, 2)
        made.append(Task(id=str(number), name="rest", function="rest", runtime_s=float(rng.uniform(0.4, 1.6)),
                         variants=(Variant(cores=1.0),), parents=(str(number - 1),) if second else (),
                         submit_s=0.25 * pair))  # fmt: skip
    return made


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
    from dataclasses import replace

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
    began_s = time.monotonic() + 0.2
    for task in work:
        await asyncio.sleep(max(0.0, began_s + task.submit_s - time.monotonic()))
        call = m.Blob(data=cloudpickle.dumps(((task.runtime_s, SPEEDS), {})))
        spec = m.Task(key=task.id, name="rest", function_name="rest", function=function, call=call, python=PYTHON,
                      parents=list(task.parents), variants=[m.Variant(name="cpu", cpus=1.0)], isolate=False,
                      estimate_s=task.runtime_s)  # fmt: skip
        await service.submit(m.Submission(workflow="w", name="w", tasks=[spec], seal=task is work[-1]), "bench")
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
    told = message_node(node)
    energy = NodeEnergy(model_curve(told), folder / f"meter-{node.name}", sysfs=folder / "no-counter")
    processes = ProcessExecutor(Zygote(), node.cores)
    return Agent(DirectTransport(driver, objects), told, processes, energy, Devices(), folder / f"work-{node.name}")


def compared(count: int = 64) -> list[tuple[str, float, float, float, float]]:
    """For each policy: makespan and joules, real and simulated."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    work = tasks(count)
    workload = Workload.of(Workflow(name="pairs", tasks=tuple(work)))
    found = []
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as folder:
            true = asyncio.run(real(policy, work, Path(folder)))
        said = simulate(workload, CLUSTER, policy)
        found.append((policy, true.makespan_s, said.makespan_s, schedule_j(true), schedule_j(said)))
        print(f"# {policy}: makespan {true.makespan_s:.2f} s real, {said.makespan_s:.2f} s simulated; "
              f"energy {found[-1][3]:.0f} J real, {found[-1][4]:.0f} J simulated", flush=True)  # fmt: skip
    return found


def figures(found: Sequence[tuple[str, float, float, float, float]]) -> list[tuple[str, float, str]]:
    """Rank correlations and errors, as name, value and unit."""
    table = np.array([row[1:] for row in found])
    lines = []
    for name, true, said in (("makespan", table[:, 0], table[:, 1]), ("energy", table[:, 2], table[:, 3])):
        lines.append((f"runtime_real_{name}_rank_correlation", float(stats.spearmanr(true, said).statistic), "rho"))
        errors = 100 * (said - true) / true
        lines.append((f"runtime_real_{name}_error_mean", float(np.abs(errors).mean()), "%"))
        lines += [(f"runtime_real_{name}_error_{row[0]}", float(e), "%") for row, e in zip(found, errors, strict=True)]
    return lines


if __name__ == "__main__":
    for name, value, unit in figures(compared()):
        print(f"figure {name} {value:.4g} {unit} goal none ok")
