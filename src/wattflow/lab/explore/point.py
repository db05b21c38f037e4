"""One point of a design: a frame, a policy, a cluster, a workload and a seed; its content hash; and running it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattflow.frames.frame import Frame
from wattflow.generate.recipe import Recipe
from wattflow.lab.figures.metrics import carbon_g, energy_figures
from wattflow.lab.run.work import code_hash
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.run import Run
from wattflow.model.workload import Workload

OWN = "own"
"""Instead of a cluster: the one that the generated workload brings."""

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# Rounded, so that the levels are the same numbers on every machine.
LEVELS = np.round(10.0 ** np.linspace(0.0, 6.0, 121), 9)
"""Slowdowns, 20 to a decade, at which the share of slower tasks is kept: shares of equal points can be averaged."""
BINS = 96
"""Slices of a run for its utilisation over time."""

Values = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Made:
    """A generated workload: ``ibm-like`` and ``skewed`` bring their own cluster."""

    kind: str
    tasks: int
    trace: int = 0
    hosts: int = 20

    def draw(self, seed: int) -> tuple[Workload, Cluster]:
        """Return the workload and its cluster; the number of an ``ibm-like`` trace alone decides it."""
        from wattflow.frames import workloads

        if self.kind == "ibm-like":
            return workloads.ibm_like(self.trace, self.tasks)
        return workloads.skewed(self.tasks, seed, self.hosts)


@dataclass(frozen=True, slots=True)
class Source:
    """A workload of a design: its label, what its content is known by, and what makes it."""

    label: str
    content: str
    made: Made | Recipe | Workload = field(compare=False)

    def draw(self, seed: int) -> tuple[Workload, Cluster | None]:
        """Return the workload of this seed, and its own cluster where it brings one."""
        if isinstance(self.made, Made):
            return self.made.draw(seed)
        return (self.made.draw(seed) if isinstance(self.made, Recipe) else self.made), None


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster of a design; None stands for each workload's own."""

    label: str
    content: str = OWN
    cluster: Cluster | None = field(default=None, compare=False)


def place_of(label: str, cluster: Cluster) -> ClusterChoice:
    """Return a cluster under its label, known by its content."""
    return ClusterChoice(label, hashlib.sha256(repr(cluster).encode()).hexdigest(), cluster)


@dataclass(frozen=True, slots=True, eq=False)
class DesignPoint:
    """One run to make.

    Attributes:
        key: Hash of all that decides the result; names and remarks do not.
        design: Name of the frame without its axes; ``factors`` are these, label by key.
    """

    key: str
    frame: Frame
    design: str
    factors: Mapping[str, str]
    policy: str
    place: ClusterChoice
    source: Source
    seed: int

    @property
    def title(self) -> str:
        """For people: the frame with its axes."""
        return ", ".join([self.design, *self.factors.values()])


def described(frame: Frame) -> dict[str, object]:
    """Return a frame's content: everything except its name and remarks."""
    facts = asdict(frame)
    for key in ("name", "about", "source"):
        del facts[key]
    return facts


def key_of(frame: Frame, policy: str, place: ClusterChoice, source: Source, seed: int) -> str:
    """Content hash of a point."""
    facts = {
        # With the code: results of another version are not taken for this one's.
        "code": code_hash(),
        "frame": described(frame),
        "policy": policy,
        "cluster": place.content,
        "workload": source.content,
        "seed": seed,
    }
    # Sorted: the order of keys says nothing.
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Runner:
    """Runs points; keeps the last workload drawn for the next one that needs it."""

    def __init__(self) -> None:
        self._last: tuple[str, int, Workload, Cluster | None] | None = None

    def run(self, point: DesignPoint) -> dict[str, object]:
        """Run a point; its result is plain data.

        Raises:
            WattflowError: The point cannot be run, as when a task fits on no host.
        """
        from wattflow.frames.frame_run import run_frame

        workload, own = self._drawn(point)
        cluster = point.place.cluster or own
        if cluster is None:
            raise InvalidInput(point.source.label, "brings no cluster of its own; name one in clusters")
        return result(run_frame(point.frame, workload, cluster, point.policy, seed=point.seed))

    def _drawn(self, point: DesignPoint) -> tuple[Workload, Cluster | None]:
        # By content: a point's own object may have travelled between processes.
        if self._last is None or self._last[:2] != (point.source.content, point.seed):
            self._last = (point.source.content, point.seed, *point.source.draw(point.seed))
        return self._last[2], self._last[3]


def warm_up() -> None:
    """Compile the kernel, or load it, with a run of one task."""
    from wattflow.frames import library, workloads
    from wattflow.frames.frame_run import run_frame

    # One task is enough: what is compiled depends on types alone.
    run_frame(library.load_frame("centralised"), *workloads.skewed(1))


def result(run: Run) -> dict[str, object]:
    """Keep of a run: figures, how its watts are known, the shares of slower tasks, utilisation over time."""
    from wattflow.frames.frame_run import slowdowns

    slow = slowdowns(run)
    kinds = sorted({node.power.provenance.value if node.power else "unknown" for node in run.cluster.nodes})
    return {
        "values": values_of(run, slow),
        "watts": " and ".join(kinds),
        "slower": slower_shares(slow),
        "utilisation": utilisation(run),
    }


def values_of(run: Run, slow: NDArray[np.float64]) -> Values:
    """Return every figure of a run; None where it is unknown."""
    from wattflow.frames.frame_run import waits_s

    tasks = len(run.workload)
    done = run.attempts["outcome"] == 0
    found: dict[str, float | None] = {
        "tasks": tasks,
        "finished": int(run.finished.sum()),
        "hosts": len(run.cluster.nodes),
    }
    found["slowdown_mean"] = float(slow.mean()) if len(slow) else math.nan
    cuts = np.percentile(slow, PERCENTILES) if len(slow) else np.full(len(PERCENTILES), math.nan)
    found |= {f"slowdown_p{p:g}": float(cut) for p, cut in zip(PERCENTILES, cuts)}
    found |= energy_figures(run)
    total = found["energy_j"]
    found["energy_j_per_task"] = None if total is None else total / max(1, tasks)
    found |= {"makespan_s": run.makespan_s, "carbon_g": carbon_g(run)}
    found |= {f"wait_{stage}_s": seconds for stage, seconds in waits_s(run).items()}
    ran = run.attempts["end_s"][done] - run.attempts["start_s"][done]
    found["run_s"] = float(ran.sum()) / max(1, tasks)
    # Figures computed above win over counters of the same name.
    found |= {name: value for name, value in run.scalars.items() if name not in found}
    # JSON and parquet columns know no NaN: unknown is None.
    return {name: (None if value is None or not math.isfinite(value) else value) for name, value in found.items()}


def slower_shares(slow: NDArray[np.float64]) -> list[float]:
    """Return the share of tasks with a slowdown above each of ``LEVELS``, by more than 1e-9."""
    if not len(slow):
        return []
    # A slowdown of exactly 1, off by a rounding, must not count as slower than 1.
    at = np.searchsorted(LEVELS * (1.0 + 1e-9), slow, side="left")
    below = np.cumsum(np.bincount(at, minlength=len(LEVELS) + 1))[: len(LEVELS)]
    return [float(share) for share in 1.0 - below / len(slow)]


def utilisation(run: Run) -> list[float]:
    """Return the share of cores on which tasks run (not wait for data) in each slice of the run. O(n)."""
    if not len(run.attempts) or run.makespan_s <= 0:
        return []
    edges = run.start_s + np.linspace(0.0, run.span_s, BINS + 1)
    shapes = run.workload.shapes
    cores = np.array([next((v.cores for v in s.variants if v.device is None), 0.0) for s in shapes] or [1.0])
    rows = run.attempts
    weight = cores[run.workload.shape[rows["task"]]]
    # By integrals, O(n) for any number of slices.
    integral = _integral(edges, rows["start_s"], weight) - _integral(edges, rows["end_s"], weight)
    capacity = sum(min(node.request_cores, float(node.cores)) for node in run.cluster.nodes)
    share = np.diff(integral) / (capacity * run.span_s / BINS)
    # Differences of large sums may fall below 0 by a rounding.
    return [float(value) for value in np.maximum(share, 0.0)]


def _integral(edges: NDArray[np.float64], at: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ weight · max(0, edge − at) for each edge."""
    slot = np.searchsorted(edges, at, side="left")
    total = np.cumsum(np.bincount(slot, weight, minlength=len(edges) + 1))[: len(edges)]
    moment = np.cumsum(np.bincount(slot, weight * at, minlength=len(edges) + 1))[: len(edges)]
    integral: NDArray[np.float64] = edges * total - moment
    return integral


def attempt(runner: Runner, point: DesignPoint) -> dict[str, object]:
    """Run a point; ``{"error": …}`` where it cannot be run: data that travels between processes."""
    try:
        return runner.run(point)
    except WattflowError as error:
        return {"error": str(error)}
