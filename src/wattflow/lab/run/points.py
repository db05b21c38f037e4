"""Runs the points of a comparison one by one, and elsewhere where the work left is worth their start."""

from __future__ import annotations

import logging
import math
import pickle
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from wattflow.generate.jitter import Drawable
from wattflow.lab.figures.ideal import ideal_s
from wattflow.lab.figures.metrics import Floats, Values, metrics
from wattflow.lab.run.crews import cores, crew_for
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.model.run import Run
from wattflow.model.workload import Workload

if TYPE_CHECKING:
    from wattflow.policy import Policy
    from wattflow.sim import SimOptions

log = logging.getLogger(__name__)

WORTH_S = 15.0
"""Work left, in seconds, that pays for starting other processes (each loads the compiled kernel anew)."""

TRIED = 3
"""Points run one by one before the work left is judged."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class PointJob:
    """One point to run: a workload (or the recipe of one), a cluster, a policy and a seed."""

    title: str
    source: Workload | Drawable
    cluster: Cluster
    policy: str | Policy
    seed: int

    @property
    def policy_name(self) -> str:
        return self.policy if isinstance(self.policy, str) else self.policy.name


@dataclass(frozen=True, slots=True)
class Setup:
    """How points are run.

    Attributes:
        options: The simulator's options, errors of estimates among them; None means its defaults.
        keep_runs: Keep the run of the first seed of each workload and policy, with its power over time.
        workers: Processes; None means one, or all cores where the work left takes longer than their start. Or the
            address of a Dask scheduler, ``dask://host:port``.
        progress: Called with the share done and what is running; may raise KeyboardInterrupt.
    """

    options: SimOptions | None = None
    keep_runs: bool = False
    workers: int | str | None = None
    progress: Progress | None = field(default=None, compare=False)

    def about(self) -> dict[str, object]:
        """Describe the options that differ from the defaults, for a report."""
        from wattflow.sim import SimOptions

        options, usual = self.options or SimOptions(), SimOptions()
        names = SimOptions.__dataclass_fields__
        changed = {name: getattr(options, name) for name in names if getattr(options, name) != getattr(usual, name)}
        return {"options": changed or "as by default"}


@dataclass(slots=True)
class Bench:
    """Runs jobs; keeps the last workload drawn, and its ideal times, for the next policy."""

    setup: Setup
    keep: frozenset[tuple[str, int]] = frozenset()
    _last: tuple[object, int, Workload, Floats] | None = None
    _drew: bool = True

    def run(self, job: PointJob, progress: Callable[[float], None] | None = None) -> tuple[Values, Run | None]:
        """Run one job: its figures, and its run where it is to be kept."""
        from wattflow import sim

        workload, ideal = self._workload(job)
        kept = (job.title, job.seed) in self.keep
        options = self.setup.options or sim.SimOptions()
        if kept:
            # Power over time of one seed only: a log for each point would fill the memory.
            options = replace(options, record_power=True)
        run = sim.simulate(workload, job.cluster, job.policy, seed=job.seed, options=options, progress=progress)
        # A policy that drew nothing decides the same whatever the seed.
        self._drew = run.scalars.get("random_draws", 1.0) > 0.0
        return metrics(run, ideal), run if kept else None

    def draws_nothing(self, job: PointJob) -> bool:
        """Tell whether the last run, which was of this job, holds nothing random: every seed would give the same."""
        return not self._drew and may_repeat(job, self.setup)

    def _workload(self, job: PointJob) -> tuple[Workload, Floats]:
        # By identity: two recipes that compare equal are still two rows of the table.
        if self._last is None or self._last[0] is not job.source or self._last[1] != job.seed:
            drawn = job.source if isinstance(job.source, Workload) else job.source.draw(job.seed)
            self._last = (job.source, job.seed, drawn, ideal_s(drawn, job.cluster))
        return self._last[2], self._last[3]


def may_repeat(job: PointJob, setup: Setup) -> bool:
    """Tell whether only the policy's own dice could make two seeds differ: recorded work, no errors, no failures."""
    if not isinstance(job.source, Workload):
        return False
    options = setup.options
    if options is not None and (options.runtime_error or options.power_error):
        return False
    steady = all(node.faults is None or math.isinf(node.faults.mtbf_s) for node in job.cluster.nodes)
    return steady and all(function.failure_rate == 0.0 for function in job.source.functions)


@dataclass(slots=True)
class PointResults:
    """Results of the jobs so far."""

    values: dict[PointJob, Values] = field(default_factory=dict)
    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, job: PointJob, values: Values, run: Run | None) -> None:
        self.values[job] = values
        if run is not None:
            self.runs[job.title, job.policy_name] = run

    def known(self, job: PointJob) -> bool:
        """Tell whether the job's figures are there already."""
        return job in self.values

    def repeat(self, job: PointJob, jobs: Sequence[PointJob]) -> None:
        """Take the figures of a run without anything random for all other seeds of the same pair."""
        for other in jobs:
            # The same policy object or name: two with one name may be different files.
            if other.title == job.title and other.policy is job.policy and other not in self.values:
                self.values[other] = self.values[job]

    @property
    def notes(self) -> list[str]:
        return [f"policy {name} was left out: {why}" for name, why in self.left_out.items()]


def run_jobs(jobs: Sequence[PointJob], setup: Setup, *, optional: bool = False) -> PointResults:
    """Run all jobs. With ``optional`` a policy that lacks an optional package is left out and named in the notes.

    The first ones run in this process; the rest goes to several where that pays, and all of them to a Dask cluster
    where one is named.
    """
    # The first seed stands for the others in charts.
    keep = frozenset((job.title, jobs[0].seed) for job in jobs) if setup.keep_runs else frozenset[tuple[str, int]]()
    course = _Course(Points(tuple(jobs), setup, keep), optional)
    if isinstance(setup.workers, str):
        if not _travel(jobs):
            raise InvalidInput(f"--workers {setup.workers}", "a policy of this script cannot be sent there; drop it")
        course.elsewhere(setup.workers)
    else:
        course.here()
        # What `here` left: nothing, or the work that pays for other processes.
        course.elsewhere(_workers(setup, jobs))
    if setup.progress is not None:
        setup.progress(1.0, "done")
    return course.results


def _workers(setup: Setup, rest: Sequence[PointJob]) -> int:
    assert not isinstance(setup.workers, str)
    return min(setup.workers or cores(), len(rest))


def _pays(rest: Sequence[PointJob], setup: Setup, each_s: float) -> bool:
    if _workers(setup, rest) < 2:
        return False
    # Asked for by number, they are started whatever the work.
    return (setup.workers is not None or each_s * len(rest) > WORTH_S) and _travel(rest)


def _travel(jobs: Sequence[PointJob]) -> bool:
    """Tell whether other processes can be handed all of them.

    A script's own decorated policy cannot: its name there is the policy, not the function in it; nor what is found by
    name in the script, which the other processes do not run. Such work stays here.
    """
    ones = {id(job.policy): job.policy for job in jobs if not isinstance(job.policy, str)}
    try:
        # One job and each policy: workloads are plain columns and always travel.
        packed = pickle.dumps((jobs[0], *ones.values()))
    except (pickle.PicklingError, AttributeError, TypeError):
        packed = b"__main__"
    if b"__main__" in packed:
        log.info("a policy of this script cannot be sent to other processes; all points run in this one")
        return False
    return True


Answer = tuple["tuple[Values, Run | None] | MissingExtra", bool]
"""Figures and perhaps the run, or the package that is missing; and whether every seed would give the same."""


@dataclass(frozen=True, slots=True)
class Points:
    """The work of a comparison; a piece is a job's number, so that workloads travel once."""

    jobs: tuple[PointJob, ...]
    setup: Setup
    keep: frozenset[tuple[str, int]]

    def ready(self) -> Callable[[int], Answer]:
        bench = Bench(self.setup, self.keep)

        def run(number: int) -> Answer:
            job = self.jobs[number]
            try:
                found = bench.run(job, self._share_of(number))
                return found, bench.draws_nothing(job)
            except MissingExtra as error:
                return error, False

        return run

    def compiled(self) -> bool:
        return True  # the first points ran in this process

    def warm_up(self) -> None:
        return None

    def key(self, number: int) -> str:
        return str(number)

    def title(self, number: int) -> str:
        job = self.jobs[number]
        return f"{job.title} · {job.policy_name} · seed {job.seed}"

    def load(self, number: int) -> tuple[str, int]:
        return self.jobs[number].title, self.jobs[number].seed

    def failed(self, number: int, error: Exception) -> Answer:
        raise error

    def _share_of(self, number: int) -> Callable[[float], None] | None:
        progress = self.setup.progress
        if progress is None:
            return None
        text, total = self.title(number), len(self.jobs)
        progress(number / total, text)
        return lambda share: progress((number + share) / total, text)


@dataclass(slots=True)
class _Course:
    """The done and the open part of a comparison."""

    points: Points
    optional: bool
    results: PointResults = field(default_factory=PointResults)

    def here(self) -> None:
        """Run one by one in this process, until the work left pays for others."""
        with crew_for(self.points, 1) as crew:
            crew.run(self._tries(), self._deliver, lambda text: None)

    def elsewhere(self, workers: int | str) -> None:
        """Run the rest on others; leaving them early, by Ctrl-C or an error, ends them at once."""
        if not self._left():
            return
        setup = self.points.setup
        # A progress bar is this process's own; elsewhere `_wait` stands in for it.
        away = replace(self.points, setup=replace(setup, progress=None))
        with crew_for(away, workers) as crew:
            # Again until nothing is left: what proves the same for every seed is known only after the first.
            while left := self._left():
                crew.run(_first_of_each(left, self.points), self._deliver, self._wait)

    def _tries(self) -> Iterator[int]:
        jobs, setup, took = self.points.jobs, self.points.setup, list[float]()
        for number in range(len(jobs)):
            # By the median: the first point compiles.
            if len(took) >= TRIED and _pays(jobs[number:], setup, statistics.median(took[-9:])):
                return
            if self._waits(number):
                began = time.perf_counter()
                yield number
                took.append(time.perf_counter() - began)

    def _waits(self, number: int) -> bool:
        job = self.points.jobs[number]
        return job.policy_name not in self.results.left_out and not self.results.known(job)

    def _left(self) -> list[int]:
        return [number for number in range(len(self.points.jobs)) if self._waits(number)]

    def _deliver(self, number: int, answer: Answer) -> None:
        job, (found, fixed) = self.points.jobs[number], answer
        if isinstance(found, MissingExtra):
            if not self.optional:
                raise found
            self.results.left_out[job.policy_name] = str(found)
            return
        self.results.add(job, *found)
        if fixed:
            self.results.repeat(job, self.points.jobs)

    def _wait(self, text: str) -> None:
        """Show the wait in the progress bar, which also lets Ctrl-C through."""
        progress = self.points.setup.progress
        if progress is not None:
            progress(len(self.results.values) / len(self.points.jobs), text or "on several processes")


def _first_of_each(numbers: Sequence[int], points: Points) -> list[int]:
    """Return all jobs, but one seed only of a pair that may prove the same for every seed."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for number in numbers:
        job = points.jobs[number]
        pair = (job.title, job.policy_name)
        if pair in seen and may_repeat(job, points.setup):
            continue
        seen.add(pair)
        chosen.append(number)
    return chosen
