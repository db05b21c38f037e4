"""A compare file: workloads × clusters × policies in one TOML, so that a study is a file that can be kept and rerun.

```toml
workloads = ["montage:tasks=60", "trace.json"]     # files beside this one, or generated workloads
clusters = ["mixed", "my-cluster.toml"]
policies = ["fifo", "heft", "carbon-delay:delay_s=3600"]   # or ["all"]
baseline = "fifo"
seeds = 5
jitter = 0.1                  # recorded runtimes shaken by so much, anew for each seed
slo = ["p95_wait=10m"]

[options]                     # of the simulator
runtime_error = 0.3
power_error = 0.0
queue = "skip"
round_s = 0.0
sleep_after_s = 600.0
```
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from wattflow.engine.settings import QUEUES
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.files.whole import small_text
from wattflow.generate.jitter import Jittered
from wattflow.lab.compare.comparison import BASELINE, SEEDS, Comparison, Source, compare
from wattflow.lab.figures.metrics import METRICS
from wattflow.lab.run.points import Setup
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.units import duration_s
from wattflow.model.workload import Workload
from wattflow.sim import SimOptions
from wattflow.sim.inputs import cluster_of, source_of

NAMES = {
    "mean_wait": "wait_mean_s",
    "p95_wait": "wait_p95_s",
    "p99_wait": "wait_p99_s",
    "mean_response": "workflow_response_mean_s",
    "p95_response": "workflow_response_p95_s",
    "makespan": "makespan_s",
    "p95_slowdown": "slowdown_p95",
    "p99_slowdown": "slowdown_p99",
    "deadlines_missed": "deadlines_missed",
    "peak": "peak_w",
}
"""Short names of bounds; a figure's own name does too."""


@dataclass(frozen=True, slots=True)
class Slo:
    """A figure that must not exceed a bound, on the mean over seeds."""

    name: str
    metric: str
    most: float

    @classmethod
    def parse(cls, text: str) -> Slo:
        """``p95_wait=10m``, ``p95_slowdown=2``, or a figure of -o json with its bound."""
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidInput(f"--slo {text}", "write NAME=BOUND, such as p95_wait=10m")
        metric = NAMES.get(name, name)
        if metric not in METRICS or METRICS[metric].less_is_better is not True:
            near = difflib.get_close_matches(name, [*NAMES, *_bounded()], n=1)
            meant = f"did you mean {near[0]!r}? Else " if near else ""
            usual = f"the usual ones are {', '.join(NAMES)}; any figure of `-o json` of which less is better will do"
            raise InvalidInput(f"--slo {text}", f"there is no bound on {name!r}; {meant}{usual}")
        try:
            most = duration_s(value.strip())
        except ValueError as error:
            raise InvalidInput(f"--slo {text}", str(error)) from error
        # "10m" would be 600 of whatever the figure counts.
        if METRICS[metric].unit != "s" and not _plain(value):
            raise InvalidInput(f"--slo {text}", f"{name} is no time; give a plain number")
        if not 0.0 <= most < float("inf"):
            raise InvalidInput(f"--slo {text}", "the bound must be a number of at least 0")
        return cls(name, metric, most)


@dataclass(frozen=True, slots=True)
class Cost:
    """The bound on one workload.

    Attributes:
        keeps: Policies that keep it, the least energy first.
        free: The policy with the least energy, bound or not.
        nearest: The policy with the least value of the bounded figure.
        extra: What keeping it adds to the least energy, as a part of it; None where no policy keeps it.
    """

    workload: str
    keeps: tuple[str, ...]
    free: str
    nearest: str
    extra: float | None


def costs(comparison: Comparison, slo: Slo) -> list[Cost]:
    """Price the bound on each workload where energy is known."""
    found = []
    for workload in comparison.workloads:
        energy = _means(comparison, workload, "energy_j")
        value = _means(comparison, workload, slo.metric)
        # Names break ties, so that the same table comes out each time.
        ranked = sorted((policy for policy in energy if policy in value), key=lambda p: (energy[p], p))
        if not ranked:
            continue
        keeps = tuple(policy for policy in ranked if value[policy] <= slo.most)
        least = energy[ranked[0]]
        extra = energy[keeps[0]] / least - 1.0 if keeps and least > 0 else None
        found.append(Cost(workload, keeps, ranked[0], min(ranked, key=lambda p: (value[p], p)), extra))
    return found


def _means(comparison: Comparison, workload: str, metric: str) -> dict[str, float]:
    each = {policy: comparison.summary(workload, policy, metric).mean for policy in comparison.policies}
    return {policy: mean for policy, mean in each.items() if mean is not None}


def _bounded() -> list[str]:
    return [name for name, metric in METRICS.items() if metric.less_is_better is True]


def _plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


T = TypeVar("T")
LARGEST_FILE_BYTES = 1024**2
MOST_ERROR = 5.0


@dataclass(frozen=True, slots=True)
class Study:
    """A comparison to make: every workload under every policy and seed, on each cluster."""

    workloads: tuple[Source, ...]
    clusters: tuple[Cluster, ...]
    policies: tuple[str, ...] = ("all",)
    baseline: str = BASELINE
    seeds: int = SEEDS
    slos: tuple[Slo, ...] = ()
    setup: Setup = Setup()

    def __post_init__(self) -> None:
        names = [cluster.name for cluster in self.clusters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInput("clusters", f"two are named {', '.join(twice)}; name each once")

    def run(self) -> Iterator[Comparison]:
        """One comparison for each cluster, in order."""
        for cluster in self.clusters:
            yield compare(list(self.workloads), cluster, list(self.policies), self.seeds, self.baseline, self.setup)


def shaken(sources: Sequence[Source], sigma: float) -> tuple[Source, ...]:
    """Recorded workloads with their runtimes shaken; generated ones are drawn anew for each seed already."""
    if sigma == 0.0:
        return tuple(sources)
    return tuple(Jittered(source, sigma) if isinstance(source, Workload) else source for source in sources)


def read_study(path: Path) -> Study:
    """Read a compare file; files it names stand beside it.

    Raises:
        InvalidInput: Something is wrong with it; lists every problem with its place.
    """
    text = small_text(path, "compare file", LARGEST_FILE_BYTES)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # RecursionError: brackets nested too deep for the parser.
        raise InvalidInput(str(path), f"is not TOML: {error}") from error
    problems = Problems()
    study = _study(StrictTable(data, "", problems), path.parent)
    # All problems of the file at once.
    if len(problems) or study is None:
        raise InvalidInput(str(path), problems=problems.listed())
    return study


def _study(table: StrictTable, folder: Path) -> Study | None:
    workloads = [
        _tried(table, "workloads", partial(source_of, _beside(folder, text))) for text in table.texts("workloads")
    ]
    clusters = [
        _tried(table, "clusters", partial(cluster_of, _beside(folder, text))) for text in table.texts("clusters")
    ]
    for key, count in (("workloads", len(workloads)), ("clusters", len(clusters))):
        if not count:
            table.problem(key, "name at least one, as a list of texts")
    policies = table.texts("policies") or ("all",)
    baseline, seeds = table.text("baseline", BASELINE), table.whole("seeds", SEEDS)
    if seeds < 1:
        table.problem("seeds", f"must be at least 1, not {seeds}")
    jitter = table.number("jitter", 0.0)
    slos = [_tried(table, "slo", partial(Slo.parse, text)) for text in table.texts("slo")]
    options = _options(table.table("options"))
    table.finish()
    # What follows needs values that are right.
    if len(table.problems):
        return None
    sources = _tried(table, "jitter", lambda: shaken([w for w in workloads if w is not None], jitter))
    machines = tuple(cluster for cluster in clusters if cluster is not None)
    if sources is None:
        return None
    bounds = tuple(slo for slo in slos if slo is not None)
    return Study(sources, machines, policies, baseline, seeds, bounds, Setup(options=options))


def _beside(folder: Path, text: str) -> str:
    """Return a file beside the compare file, or whatever has that name."""
    return str(folder / text) if (folder / text).exists() else text


def _tried(table: StrictTable, key: str, make: Callable[[], T]) -> T | None:
    """Call ``make``; what is wrong with it becomes a problem of the file."""
    # Files and recipes raise by themselves; here their mistakes are the file's.
    try:
        return make()
    except WattflowError as error:
        table.problem(key, str(error))
    except OSError as error:
        table.problem(key, f"{error.filename}: {error.strerror}")
    return None


def _options(table: StrictTable | None) -> SimOptions:
    if table is None:
        return SimOptions()
    errors = {key: table.number(key, 0.0) for key in ("runtime_error", "power_error")}
    for key, value in errors.items():
        if not 0.0 <= value <= MOST_ERROR:
            table.problem(key, f"is a spread (σ of log) of 0 … {MOST_ERROR:g}, not {value:g}")
    queue = table.choice("queue", QUEUES, "skip") if table.has("queue") else None
    round_s, sleep_s = table.duration("round_s", 0.0), table.maybe_duration("sleep_after_s")
    for key, seconds in (("round_s", round_s), ("sleep_after_s", sleep_s or 0.0)):
        if not 0.0 <= seconds < float("inf"):
            table.problem(key, f"must be a finite number of seconds, not {seconds:g}")
    table.finish()
    if len(table.problems):
        return SimOptions()
    return SimOptions(
        queue=queue,
        round_s=round_s,
        sleep_after_s=sleep_s,
        runtime_error=errors["runtime_error"],
        power_error=errors["power_error"],
    )
