"""The ground that judges: clusters, applications, loads and seeds, chosen before anything was tuned on them.

A third of the streams run on equal nodes. Applications are recorded runs and instances that no training looks at
(`wattflow.learn.scenarios` leaves out instances of more than 110 tasks), and three that are generated. Seeds below 1000
judge, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from research.judge import Stream
from wattflow import traces
from wattflow.clusters import load_cluster
from wattflow.files.data_folder import data_file
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.policy import arrivals
from wattflow.predict import observations, runtime
from wattflow.predict.serving import with_predictions

FOLDER = Path(__file__).parent / "ground"
EQUAL = "equal"
OTHERS = ("two-generations", "slow-wakers", "fast-hot", "racks", "gpus", "functions")
LOADS = (0.2, 0.5, 0.9)
EQUAL_SEEDS, OTHER_SEEDS = (0, 1, 2), (0,)
RUNS = {"eht-imaging": "eht_imaging", "eht-smili": "eht_smili", "pycbc": "pycbc_inference", "somospie": "somospie"}
"""Recorded executions of one DAG (FlowBench): the first so many of each."""
RUNS_TAKEN = 12
TRACES = {"nanoseq": ("nanoseq-1", "nanoseq-2"), "montage-nf": ("montage-1", "montage-2")}
INSTANCES = ("pegasus/1000genome", "pegasus/epigenomics", "pegasus/cycles", "nextflow")
LARGEST = 330
"""Tasks of the largest instance of WfInstances that takes part."""
GENERATED = {
    "pods": "bag:tasks=1,mean=60s",
    "map-reduce": "map-reduce:tasks=30,mean=60s",
    "mixed-devices": "mixed:tasks=20,mean=60s",
}
PREDICTED = "predicted"
"""Estimates by our own predictor: each half of the workflows by a model of the other half."""
APPLICATIONS = (*RUNS, *TRACES, *INSTANCES, *GENERATED)


@dataclass(frozen=True, slots=True)
class Place:
    """One stream of the ground, by name."""

    cluster: str
    application: str
    load: float
    seed: int = 0
    estimates: str = "20"

    @property
    def name(self) -> str:
        text = f"{self.cluster}_{self.application}_{self.load:g}_{self.seed}_{self.estimates}"
        return text.replace("/", "-")

    def stream(self, workflows: int = 120) -> Stream:
        """The stream, not yet drawn."""
        cluster, ours = cluster_of(self.cluster), self.estimates == PREDICTED
        parts, kind = (predicted(self.application), "given") if ours else (parts_of(self.application), self.estimates)
        return Stream(parts, cluster, self.load, self.seed, kind, workflows)


def places(estimates: str = "20") -> list[Place]:
    """Every stream of the ground, in an order of which any first part is about as mixed as the whole."""
    found = [Place(EQUAL, app, load, seed, estimates) for app in APPLICATIONS for load in LOADS for seed in EQUAL_SEEDS]
    found += [
        Place(cluster, app, load, seed, estimates)
        for cluster in OTHERS for app in APPLICATIONS for load in LOADS for seed in OTHER_SEEDS
    ]  # fmt: skip
    return stratified([found[i] for i in np.random.default_rng(0).permutation(len(found)).tolist()])


def stratified(drawn: list[Place]) -> list[Place]:
    """The same places, in rounds of one on equal nodes and two on others at each load: a judge that has time for some
    rounds alone has judged the ground in its proportions."""
    cells = [(equal, load) for load in LOADS for equal in (True, False, False)]
    queues = {
        cell: [place for place in drawn if (place.cluster == EQUAL, place.load) == cell]
        for cell in dict.fromkeys(cells)
    }
    return [queues[cell].pop(0) for _ in range(len(drawn) // len(cells)) for cell in cells]


@cache
def cluster_of(name: str) -> Cluster:
    """A cluster of the ground, or any other by name or file."""
    return load_cluster(str(FOLDER / f"{name}.toml") if name in OTHERS else name)


@cache
def parts_of(application: str) -> tuple[Workload, ...]:
    """The workflows that a stream of the application draws from, each equally likely."""
    if application in RUNS:
        runs = traces.load(data_file("flowbench", f"{RUNS[application]}.csv.gz"))
        return tuple(one for _, one in arrivals.workflows(runs))[:RUNS_TAKEN]
    if application in TRACES:
        folder = data_file("nextflow_traces", "glasgow_workflows")
        return tuple(traces.load(folder / f"{name}.csv.gz") for name in TRACES[application])
    if application in GENERATED:
        return tuple(Recipe.parse(GENERATED[application]).draw(seed) for seed in range(RUNS_TAKEN))
    files = sorted(str(path) for path in data_file("wfinstances", application).rglob("*.json*"))
    found = (scenarios.instance(path) for path in files)
    return tuple(one for one in found if scenarios.MOST_TASKS < len(one) <= LARGEST)


@cache
def predicted(application: str) -> tuple[Workload, ...]:
    """The same workflows with predicted runtimes; what too few rows are known of has no estimate."""
    parts = parts_of(application)
    models = [_model(parts[first::2]) for first in range(2)]
    return tuple(
        part.with_estimates(np.full(len(part), np.nan)) if model is None else with_predictions(part, model)
        for part, model in ((part, models[1 - i % 2]) for i, part in enumerate(parts))
    )


def _model(parts: tuple[Workload, ...]) -> runtime.RuntimeModel | None:
    try:
        return runtime.fit(observations.concatenate([observations.of_workload(part) for part in parts]))
    except InvalidInput:
        return None
