"""Runs as columns: what a browser reads is what the figures say, and damaged files are one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.files.columns import Column, Document, pack, unpack
from wattflow.lab.figures.metrics import metrics
from wattflow.lab.figures.power_series import power_curve
from wattflow.lab.run.run_file import read_run, write_run
from wattflow.lab.show.run_columns import run_columns, view_of
from wattflow.model.cluster import Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.run import Run
from wattflow.sim import SimOptions, simulate
from wattflow.sim.inputs import source_of

from .runs import node, two_node_run

SAMPLE = Path(__file__).parents[2] / "samples"


def sample_run() -> Run:
    """A small workflow on the bundled cluster, whose nodes fall asleep soon."""
    source = source_of("montage:tasks=60")
    workload = source.draw(0)  # type: ignore[union-attr]
    return simulate(workload, load_cluster("mixed"), "least-energy", options=SimOptions(record_power=True,
                                                                                       sleep_after_s=5.0))  # fmt: skip


def plain(document: Document) -> dict[str, Any]:
    """The same as plain data, unknown as None."""
    tables = {
        table: {
            name: values if isinstance(values, list) else
            [None if value != value else round(value, 3) if isinstance(value, float) else value
             for value in values.tolist()]
            for name, values in columns.items()
        }
        for table, columns in document.tables.items()
    }  # fmt: skip
    return {"about": document.about, "strings": document.strings, "tables": tables}


def test_numbers_texts_and_times_come_back() -> None:
    start = np.array([5, 1_000_000, 3_000_000_000_000], np.int64)
    columns = {
        "start": Column(start, form="delta"), "end": Column(start + np.array([0, 7, 70_000]), form="after", of="start"),
        "kind": Column(np.array([0, 1, -1]), "kinds"), "name": Column(["a", "ü\u2028</script>", ""]),
        "watts": Column(np.array([1.5, np.nan, 2.0])),
    }  # fmt: skip
    data = pack({"x": float("nan"), "y": [1, (2.5,)]}, {"kinds": ["p", "q"]}, {"t": columns, "none": {}})
    read = unpack(data)
    assert read.about == {"x": None, "y": [1, [2.5]]}
    assert list(read.tables["t"]["start"]) == start.tolist()
    assert list(read.tables["t"]["end"]) == [5, 1_000_007, 3_000_000_070_000]
    assert read.tables["t"]["name"] == ["a", "ü\u2028</script>", ""]
    assert np.isnan(read.tables["t"]["watts"][1])
    head = json.loads(data[16 : 16 + int.from_bytes(data[8:12], "little")])
    places = head["tables"]["t"]["columns"]
    assert int.from_bytes(data[8:12], "little") % 8 == 0
    assert all(column["at"] % 8 == 0 for column in places.values())
    assert (places["kind"]["type"], places["start"]["type"], places["end"]["type"]) == ("i1", "f8", "i4")


@pytest.mark.parametrize("damage", ["foreign", "cut", "newer", "head"])
def test_what_cannot_be_read_is_one_sentence(damage: str) -> None:
    data = pack({}, {}, {"t": {"a": Column(np.arange(100)), "b": Column(["x"] * 100)}})
    broken = {
        "foreign": b"PK\3\4" + data,
        "cut": data[:-40],
        "newer": data.replace(b'"version":1', b'"version":9'),
        "head": data[:20] + b"\xff" + data[21:],
    }
    with pytest.raises(InvalidInput) as told:
        unpack(broken[damage], "f.wfcols")
    assert str(told.value).count("\n") == 0 and "f.wfcols" in str(told.value)


def test_joules_and_power_of_the_document_are_those_of_the_figures() -> None:
    run = sample_run()
    read = unpack(run_columns(run))
    rows, power = read.tables["attempts"], read.tables["power"]
    assert np.nansum(rows["energy_j"]) == pytest.approx(float(run.energy_j_by_task().sum()), rel=1e-4)
    assert read.about["figures"]["makespan_s"] == metrics(run)["makespan_s"]
    curve = power_curve(run)
    for number in range(len(run.cluster.nodes)):
        mine = np.asarray(power["node"]) == number
        times = np.append(np.asarray(power["time"])[mine], read.about["end_ms"])
        watts = (np.asarray(power["idle_w"]) + np.asarray(power["dynamic_w"]))[mine]
        assert float((np.diff(times) / 1000 * watts).sum()) == pytest.approx(curve.energy_j(number), rel=1e-3)
        assert (np.asarray(power["dynamic_w"])[mine] >= 0).all()
    asleep = sum(np.asarray(read.tables["sleep"]["to"]) - np.asarray(read.tables["sleep"]["from"])) / 1000
    slept_j = run.account_j("sleep")
    assert (asleep > 0) == (slept_j > 0)


def test_attempts_of_a_lane_never_overlap() -> None:
    rows = unpack(run_columns(sample_run())).tables["attempts"]
    busy: dict[tuple[int, int], int] = {}
    for place, placed, end in zip(zip(rows["node"], rows["lane"], strict=True), rows["placed"], rows["end"],
                                  strict=True):  # fmt: skip
        assert placed >= busy.get(place, -(10**9))
        busy[place] = end


def test_a_saved_run_draws_like_the_one_that_was_written(tmp_path: Path) -> None:
    run = sample_run()
    write_run(tmp_path / "run.parquet", run)
    saved = read_run(tmp_path / "run.parquet")
    assert saved.run is not None and saved.run.cluster == run.cluster
    assert saved.run.workload.ids == run.workload.ids
    first, second = plain(unpack(run_columns(run))), plain(unpack(view_of(saved)))
    assert first == second
    assert power_curve(saved.run).binned(4, 10)[1].tolist() == power_curve(run).binned(4, 10)[1].tolist()


def test_unknown_watts_are_not_nothing() -> None:
    from dataclasses import replace

    run = two_node_run()
    dark = replace(run.cluster, nodes=(replace(run.cluster.nodes[0], power=None), run.cluster.nodes[1]))
    read = unpack(run_columns(replace(run, cluster=dark)))
    of_dark = np.asarray(read.tables["power"]["node"]) == 0
    assert np.isnan(np.asarray(read.tables["power"]["dynamic_w"])[of_dark]).all()
    assert read.about["energy_total_j"] is None
    assert np.isnan(np.asarray(read.tables["attempts"]["energy_j"])[np.asarray(read.tables["attempts"]["node"]) == 0]
                    ).all()  # fmt: skip
    asleep = node("c", sleep=Sleep(watts=5.0, wake_s=1.0))
    assert asleep.sleep is not None


def test_the_sample_is_what_is_written_today() -> None:
    """The page's own tests read the sample: `python -m tests.unit.lab.test_columns` writes it anew."""
    read = plain(unpack((SAMPLE / "run.wfcols").read_bytes()))
    made = plain(unpack(run_columns(sample_run())))
    for document in (read, made):
        for key in ("figures", "wattflow"):  # the time to decide is measured, versions go on
            document["about"].pop(key)
    assert json.loads(json.dumps(made)) == json.loads(json.dumps(read))
    assert json.loads((SAMPLE / "run.json").read_text())["tables"] == read["tables"]


if __name__ == "__main__":
    SAMPLE.mkdir(exist_ok=True)
    document = run_columns(sample_run())
    (SAMPLE / "run.wfcols").write_bytes(document)
    (SAMPLE / "run.json").write_text(json.dumps(plain(unpack(document)), indent=1))
