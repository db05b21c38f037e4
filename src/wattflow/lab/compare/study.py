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

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from wattflow.engine.settings import QUEUES
from wattflow.files.reading import small_text
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.generate.jitter import Jittered
from wattflow.lab.compare.comparison import BASELINE, SEEDS, Comparison, Source, compare
from wattflow.lab.compare.slo import Slo
from wattflow.lab.run.points import Setup
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.workload import Workload
from wattflow.sim import SimOptions
from wattflow.sim.inputs import cluster_of, source_of

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
