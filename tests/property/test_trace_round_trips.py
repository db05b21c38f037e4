"""What is written is read back: every field that a format holds, and everything through the extension."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from strategies import workflows
from wattflow import traces
from wattflow.model.workflow import Workflow
from wattflow.model.workload import Workload
from wattflow.traces import documents, wfformat, wfformat_write

QUICK = settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SLOWER = settings(QUICK, max_examples=25)


@QUICK
@given(workflow=workflows(odd_names=True, unknown_runtimes=True))
def test_wfformat_gives_back_every_field(workflow: Workflow) -> None:
    back, problems = wfformat.parse(json.loads(wfformat_write.dumps(workflow)))
    assert problems == ()
    assert back == dataclasses.replace(workflow, schema_version="1.5")


@pytest.mark.data
@QUICK
@given(workflow=workflows(odd_names=True, unknown_runtimes=True))
def test_wfformat_is_valid_against_the_published_schema(workflow: Workflow, schema: dict[str, object]) -> None:
    import jsonschema

    jsonschema.Draft7Validator(schema).validate(json.loads(wfformat_write.dumps(workflow)))


@pytest.fixture(scope="module")
def schema(data_dir: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((data_dir / "wfinstances" / "wfcommons-schema-1.5.json").read_text())
    return loaded


@SLOWER
@given(found=st.lists(workflows(max_tasks=5, unknown_runtimes=True), min_size=1, max_size=3))
def test_a_workload_survives_wfformat_on_disk(found: list[Workflow], tmp_path_factory: pytest.TempPathFactory) -> None:
    workload = documents.to_workload(found, "many")
    path = tmp_path_factory.mktemp("wf") / ("one.json.gz" if len(found) == 1 else "many")
    assert traces.save(workload, path, "wfformat") == ()
    same(workload, traces.load(path))


@SLOWER
@given(found=st.lists(workflows(max_tasks=5, unknown_runtimes=True), min_size=1, max_size=3))
def test_a_workload_survives_wta(found: list[Workflow], tmp_path_factory: pytest.TempPathFactory) -> None:
    workload = documents.to_workload(found, "many")
    path = tmp_path_factory.mktemp("wta") / "trace"
    traces.save(workload, path)
    back = traces.load(path)
    start = workload.release_s.min()
    np.testing.assert_allclose(back.release_s, workload.release_s - start, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(back.runtime_s, workload.runtime_s, rtol=1e-12)
    np.testing.assert_allclose(back.estimate_s, workload.estimate_s, rtol=1e-12)
    np.testing.assert_array_equal(back.workflow, workload.workflow)
    assert edges(back) == edges(workload)
    for t in range(len(workload)):
        one, other = workload.shapes[workload.shape[t]], back.shapes[back.shape[t]]
        assert (one.variants, one.parts) == (other.variants, other.parts)
        assert workload.functions[one.function] == back.functions[other.function]
    np.testing.assert_array_equal(back.input_bytes, workload.input_bytes)
    np.testing.assert_array_equal(back.output_bytes, workload.output_bytes)
    for column in ("energy_j", "energy_provenance"):
        if column in workload.columns:
            np.testing.assert_array_equal(back.columns[column], workload.columns[column])


JOB = st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(1, 300), st.integers(0, 4000))


@SLOWER
@given(rows=st.lists(JOB, min_size=1, max_size=30), part=st.sampled_from([0, 0.125]))
def test_swf_gives_back_jobs(
    rows: list[tuple[int, int, int, int]], part: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    lines = [
        f"{i} {s} -1 {r + part} {p} -1 -1 {p} {r + 60} {m or -1} 1 3 4 {i % 3} 1 1 -1 -1"
        for i, (s, r, p, m) in enumerate(rows)
    ]
    path.write_text("; header\n" + "\n".join(lines) + "\n")
    first = traces.load(path)
    traces.save(first, path)
    second = traces.load(path)
    same(first, second)
    np.testing.assert_array_equal(first.runtime_s, [r + part for _, r, _, _ in rows])
    assert [first.shapes[s].parts for s in first.shape] == [p for _, _, p, _ in rows]


@SLOWER
@given(found=workflows(max_tasks=6))
def test_opendc_keeps_the_dag_and_times_to_a_millisecond(
    found: Workflow, tmp_path_factory: pytest.TempPathFactory
) -> None:
    workload = documents.to_workload([found], "one")
    path = tmp_path_factory.mktemp("opendc") / "trace"
    traces.save(workload, path, "opendc")
    back = traces.load(path)
    np.testing.assert_allclose(back.runtime_s, workload.runtime_s, atol=5.1e-4)
    assert edges(back) == edges(workload)


@SLOWER
@given(found=workflows(max_tasks=6))
def test_azure_2021_keeps_times(found: Workflow, tmp_path_factory: pytest.TempPathFactory) -> None:
    workload = documents.to_workload([found], "one")
    path = tmp_path_factory.mktemp("azure") / "calls.csv"
    traces.save(workload, path, "azure2021")
    back = traces.load(path)
    assert len(back) == len(workload)
    np.testing.assert_array_equal(back.runtime_s, workload.runtime_s)
    np.testing.assert_allclose(back.release_s, workload.release_s - workload.release_s.min(), atol=1e-6)


@SLOWER
@given(workflow=workflows(max_tasks=6, unknown_runtimes=True))
def test_columns_make_documents_that_make_the_same_columns(workflow: Workflow) -> None:
    workload = documents.to_workload([workflow], "one")
    bare = dataclasses.replace(workload, documents=())
    found, _ = documents.of_workload(bare)
    back = documents.to_workload(found, "one")
    for name in ("release_s", "runtime_s", "estimate_s", "deadline_s", "parent_bytes", "input_bytes"):
        np.testing.assert_allclose(getattr(back, name), getattr(workload, name), rtol=1e-9, atol=1e-6, err_msg=name)
    assert edges(back) == edges(workload)


def edges(workload: Workload) -> list[list[int]]:
    return [sorted(workload.parents_of(t).tolist()) for t in range(len(workload))]


def same(a: Workload, b: Workload) -> None:
    """All columns equal to the bit."""
    for field in dataclasses.fields(Workload):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=field.name)
        elif field.name in ("shapes", "functions", "ids", "workflow_names", "machines"):
            assert one == other, field.name
    assert set(a.columns) == set(b.columns)
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name], err_msg=name)
