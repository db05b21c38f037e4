"""Readers of the data sets that predictions are judged on; each keeps only what a model may see."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research import call_energy as serverless
from wattflow.model.errors import MissingData
from wattflow.predict.observations import Floats, Observations, concatenate
from wattflow.predict.sources import Table

LOTARU = "nextflow_traces/lotaru_heterogeneous"
GREENFAAS = "energy_labelled/greenfaas_sebs/task_energy.csv.gz"
KEPLER = "energy_labelled/kepler_nx12"
SIZEY = "nextflow_traces/sizey"
LOTARU_SIZES = (
    "TaskInputSizeUncompressed",
    "TaskInputSize",
    "NumberSequences",
    "WorkflowInputUncompressed",
    "WorkflowInputSize",
)


def lotaru(data: Path, keep_copies: bool = False) -> Observations:
    """Read Lotaru's execution reports: five nf-core workflows, down-sampled (train-1, train-2) and full size (test).

    Rows that repeat another machine's row in runtime, CPU, memory and bytes are copies of one measurement (154 rows of
    methylseq on n2 and c2); they would leak across machines, so only the first is kept.
    """
    table = Table(
        data / LOTARU / "execution_reports.csv.gz",
        ("Label", "Machine", "Workflow", "Task", "Realtime", "%cpu", "cpus", "memory", "peak_rss", *LOTARU_SIZES),
    )
    workflow, machine, name = table.texts("Workflow"), table.texts("Machine"), table.texts("Task")
    sizes = np.column_stack([table.numbers(size) for size in LOTARU_SIZES])
    inputs = table.texts("WorkflowInputSize")
    observations = Observations.of(
        task=[f"{w}/{t}" for w, t in zip(workflow, name, strict=True)],
        machine=machine,
        run=[f"{m}|{w}|{s}" for m, w, s in zip(machine, workflow, inputs, strict=True)],
        workflow=workflow,
        source=table.texts("Label"),
        data=[f"{w}|{s}" for w, s in zip(workflow, inputs, strict=True)],
        runtime_s=table.numbers("Realtime") / 1000.0,
        sizes=sizes,
        size_names=LOTARU_SIZES,
        request_cores=table.numbers("cpus"),
        request_bytes=table.numbers("memory"),
        used_cores=table.numbers("%cpu") / 100.0,
        peak_bytes=table.numbers("peak_rss"),
    )
    if keep_copies:
        return observations
    outcome = np.column_stack(
        [
            observations.runtime_s,
            observations.used_cores,
            observations.peak_bytes,
            *(table.numbers(c) for c in ("rchar", "wchar") if table.has(c)),
        ]
    )
    seen: set[tuple[object, ...]] = set()
    keep = np.ones(len(observations), bool)
    for row, values in enumerate(outcome.tolist()):
        # Machine and run are left out: a copy differs in those alone.
        mark = (observations.task[row], inputs[row], *values)
        keep[row] = mark not in seen
        seen.add(mark)
    return observations.take(keep)


def lotaru_benchmarks(data: Path) -> dict[str, dict[str, float]]:
    """Read median seconds of Lotaru's micro-benchmarks; −1 and three times 1.0 mean not measured."""
    repeats = ("Realtime1", "Realtime2", "Realtime3")
    table = Table(data / LOTARU / "microbenchmarks.csv", ("Workflow", "Task", "Machine", *repeats))
    values = np.column_stack([table.numbers(name) for name in repeats])
    benchmarks: dict[str, dict[str, float]] = {}
    rows = zip(table.texts("Machine"), table.texts("Workflow"), table.texts("Task"), values, strict=True)
    for machine, workflow, task, times in rows:
        times = times[np.isfinite(times) & (times > 0)]
        # All three exactly 1.0 is the set's own mark for "not measured".
        if len(times) and not np.all(times == 1.0):
            benchmarks.setdefault(str(machine), {})[f"{workflow.lower()}/{task}"] = float(np.median(times))
    return benchmarks


def kepler(data: Path, scope: str) -> tuple[dict[str, Floats], Floats]:
    """Read Kepler's nx12 rows in time order: counters by name, and platform (wall) or package watts."""
    file, label = {"wall": ("acpi_basic", "platform_power"), "package": ("rapl_basic", "package_power")}[scope]
    counters = ("bpf_cpu_time_us", "cache_miss", "cpu_cycles", "cpu_instructions")
    table = Table(data / KEPLER / f"{file}.csv.gz", ("timestamp", *counters, label))
    # The file is not in order of time, and folds of time need that.
    order = np.argsort(table.numbers("timestamp"), kind="stable")
    watts = table.numbers(label)[order]
    good = np.isfinite(watts) & (watts > 0)
    return {name: table.numbers(name)[order][good] for name in counters}, watts[good]


def greenfaas(data: Path) -> tuple[serverless.Calls, int]:
    """Read GreenFaaS calls with attributed energy, in order of start, and how many had no energy and are left out."""
    table = Table(
        data / GREENFAAS,
        ("block_id", "func_name", "machine", "endpoint_status", "start", "duration_s", "avg_power_W", "energy_J"),
    )
    # Whole microseconds, so that no zone and no rounding comes in.
    start = np.array([np.datetime64(text, "us").astype(np.int64) / 1e6 for text in table.texts("start")])
    power, duration = table.numbers("avg_power_W"), table.numbers("duration_s")
    good = (power > 0) & (duration > 0) & (table.numbers("energy_J") > 0)
    rows = np.flatnonzero(good)
    rows = rows[np.argsort(start[rows], kind="stable")]
    block, begin = table.texts("block_id")[rows], start[rows] - start[rows].min()
    return serverless.Calls(
        function=table.texts("func_name")[rows],
        machine=table.texts("machine")[rows],
        block=block,
        wave=serverless.waves(block, begin),
        warm=(table.texts("endpoint_status")[rows] == "WARM").astype(np.float64),
        start_s=begin,
        duration_s=duration[rows],
        power_w=power[rows],
    ), int((~good).sum())


def sizey(data: Path) -> Observations:
    """Read Sizey's Nextflow runs: finished tasks with requested and peak memory. The run is the sample (tag)."""
    parts = []
    for path in sorted((data / SIZEY).glob("*.csv.gz")):
        table = Table(path, ("process", "tag", "status", "cpus", "memory", "realtime", "%cpu", "peak_rss", "task_id"))
        done = table.texts("status") == "COMPLETED"
        workflow = path.name.removesuffix(".csv.gz")
        tag, number = table.texts("tag"), table.texts("task_id")
        # Tasks without a tag are each a sample of their own.
        sample = [f"{workflow}|{t if t not in ('', '-') else f'task {n}'}" for t, n in zip(tag, number, strict=True)]
        parts.append(
            Observations.of(
                task=[f"{workflow}/{process}" for process in table.texts("process")],
                run=sample,
                workflow=[workflow] * len(table),
                runtime_s=table.numbers("realtime") / 1000.0,
                request_cores=table.numbers("cpus"),
                request_bytes=table.numbers("memory"),
                used_cores=table.numbers("%cpu") / 100.0,
                peak_bytes=table.numbers("peak_rss"),
            ).take(done)
        )
    if not parts:
        raise MissingData(f"no Sizey traces in {data / SIZEY}; WATTFLOW_DATA names the folder of real data")
    return concatenate(parts)
