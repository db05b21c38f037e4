"""Several workloads under several policies over several seeds, each figure against a named baseline.

A seed fixes everything that is random in one point: the draw of a generated workload (a ``Recipe``), the policy's own
randomness, failures, and errors of estimates. Points with the same seed see the same draws under every policy, so
differences are paired. A recorded workload under a deterministic policy without failures gives the same run for every
seed; its interval is then exactly 0 and ``Summary.deterministic`` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattflow.generate.jitter import Drawable
from wattflow.lab.compare.results import Results, SeedResult
from wattflow.lab.figures.metrics import METRICS, Values
from wattflow.lab.run.points import PointJob, Setup, run_jobs
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, MissingExtra, unknown_name
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.sim.inputs import Name, cluster_of, source_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from wattflow.policy import Policy

BASELINE = "fifo"
SEEDS = 5
MOST_SEEDS = 10_000
"""A point is kept for every seed, workload and policy."""
Source = Workload | Drawable


@dataclass(frozen=True, repr=False)
class Comparison(Results):
    """Results that show themselves: as a data frame, a LaTeX table, a plot, a page in a notebook."""

    def to_pandas(self, metrics: Iterable[str] = tuple(METRICS)) -> pd.DataFrame:
        """Return one row per workload, policy and figure. Needs pandas."""
        from wattflow.lab.show.data_frames import to_pandas

        return to_pandas(self, metrics)

    def to_latex(self, workload: str | None = None) -> str:
        """Return the short table of a workload (the first by default) as a LaTeX tabular."""
        from wattflow.lab.show.data_frames import to_latex

        return to_latex(self, workload or self.workloads[0])

    def plot(self, workload: str | None = None) -> Figure:
        """Plot energy against makespan, every policy named. Needs the extra ``report``."""
        from wattflow.lab.show.data_frames import plot

        return plot(self, workload or self.workloads[0])

    def __repr__(self) -> str:
        return (
            f"Comparison({len(self.workloads)} workloads × {len(self.policies)} policies × {len(self.seeds)} seeds on "
            f"{self.cluster.name}, against {self.baseline})"
        )

    def _repr_html_(self) -> str:
        from wattflow.lab.show.data_frames import to_html

        return to_html(self)


def compare(
    workloads: Source | Name | Sequence[Source | Name],
    cluster: Cluster | str,
    policies: Sequence[str | Policy] | str = "all",
    seeds: int | Sequence[int] = SEEDS,
    baseline: str = BASELINE,
    setup: Setup | None = None,
) -> Comparison:
    """Simulate every workload under every policy and seed.

    Args:
        workloads: Recorded workloads or their files, or recipes, which are drawn anew for each seed.
        cluster: A cluster, or the name or file of one.
        policies: Names or policies of your own, or ``all``. The baseline is added where it is missing.
        seeds: How many (0, 1, 2, …), or which.
        setup: Simulator options (errors of estimates among them), workers, progress.
    """
    setup = setup or Setup()
    cluster = cluster_of(cluster)
    sources = _named(_sources(workloads))
    # One more than allowed is enough to refuse: a range of 10¹² would not fit.
    chosen = tuple(range(min(seeds, MOST_SEEDS + 1))) if isinstance(seeds, int) else tuple(seeds)
    if not sources or not chosen:
        raise InvalidInput("compare", "needs at least one workload and one seed")
    if len(chosen) > MOST_SEEDS:
        raise InvalidInput("seeds", f"more than {MOST_SEEDS:,} are asked for; fifty give narrow intervals")
    check_seeds(chosen)
    named, optional = chosen_policies(policies, baseline)
    jobs = [
        PointJob(title, source, cluster, policy, seed)
        for title, source in sources.items()
        for seed in chosen
        for policy in named.values()
    ]
    results = run_jobs(jobs, setup, optional=optional)
    if baseline in results.left_out:
        raise MissingExtra(results.left_out[baseline])
    points = tuple(SeedResult(job.title, job.policy_name, job.seed, values) for job, values in results.values.items())
    usable = tuple(name for name in named if name not in results.left_out)
    notes = tuple(results.notes)
    return Comparison(cluster, baseline, tuple(sources), usable, chosen, points, results.runs, notes, setup.about())


def of_one_run(
    run: Run, cluster: Cluster, policy: str, seed: int, values: Values, about: Mapping[str, object]
) -> Comparison:
    """Show a single run as a report does: a comparison of one policy, which is its own baseline."""
    title = run.workload.name
    point = SeedResult(title, policy, seed, values)
    return Comparison(cluster, policy, (title,), (policy,), (seed,), (point,), {(title, policy): run}, (), about)


SLEEPING = "kubernetes"
"""Beside every policy, "all" runs this one with nodes off after ten idle minutes, as cluster autoscalers do."""


def chosen_policies(
    policies: Sequence[str | Policy] | str | Policy, baseline: str
) -> tuple[dict[str, str | Policy], bool]:
    """Choose what to run by name, baseline first; tell whether one that lacks an optional package may be left out."""
    from wattflow.policy import registry, spec

    known = registry.names()
    asked = [policies] if isinstance(policies, str) or not isinstance(policies, Sequence) else list(policies)
    everything = asked == ["all"]
    own = _own(asked, known)
    named: dict[str, str | Policy] = {}
    if everything:
        asked = [*known, f"{SLEEPING}:sleep=600"]
    for policy in (baseline, *asked):
        name = policy if isinstance(policy, str) else policy.name
        # Settings behind a colon are looked at by the loader, which says what is wrong with them.
        if not registry.is_known(name) and name not in own and spec.is_plain(name):
            raise unknown_name("policy", name, [*known, *own], "(`wattflow policies` lists them)")
        if name not in known and name not in own:
            registry.load(name)  # what is wrong with it is said before anything runs
        named.setdefault(name, own.get(name, name))
    return named, everything


def _own(asked: Sequence[str | Policy], known: Sequence[str]) -> dict[str, Policy]:
    """Return policies given as objects, by name; a name of ours would stand for two policies in one table."""
    own: dict[str, Policy] = {}
    for policy in asked:
        if isinstance(policy, str):
            continue
        if policy.name in known and not _is_registered(policy):
            raise InvalidInput(f"policy {policy.name!r}", "is the name of one of ours; give yours another name")
        if own.setdefault(policy.name, policy) is not policy:
            raise InvalidInput(f"policy {policy.name!r}", "names two of the policies given; give one another name")
    return own


def _is_registered(policy: Policy) -> bool:
    from wattflow.policy import registry

    ours = registry.load(policy.name)
    # An object that was made by `registry.load` before is ours, too.
    return ours is policy or (ours.score is policy.score and ours.priority is policy.priority)


def check_seeds(seeds: Sequence[int]) -> None:
    """Seeds are whole numbers that fit 63 bits."""
    for seed in seeds:
        if not 0 <= seed < 1 << 63:
            raise InvalidInput("seed", f"must be 0 … 2^63 − 1, not {seed}")


def _sources(workloads: Source | Name | Sequence[Source | Name]) -> list[Source]:
    if isinstance(workloads, str | os.PathLike):
        return [source_of(workloads)]
    if isinstance(workloads, Workload | Drawable):
        return [workloads]
    return [source_of(each) if isinstance(each, str | os.PathLike) else each for each in workloads]


def _named(sources: Sequence[Source]) -> dict[str, Source]:
    """Titles that differ, so that two files of one name stay two rows."""
    titled: dict[str, Source] = {}
    for source in sources:
        base = source.name if isinstance(source, Workload) else source.title
        title, number = base, 2
        # Until it differs from all: "a (2)" may be a file's own name.
        while title in titled:
            title, number = f"{base} ({number})", number + 1
        titled[title] = source
    return titled
