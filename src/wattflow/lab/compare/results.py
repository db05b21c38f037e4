"""Results of runs: figures by workload, policy and seed, with summaries; `lab.show` makes tables and pages of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wattflow.lab.figures.metrics import HOST_MEASURED, METRICS, Values
from wattflow.lab.figures.statistics import mean_interval, pareto_front, reduction
from wattflow.model.cluster import Cluster
from wattflow.model.errors import unknown_name
from wattflow.model.run import Run


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The figures of one run."""

    workload: str
    policy: str
    seed: int
    values: Values


@dataclass(frozen=True, slots=True)
class Summary:
    """One figure of one policy on one workload, over seeds, with 95 % intervals (t, paired by seed).

    Attributes:
        half_width: Of the mean's interval; None with fewer than two seeds.
        reduction: Mean over seeds of (before − after) / before against the baseline; None where it has no meaning.
        reduction_half_width: Of the reduction's interval.
        deterministic: Every seed gave the same value, so the interval is 0 because nothing in the run is random.
    """

    workload: str
    policy: str
    metric: str
    mean: float | None
    half_width: float | None
    reduction: float | None
    reduction_half_width: float | None
    seeds: int
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Beside:
    """One line: a policy, simulated or real. Errors are relative to the real run."""

    policy: str
    simulated: bool
    makespan_s: float
    energy_j: float
    run_j: float
    makespan_error: float
    energy_error: float


@dataclass(frozen=True, repr=False)
class Results:
    """Figures of every run, by workload, policy and seed.

    ``runs`` holds the run of the first seed of each (workload, policy) where they were kept.
    """

    cluster: Cluster
    baseline: str
    workloads: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    points: tuple[SeedResult, ...]
    runs: Mapping[tuple[str, str], Run] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: Mapping[str, object] = field(default_factory=dict)

    def values(self, workload: str, policy: str, metric: str) -> list[float | None]:
        """Return the figure's value for each seed, in order of the seeds."""
        return [p.values[metric] for p in self._points()[workload, policy]]

    def summary(self, workload: str, policy: str, metric: str) -> Summary:
        """Mean, interval, and reduction against the baseline."""
        if metric not in METRICS:
            raise unknown_name("figure", metric, METRICS)
        after = self.values(workload, policy, metric)
        known = [value for value in after if value is not None]
        # All or nothing: a mean over the seeds that happen to be known would compare different draws.
        whole = len(known) == len(after) and bool(known)
        mean, half = mean_interval(known) if whole else (None, None)
        less, less_half = self._reduction(workload, policy, metric)
        # A time that was measured here is never called deterministic.
        same = whole and metric not in HOST_MEASURED and len(set(known)) == 1 and len(known) > 1
        return Summary(workload, policy, metric, mean, half, less, less_half, len(after), same)

    def summaries(self, metrics: Iterable[str] = tuple(METRICS)) -> Iterator[Summary]:
        """Every figure of every policy on every workload."""
        for workload in self.workloads:
            for policy in self.policies:
                for metric in metrics:
                    yield self.summary(workload, policy, metric)

    def front(self, workload: str) -> list[str]:
        """Return policies that no other beats in both mean makespan and mean energy on this workload."""
        pairs = [
            (policy, self.summary(workload, policy, "makespan_s").mean, self.summary(workload, policy, "energy_j").mean)
            for policy in self.policies
        ]
        known = [(policy, x, y) for policy, x, y in pairs if x is not None and y is not None]
        return [known[i][0] for i in pareto_front([x for _, x, _ in known], [y for _, _, y in known]).tolist()]

    def _reduction(self, workload: str, policy: str, metric: str) -> tuple[float | None, float | None]:
        before = self.values(workload, self.baseline, metric)
        after = self.values(workload, policy, metric)
        # By seed: both have the same draws, so most of what is random cancels out.
        each = [None if b is None or a is None else reduction(b, a) for b, a in zip(before, after, strict=True)]
        known = [value for value in each if value is not None]
        return mean_interval(known) if known and len(known) == len(each) else (None, None)

    def _points(self) -> dict[tuple[str, str], list[SeedResult]]:
        # Grouped once: a report asks for thousands of figures.
        if "points" not in self._index:
            grouped: dict[tuple[str, str], list[SeedResult]] = {}
            # By seed, so that lists of two policies pair up.
            for point in sorted(self.points, key=lambda p: p.seed):
                grouped.setdefault((point.workload, point.policy), []).append(point)
            self._index["points"] = grouped
        return self._index["points"]

    # Beside the frozen fields: it is worked out from them and says nothing of its own.
    _index: dict[str, dict[tuple[str, str], list[SeedResult]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
