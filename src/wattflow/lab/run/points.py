"""Runs the points of an experiment one by one, or on several processes where the work left is worth their start."""

from __future__ import annotations

import logging
import math
import os
import pickle
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import TimeoutError, get_context
from typing import TYPE_CHECKING

from wattflow.generate.jitter import Drawable
from wattflow.lab.figures.ideal import ideal_s
from wattflow.lab.figures.metrics import Floats, Values, metrics
from wattflow.model.cluster import Cluster
from wattflow.model.errors import MissingExtra
from wattflow.model.run import Run
from wattflow.model.workload import Workload

if TYPE_CHECKING:
    from multiprocessing.pool import IMapIterator

    from wattflow.policy import Policy
    from wattflow.sim import SimOptions

log = logging.getLogger(__name__)

WORTH_S = 15.0
"""Work left, in seconds, that pays for starting other processes (each loads the compiled kernel anew)."""

TRIED = 3
"""Points run one by one before the work left is judged."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
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
        workers: Processes; None means one, or all cores where the work left takes longer than their start.
        progress: Called with the share done and what is running; may raise KeyboardInterrupt.
    """

    options: SimOptions | None = None
    keep_runs: bool = False
    workers: int | None = None
    progress: Progress | None = field(default=None, compare=False)

    def about(self) -> dict[str, object]:
        """What a report should say of it."""
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

    def run(self, job: Job, progress: Callable[[float], None] | None = None) -> tuple[Values, Run | None]:
        """The figures of one job, and its run where it is to be kept."""
        from wattflow import sim

        workload, ideal = self._workload(job)
        kept = (job.title, job.seed) in self.keep
        options = self.setup.options or sim.SimOptions()
        if kept:
            options = replace(options, record_power=True)
        run = sim.simulate(workload, job.cluster, job.policy, seed=job.seed, options=options, progress=progress)
        self._drew = run.scalars.get("random_draws", 1.0) > 0.0
        return metrics(run, ideal), run if kept else None

    def draws_nothing(self, job: Job) -> bool:
        """Whether the last run, which was of this job, holds nothing random: every seed would give the same."""
        return not self._drew and may_repeat(job, self.setup)

    def _workload(self, job: Job) -> tuple[Workload, Floats]:
        if self._last is None or self._last[0] is not job.source or self._last[1] != job.seed:
            drawn = job.source if isinstance(job.source, Workload) else job.source.draw(job.seed)
            self._last = (job.source, job.seed, drawn, ideal_s(drawn, job.cluster))
        return self._last[2], self._last[3]


def may_repeat(job: Job, setup: Setup) -> bool:
    """Whether only the policy's own dice could make two seeds differ: a recorded workload, no errors, no failures."""
    if not isinstance(job.source, Workload):
        return False
    options = setup.options
    if options is not None and (options.runtime_error or options.power_error):
        return False
    steady = all(node.faults is None or math.isinf(node.faults.mtbf_s) for node in job.cluster.nodes)
    return steady and all(function.failure_rate == 0.0 for function in job.source.functions)


@dataclass(slots=True)
class Results:
    """What the jobs gave so far."""

    values: dict[Job, Values] = field(default_factory=dict)
    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, job: Job, values: Values, run: Run | None) -> None:
        self.values[job] = values
        if run is not None:
            self.runs[job.title, job.policy_name] = run

    def known(self, job: Job) -> bool:
        """Whether the job's figures are there already."""
        return job in self.values

    def repeat(self, job: Job, jobs: Sequence[Job]) -> None:
        """Take the figures of a run without anything random for all other seeds of the same pair."""
        for other in jobs:
            if other.title == job.title and other.policy is job.policy and other not in self.values:
                self.values[other] = self.values[job]

    @property
    def notes(self) -> list[str]:
        return [f"policy {name} was left out: {why}" for name, why in self.left_out.items()]


def run_jobs(jobs: Sequence[Job], setup: Setup, *, optional: bool = False) -> Results:
    """Run all jobs. With ``optional`` a policy that lacks an optional package is left out and named in the notes."""
    keep = frozenset((job.title, jobs[0].seed) for job in jobs) if setup.keep_runs else frozenset[tuple[str, int]]()
    bench, results = Bench(setup, keep), Results()
    took: list[float] = []
    for number, job in enumerate(jobs):
        rest = jobs[number:]
        if len(took) >= TRIED and _pays(rest, setup, statistics.median(took[-9:])):
            _run_parallel(rest, bench, results, optional)
            break
        if job.policy_name in results.left_out or results.known(job):
            continue
        began = time.perf_counter()
        try:
            values, run = bench.run(job, _share_of(setup.progress, number, len(jobs), job))
            results.add(job, values, run)
            if bench.draws_nothing(job):
                results.repeat(job, jobs)
        except MissingExtra as error:
            if not optional:
                raise
            results.left_out[job.policy_name] = str(error)
        took.append(time.perf_counter() - began)
    if setup.progress is not None:
        setup.progress(1.0, "done")
    return results


def _share_of(progress: Progress | None, number: int, total: int, job: Job) -> Callable[[float], None] | None:
    if progress is None:
        return None
    text = f"{job.title} · {job.policy_name} · seed {job.seed}"
    progress(number / total, text)
    return lambda share: progress((number + share) / total, text)


def _workers(setup: Setup, rest: Sequence[Job]) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(setup.workers or cores, len(rest))


def _pays(rest: Sequence[Job], setup: Setup, each_s: float) -> bool:
    if _workers(setup, rest) < 2:
        return False
    return (setup.workers is not None or each_s * len(rest) > WORTH_S) and _travel(rest)


def _travel(jobs: Sequence[Job]) -> bool:
    """Whether other processes can be handed all of them. A script's own decorated policy cannot: its name there is the
    policy, not the function in it. Such work stays here."""
    ones = {id(job.policy): job.policy for job in jobs if not isinstance(job.policy, str)}
    try:
        pickle.dumps((jobs[0], *ones.values()))
    except (pickle.PicklingError, AttributeError, TypeError):
        log.info("a policy of this script cannot be sent to other processes; all points run in this one")
        return False
    return True


_bench: Bench | None = None
Answer = tuple[int, "tuple[Values, Run | None] | MissingExtra", bool]


def _start_worker(setup: Setup, keep: frozenset[tuple[str, int]]) -> None:
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bench = Bench(setup, keep)


def _run_in_worker(numbered: tuple[int, Job]) -> Answer:
    assert _bench is not None
    try:
        return numbered[0], _bench.run(numbered[1]), _bench.draws_nothing(numbered[1])
    except MissingExtra as error:
        return numbered[0], error, False


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, which a terminal sends to all of them: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_parallel(jobs: Sequence[Job], bench: Bench, results: Results, optional: bool) -> None:
    """The rest of the jobs on a pool; leaving it early, by Ctrl-C or an error, ends the workers at once."""
    setup, total = bench.setup, len(results.values) + len(jobs)
    with deaf_to_interrupts():
        pool = get_context("spawn").Pool(
            _workers(setup, jobs), _start_worker, (replace(setup, progress=None), bench.keep)
        )
    with pool:
        while left := [job for job in jobs if job.policy_name not in results.left_out and not results.known(job)]:
            batch = _first_of_each(left, setup)
            answers = pool.imap_unordered(_run_in_worker, enumerate(batch))
            for _ in batch:
                number, answer, fixed = _next(answers, setup.progress, len(results.values) / total)
                if isinstance(answer, MissingExtra):
                    if not optional:
                        raise answer
                    results.left_out[batch[number].policy_name] = str(answer)
                    continue
                results.add(batch[number], *answer)
                if fixed:
                    results.repeat(batch[number], jobs)


def _first_of_each(jobs: Sequence[Job], setup: Setup) -> list[Job]:
    """All jobs, but one seed only of a pair that may prove the same for every seed."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for job in jobs:
        pair = (job.title, job.policy_name)
        if pair in seen and may_repeat(job, setup):
            continue
        seen.add(pair)
        chosen.append(job)
    return chosen


def _next(answers: IMapIterator[Answer], progress: Progress | None, share: float) -> Answer:
    """The next answer; the progress bar hears of the wait, and so does Ctrl-C."""
    while True:
        try:
            return answers.next(timeout=0.2)
        except TimeoutError:
            if progress is not None:
                progress(share, "on several processes")
