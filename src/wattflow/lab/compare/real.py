"""A finished real run beside simulations of the same tasks on the same nodes: what the simulator would have said.

The simulated tasks last as long as the real ones did on a node of speed 1 and need what the real ones asked for. Of the
real joules only idle and the tasks' own are compared: what else ran on the nodes is nothing that the simulator knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wattflow.clusters.toml_file import parse_cluster
from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.compare.results import Beside, SeedResult
from wattflow.lab.figures.metrics import metrics
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.run import Run
from wattflow.model.units import human_energy
from wattflow.model.workload import Workload
from wattflow.sim.simulate import simulate
from wattflow.traces import wfformat

if TYPE_CHECKING:
    from wattflow.lab.run.run_file import SavedRun

_OTHERS = "unattributed"


def beside_simulated(saved: SavedRun, policies: Sequence[str], seed: int = 0) -> list[Beside]:
    """Return the real run first, then a simulation under its own policy and under each of the others."""
    workload, cluster = _inputs(saved)
    makespan_s, energy = saved.makespan_s, known_j(saved.energy_j())
    total_j = sum(joules for name, joules in energy.items() if name != _OTHERS)
    policy = str(saved.about["policy"])
    lines = [Beside(policy, False, makespan_s, total_j, energy["run"], 0.0, 0.0)]
    # Its own policy first: how far the simulator is off shows where nothing else differs.
    for name in dict.fromkeys([policy, *policies]):
        run = simulate(workload, cluster, name, seed=seed)
        lines.append(_line(run, name, makespan_s, total_j))
    return lines


def real_comparison(saved: SavedRun, policies: Sequence[str], seed: int = 0) -> Comparison:
    """Return the same as a comparison, whose baseline is the real run: for the report that simulated ones have."""
    workload, cluster = _inputs(saved)
    real, others_j = _as_run(saved, workload, cluster)
    policy = str(saved.about["policy"])
    runs = {f"{policy} (real)": real}
    for name in dict.fromkeys([policy, *policies]):
        runs[name] = simulate(workload, cluster, name, seed=seed)
    points = tuple(SeedResult(workload.name, name, seed, metrics(run)) for name, run in runs.items())
    notes = [f"{policy} (real) is what happened; the others are simulations of its tasks, as long as they really were"]
    if others_j > 0:
        notes.append(f"{human_energy(others_j)} that its nodes drew for other work meanwhile are left out")
    return Comparison(
        cluster=cluster,
        baseline=f"{policy} (real)",
        workloads=(workload.name,),
        policies=tuple(runs),
        seeds=(seed,),
        points=points,
        runs={(workload.name, name): run for name, run in runs.items()},
        notes=tuple(notes),
    )


def _inputs(saved: SavedRun) -> tuple[Workload, Cluster]:
    """Return the tasks and nodes of a real run, as the simulator takes them."""
    # A file of version 2 holds tasks and nodes as they were; older ones hold the workflow's document.
    if saved.run is not None and not saved.run.simulated:
        return saved.run.workload, saved.run.cluster
    about = saved.about["manifest"]
    if saved.about["simulated"] or "document" not in about:
        raise InvalidInput(
            "run", "is not a real one with its workflow: `wattflow run FILE --out RUN.parquet` writes one"
        )
    workflow, problems = wfformat.parse(json.loads(about["document"]), saved.about["workload"])
    if workflow is None:
        raise InvalidInput("run", list(problems))
    return Workload.of(workflow), parse_cluster(about["cluster_toml"], "run")


def _as_run(saved: SavedRun, workload: Workload, cluster: Cluster) -> tuple[Run, float]:
    """Return the real run without what else its nodes drew for, and how much that was."""
    about = saved.about
    energy_j = np.array(about["energy_j"], np.float64).reshape(-1, len(about["accounts"]))
    column = about["accounts"].index(_OTHERS)
    # Unknown joules count nothing here: they are in no account of a task either.
    others_j = float(np.nansum(energy_j[:, column]))
    # Taken out, so that both sides tell of the same work.
    energy_j[:, column] = 0.0
    run = Run(
        workload=workload,
        cluster=cluster,
        policy=str(about["policy"]),
        attempts=saved.attempts,
        energy_j=energy_j,
        carbon_g=np.array(about["carbon_g"], np.float64),
        cost=np.array(about["cost"], np.float64),
        peak_w=about["peak_w"],
        makespan_s=saved.makespan_s,
        start_s=about["start_s"],
        lead_s=about["lead_s"],
        scalars=about["scalars"],
        manifest=about["manifest"],
        simulated=False,
    )
    return run, others_j


def known_j(accounts: Mapping[str, float | None]) -> dict[str, float]:
    """Accounts with the unknown ones left out."""
    return {name: joules for name, joules in accounts.items() if joules is not None}


def _line(run: Run, name: str, makespan_s: float, total_j: float) -> Beside:
    energy_j = float(run.energy_j.sum())
    return Beside(
        name,
        True,
        run.makespan_s,
        energy_j,
        run.account_j("run"),
        run.makespan_s / makespan_s - 1.0,
        energy_j / total_j - 1.0,
    )
