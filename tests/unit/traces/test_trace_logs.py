"""Logs: −1 is unknown, bad rows are skipped and counted, units are SI afterwards."""

from __future__ import annotations

import gzip
import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

import trace_catalog
from research import opendc_topology
from wattflow import traces
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import log_tables, nextflow, opendc, swf


def job(number: int = 1, **more: float) -> str:
    """An SWF line; columns by position name."""
    names = ["job", "submit", "wait", "run", "procs", "cpu", "mem", "req_procs", "req_time", "req_mem"]
    values = dict.fromkeys([*names, *(str(i) for i in range(8))], -1.0) | {
        "job": number, "submit": number * 10, "run": 5, "procs": 2,
    } | more  # fmt: skip
    return " ".join(f"{value:g}" for value in values.values())


def test_swf_counts_what_it_skips(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    lines = [
        "; MaxJobs: 9", job(1), "", job(2, run=-1), job(3, run=-1.36e9), job(4, submit=-5), "1 2 3", "a " + job(5),
        job(6) + " extra {1,2} words", job(7, run=0), job(8).replace("5", "5-5"), job(9, procs=1e6),
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    workload = traces.load(path)
    assert workload.ids == ("1", "6", "7")
    assert workload.runtime_s.tolist() == [5.0, 5.0, 0.0]
    text = " | ".join(workload.notes)
    for part in (
        "1 lines with fewer than 18 columns", "2 lines with something else than numbers",
        "1 jobs with an unknown run time", "1 jobs with a negative run time", "1 jobs with a negative submission time",
        "1 jobs with more than 32,767 processors",
    ):  # fmt: skip
        assert part in text


def test_swf_processors_are_parts_or_cores(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(job(procs=4, req_mem=1000) + "\n" + job(2, procs=-1, req_procs=3) + "\n" + job(3, procs=-1))
    parts = swf.read(path)
    assert [(parts.shapes[s].parts, parts.shapes[s].variants[0].cores) for s in parts.shape] == [(4, 1), (3, 1), (1, 1)]
    assert parts.shapes[parts.shape[0]].variants[0].memory_bytes == 1_000_000
    cores = swf.read(path, "cores")
    assert [(cores.shapes[s].parts, cores.shapes[s].variants[0].cores) for s in cores.shape] == [(1, 4), (1, 3), (1, 1)]
    assert cores.shapes[cores.shape[0]].variants[0].memory_bytes == 4_000_000
    with pytest.raises(InvalidInput, match="parts or cores"):
        swf.read(path, "threads")


def test_swf_requested_time_is_the_estimate(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(job(1, req_time=60) + "\n" + job(2))
    assert traces.load(path).estimate_s.tolist() == [60.0, 5.0]


def test_swf_lines_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.swf"
    path.write_text("\r\n".join(job(i) for i in range(1, 200)))
    whole = traces.load(path)
    monkeypatch.setattr(swf, "_CHUNK_BYTES", 97)
    pieces = traces.load(path)
    np.testing.assert_array_equal(whole.release_s, pieces.release_s)
    assert len(pieces) == 199


def test_swf_without_its_ending_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("; comment\n" + job())
    assert traces.detect(path) == "swf"


@pytest.mark.slow
def test_a_million_jobs_take_seconds(tmp_path: Path) -> None:
    path = tmp_path / "big.swf"
    line = job(1, run=55, req_time=100).split(" ", 2)[2]
    path.write_text("\n".join(f"{i} {i} {line}" for i in range(1_000_000)))
    start = time.process_time()
    assert len(traces.load(path)) == 1_000_000
    assert time.process_time() - start < 20


PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,V100M16|V100M32,LS,Running,100,190,120
p1,500,1024,0,0,,BE,Pending,110,130,
p2,8000,2048,8,1000,,LS,Running,90,100,95
p3,x,2048,0,0,,LS,Running,90,100,95
p4,-5,2048,0,0,,LS,Running,90,100,95
p5,8000,2048,1,1000,,LS,Running,90,91,95
p6,8000,2048,2,500,,LS,Running,90,100,95
p7,8000
"""


def test_alibaba_pods(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(PODS)
    workload = traces.load(path)
    assert workload.ids == ("p0", "p1", "p2")
    assert workload.release_s.tolist() == [10.0, 20.0, 0.0]
    assert workload.runtime_s.tolist() == [70.0, 1.0, 5.0]
    assert workload.columns["runtime_known"].tolist() == [True, False, True]
    share, plain, whole = (workload.shapes[s].variants[0] for s in workload.shape)
    assert share == Variant("gpu", 12.0, 16384 * 2**20, "gpu", 1, 0.46, 0, ("V100M16", "V100M32"))
    assert plain == Variant("cpu", 0.5, 1024 * 2**20)
    assert (whole.devices, whole.device_share) == (8, 1.0)
    assert "1 pods with another number of columns were skipped" in workload.notes
    assert any("that end before they start" in note for note in workload.notes)


def test_alibaba_lists_without_times(tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1,1,1000\n")
    workload = traces.load(pods)
    assert np.isnan(workload.estimate_s).all()
    assert any("no times" in note for note in workload.notes)


NEXTFLOW = """task_id\tprocess\tname\tstatus\tcpus\tmemory\tsubmit\tstart\tcomplete\tduration\trealtime\t%cpu\tpeak_rss
1\tALIGN\tALIGN (a)\tCOMPLETED\t4\t1.5 GB\t2024-01-31 10:00:00.500\t2024-01-31 10:00:02\t-\t3m\t3m 2s\t98.5%\t300 MB
2\tALIGN\tALIGN (b)\tCACHED\t1\t-\t2024-01-31 10:00:00.500\t-\t-\t1s\t1s\t-\t-
3\tSORT\tSORT\tCOMPLETED\t-\t-\t2024-01-31 10:00:01.500\t2024-01-31 10:00:02\t2024-01-31 10:00:09\t-\t-\t-\t2 KB
4\tSORT\tSORT\tCOMPLETED\t1\t-\t2024-01-31 10:00:01.500\t-\t-\t-\t0ms\t-\t-
5\tSORT\tSORT\tCOMPLETED\t1\t-\t2024-01-31 10:00:01.500\t-\t-\t-\tsoon\t-\t-
6\tSORT\tSORT\tCOMPLETED\t1\t-\t2024-01-31 10:00:01.500\t-\t-\t-\t-5\t-\t-
"""


def test_nextflow_reads_what_people_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(NEXTFLOW)
    workload = traces.load(path)
    assert workload.ids == ("1", "3", "4")
    assert workload.runtime_s.tolist() == [182.0, 7.0, 0.0]
    assert workload.release_s.tolist() == [0.0, 1.0, 1.0]
    first = workload.shapes[workload.shape[0]].variants[0]
    assert (first.cores, first.memory_bytes) == (4.0, int(1.5 * 2**30))
    assert workload.columns["avg_cpu_pct"][0] == 98.5
    assert workload.columns["peak_memory_bytes"][1] == 2048
    text = " | ".join(workload.notes)
    for part in ("status CACHED", "whose realtime cannot be read", "negative run time", "run time of 0"):
        assert part in text


PLAIN = "task_id,name,status,submit,start,complete,realtime\n" + "".join(
    f"{i},{name},COMPLETED,{1000 * at},{1000 * at},{1000 * (at + 2)},2000\n"
    for i, (name, at) in enumerate([("FASTQC (s1)", 0), ("FASTQC (s2)", 1), ("X:ALIGN (s1)", 3), ("X:ALIGN (s2)", 4),
                                    ("MULTIQC", 9), ("FASTQC (late)", 9)])
)  # fmt: skip
DAG = """digraph "run" {
v0 [shape=point,label="",xlabel="Channel.fromPath"];
v1 [label="FASTQC"];
v2 [shape=circle,label="",fixedsize=true,xlabel="map"];
v3 [label="ALIGN"];
v4 [label="MULTIQC"];
v0 -> v1 [label="reads"];
v1 -> v2;
v2 -> v3;
v3 -> v4;
v1 -> v4;
}
"""


def test_a_nextflow_tag_is_no_part_of_the_function(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(PLAIN)
    workload = traces.load(tmp_path / "run.csv")
    assert [function.name for function in workload.functions] == ["FASTQC", "X:ALIGN", "MULTIQC"]
    assert workload.columns["tag"].tolist() == ["s1", "s2", "s1", "s2", "", "late"]
    assert len(workload.parent) == 0 and "no dependencies" in workload.notes[-1]


@pytest.mark.parametrize("name", ["run.dot", "dag.dot"])
def test_a_dag_beside_a_nextflow_trace_gives_its_tasks_parents(tmp_path: Path, name: str) -> None:
    (tmp_path / "run.csv").write_text(PLAIN)
    (tmp_path / name).write_text(DAG)
    workload = traces.load(tmp_path / "run.csv")
    parents = [workload.parents_of(i).tolist() for i in range(6)]
    # by tag; a step that gathers waits for all that had ended when it was submitted
    assert parents == [[], [], [0], [1], [0, 1, 2, 3], []]
    assert workload.release_s.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 9.0]
    assert "6 dependencies are inferred from" in workload.notes[-1]


@pytest.mark.parametrize(("change", "message"), [
    (("FASTQC", "OTHER"), None),
    (("v3 -> v4", "v4 -> v1"), "in a cycle: FASTQC"),
    (("label=", "title="), "draws no process of the trace"),
])  # fmt: skip
def test_a_dag_that_does_not_fit_is_refused(tmp_path: Path, change: tuple[str, str], message: str | None) -> None:
    (tmp_path / "run.csv").write_text(PLAIN)
    (tmp_path / "run.dot").write_text(DAG.replace(*change))
    if message is None:
        assert len(traces.load(tmp_path / "run.csv").parent) == 2  # of what it does draw
        return
    with pytest.raises(InvalidInput, match=message):
        traces.load(tmp_path / "run.csv")


@pytest.mark.parametrize(("text", "size"), [("1.2 GB", 1.2 * 2**30), ("512", 512), ("3 KB", 3072), ("7B", 7)])
def test_nextflow_sizes(text: str, size: float) -> None:
    assert nextflow.size(text) == size
    with pytest.raises(ValueError, match="not a size"):
        nextflow.size("much")


def parquet(path: Path, columns: dict[str, object]) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_wta_takes_types_as_they_come(tmp_path: Path) -> None:
    """Ids as floats or text, lists as text, a column missing, parts of different types."""
    base = tmp_path / "t" / "tasks" / "schema-1.0"
    parquet(base / "part.0.parquet", {
        "id": [0.0, 1.0], "workflow_id": [7, 7], "ts_submit": ["1000", "2000"], "runtime": [1500, -1],
        "parents": [[], [0.0]], "memory_requested": [2.5, -1.0], "resource_amount_requested": [4, -1],
    })  # fmt: skip
    parquet(base / "part.1.parquet", {
        "id": [2.0, 3.0, 4.0], "workflow_id": [8, 8, 8], "ts_submit": ["3000", "later", "3000"],
        "runtime": [10, 10, -7], "parents": [[3.0, 99.0], None, None], "energy_consumption": [12.5, -1.0, -1.0],
    })  # fmt: skip
    workload = traces.load(tmp_path / "t")
    assert workload.ids == ("0", "1", "2")
    assert workload.release_s.tolist() == [0.0, 1.0, 2.0]
    assert workload.runtime_s.tolist() == [1.5, 1.0, 0.01]
    assert workload.columns["runtime_known"].tolist() == [True, False, True]
    np.testing.assert_array_equal(workload.columns["energy_j"], [np.nan, np.nan, 12.5])
    assert workload.shapes[workload.shape[0]].variants[0] == Variant(cores=4.0, memory_bytes=2_500_000)
    assert workload.parents_of(1).tolist() == [0]
    assert len(workload.workflow_names) == 2
    text = " | ".join(workload.notes)
    for part in ("without a usable ts_submit", "negative runtime", "2 dependencies", "unknown runtime (−1)"):
        assert part in text


def test_wta_by_one_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "t" / "tasks" / "schema-1.0" / "part.0.parquet"
    parquet(path, {"workflow_id": [1], "ts_submit": [0], "runtime": [1], "id": [5]})
    assert traces.load(path).name == "t"


def test_wta_lists_as_text_and_cycles(tmp_path: Path) -> None:
    base = {"workflow_id": [1, 1], "ts_submit": [0, 0], "runtime": [1, 1], "id": [5, 6]}
    parquet(tmp_path / "a" / "tasks" / "p.parquet", base | {"parents": ["[]", "[5]"]})
    assert traces.load(tmp_path / "a").parents_of(1).tolist() == [0]
    parquet(tmp_path / "b" / "tasks" / "p.parquet", base | {"parents": ["[6]", "[5]"]})
    with pytest.raises(InvalidInput, match="cycle"):
        traces.load(tmp_path / "b")


def test_opendc_runtime_is_the_sum_of_fragments(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    parquet(folder / "tasks.parquet", {
        "id": [1, 2], "submission_time": [500, 1500], "duration": [9999, 4000], "cpu_count": [2, 1],
        "cpu_capacity": [2000.0, 1000.0], "mem_capacity": [3, 1], "parents": [[], [1]],
    })  # fmt: skip
    parquet(folder / "fragments.parquet", {"id": [1, 1], "duration": [1000, 3000], "cpu_usage": [2000.0, 0.0]})
    workload = traces.load(folder)
    assert workload.runtime_s.tolist() == [4.0, 4.0]
    assert workload.release_s.tolist() == [0.0, 1.0]
    assert workload.columns["avg_cpu_pct"][0] == pytest.approx(50.0)
    assert workload.shapes[workload.shape[0]].variants[0] == Variant(cores=2.0, memory_bytes=3_000_000)
    assert workload.parents_of(1).tolist() == [0]
    assert any("1 tasks have no fragment" in note for note in workload.notes)


def topology(**model: object) -> dict[str, object]:
    host = {
        "name": "H", "count": 3, "cpu": {"coreCount": 4, "coreSpeed": 1000, "count": 2},
        "memory": {"memorySize": "2 GB"},
        "cpuPowerModel": model or {"modelType": "linear", "idlePower": 100, "maxPower": 200},
    }  # fmt: skip
    return {"clusters": [{"name": "C", "hosts": [host]}]}


def test_opendc_topology_is_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(topology()))
    cluster = opendc_topology.read_topology(path, demand_mhz=2000)
    assert len(cluster.nodes) == 3
    node = cluster.nodes[0]
    assert (node.cores, node.memory_bytes, node.speed) == (8, 2_000_000_000, 0.5)
    assert node.power is not None
    assert (node.power.idle_w, node.power.at(4), node.power.full_w) == (100.0, 150.0, 200.0)
    assert node.power.provenance is Provenance.MODELLED
    assert len({node.name for node in cluster.nodes}) == 3
    path.write_text(json.dumps(topology(modelType="constant", power=80)))
    power = opendc_topology.read_topology(path).nodes[0].power
    assert power is not None
    assert (power.at(0), power.at(8)) == (80.0, 80.0)


def test_opendc_topology_problems_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    raw = topology(modelType="magic")
    raw["clusters"][0]["hosts"].append({"name": "X", "cpu": {"coreCount": 0}})  # type: ignore[index]
    path.write_text(json.dumps(raw))
    with pytest.raises(InvalidInput) as caught:
        opendc_topology.read_topology(path)
    text = str(caught.value)
    for part in ("'magic' is not known", "needs a coreCount", "needs a memorySize"):
        assert part in text


def test_opendc_topology_that_the_model_refuses(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(topology(modelType="cubic", idlePower=1e308, maxPower=1.5e308) | {"name": "x"}))
    opendc_topology.read_topology(path)
    with pytest.raises(InvalidInput, match="speed must be more than 0"):
        opendc_topology.read_topology(path, demand_mhz=-1.0)


def test_opendc_experiment_names_its_files(tmp_path: Path) -> None:
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps({"topologies": [{}], "workloads": []}))
    with pytest.raises(InvalidInput, match=r"has no 'pathToFile'[\s\S]*names no file"):
        opendc.read_experiment(path)
    path.write_text(json.dumps({"topologies": [{"pathToFile": "t"}], "workloads": [{"pathToFile": "gone"}]}))
    with pytest.raises(InvalidInput, match="'gone', which is not there"):
        traces.load(path)


def test_azure_2021(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv.gz"
    text = "app,func,end_timestamp,duration\na,f,10.5,0.5\na,g,11,-1\nb,f,12,-3\nb,g,13,0\nb,g,x,1\n"
    path.write_bytes(gzip.compress(text.encode()))
    workload = traces.load(path)
    assert workload.release_s.tolist() == [0.0, 3.0]
    assert [workload.functions[workload.shapes[s].function].name for s in workload.shape] == ["f", "g"]
    assert any("unknown duration" in note for note in workload.notes)
    assert any("negative duration" in note for note in workload.notes)


def test_azure_2019_lays_out_calls(tmp_path: Path) -> None:
    key = "HashOwner,HashApp,HashFunction"
    (tmp_path / "invocations.csv").write_text(f"{key},Trigger,1,2\no,a,f,http,2,0\no,a,g,http,0,1\no,a,h,http,1,1\n")
    levels = ",".join(f"percentile_Average_{p}" for p in (0, 25, 50, 75, 100))
    (tmp_path / "durations.csv").write_text(f"{key},Average,{levels}\no,a,f,100,50,75,100,125,150\no,a,g,7,,,,,\n")
    (tmp_path / "memory.csv").write_text("HashOwner,HashApp,AverageAllocatedMb\no,a,64\n")
    workload = traces.load(tmp_path)
    assert workload.release_s.tolist() == [15.0, 45.0, 90.0]
    assert workload.runtime_s[2] == 0.007
    assert all(0.05 <= value <= 0.15 for value in workload.runtime_s[:2])
    assert {v.memory_bytes for shape in workload.shapes for v in shape.variants} == {64 * 2**20}
    assert any("derived, not recorded" in note for note in workload.notes)
    assert any("1 functions without durations" in note for note in workload.notes)
    assert traces.load(tmp_path / "invocations.csv").runtime_s.tolist() == workload.runtime_s.tolist()


def test_iluvatar(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("func_name,invoke_time_ms\nf,6\nghost,7\nf,-3\nf,2006\n")
    (tmp_path / "metadata.csv").write_text("func_name,cold_dur_ms,warm_dur_ms,mem_mb\nf,1500,500,4\n")
    for path in (tmp_path, tmp_path / "trace.csv"):
        workload = traces.load(path)
        assert workload.release_s.tolist() == [0.006, 2.006]
        assert workload.runtime_s.tolist() == [0.5, 0.5]
        assert workload.functions == (Function("f", cold_start_s=1.0),)
    (tmp_path / "metadata.csv").unlink()
    with pytest.raises(InvalidInput, match=r"metadata\.csv"):
        traces.load(tmp_path / "trace.csv")


def test_flowbench_runs_and_dags(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    dag = tmp_path / "dags" / "wf.json"
    dag.write_text(json.dumps({"a_ID1": ["b_ID2"], "b_ID2": []}))
    csv = tmp_path / "wf.csv"
    rows = ["1,a_ID1,,0,2", "1,b_ID2,cpu_2,3,4", "1,b_ID2,,3,4", "2,b_ID2,,0,5", "2,a_ID1,,0,-1", "2,c,,0,zero"]
    csv.write_text("run,task,anomaly_type,ready,runtime\n" + "\n".join(rows) + "\n")
    workload = traces.load(csv)
    assert workload.workflow_names == ("wf-1", "wf-2")
    assert workload.runtime_s.tolist() == [2.0, 4.0, 5.0]
    assert workload.parents_of(1).tolist() == [0]
    assert workload.columns["anomaly"].tolist() == ["", "cpu_2", ""]
    text = " | ".join(workload.notes)
    for part in (
        "repeat a task",
        "unknown runtime",
        "not a number",
        "1 dependencies on tasks that a run does not have",
    ):
        assert part in text
    structure = traces.load(dag)
    assert structure.documents[0].tasks[0].runtime_s is None
    assert math.isnan(structure.estimate_s[0])
    dag.write_text(json.dumps({"a": ["b"], "b": ["a"]}))
    with pytest.raises(InvalidInput, match="cycle"):
        traces.load(dag)


def test_a_table_without_its_columns_names_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("name,other\n1,2\n")
    with pytest.raises(InvalidInput, match="lacks the columns cpu_milli, memory_mib"):
        traces.load(path, "alibaba-gpu")
    path.write_text("app,func,end_timestamp,duration\nx,y,z,w\n")
    with pytest.raises(InvalidInput, match="no usable row: 1 invocations without an end"):
        traces.load(path)


def test_a_packed_table_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"app,func,end_timestamp,duration\n" + b"a,f,1,1\n" * 10_000))
    monkeypatch.setattr(log_tables, "CSV_LIMIT_BYTES", 1000)
    with pytest.raises(InvalidInput, match="larger than 2 GiB"):
        traces.load(path)


def test_columns_alone_convert_with_what_they_hold(tmp_path: Path) -> None:
    workload = Workload.of_columns(
        "log", release_s=np.array([0.0, 1.0]), runtime_s=np.array([2.0, 3.0]),
        shapes=[Shape(0, (Variant(cores=2.0),), 3)], edges=(np.array([0], np.int32), np.array([1], np.int32)),
        edge_bytes=np.array([5.0]), columns={"energy_j": np.array([7.0, np.nan]), "user": np.array([1.0, 2.0])},
    )  # fmt: skip
    dropped = traces.save(workload, tmp_path / "w.json")
    assert dropped == ("column user has no place in a workflow document",)
    back = traces.load(tmp_path / "w.json")
    assert back.parent_bytes.tolist() == [5.0]
    assert back.shapes == workload.shapes
    np.testing.assert_array_equal(back.columns["energy_j"], workload.columns["energy_j"])


def test_the_catalogue_names_everything(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(job())
    (tmp_path / "notes.md").write_text("text")
    (tmp_path / "lotaru.csv").write_text("Workflow,Task,Machine,Realtime1\n")
    (tmp_path / "broken.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 100)[:-12])
    (tmp_path / "odd.bin").write_bytes(b"\x00\x01")
    about = {str(entry.path): entry for entry in trace_catalog.walk(tmp_path)}
    assert about["log.swf"].format == "swf"
    assert about["notes.md"].about == "a data set of another shape: documentation"
    assert about["lotaru.csv"].about == "a data set of another shape: Lotaru microbenchmarks"
    assert "truncated" in about["broken.csv.gz"].about
    assert about["odd.bin"].about.startswith(trace_catalog.OTHER)


def test_every_job_of_a_log_is_a_workflow_of_its_own(tmp_path: Path) -> None:
    """Two jobs submitted a day apart do not belong together: each has its own submission."""
    log = tmp_path / "two.swf"
    log.write_text("1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n2 86400 -1 10 4 -1 -1 4 20 -1 1 1 1 1 1 1 -1 -1\n")
    found = traces.load(log)
    assert found.workflow.tolist() == [0, 1]
    assert found.workflow_submit_s.tolist() == [0.0, 86400.0]
    assert list(found.workflow_names) == ["two-0", "two-1"]
    calls = tmp_path / "calls.csv"
    calls.write_text("app,func,end_timestamp,duration\na,f,10,2\na,f,500,2\n")
    assert traces.load(calls).workflow_submit_s.tolist() == [0.0, 490.0]
    dropped = traces.save(found, tmp_path / "one.json")
    assert any("workflow of its own" in line for line in dropped)
    assert len(traces.load(tmp_path / "one.json")) == 2
