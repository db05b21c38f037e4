"""A policy beside a reference on one stream of workflows: does anybody wait, and what does it save.

    judge = Judge(Stream(parts, cluster, load=0.5, seed=0))
    judge.verdict("wattflow").kept

A stream's figures are means over draws. A draw shuffles the nodes, so ties between equal places fall otherwise, draws
the reference's own ties as kube-scheduler does, and draws the errors of estimates. *Kept* means: mean and p95 response
of workflows are not above `BOUND` × the reference's by more than two standard errors of that difference, and no
deadline is missed that the reference meets. Where draws leave more than `ERROR` of doubt in the reference itself, the
stream is made twice as long, at most `LONGEST` workflows.

Joules are counted to one horizon, the reference's last end in that draw: whoever ends sooner idles or sleeps until
then by its own rules; whoever ends later is charged to its own end, and the reference idles as long. Frequency levels
are off, for the reference knows none, unless the stream says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.run import Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.plan import joining
from wattflow.plan.reference_replay import backlog_grows, waiting_at
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate

Floats = NDArray[np.float64]
BOUND, ERROR, LONGEST, DRAWS = 1.02, 0.01, 480, 8
REFERENCE = "kubernetes"
INSTEAD = "eft"
"""The reference where the other's backlog grows at the last arrivals: then its responses say little."""
SLACK = 4.0
"""Deadlines in critical paths."""
SPREAD = {"exact": 0.0, "20": 0.2, "50": 0.5, "100": 1.0, "biased": 0.2, "unknown": math.nan, "given": 0.0}
"""How far estimates err (σ of the logarithm): by per cent, twice the truth and 20 %, nothing is known, or as the parts
of the stream have them."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Workflows like ``parts`` that arrive at a load.

    Attributes:
        load: Work that arrives over what the owned cores do.
        estimates: A key of `SPREAD`.
        gap_s: Seconds that the workflow system takes between a task's parents and its start.
        levels: Lower clocks may be used, where the cluster has them; the reference knows none.
    """

    parts: tuple[Workload, ...]
    cluster: Cluster
    load: float
    seed: int
    estimates: str = "20"
    workflows: int = 120
    gap_s: float = 0.0
    levels: bool = False

    def draw(self) -> Workload:
        """Return the workload, with true runtimes and deadlines; requests are cut to the largest node."""
        rng = np.random.default_rng([self.seed, 0x10D6E])
        fitting = [_within(part, self.cluster) for part in self.parts]
        chosen = rng.integers(len(fitting), size=self.workflows)
        # Of the workflows that may be drawn, not of those that were: the load is what is asked for in the mean.
        mean = float(np.mean([joining.core_seconds(part) for part in fitting]))
        gaps = rng.exponential(mean / (self.load * joining.capacity(self.cluster)), self.workflows)
        submit_s = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
        drawn = [fitting[i] for i in chosen.tolist()]
        joined = joining.joined(drawn, submit_s, self.cluster, SLACK, "stream")
        given = self.estimates == "given"
        return joined.with_estimates(np.concatenate([part.estimate_s for part in drawn])) if given else joined


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy in one draw: responses by workflow, joules to the horizon, its own last end, workflows too late, and how
    many waited for a place when each arrived."""

    response_s: Floats
    energy_j: float
    end_s: float
    late: NDArray[np.bool_]
    waiting: Floats

    @property
    def mean_s(self) -> float:
        return float(self.response_s.mean())

    @property
    def p95_s(self) -> float:
        return float(np.quantile(self.response_s, 0.95))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A policy on a stream, as shares of the reference's figures.

    Attributes:
        energy, mean, p95: Means over the draws.
        mean_error, p95_error: Standard errors of the difference to the reference.
        newly_late: Deadlines missed in most draws that the reference meets in most.
    """

    policy: str
    energy: float
    mean: float
    p95: float
    mean_error: float
    p95_error: float
    newly_late: int

    @property
    def kept(self) -> bool:
        """Tell whether nobody waits."""
        within = self.mean <= BOUND + 2 * self.mean_error and self.p95 <= BOUND + 2 * self.p95_error
        return within and self.newly_late == 0


class Judge:
    """Runs the reference once, with all nodes on; then any policy beside it.

    Attributes:
        stream: As long as it had to be.
        reference: Its name.
        grows: The backlog of `REFERENCE` still grew at the last arrival, so it is another.
    """

    def __init__(self, stream: Stream, draws: int = DRAWS, reference: str = REFERENCE) -> None:
        self.draws, self.reference = draws, reference
        while True:
            self.stream, self.workload = stream, stream.draw()
            self.base = self._outcomes(reference, None)
            # With one draw there is no error to look at.
            if draws < 2 or self.doubt <= ERROR or 2 * stream.workflows > LONGEST:
                break
            stream = replace(stream, workflows=2 * stream.workflows)
        # Judged by the reference itself: another one that was asked for stays.
        self.grows = reference == REFERENCE and backlog_grows(np.mean([one.waiting for one in self.base], axis=0))
        if self.grows:
            self.reference = INSTEAD
            self.base = self._outcomes(INSTEAD, None)

    @property
    def doubt(self) -> float:
        """The larger standard error of a difference between two policies that wait as the reference does."""
        return max(_error(self.base, self.base, name) for name in ("mean_s", "p95_s"))

    @property
    def due_s(self) -> Floats:
        """When each workflow must have ended for nobody to wait, by the mean of the reference's draws; no deadline."""
        response_s: Floats = np.mean([one.response_s for one in self.base], axis=0)
        return self.workload.workflow_submit_s + BOUND * response_s

    @property
    def horizon_s(self) -> float:
        """The reference's last end, in the mean of its draws."""
        return float(np.mean([one.end_s for one in self.base]))

    @cached_property
    def keeps_itself(self) -> bool:
        """Tell whether the reference keeps the bound against itself, half of its draws against the other half."""
        half = self.draws // 2
        return self._beside(self.reference, self.base[:half], self.base[half:]).kept

    def verdict(self, policy: str | Policy) -> Verdict:
        """Simulate a policy (a name with its settings, or an object) in every draw."""
        name = policy if isinstance(policy, str) else policy.name
        return self._beside(name, self._outcomes(policy, self.base), self.base)

    def _beside(self, name: str, ours: Sequence[Outcome], base: Sequence[Outcome]) -> Verdict:
        idle_w = sum(node.power.idle_w for node in self.stream.cluster.nodes if node.power is not None)
        energy = [
            # Whoever ends later is compared with a reference that idles as long.
            a.energy_j / (b.energy_j + idle_w * max(0.0, a.end_s - b.end_s))
            for a, b in zip(ours, base, strict=True)
        ]
        mean, p95 = (_mean(ours, figure) / _mean(base, figure) for figure in ("mean_s", "p95_s"))
        # In most draws: a single miss may be a tie that fell badly.
        missed = np.mean([one.late for one in ours], axis=0) > 0.5
        met = np.mean([one.late for one in base], axis=0) < 0.5
        mean_error, p95_error = (_error(ours, base, figure) for figure in ("mean_s", "p95_s"))
        return Verdict(name, float(np.mean(energy)), mean, p95, mean_error, p95_error, int((missed & met).sum()))

    def _outcomes(self, policy: str | Policy, base: Sequence[Outcome] | None) -> list[Outcome]:
        return [self._outcome(policy, draw, None if base is None else base[draw].end_s) for draw in range(self.draws)]

    def _outcome(self, policy: str | Policy, draw: int, horizon_s: float | None) -> Outcome:
        rule = drawn_ties(registry.load(policy) if isinstance(policy, str) else policy)
        known = estimated(self.workload, self.stream.estimates, draw)
        options = SimOptions(record_power=horizon_s is not None, message_s=self.stream.gap_s)
        if horizon_s is not None:
            # Twice the horizon: a policy that ends later than the reference still has its sleep recorded.
            known = followed(known, 2.0 * horizon_s)
        # Seeds of draws, so that every policy sees the same ties, errors and orders.
        cluster = self.stream.cluster if self.stream.levels else nominal(self.stream.cluster)
        run = simulate(known, shuffled(cluster, draw), rule, seed=draw, options=options)
        return outcome_of(run, len(self.workload.workflow_names), horizon_s)


def estimated(workload: Workload, kind: str, draw: int) -> Workload:
    """Return the workload with estimates as good as ``kind`` says."""
    if kind == "given":
        return workload
    if kind == "unknown":
        return workload.with_estimates(np.full(len(workload), np.nan))
    sigma = SPREAD[kind]
    noise = np.random.default_rng([draw, 0xE57]).normal(0.0, sigma, len(workload))
    factor = 2.0 if kind == "biased" else 1.0
    return workload.with_estimates(workload.runtime_s * factor * np.exp(noise))


def nominal(cluster: Cluster) -> Cluster:
    """Return the nodes and devices at their nominal frequency alone."""
    return replace(
        cluster,
        nodes=tuple(
            replace(
                node,
                frequencies=node.frequencies[:1],
                devices=tuple(replace(device, levels=None) for device in node.devices),
            )
            for node in cluster.nodes
        ),
    )


def shuffled(cluster: Cluster, draw: int) -> Cluster:
    """Return the nodes in the order of a draw: ties go to the lower index, so they are drawn too."""
    order = np.random.default_rng([draw, 0x0DE]).permutation(len(cluster.nodes))
    return replace(cluster, nodes=tuple(cluster.nodes[i] for i in order.tolist()))


def drawn_ties(policy: Policy) -> Policy:
    """Return the policy with ties of its own by the run's seed, if it has such a dial."""
    return policy.with_params(ties=1.0) if "ties" in policy.params else policy


def followed(workload: Workload, at_s: float) -> Workload:
    """Return the workload and a task of a millisecond long after it: until then the simulation goes on."""

    def more(column: NDArray[Any], value: float) -> NDArray[Any]:
        return np.append(column, np.array([value], column.dtype))

    return replace(
        workload,
        workflow=more(workload.workflow, len(workload.workflow_names)),
        release_s=more(workload.release_s, at_s),
        runtime_s=more(workload.runtime_s, 1e-3),
        estimate_s=more(workload.estimate_s, 1e-3),
        shape=more(workload.shape, len(workload.shapes)),
        input_bytes=more(workload.input_bytes, 0.0),
        output_bytes=more(workload.output_bytes, 0.0),
        deadline_s=more(workload.deadline_s, np.inf),
        parent_start=more(workload.parent_start, workload.parent_start[-1]),
        # A hundredth of a core: the last task fits everywhere and disturbs nobody.
        shapes=(*workload.shapes, Shape(len(workload.functions), (Variant(cores=0.01),))),
        functions=(*workload.functions, Function("last")),
        workflow_names=(*workload.workflow_names, "last"),
        workflow_submit_s=more(workload.workflow_submit_s, at_s),
    )


def outcome_of(run: Run, workflows: int, horizon_s: float | None) -> Outcome:
    """Reduce a run to what counts; joules after the horizon, or after a later last end of its own, are left out."""
    workload = run.workload
    task_end_s = run.end_s_by_task()
    given_up = np.isnan(task_end_s)
    end_s = np.zeros(len(workload.workflow_names))
    np.maximum.at(end_s, workload.workflow, np.where(given_up, run.start_s + run.span_s, task_end_s))
    due_s = np.full(len(end_s), np.inf)
    np.minimum.at(due_s, workload.workflow, np.where(given_up, -np.inf, workload.deadline_s))
    # The last task's workflow is not counted.
    end_s, due_s = end_s[:workflows], due_s[:workflows]
    own_end_s = float(end_s.max())
    # To the later of the two ends, so that nobody gains by ending late.
    joules = run.total_j - (0.0 if horizon_s is None else joules_after(run, max(horizon_s, own_end_s)))
    submit_s = workload.workflow_submit_s[:workflows]
    waiting = waiting_at(submit_s, workload, run.start_s_by_task(), task_end_s)
    # Sums of floats: an end that is the deadline itself is in time.
    return Outcome(end_s - submit_s, joules, own_end_s, end_s > due_s + 1e-6, waiting)


def joules_after(run: Run, at_s: float) -> float:
    """Return joules of all nodes from a time to the end of the run, by its log of watts."""
    log = run.power_log
    assert log is not None
    time_s, node, watts = log["time_s"], log["node"], log["watts"]
    now_w = np.zeros(len(run.cluster.nodes))
    before = time_s <= at_s
    now_w[node[before]] = watts[before]  # in order of time: the last change of a node stands
    joules, last_s = 0.0, at_s
    for t, n, w in zip(time_s[~before].tolist(), node[~before].tolist(), watts[~before].tolist(), strict=True):
        joules, last_s = joules + float(now_w.sum()) * (t - last_s), t
        now_w[n] = w
    return joules + float(now_w.sum()) * max(0.0, run.start_s + run.span_s - last_s)


def _within(part: Workload, cluster: Cluster) -> Workload:
    """Recorded requests come from other machines: no more cores and bytes than the largest node has."""
    # The node with the most cores, and of those the most memory: one real node, not the best of several.
    cores = max(node.cores for node in cluster.nodes if node.serverless is None)
    memory = max(node.memory_bytes for node in cluster.nodes if node.cores == cores)
    shapes = tuple(
        replace(
            shape,
            variants=tuple(
                replace(v, cores=min(v.cores, cores), memory_bytes=min(v.memory_bytes, memory)) for v in shape.variants
            ),
        )
        for shape in part.shapes
    )
    return replace(part, shapes=shapes)


def _mean(outcomes: Sequence[Outcome], figure: str) -> float:
    return float(np.mean([getattr(one, figure) for one in outcomes]))


def _error(ours: Sequence[Outcome], base: Sequence[Outcome], figure: str) -> float:
    """Return standard error of ours − BOUND × base, as a share of the base's figure."""
    own, theirs = (np.array([getattr(one, figure) for one in some]) for some in (ours, base))
    if len(own) < 2 or len(theirs) < 2:
        return math.inf
    variance = own.var(ddof=1) / len(own) + BOUND**2 * theirs.var(ddof=1) / len(theirs)
    return float(math.sqrt(variance) / theirs.mean())
