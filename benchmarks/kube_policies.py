"""How far the simulator can be trusted: the same jobs under the same policies on the rig and simulated, ranks compared.

`literature`: nine policies from the literature, ours and the learned one on six nodes of three kinds. `joulie`: the 41
nodes of Joulie's second setting under its own score, its opponents and ours, placement alone (no sleep, no caps).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import kube_measure as measure
import kube_replay as replay
import numpy as np
from kube_argo import CLASSES
from kube_measure import ROOT, figure
from kube_replay import Measured
from kuberig.control import Options
from kuberig.rig import Rig

from research.papers import joulie_paper
from wattflow.clusters import resolve_profile
from wattflow.model.cluster import Cluster, Node
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

LITERATURE = (
    "kubernetes",
    "sjf",
    "wfp3",
    "unicep",
    "min-min",
    "peaks",
    "topsis",
    "hpe",
    "joulie",
    "wattflow",
    "learned",
)
Known = dict[str, dict[str, Measured]]
JOULIE = ("most-allocated", "kubernetes", "joulie", "wattflow")


def literature(jobs: int, load: float) -> tuple[Workload, Cluster]:
    """Jobs of one to four cores and about four seconds on two nodes each of three kinds."""
    nodes = tuple(
        Node(f"{one.name}-{i}", one.cores, 256 << 30, power=resolve_profile(one.profile, one.cores), speed=one.speed)
        for one in CLASSES
        for i in range(2)
    )
    rng = np.random.default_rng([8, 12])
    wants = rng.choice(3, jobs, p=[0.6, 0.25, 0.15]).astype(np.int32)
    cores = np.array([1.0, 2.0, 4.0])[wants]
    runtime = np.clip(rng.lognormal(np.log(4.0), 0.6, jobs), 1.0, 16.0)
    room = sum(node.cores * node.speed for node in nodes)
    release = np.cumsum(rng.exponential(float((runtime * cores).mean()) / (load * room), jobs))
    shapes = [Shape(0, (Variant(cores=value),), 1) for value in (1.0, 2.0, 4.0)]
    workload = Workload.of_columns(
        "kube-policies", release_s=release - release[0], runtime_s=runtime, shapes=shapes, shape=wants,
        functions=(Function("job"),), one_each=True,
    )  # fmt: skip
    return workload, Cluster("kube-policies", nodes)


def of_joulie(jobs: int, load: float, span_s: float) -> tuple[Workload, Cluster]:
    """Joulie's 41 nodes and its mix of jobs, as much shorter as makes the load right within the span."""
    settings = joulie_paper.JoulieSettings(1.0, span_s / 3600.0, load, jobs / span_s, 0.0, 0, 0.05, 60.0, JOULIE)
    machines = joulie_paper.cluster(joulie_paper.MIXED, settings).without_sleep()
    return joulie_paper.workload(machines, settings, jobs / span_s, 0.0), machines


def compare(
    policies: list[str], workload: Workload, cluster: Cluster, label: str, patience_s: float, known: Known
) -> None:
    """Every policy in both worlds; figures and ranks. What is known already is not run on the rig again.

    Nodes in the order of their names, as the API server lists them: among equals the first one is taken.
    """
    cluster = replace(cluster, nodes=tuple(sorted(cluster.nodes, key=lambda node: node.name)))
    found: Known = {"simulated": {}, "rig": {one: known["rig"][one] for one in policies if one in known.get("rig", {})}}
    for policy in policies:
        found["simulated"][policy] = replay.simulated(policy, workload, cluster)
    with _rig(cluster, any(policy not in found["rig"] for policy in policies)) as rig:
        for policy in policies:
            if policy not in found["rig"] and rig is not None:
                found["rig"][policy] = replay.on_rig(rig, policy, workload, cluster, patience_s)
                replay.write(path_of(label), found)
            for where in ("simulated", "rig"):
                one = found[where][policy]
                print(f"{policy:16} {where:10} {one.energy_j / 1000:9.2f} kJ, mean response {one.mean_s:7.2f} s, "
                      f"p95 {one.p95_s:7.2f} s, makespan {one.makespan_s:7.2f} s", flush=True)  # fmt: skip
    for key in ("energy_j", "mean_s", "p95_s", "makespan_s"):
        both = [[getattr(found[where][policy], key) for policy in policies] for where in ("simulated", "rig")]
        if all(len({round(value, 2) for value in values}) > 1 for values in both):
            figure(f"kube_{label}_rank_correlation_{key}", replay.rank_correlation(*both), "(1 is the same order)")
        else:
            print(f"{key}: equal under all policies, so there is no order to compare")
        apart = [abs(real - made) / made for made, real in zip(*both, strict=True)]
        figure(f"kube_{label}_simulator_off_{key}", 100 * float(np.mean(apart)), "%")
    if label == "joulie":
        _savings(found["rig"])


@contextmanager
def _rig(cluster: Cluster, wanted: bool) -> Iterator[Rig | None]:
    """A rig with the cluster's nodes, if one is wanted."""
    if not wanted:
        yield None
        return
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    try:
        replay.prepare(rig, cluster)
        yield rig
    finally:
        rig.stop()


def path_of(label: str) -> Path:
    """Where the measures of a setting are kept."""
    return ROOT / "out" / f"kube_policies_{label}.json"


def _savings(rig: dict[str, Measured]) -> None:
    """Against most-allocated, as Joulie reports."""
    base = rig["most-allocated"].energy_j
    theirs, ours = (100 * (base - rig[name].energy_j) / base for name in ("joulie", "wattflow"))
    figure("kube_joulie_its_saving", theirs, "%")
    figure("kube_joulie_our_saving", ours, "%", f">={2 * max(0.0, theirs):.3g}", ours >= 2 * max(0.0, theirs))
    longer = rig["wattflow"].p95_s / rig["joulie"].p95_s
    figure("kube_joulie_our_p95_over_its", longer, "times", "<=1", longer <= 1.0)


def main() -> None:
    """Runs one setting or both and prints all figures once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=("literature", "joulie"), default="literature")
    parser.add_argument("--jobs", type=int, default=0, help="0: 160 and 400")
    parser.add_argument("--load", type=float, default=0.0, help="0: 0.8 and 0.5")
    parser.add_argument("--span", type=float, default=60.0, help="seconds of arrivals (joulie)")
    parser.add_argument("--policies", nargs="+")
    parser.add_argument(
        "--resume", action="store_true", help="policies that an earlier run measured are left as they are"
    )
    parser.add_argument("--patience", type=float, default=300.0)
    arguments = parser.parse_args()
    if arguments.setting == "literature":
        workload, cluster = literature(arguments.jobs or 160, arguments.load or 0.8)
        chosen = arguments.policies or list(LITERATURE)
    else:
        workload, cluster = of_joulie(arguments.jobs or 400, arguments.load or 0.5, arguments.span)
        chosen = arguments.policies or list(JOULIE)
    known = replay.read(path_of(arguments.setting)) if arguments.resume else {}
    compare(chosen, workload, cluster, arguments.setting, arguments.patience, known)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
