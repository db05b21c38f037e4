"""No bytes make a reader do anything but read or say what is wrong."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import trace_catalog
from research import opendc_topology
from wattflow import traces
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import File, Machine, Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.traces import documents, opendc, registry, wfformat
from wattflow.traces.source import probe

FUZZ = settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TROUBLE = [b"-1", b"nan", b"inf", b"1e400", b"\x00", b"\xff\xfe", b"\n", b",", b'"', b"9" * 30, b"-", b"1e308"]
TEXTS: dict[str, tuple[str, str]] = {
    "swf": ("log.swf", "; head\n" + "1 0 -1 5 2 -1 -1 2 9 100 1 1 1 1 1 1 -1 -1\n" * 3),
    "alibaba-gpu": (
        "pods.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
        "p0,1000,10,1,500,T4,1,9,2\np1,1000,10,0,0,,1,9,\n",
    ),
    "nextflow": (
        "trace.csv",
        "task_id,process,name,status,cpus,memory,submit,start,complete,realtime,%cpu\n"
        "1,A,A (1),COMPLETED,2,1 GB,1700000000000,1700000001000,1700000009000,3m 2s,99%\n",
    ),
    "azure2021": ("calls.csv", "app,func,end_timestamp,duration\na,f,10.5,0.5\nb,g,12,1\n"),
    "iluvatar": ("trace.csv", "func_name,invoke_time_ms\nf,6\n"),
    "azure2019": ("invocations.csv", "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,2,1\n"),
    "flowbench": ("runs.csv", "run,task,ready,runtime\n1,a_ID1,0,2\n1,b_ID2,0,3\n"),
    "flowbench-dag": ("dag.json", '{"a": ["b"], "b": []}'),
    "opendc-experiment": (
        "experiment.json",
        '{"topologies": [{"pathToFile": "t"}], "workloads": [{"pathToFile": "."}]}',
    ),
}
BESIDE = {
    "metadata.csv": "func_name,cold_dur_ms,warm_dur_ms,mem_mb\nf,1500,500,4\n",
    "durations.csv": "HashOwner,HashApp,HashFunction,Average\no,a,f,100\n",
    "runs.json": '{"a_ID1": ["b_ID2"], "b_ID2": []}',
}


@functools.cache
def document() -> dict[str, object]:
    from wattflow.traces import wfformat_write

    tasks = (
        Task("a", "a_1", "f", 1.5, (Variant(), Variant("gpu", device="gpu", devices=1)), outputs=("x",), energy_j=5.0),
        Task("b", "b_1", "f", 2.0, parents=("a",), inputs=("x",), machine="n", start_s=1.0, parts=2),
    )
    workflow = Workflow("w", tasks, (File("x", 5),), (Machine("n", 4),), executed_at="2024-01-01T00:00:00")
    return wfformat_write.to_json(workflow)


def attempt(path: Path, format: str | None) -> None:
    """Load; only InvalidInput may come out, and what loads is sound."""
    with contextlib.suppress(InvalidInput):
        workload = traces.load(path, format)
        assert isinstance(workload, Workload)
        assert np.isfinite(workload.runtime_s).all()
        assert (workload.runtime_s >= 0).all()
        assert np.isfinite(workload.release_s).all()
        assert not np.isinf(workload.estimate_s).any()
        assert all(0 <= s < len(workload.shapes) for s in workload.shape.tolist())
        assert all(variant.cores >= 0 for shape in workload.shapes for variant in shape.variants)
        workload.topological_order()


def in_folder(files: dict[str, bytes], name: str, format: str | None) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        for file, data in files.items():
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        attempt(folder / name if name else folder, format)
    finally:
        shutil.rmtree(folder)


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Valid bytes with a few places changed, cut, doubled or replaced by trouble."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(found) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "trouble", "double", "drop"]))
        if kind == "flip" and found:
            found[at] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del found[at:]
        elif kind == "drop":
            del found[at : at + draw(st.integers(1, 5))]
        elif kind == "double":
            found[at:at] = found[at : at + 40]
        else:
            found[at:at] = draw(st.sampled_from(TROUBLE))
    return bytes(found)


@pytest.mark.parametrize("format", sorted(TEXTS))
def test_mutated_text(format: str) -> None:
    name, text = TEXTS[format]

    @FUZZ
    @given(data=mutated(text.encode()), packed=st.booleans(), named=st.booleans())
    def check(data: bytes, packed: bool, named: bool) -> None:
        files = {other: content.encode() for other, content in BESIDE.items()}
        files[name] = gzip.compress(data) if packed else data
        in_folder(files, name, format if named else None)

    check()


@pytest.mark.parametrize("name", sorted(BESIDE))
def test_mutated_tables_beside(name: str) -> None:
    format = {"metadata.csv": "iluvatar", "durations.csv": "azure2019", "runs.json": "flowbench"}[name]
    main, text = TEXTS[format]

    @settings(FUZZ, max_examples=25)
    @given(data=mutated(BESIDE[name].encode()))
    def check(data: bytes) -> None:
        in_folder({main: text.encode(), name: data}, main, format)

    check()


@pytest.mark.parametrize("format", [entry.name for entry in traces.formats()])
def test_random_bytes(format: str) -> None:
    @settings(FUZZ, max_examples=25)
    @given(data=st.binary(max_size=300), ending=st.sampled_from(["", ".json", ".swf", ".csv", ".json.gz"]))
    def check(data: bytes, ending: str) -> None:
        in_folder({f"x{ending}": data}, f"x{ending}", format)
        in_folder({f"x{ending}": data}, f"x{ending}", None)

    check()


def values() -> st.SearchStrategy[object]:
    odd = [1e400, float("nan"), -1, 10**400, 2**70, "", "a", "ghost"]
    leaves = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(odd))
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@settings(FUZZ, max_examples=300)
@given(data=st.data())
def test_mutated_documents(data: st.DataObject) -> None:
    """Any value of a valid document replaced by any other, or taken away."""
    raw = json.loads(json.dumps(document()))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(raw)[1:]))
        holder = raw
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            del holder[path[-1]]
        else:
            holder[path[-1]] = data.draw(values())
        if not isinstance(raw, dict) or len(places(raw)) < 2:
            break
    workflow, problems = wfformat.parse(raw)
    assert (workflow is None) == bool(problems)
    if workflow is not None:
        try:
            made = documents.to_workload([workflow], "w")
        except InvalidInput as refusal:
            # What a document can say and a workload cannot be: it must be named, and the document must have it.
            assert refusal.problems, refusal
        else:
            assert len(made) == len(workflow.tasks)
            order = {task: at for at, task in enumerate(made.topological_order().tolist())}
            assert all(order[p] < order[t] for t in range(len(made)) for p in made.parents_of(t))


FLAT = {"workflow": {"tasks": [{"name": "a", "runtime": 1}, {"name": "b", "runtime": 2, "parents": ["a"]}]}}


@FUZZ
@given(data=mutated(json.dumps(FLAT).encode()))
def test_mutated_json_text(data: bytes) -> None:
    in_folder({"w.json": data}, "w.json", None)


@pytest.fixture(scope="module")
def parquet_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """A small valid folder of each parquet format."""
    workload = documents.to_workload([wfformat.parse(document())[0]], "w")  # type: ignore[list-item]
    found = {}
    for format in ("wta", "opendc"):
        folder = tmp_path_factory.mktemp(format) / "t"
        traces.save(workload, folder, format)
        found[format] = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return found


@pytest.mark.parametrize("format", ["wta", "opendc"])
def test_mutated_parquet(format: str, parquet_folders: dict[str, dict[str, bytes]]) -> None:
    files = parquet_folders[format]

    @FUZZ
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in files if name.endswith(".parquet")]))
        in_folder(files | {name: data.draw(mutated(files[name]))}, "", format)

    check()


COLUMN = st.sampled_from([
    [1, 2], [1.5, float("nan")], ["x", "-1"], [None, None], [[1], [2]], [True, False], [-5, 10**17],
    [float("inf"), 0.0], ["[0]", "[1, 7]"], [b"\xff", b""], [{"a": 1}, None],
])  # fmt: skip
NAMES = {
    "wta": "id workflow_id ts_submit runtime parents params type memory_requested energy_consumption",
    "opendc": "id submission_time duration parents cpu_count mem_capacity cpu_capacity deadline",
}
GOOD = {
    "id": [0, 1], "workflow_id": [0, 0], "ts_submit": [0, 5], "submission_time": [0, 5], "duration": [1, 2],
    "runtime": [1, 2],
}  # fmt: skip


@settings(FUZZ, max_examples=80)
@given(data=st.data(), format=st.sampled_from(["wta", "opendc"]))
def test_any_types_of_parquet_columns(data: st.DataObject, format: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        name: data.draw(COLUMN) if name not in GOOD or data.draw(st.booleans()) else GOOD[name]
        for name in NAMES[format].split()
    }
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink)
    path = "tasks/part.0.parquet" if format == "wta" else "tasks.parquet"
    in_folder({path: sink.getvalue().to_pybytes()}, "", format)


HOST = {
    "count": 3, "cpu": {"coreCount": 4, "coreSpeed": "2 GHz"}, "memory": {"memorySize": 9}, "gpu": {"count": 2},
    "cpuPowerModel": {"modelType": "sqrt", "idlePower": 1, "maxPower": 2},
}  # fmt: skip
TOPOLOGY = json.dumps({"clusters": [{"name": "C", "count": 2, "hosts": [HOST]}]}).encode()


@FUZZ
@given(text=mutated(TOPOLOGY))
def test_mutated_clusters(text: bytes) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "x.json"
        path.write_bytes(text)
        for read in (opendc_topology.read_topology, opendc.read_experiment):
            try:
                made = read(path)
            except InvalidInput as refusal:
                assert path.name in str(refusal), refusal
            else:
                assert made is not None
        assert len(trace_catalog.walk(folder)) == 1
        assert registry.claimed(probe(path)) is None or text
    except InvalidInput:
        assert not text
    finally:
        shutil.rmtree(folder)
