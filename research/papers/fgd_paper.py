"""How much of a cluster's GPUs a policy can give away, as pods arrive and never leave.

As in Weng et al., USENIX ATC 2023: pods of the Alibaba list in a drawn order, then more of them drawn with
replacement, until they ask for 130 % of all GPUs. A pod that fits nowhere is passed over. The measure is the share of
all GPUs that is allocated when pods that ask for a given share have arrived.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.papers.alibaba_cluster import load_alibaba
from research.papers.findings import Figure, Findings, Progress, Sheet
from research.papers.gpu_rivals import RIVALS
from wattflow import traces
from wattflow.clusters import load_cluster
from wattflow.engine.build import why_not
from wattflow.engine.tables import PLACED
from wattflow.files.data_folder import data_file
from wattflow.files.strict_table import StrictTable
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import MissingData
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.policy.fgd import targeting
from wattflow.sim import kernel
from wattflow.sim.simulate import Simulation

Floats = NDArray[np.float64]

GRID = np.arange(0.0, 1.3001, 0.01)
"""Arrived shares at which curves are read."""

FOREVER_S = 1e9
NO_RIVALS = ("fgd", "pwr")
"""FGD itself, and PWR, which is FGD with a tenth of its weight on watts."""


@dataclass(frozen=True, slots=True)
class FillingSettings:
    """Settings of the file."""

    cluster: str
    pods: str
    gpu_nodes: bool
    arrived: float
    repeats: int
    seed: int
    policies: tuple[str, ...]
    at_pct: tuple[float, ...]
    other_lists: tuple[str, ...] = ()
    other_repeats: int = 3


@dataclass(frozen=True, slots=True)
class Filling:
    """One policy on one order of arrivals.

    Attributes:
        allocated: Share of all GPUs allocated, at each share of ``GRID`` that arrived.
        seconds: Wall time of building and running it.
        decision_s: Wall time per decision inside the kernel.
    """

    allocated: Floats
    seconds: float
    decision_s: float


def read(table: StrictTable) -> FillingSettings:
    """The keys of this kind."""
    settings = FillingSettings(
        cluster=table.text("cluster", "alibaba"),
        pods=table.text("list", "default"),
        gpu_nodes=table.choice("nodes", ("gpu", "all"), "gpu") == "gpu",
        arrived=table.number("arrived", 1.3),
        repeats=table.whole("repeats", 5),
        seed=table.whole("seed", 0),
        policies=table.texts("policies"),
        at_pct=table.numbers("at_pct"),
        other_lists=table.texts("other_lists"),
        other_repeats=table.whole("other_repeats", 3),
    )
    for key in ("repeats", "other_repeats"):
        if getattr(settings, key) < 1:
            table.problem(key, f"must be at least 1, not {getattr(settings, key)}")
    if not 0.0 < settings.arrived <= GRID[-1]:
        table.problem("arrived", f"must be above 0 and at most {GRID[-1]:g}, not {settings.arrived:g}")
    for name in settings.policies:
        if name not in RIVALS and not registry.is_known(name):
            known = ", ".join([*RIVALS, *registry.names()])
            table.problem("policies", f"no policy is named {name!r}; known: {known}")
    if "fgd" not in settings.policies or all(name in NO_RIVALS for name in settings.policies):
        table.problem("policies", "must have fgd and a rival")
    return settings


def policy_of(name: str, pods: Workload) -> Policy:
    """A rival of the paper, else a registered policy; FGD and PWR know the list's shapes beforehand, as there."""
    policy = RIVALS[name] if name in RIVALS else registry.load(name)
    return targeting(policy, pods) if name in NO_RIVALS else policy


def pod_gpus(pods: Workload) -> Floats:
    """GPUs that each pod asks for."""
    first = [shape.variants[0] for shape in pods.shapes]
    asked = np.array([v.devices * v.device_share if v.device == "gpu" else 0.0 for v in first])
    return np.asarray(asked[pods.shape])


def inflated(pods: Workload, gpus: float, seed: int | None) -> Workload:
    """Pods until they ask for so many GPUs, one a second, without end; without a seed the list as it is."""
    count = len(pods)
    order = np.arange(count)
    if seed is not None:
        rng = np.random.default_rng([seed, 23])
        asked = pod_gpus(pods)
        drawn = [rng.permutation(count)]
        while sum(float(asked[some].sum()) for some in drawn) < gpus:
            drawn.append(rng.integers(0, count, count))
        order = np.concatenate(drawn)
        # The pod that reaches the sum is still among them.
        order = order[: int(np.searchsorted(np.cumsum(asked[order]), gpus)) + 1]
    forever = np.full(len(order), FOREVER_S)
    return Workload.of_columns(
        pods.name,
        release_s=np.arange(len(order), dtype=np.float64),
        runtime_s=forever,
        shapes=pods.shapes,
        functions=pods.functions,
        shape=pods.shape[order],
    )


def fill(arrivals: Workload, cluster: Cluster, policy: Policy, seed: int) -> Filling:
    """Let all pods arrive and read which were placed."""
    started = time.perf_counter()
    placed = np.zeros(len(arrivals), np.bool_)
    # Pods that fit on no node even when it is empty arrive and are passed over.
    able = possible(arrivals, cluster)
    sim = Simulation(_only(arrivals, able), cluster, policy, seed=seed)
    state: Any = sim.state
    until_s = float(len(arrivals))
    while sim.advance(until_s) != kernel.UNTIL:
        pass
    # By state, not by attempts: a pod that never leaves is placed for good.
    placed[able] = np.asarray(state.tasks.state[: int(able.sum())]) == PLACED
    seconds = time.perf_counter() - started
    asked = pod_gpus(arrivals)
    total = gpus_of(cluster)
    arrived, allocated = np.cumsum(asked) / total, np.cumsum(asked * placed) / total
    # At an arrived share: after the last pod that keeps the sum at or below it.
    # At a share that is reached exactly the pod counts, whatever the rounding.
    at = np.searchsorted(arrived, GRID + 1e-9, side="right")
    curve = np.concatenate([[0.0], allocated])[at]
    return Filling(curve, seconds, sim.seconds / max(1.0, float(state.counts.decisions[0])))


def possible(pods: Workload, cluster: Cluster) -> NDArray[np.bool_]:
    """Which pods some node could take when it is empty."""
    kinds = list({node.class_key: node for node in cluster.nodes}.values())
    shapes = [any(why_not(shape.variants[0], node, 1.0, 0) is None for node in kinds) for shape in pods.shapes]
    return np.array(shapes, np.bool_)[pods.shape]


def _only(pods: Workload, keep: NDArray[np.bool_]) -> Workload:
    """The pods that are kept, each at its time."""
    return Workload.of_columns(
        pods.name,
        release_s=pods.release_s[keep],
        runtime_s=pods.runtime_s[keep],
        shapes=pods.shapes,
        functions=pods.functions,
        shape=pods.shape[keep],
    )


def cluster_of(settings: FillingSettings) -> Cluster:
    """The cluster, without the nodes that have no GPU where the file says so (as in the paper)."""
    cluster = load_alibaba() if settings.cluster == "alibaba" else load_cluster(settings.cluster)
    if not settings.gpu_nodes:
        return cluster
    return replace(cluster, nodes=tuple(node for node in cluster.nodes if gpus_in(node)))


def shuffled(cluster: Cluster, seed: int) -> Cluster:
    """The same nodes in a drawn order: the authors' simulator gives them new names in each run, and ties go by name."""
    # Salts keep draws apart: 23 arrivals, 29 nodes.
    order = np.random.default_rng([seed, 29]).permutation(len(cluster.nodes))
    return replace(cluster, nodes=tuple(cluster.nodes[n] for n in order))


def gpus_in(node: Node) -> int:
    """GPUs of a node."""
    return sum(device.kind == "gpu" for device in node.devices)


def gpus_of(cluster: Cluster) -> int:
    """GPUs of all nodes."""
    return sum(gpus_in(node) for node in cluster.nodes)


def load_pods(name: str) -> Workload:
    """A pod list of the Alibaba GPU trace by its short name."""
    return traces.load(data_file("gpu_cluster", "alibaba_gpu_v2023", f"openb_pod_list_{name}.csv.gz"))


def one_experiment_s(settings: FillingSettings) -> float:
    """Wall seconds of the plain list under FGD, reading the lists included, once everything is compiled."""
    started = time.perf_counter()
    cluster, pods = cluster_of(settings), load_pods(settings.pods)
    # Without a seed the list is taken as it is, whatever it asks for.
    fill(inflated(pods, 0.0, None), cluster, policy_of("fgd", pods), settings.seed)
    return time.perf_counter() - started


def run(settings: FillingSettings, progress: Progress) -> Findings:
    """All policies on the same orders of arrival, then the paper's six on the other lists."""
    cluster, pods = cluster_of(settings), load_pods(settings.pods)
    steps = 1 + len(settings.other_lists)
    progress(0.0, settings.pods)
    found = fillings(settings, pods, settings.policies, settings.repeats)
    others = {}
    for number, name in enumerate(settings.other_lists):
        progress((1 + number) / steps, name)
        others[name] = fillings(settings, load_pods(name), tuple(RIVALS), settings.other_repeats)
    progress(1.0, "the plain list")
    made = outcome(settings, found, (one_experiment_s(settings), len(pods), len(cluster.nodes)))
    if not others:
        return made
    return replace(made, sheets=(*made.sheets, others_sheet(others, settings.other_repeats)))


def fillings(
    settings: FillingSettings, pods: Workload, policies: Sequence[str], repeats: int
) -> dict[str, list[Filling]]:
    """Each policy on the same orders of arrival of one list."""
    cluster = cluster_of(settings)
    gpus = settings.arrived * gpus_of(cluster)
    found: dict[str, list[Filling]] = {name: [] for name in policies}
    # Every policy on the same orders: differences are paired.
    for seed in range(settings.seed, settings.seed + repeats):
        arrivals, nodes = inflated(pods, gpus, seed), shuffled(cluster, seed)
        for name in policies:
            found[name].append(fill(arrivals, nodes, policy_of(name, pods), seed))
    return found


def others_sheet(others: Mapping[str, Mapping[str, list[Filling]]], repeats: int) -> Sheet:
    """Allocated at 100 and 130 % arrived on lists without published curves."""
    names = next(iter(others.values())).keys()
    rows = tuple(
        (pods, *(" / ".join(
            f"{100 * float(np.mean([one.allocated[_index(pct)] for one in found[name]])):.2f}" for pct in (100.0, 130.0)
        ) for name in names))
        for pods, found in others.items()
    )  # fmt: skip
    title = f"other lists: allocated at 100 / 130 % arrived, mean of {repeats} orders"
    return Sheet(title, ("list", *names), rows)


def outcome(settings: FillingSettings, found: dict[str, list[Filling]], plain: tuple[float, int, int]) -> Findings:
    """Tables, figures and the picture. ``plain``: seconds of the plain list, its pods, the cluster's nodes."""
    curves = {name: np.mean([one.allocated for one in some], axis=0) for name, some in found.items()}
    spread = {name: np.std([one.allocated for one in some], axis=0) for name, some in found.items()}
    rivals = ranked(curves)
    notes = (
        f"Share of all GPUs allocated, percent, mean ± standard deviation over {settings.repeats} orders of arrival.",
        f"Best of {len(rivals)} rivals at 100 %: {rivals[0]}; worst: {rivals[-1]}. The paper says that FGD "
        "leaves up to 49 % fewer GPUs unallocated.",
        "pwr is FGD with a tenth of the weight on watts: no rival of the paper, so it has a figure of its own.",
        f"alibaba_experiment_s: {plain[1]:,} pods in the order of the list on {plain[2]:,} nodes under fgd, both lists "
        "read anew, everything compiled before.",
    )
    results = {
        "arrived_pct": [round(100 * float(x), 6) for x in GRID],
        "allocated_pct": {name: [round(100 * float(y), 6) for y in curve] for name, curve in curves.items()},
        "spread_points": {name: [round(100 * float(y), 6) for y in one] for name, one in spread.items()},
        "seconds": {name: [one.seconds for one in some] for name, some in found.items()},
    }
    rows = tuple(
        (
            name,
            *(f"{100 * curves[name][_index(p)]:.2f} ±{100 * spread[name][_index(p)]:.2f}" for p in settings.at_pct),
            f"{1e6 * float(np.mean([one.decision_s for one in some])):.0f}",
            f"{min(one.seconds for one in some):.2f}",
        )
        for name, some in found.items()
    )
    columns = ("policy", *(f"at {p:g} %" for p in settings.at_pct), "µs/decision", "s/run")
    sheet = Sheet("GPUs allocated when pods that ask for … of all GPUs have arrived", columns, rows)
    pictures = {"allocation": lambda path: draw(curves, path)}
    return Findings((sheet,), figures(settings, curves, plain[0]), results, notes, pictures)


def ranked(curves: dict[str, Floats]) -> list[str]:
    """Rivals, the best at full arrival first."""
    full = _index(100.0)
    return sorted((name for name in curves if name not in NO_RIVALS), key=lambda name: -float(curves[name][full]))


def figures(settings: FillingSettings, curves: dict[str, Floats], plain_s: float) -> tuple[Figure, ...]:
    """FGD against its rivals when all GPUs are asked for and at the end, and how long the plain list takes."""
    rivals = ranked(curves)
    full, end = _index(100.0), _index(100.0 * settings.arrived)
    fgd, best, worst = (float(curves[name][full]) for name in ("fgd", rivals[0], rivals[-1]))
    at_end = float(curves["fgd"][end] - max(curves[name][end] for name in rivals))
    end_name = f"fgd_ahead_of_best_rival_at_{100 * settings.arrived:g}_pct"
    found = [
        Figure("fgd_allocated_at_100_pct", 100 * fgd, "%", "none", True),
        Figure("fgd_ahead_of_best_rival_at_100_pct", 100 * (fgd - best), "points", ">0", fgd > best),
        Figure(end_name, 100 * at_end, "points", ">0", at_end > 0),
    ]
    if "pwr" in curves:
        over = fgd - float(curves["pwr"][full])
        found.append(Figure("fgd_ahead_of_pwr_at_100_pct", 100 * over, "points", ">0", over > 0))
    for name, rival in (("best", best), ("worst", worst)):
        # Of what is left: the paper counts GPUs that nobody gets.
        fewer = 100.0 * (1.0 - (1.0 - fgd) / (1.0 - rival)) if rival < 1.0 else 0.0
        found.append(Figure(f"fgd_fewer_unallocated_than_{name}_rival", fewer, "%", "none", True))
    found += against_published(settings, curves)
    found.append(Figure("alibaba_experiment_s", plain_s, "s", "≤5", plain_s <= 5.0))
    return tuple(found)


PUBLISHED = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
"""Names in the authors' curves of the default list."""
CLOSE_POINTS = 0.3


def against_published(settings: FillingSettings, curves: dict[str, Floats]) -> list[Figure]:
    """Points above the authors' own curves at 100 and 130 % (default list), where the data folder has them."""
    # Published curves are of this list on these nodes only.
    if settings.pods != "default" or not settings.gpu_nodes:
        return []
    try:
        path = data_file("reference_results", "fgd_default_allocation.csv")
    except MissingData:
        return []
    with path.open(encoding="utf-8") as lines:
        rows = {(row["policy"], row["arrived_pct"]): float(row["allocated_pct_mean"]) for row in csv.DictReader(lines)}
    found = []
    for name in (name for name in PUBLISHED if name in curves):
        for pct in ("100", "130"):
            over = 100.0 * float(curves[name][_index(float(pct))]) - rows[(PUBLISHED[name], pct)]
            title = f"{name.replace('-', '_')}_above_published_at_{pct}_pct"
            found.append(Figure(title, over, "points", f"±{CLOSE_POINTS:g}", abs(over) <= CLOSE_POINTS))
    return found


def _index(pct: float) -> int:
    # The nearest of the grid: 0.01 is no exact float.
    return int(np.argmin(np.abs(GRID - pct / 100.0)))


def draw(curves: dict[str, Floats], path: Path) -> None:
    """Allocated against arrived share: the whole range, and where the policies part."""
    from wattflow.lab.show.data_frames import new_figure

    figure = new_figure(width=10.0)
    whole, close = figure.subplots(1, 2)
    for axes in (whole, close):
        axes.plot([0, 100], [0, 100], color="black", linewidth=0.8, linestyle=":", label="all that arrived")
        for number, (name, curve) in enumerate(curves.items()):
            # Some curves lie on each other: dashes of different lengths let both show, and FGD is drawn first and wide.
            style = {"linewidth": 3.6, "alpha": 0.5} if name == "fgd" else {"linewidth": 1.4}
            dashes = (1, 0) if number % 2 == 0 else (3 + number, 2)
            axes.plot(100 * GRID, 100 * curve, label=name, dashes=dashes, **style)
        axes.set(xlabel="arrived GPU requests, % of all GPUs", ylabel="allocated GPUs, %")
        axes.grid(color="0.9")
    whole.set(xlim=(0, 130), ylim=(0, 100), title="GPUs allocated as pods arrive")
    low = min(float(curve[_index(85.0)]) for curve in curves.values())
    close.set(xlim=(85, 130), ylim=(100 * low - 2, 100), title="the same, close")
    whole.legend(fontsize=8)
    figure.savefig(path, dpi=120)
