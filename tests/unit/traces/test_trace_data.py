"""Every shared file in a format that is read loads; every other one is named."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import trace_catalog
from research import opendc_topology
from research.papers.alibaba_cluster import load_alibaba
from wattflow import traces
from wattflow.model.profile import FORMS
from wattflow.traces import opendc, wfformat, wfformat_write

pytestmark = pytest.mark.data
FORMATS = [entry.name for entry in traces.formats() if entry.name != "argo"]  # manifests are only written


@pytest.fixture(scope="module")
def entries(data_dir: Path) -> tuple[trace_catalog.Entry, ...]:
    return trace_catalog.walk(data_dir)


def test_every_file_is_a_format_or_named(entries: tuple[trace_catalog.Entry, ...]) -> None:
    counts = Counter(entry.format for entry in entries)
    assert counts["wfformat"] == 104
    assert counts["swf"] == 4
    assert counts["nextflow"] == 15
    assert counts["alibaba-gpu"] == 8
    assert (counts["flowbench"], counts["flowbench-dag"]) == (4, 12)
    assert (counts["wta"], counts["opendc"], counts["opendc-experiment"]) == (3, 4, 2)
    assert (counts["azure2019"], counts["azure2021"], counts["iluvatar"]) == (3, 1, 2)
    for entry in entries:
        if entry.format is None:
            assert entry.about.startswith(f"{trace_catalog.OTHER}: "), entry
            assert "unknown kind" not in entry.about, entry


def test_data_sets_of_another_shape_are_not_taken_for_traces(entries: tuple[trace_catalog.Entry, ...]) -> None:
    about = {str(entry.path): entry.about for entry in entries}
    assert "Lotaru" in about["nextflow_traces/lotaru_heterogeneous/execution_reports.csv.gz"]
    footprints = [text for path, text in about.items() if "/results_chipseq" in path]
    assert len(footprints) == 12
    assert all("by a model" in text for text in footprints)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_all_files_of_a_format_load(format: str, entries: tuple[trace_catalog.Entry, ...]) -> None:
    paths = sorted({entry.load for entry in entries if entry.format == format and entry.load is not None})
    assert paths
    for path in paths:
        workload = traces.load(path)
        assert len(workload) > 0, path
        assert np.isfinite(workload.runtime_s).all() and (workload.runtime_s >= 0).all(), path
        assert np.isfinite(workload.release_s).all() and workload.release_s.min() >= 0, path
        assert len(workload.topological_order()) == len(workload), path
        if workload.ids is not None and len(workload.workflow_names) == 1:
            assert len(set(workload.ids)) == len(workload), path


def test_wfinstances_agree_with_their_index(data_dir: Path) -> None:
    with (data_dir / "wfinstances" / "index.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 102
    for row in rows[::4]:
        workload = traces.load(data_dir / row["file"])
        assert len(workload) == int(row["tasks"])
        assert workload.edge_count == int(row["edges"])
        assert workload.documents[0].makespan_s == float(row["makespan_s"])
        assert len(workload.machines) == int(row["machines"])


@pytest.mark.parametrize(
    "name",
    [
        "wfinstances/nextflow/bacass-dirt02-001.json.gz",
        "wfinstances/makeflow/blast/blast-chameleon-small-001.json.gz",
        "wfinstances/pegasus/srasearch/srasearch-chameleon-10a-001.json.gz",
        "wfinstances_schema_1.0/1000genome-chameleon-2ch-100k-001.json.gz",
    ],
)
def test_a_real_document_comes_back_and_is_valid(name: str, data_dir: Path) -> None:
    import jsonschema

    schema = json.loads((data_dir / "wfinstances" / "wfcommons-schema-1.5.json").read_text())
    document = wfformat.read_document(data_dir / name)
    raw = json.loads(wfformat_write.dumps(document))
    jsonschema.Draft7Validator(schema).validate(raw)
    back, problems = wfformat.parse(raw)
    assert problems == ()
    assert back == dataclasses.replace(document, schema_version="1.5")


def test_schema_1_0_is_recognised_and_not_misread(data_dir: Path) -> None:
    old = traces.load(data_dir / "wfinstances_schema_1.0" / "1000genome-chameleon-2ch-100k-001.json.gz")
    new = traces.load(data_dir / "wfinstances/pegasus/1000genome/1000genome-chameleon-2ch-100k-001.json.gz")
    assert old.documents[0].schema_version == "1.0"
    assert old.machines[0].memory_bytes == new.machines[0].memory_bytes == 131_795_984_000
    assert old.documents[0].files == new.documents[0].files
    for one, other in zip(old.documents[0].tasks, new.documents[0].tasks, strict=True):
        # The migration upstream invented the program's name; all else is the same record in two versions.
        assert dataclasses.replace(one, command=None) == dataclasses.replace(other, command=None)


@pytest.mark.parametrize("name", ["NASA-iPSC-1993-3.1-cln", "hpc2n_first_jobs", "lublin_256", "wagap-2013"])
def test_logs_agree_with_a_plain_loop(name: str, data_dir: Path) -> None:
    path = data_dir / "batch_logs_swf" / f"{name}.swf.gz"
    with gzip.open(path, "rt") as stream:
        rows = [line.split()[:18] for line in stream if line.strip() and not line.lstrip().startswith(";")]
    jobs = [[float(value) for value in row] for row in rows]
    jobs = [row for row in jobs if row[3] >= 0 and row[1] >= 0]
    workload = traces.load(path)
    first = min(row[1] for row in jobs)
    assert workload.release_s.tolist() == [row[1] - first for row in jobs]
    assert workload.runtime_s.tolist() == [row[3] for row in jobs]
    assert workload.estimate_s.tolist() == [row[8] if row[8] > 0 else row[3] for row in jobs]
    parts = [workload.shapes[s].parts for s in workload.shape.tolist()]
    assert parts == [int(row[4] if row[4] > 0 else row[7]) for row in jobs]


def test_the_logs_report_what_their_readme_warns_of(data_dir: Path) -> None:
    folder = data_dir / "batch_logs_swf"
    assert "2 jobs with a negative run time were skipped" in traces.load(folder / "wagap-2013.swf.gz").notes
    hpc2n = traces.load(folder / "hpc2n_first_jobs.swf.gz")
    assert "25 jobs with an unknown run time (−1) were skipped" in hpc2n.notes


def test_the_alibaba_trace_has_its_published_size(data_dir: Path) -> None:
    folder = data_dir / "gpu_cluster" / "alibaba_gpu_v2023"
    assert len(traces.load(folder / "openb_pod_list_default.csv.gz")) == 8152
    assert len(load_alibaba(folder / "openb_node_list_all_node.csv.gz").nodes) == 1523


def test_the_opendc_sample_is_what_its_readme_says(data_dir: Path) -> None:
    for name, edges in (("indep", 0), ("dag", 2000)):
        folder = data_dir / "opendc_sample" / name
        workload = traces.load(folder / "experiment.json")
        assert (len(workload), workload.edge_count) == (2000, edges)
        experiment = opendc.read_experiment(folder / "experiment.json")
        cluster = opendc_topology.read_topology(experiment.topologies[0])
        assert (len(cluster.nodes), cluster.total_cores) == (64, 256)
        power = cluster.nodes[0].power
        assert power is not None
        assert [power.at(k) for k in range(5)] == [100 + 100 * FORMS["linear"](k / 4) for k in range(5)]


def test_the_shell_trace_comes_back_through_every_format_that_holds_it(data_dir: Path, tmp_path: Path) -> None:
    source = data_dir / "wta" / "shell_chronos"
    first = traces.load(source)
    assert (len(first), len(first.workflow_names)) == (10208, 3403)
    done = traces.convert(source, tmp_path / "again")
    assert done.target_format == "wta"
    second = traces.load(tmp_path / "again")
    for name in ("release_s", "runtime_s", "parent", "parent_start", "workflow"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.shapes == second.shapes
