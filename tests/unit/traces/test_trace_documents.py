"""WfFormat by version, the extension, and every kind of bad document."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from wattflow import traces
from wattflow.model.errors import InvalidInput, UnknownName
from wattflow.model.profile import Provenance
from wattflow.model.workflow import Task, Variant, Workflow
from wattflow.traces import documents, source, wfformat, wfformat_write


def flat(version: str = "1.0", **more: object) -> dict[str, object]:
    """The form of 1.0 to 1.3: two jobs, files inside, memory in kB."""
    jobs = [
        {
            "name": "split_ID0000001", "type": "compute", "runtime": 5.5, "parents": [], "machine": "n1",
            "files": [{"link": "input", "name": "in.dat", "size": 100}, {"link": "output", "name": "mid", "size": 40}],
            "avgCPU": 160.5, "arguments": ["-n", "2"], "memory": 2000, "bytesRead": 3, "cores": 2,
        },
        {
            "name": "merge_ID0000002", "type": "compute", "runtime": 0, "parents": ["split_ID0000001"],
            "files": [{"link": "input", "name": "mid", "size": 40}], "energy": 0.001, "avgPower": 30,
        },
    ]  # fmt: skip
    machine = {"nodeName": "n1", "memory": 131795984, "cpu": {"count": 48, "vendor": "GenuineIntel", "speed": 1200}}
    key = "jobs" if version < "1.3" else "tasks"
    workflow = {"makespan": 77.0, "executedAt": "20200401T035043+0000", key: jobs, "machines": [machine], **more}
    return {"name": "w", "schemaVersion": version, "wms": {"name": "Pegasus", "version": "5"}, "workflow": workflow}


def split(**tasks: dict[str, object]) -> dict[str, object]:
    """The form of 1.5: tasks by id, given as parents and runtime."""
    specification = [
        {"name": id, "id": id, "parents": task.get("parents", []), "children": []} for id, task in tasks.items()
    ]
    execution = [{"id": id, "runtimeInSeconds": task.get("runtime", 1)} for id, task in tasks.items()]
    inside = {
        "specification": {"tasks": specification, "files": []},
        "execution": {"makespanInSeconds": 1, "executedAt": "2024-01-01T00:00:00", "tasks": execution},
    }
    return {"name": "w", "schemaVersion": "1.5", "workflow": inside}


def put(tmp_path: Path, raw: object) -> Path:
    path = tmp_path / "w.json"
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw))
    return path


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3"])
def test_old_versions_have_kilobytes_and_parents_by_name(version: str, tmp_path: Path) -> None:
    workload = traces.load(put(tmp_path, flat(version)))
    first, second = workload.documents[0].tasks
    assert first.peak_memory_bytes == 2_000_000
    assert first.read_bytes == 3_000
    assert first.variants == (Variant(cores=2.0, memory_bytes=2_000_000),)
    assert (first.function, first.machine, first.arguments) == ("split", "n1", ("-n", "2"))
    assert second.parents == (first.id,)
    assert second.energy_j == pytest.approx(3600.0)
    assert second.avg_power_w == 30
    machine = workload.machines[0]
    assert (machine.memory_bytes, machine.cores, machine.speed_mhz) == (131795984000, 48, 1200.0)
    assert workload.parent_bytes.tolist() == [40.0]
    assert workload.documents[0].attributes["runtimeSystem"] == {"name": "Pegasus", "version": "5"}
    assert workload.notes == ("1 of 2 tasks have a runtime of 0 and are kept",)


def test_version_1_4_is_flat_with_units_in_names(tmp_path: Path) -> None:
    task = {"name": "align_1", "id": "ID1", "category": "align", "runtimeInSeconds": 2, "memoryInBytes": 7, "files": []}
    other = {"name": "sort_1", "id": "ID2", "runtimeInSeconds": 3, "parents": ["align_1"], "files": []}
    raw = {"name": "w", "schemaVersion": "1.4", "workflow": {"makespanInSeconds": 5, "tasks": [task, other]}}
    first, second = traces.load(put(tmp_path, raw)).documents[0].tasks
    assert (first.function, first.peak_memory_bytes) == ("align", 7)
    assert second.parents == ("ID1",)


@pytest.mark.parametrize("version", ["1.5", "1.6"])
def test_split_form(version: str, tmp_path: Path) -> None:
    raw = split(a={}, b={"parents": ["a"], "runtime": 4.5}) | {"schemaVersion": version}
    workload = traces.load(put(tmp_path, raw))
    assert workload.runtime_s.tolist() == [1.0, 4.5]
    assert workload.parents_of(1).tolist() == [0]


def test_edges_that_only_children_lists_have(tmp_path: Path) -> None:
    raw = split(a={}, b={})
    raw["workflow"]["specification"]["tasks"][0]["children"] = ["b"]  # type: ignore[index]
    assert traces.load(put(tmp_path, raw)).parents_of(1).tolist() == [0]


def test_a_specification_alone_is_structure(tmp_path: Path) -> None:
    raw = split(a={}, b={"parents": ["a"]})
    del raw["workflow"]["execution"]  # type: ignore[attr-defined]
    workload = traces.load(put(tmp_path, raw))
    assert workload.columns["runtime_known"].tolist() == [False, False]
    assert "2 of 2 tasks have no runtime" in workload.notes[0]


def test_clock_speeds_stay_in_the_machine(tmp_path: Path) -> None:
    slow, fast = flat(), flat()
    fast["workflow"]["machines"][0]["cpu"]["speed"] = 2600  # type: ignore[index]
    one, two = (traces.load(put(tmp_path, raw)) for raw in (slow, fast))
    assert one.runtime_s.tolist() == two.runtime_s.tolist()
    assert one.shapes == two.shapes


def problems_of(tmp_path: Path, raw: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        traces.load(put(tmp_path, raw))
    return str(caught.value)


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ('{"workflow": {"specification', ["not JSON", "line 1, column"]),
        ("[1, 2]", ["must be an object with the key 'workflow'"]),
        ("{}", ["has no 'workflow' object"]),
        ('{"workflow": 3}', ["$.workflow", "must be an object, not 3"]),
        ({"name": "w", "schemaVersion": "9.9", "workflow": {"tasks": []}}, ["'9.9' is not known", "has no tasks"]),
        (split(a={"runtime": -1}), ["workflow.execution.tasks[0].runtimeInSeconds", "at least 0, not -1"]),
        (split(a={"runtime": "soon"}), ["runtimeInSeconds", "must be a number, not 'soon'"]),
        (split(a={"runtime": True}), ["must be a number, not True"]),
        (split(a={"runtime": float("nan")}), ["must be a finite number, not nan"]),
        (split(a={"runtime": float("inf")}), ["must be a finite number, not inf"]),
        (split(a={"runtime": 10**400}), ["must be a finite number"]),
        (split(a={"parents": ["ghost"]}), ["specification.tasks[0]", "its parent 'ghost' is not in the workflow"]),
        (split(a={"parents": ["a"]}), ["cycle of 1 tasks: a → a"]),
        (split(a={"parents": ["b"]}, b={"parents": ["a"]}), ["is in a cycle of 2 tasks"]),
        (split(a={"parents": "b"}), ["parents", "must be a list, not 'b'"]),
        (split(a={"parents": [7]}), ["parents[0]", "must be text, not 7"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("", ["the file is empty"]),
    ],
)  # fmt: skip
def test_a_bad_document_says_what_and_where(raw: object, parts: list[str], tmp_path: Path) -> None:
    text = problems_of(tmp_path, raw)
    for part in ["w.json", *parts]:
        assert part in text


def test_duplicate_ids_are_named_with_both_places(tmp_path: Path) -> None:
    raw = split(a={}, b={})
    for part in ("specification", "execution"):
        raw["workflow"][part]["tasks"][1]["id"] = "a"  # type: ignore[index]
    text = problems_of(tmp_path, raw)
    assert "specification.tasks[1]: the id 'a' is already used by workflow.specification.tasks[0]" in text
    assert "execution.tasks[1]: the id 'a' is already used" in text


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    raw = split(
        a={"runtime": -1}, b={"runtime": "x"}, c={"parents": ["ghost"]}, d={"parents": ["e"]}, e={"parents": ["d"]}
    )
    text = problems_of(tmp_path, raw)
    assert "4 problems" in text
    for part in ("tasks[0].runtimeInSeconds", "tasks[1].runtimeInSeconds", "'ghost'", "cycle"):
        assert part in text


def test_a_truncated_gzip_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.json.gz"
    path.write_bytes(gzip.compress(json.dumps(split(a={})).encode())[:-20])
    with pytest.raises(InvalidInput, match=r"w\.json\.gz: the gzip file is truncated"):
        traces.load(path)


def test_a_damaged_gzip_says_so(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(split(a={})).encode()))
    packed[30] ^= 0xFF
    path = tmp_path / "w.json.gz"
    path.write_bytes(packed)
    with pytest.raises(InvalidInput, match=r"damaged|truncated|not JSON"):
        traces.load(path)


@pytest.mark.slow
def test_gigabytes_of_nonsense_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    """2 GB that pack to 2 MB: an unknown kind is refused by its head, JSON at the limit of documents."""
    import tracemalloc

    for name, head, message in (
        ("zeros.bin.gz", b"", "not in a format that wattflow reads"),
        ("zeros.json.gz", b'{"workflow": "', "larger than 256 MiB once unpacked"),
        ("zeros.swf.gz", b"1 2 3\n", "not a log in the Standard Workload Format"),
    ):
        path = tmp_path / name
        # Members of a gzip file may simply follow each other, so the block is packed once.
        path.write_bytes(gzip.compress(head) + gzip.compress(b"\0" * (16 << 20)) * 128)
        tracemalloc.start()
        with pytest.raises(InvalidInput, match=message):
            traces.load(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 700 << 20
        path.unlink()


def test_a_short_text_that_grows_when_parsed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "DOCUMENT_LIMIT_VALUES", 1000)
    assert "more than 1,000 values" in problems_of(tmp_path, "[" + "[]," * 1000 + "[]]")


def test_missing_files_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        traces.load(tmp_path / "nothing.json")
    with pytest.raises(UnknownName, match="did you mean 'wfformat'"):
        traces.load(put(tmp_path, split(a={})), "wfformt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="not in a format that wattflow reads"):
        traces.load(tmp_path / "empty")


def test_a_folder_names_the_file_of_each_problem(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(split(a={})))
    (tmp_path / "b.json").write_text(json.dumps(split(a={"runtime": -4})))
    with pytest.raises(InvalidInput, match=r"b\.json: workflow\.execution"):
        traces.load(tmp_path)


LABELLED = Workflow(
    "labelled",
    (
        Task(
            "t", "t", "train", 10.0, (Variant("gpu", device="gpu", devices=1, device_share=0.25), Variant(cores=8.0)),
            parts=2, energy_j=7200.0, avg_power_w=720.0, energy_provenance=Provenance.ATTRIBUTED, energy_error=0.07,
        ),
    ),
)  # fmt: skip


def test_energy_is_in_standard_fields_and_its_provenance_in_the_extension() -> None:
    raw = json.loads(wfformat_write.dumps(LABELLED))
    run = raw["workflow"]["execution"]["tasks"][0]
    assert run["energyInKWh"] == pytest.approx(0.002)
    assert run["avgPowerInW"] == 720.0
    extension = raw["workflow"]["specification"]["tasks"][0]["wattflow"]
    assert extension["energy_provenance"] == "attributed"
    assert extension["energy_error"] == 0.07
    assert extension["parts"] == 2
    assert extension["variants"][0] == {"name": "gpu", "device": "gpu", "devices": 1, "device_share": 0.25}
    assert wfformat.parse(raw)[0].tasks == LABELLED.tasks  # type: ignore[union-attr]


def test_a_standard_field_that_another_program_changed_wins() -> None:
    raw = json.loads(wfformat_write.dumps(LABELLED))
    raw["workflow"]["execution"]["tasks"][0]["energyInKWh"] = 1.0
    assert wfformat.parse(raw)[0].tasks[0].energy_j == pytest.approx(3.6e6)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("extension", "message"),
    [
        (3, "must be an object"),
        ({"colour": 1}, "is not a field of the extension"),
        ({"parts": 0}, "must be at least 1"),
        ({"parts": 1.5}, "must be a whole number"),
        ({"variants": []}, "must not be empty"),
        ({"variants": [{"corse": 2}]}, "is not known"),
        ({"variants": [{"device": "tpu", "devices": 1}]}, "must be gpu or fpga"),
        ({"variants": [{"device_share": 2}]}, "above 0 and at most 1"),
        ({"energy_provenance": "felt"}, "must be one of measured, attributed, modelled, guessed"),
        ({"function": None}, "must not be null"),
        ({"deadline_s": -5}, "must be at least 0"),
    ],
)
def test_a_bad_extension_is_named(extension: object, message: str, tmp_path: Path) -> None:
    raw = split(a={})
    raw["workflow"]["specification"]["tasks"][0]["wattflow"] = extension  # type: ignore[index]
    assert message in problems_of(tmp_path, raw)


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")
    bad = Workflow("w", (Task("a", "a", "f", 1.0, avg_power_w=float("nan")),))
    with pytest.raises(InvalidInput, match=r"finite|JSON"):
        traces.save(documents.to_workload([bad], "w"), path)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    good = documents.to_workload([LABELLED], "w")
    monkeypatch.setattr("wattflow.traces.source.Path.replace", broken)
    for target in ("out.json", "folder"):
        with pytest.raises(KeyboardInterrupt):
            traces.save(good, tmp_path / target)
    assert [child.name for child in tmp_path.iterdir()] == ["out.json"]
    assert path.read_text() == "before"


def test_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    workload = documents.to_workload([LABELLED], "w")
    for name in ("a.json.gz", "b.json.gz"):
        traces.save(workload, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_estimates_and_energy_put_over_a_document_are_written(tmp_path: Path) -> None:
    import dataclasses

    import numpy as np

    workload = traces.load(put(tmp_path, split(a={}, b={"parents": ["a"]})))
    columns = {"energy_j": np.array([3.6e6, np.nan]), "energy_provenance": np.array(["modelled", ""])}
    workload = dataclasses.replace(workload.with_estimates(np.array([2.0, np.nan])), columns=columns)
    traces.save(workload, tmp_path / "out.json")
    first, second = traces.load(tmp_path / "out.json").documents[0].tasks
    assert (first.estimate_s, first.energy_j, first.energy_provenance) == (2.0, 3.6e6, Provenance.MODELLED)
    assert (second.estimate_s, second.energy_j) == (None, None)


def test_several_workflows_need_a_folder(tmp_path: Path) -> None:
    workload = documents.to_workload([LABELLED, LABELLED], "two")
    with pytest.raises(InvalidInput, match="has 2; name a folder"):
        traces.save(workload, tmp_path / "two.json")
    traces.save(workload, tmp_path / "two", "wfformat")
    assert len(traces.load(tmp_path / "two").workflow_names) == 2


def test_names_decide_the_format_of_what_is_written(tmp_path: Path) -> None:
    workload = documents.to_workload([LABELLED], "w")
    with pytest.raises(InvalidInput, match="does not say which format"):
        traces.save(workload, tmp_path / "w.txt")
    with pytest.raises(InvalidInput, match="nextflow is read only"):
        traces.save(workload, tmp_path / "w.csv", "nextflow")
    with pytest.raises(InvalidInput, match="does not exist"):
        traces.save(workload, tmp_path / "no" / "w.json")


def test_convert_names_what_is_lost(tmp_path: Path) -> None:
    done = traces.convert(put(tmp_path, flat()), tmp_path / "out.swf")
    assert (done.source_format, done.target_format, done.tasks) == ("wfformat", "swf", 2)
    text = " ".join(done.dropped)
    for part in ("1 dependencies", "bytes read", "energy", "names of functions", "cores of a part"):
        assert part in text
    assert traces.convert(put(tmp_path, flat()), tmp_path / "new.json").dropped == ()


def test_formats_are_listed_by_name() -> None:
    names = [entry.name for entry in traces.formats()]
    assert names == sorted(names)
    assert {"wfformat", "wta", "swf", "alibaba-gpu", "nextflow", "opendc", "azure2021", "flowbench"} <= set(names)
