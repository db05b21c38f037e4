"""Readers, tables, estimates and the two commands."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from research.floors import FloorFigure, leave_one_out
from wattflow.cli.model_commands import fit, predict
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.predict import modelfile, runtime, serving, sources, watts
from wattflow.predict.evaluate import HeldOut, group_folds
from wattflow.predict.observations import Observations, concatenate, of_workload


def write_table(path: Path, head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def task_rows(count: int = 90) -> list[tuple[object, ...]]:
    rng = np.random.default_rng(0)
    found: list[tuple[object, ...]] = []
    for i in range(count):
        size = float(rng.uniform(1e8, 5e9))
        found.append(("wf", f"t{i % 3}", f"m{i // 3 % 2}", f"r{i // 6}", size, (1 + i % 3) * (2 + size / 1e9), 1e9))
    return found


TASK_HEAD = ("workflow", "task", "machine", "run", "size_in", "runtime_s", "peak_bytes")


def test_a_task_table_is_checked(tmp_path: Path) -> None:
    bad = write_table(tmp_path / "bad.csv", ("task", "colour", "speed"), [("a", 1, 2)])
    with pytest.raises(InvalidInput, match=r"(?s)2 problems.*colour.*speed"):
        sources.task_table(bad)
    with pytest.raises(InvalidInput, match="row 3: the task has no name"):
        sources.task_table(write_table(tmp_path / "gap.csv", ("task", "machine"), [("a", "m"), ("", "m")]))
    with pytest.raises(InvalidInput, match="no rows"):
        sources.task_table(write_table(tmp_path / "empty.csv", ("task",), []))
    with pytest.raises(InvalidInput, match="there is no such file"):
        sources.rows_of(str(tmp_path / "nothing"))
    wild = write_table(tmp_path / "wild.csv", ("task", "runtime_s"), [("a", -1), ("a", "inf"), ("a", 1e300)])
    with pytest.raises(InvalidInput, match=r"(?s)3 problems.*row 2: runtime_s is -1.*row 4: runtime_s is 1e\+300"):
        sources.task_table(wild)
    good = sources.task_table(write_table(tmp_path / "good.csv", TASK_HEAD, task_rows(6)))
    assert good.task[1] == "wf/t1"
    assert good.size_names == ("size_in",)
    dash = sources.task_table(write_table(tmp_path / "dash.csv", ("task", "runtime_s"), [("a", "-"), ("b", 3)]))
    assert np.isnan(dash.runtime_s[0])
    assert dash.runtime_s[1] == 3.0


def test_rows_of_unequal_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="1 values for 2 rows"):
        Observations.of(task=["a", "b"], runtime_s=[1.0])
    with pytest.raises(TypeError, match="no such columns: colour"):
        Observations.of(task=["a"], colour=["red"])


def test_tables_are_joined_and_taken() -> None:
    one = Observations.of(task=["a", "b"], runtime_s=[1.0, 2.0])
    both = concatenate([one, one.take(np.array([1]))])
    assert both.task.tolist() == ["a", "b", "b"]
    assert both.take(both.task == "b").runtime_s.tolist() == [2.0, 2.0]


def workload(count: int = 60) -> Workload:
    rng = np.random.default_rng(1)
    size = rng.uniform(1e8, 5e9, count)
    shapes = (Shape(0, (Variant(),)), Shape(1, (Variant(cores=2.0),)))
    kind = np.arange(count, dtype=np.int32) % 2
    return Workload.of_columns(
        "app", release_s=np.zeros(count), runtime_s=np.where(kind == 0, 2.0, 7.0) * size / 1e9, shapes=shapes,
        functions=(Function("f"), Function("g")), shape=kind, input_bytes=size,
        edges=(np.array([0]), np.array([1])), edge_bytes=np.array([5.0]),
    )  # fmt: skip


def test_a_workload_becomes_rows() -> None:
    some = workload()
    rows = of_workload(some, "m")
    assert rows.task[:2].tolist() == ["app/f", "app/g"]
    assert rows.sizes[1, 0] == some.input_bytes[1] + 5.0
    assert rows.sizes[0, 0] == some.input_bytes[0]
    assert rows.request_cores[:2].tolist() == [1.0, 2.0]


def test_runtimes_that_stand_in_for_unknown_ones_are_not_learned() -> None:
    known = np.array([True, False, True])
    some = Workload.of_columns("app", release_s=np.zeros(3), runtime_s=np.ones(3), columns={"runtime_known": known})
    np.testing.assert_array_equal(np.isfinite(of_workload(some).runtime_s), known)


def test_predictions_become_estimates() -> None:
    some = workload()
    model = runtime.fit(of_workload(some))
    estimated = serving.with_predictions(some, model)
    assert np.median(np.abs(estimated.estimate_s / some.runtime_s - 1)) < 0.1
    np.testing.assert_array_equal(estimated.runtime_s, some.runtime_s)
    strange = Workload.of_columns("other", release_s=np.zeros(2), runtime_s=np.ones(2))
    assert np.isnan(serving.with_predictions(strange, model).estimate_s).all(), "unknown stays unknown"


def test_figures_say_ok_or_short() -> None:
    assert FloorFigure("a", 5.0, "%", 6.0, 6.7).line() == "figure a 5 % goal 6 floor 6.7 ok"
    assert FloorFigure("b", 94.0, "%", (87.0, 93.0)).line().endswith("goal 87-93 short")
    assert not FloorFigure("c", float("nan"), "%", 6.0).ok
    assert FloorFigure("d", 0.96, "", 0.95, higher_is_better=True).ok


def test_splits_keep_groups_together_and_missing_predictions_count() -> None:
    group = np.array(list("aabbccdd"))
    for train, test in group_folds(group, 3):
        assert not set(group[train]) & set(group[test])
        assert len(train) + len(test) == 8
    assert [name for name, _ in leave_one_out(group)] == list("abcd")
    found = HeldOut(np.array([1.0, np.nan]), np.zeros(2), np.array([2.0, np.nan]), np.ones(2))
    assert found.mean_pct == 50.0
    assert found.coverage_pct == 50.0


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command("fit")(fit)
    made.command("predict")(predict)
    return made


def test_fit_then_predict_a_table(tmp_path: Path, app: typer.Typer) -> None:
    table = write_table(tmp_path / "tasks.csv", TASK_HEAD, task_rows())
    result = CliRunner().invoke(app, ["fit", str(table), str(tmp_path / "m.model")])
    assert result.exit_code == 0, result.output
    asked = write_table(tmp_path / "ask.csv", ("workflow", "task", "machine", "size_in"),
                        [("wf", "t1", "m0", 1e9), ("wf", "never", "m0", 1e9)])  # fmt: skip
    out = tmp_path / "out.csv"
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "m.model"), str(asked), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "down-sampled" in result.output
    with out.open(newline="") as file:
        known, unknown = csv.DictReader(file)
    assert float(known["runtime_s"]) == pytest.approx(6.0, rel=0.1)
    assert (known["provenance"], known["energy_j"]) == ("modelled", "")
    assert (unknown["runtime_s"], unknown["provenance"], unknown["novelty"]) == ("", "guessed", "new task")
    assert float(unknown["runtime_high_s"]) > float(unknown["runtime_low_s"])


def test_a_source_of_another_kind_is_refused(tmp_path: Path, app: typer.Typer) -> None:
    modelfile.save(tmp_path / "w", watts.Line(np.ones(3), np.ones(2)), modelfile.ModelManifest("watts"))
    table = write_table(tmp_path / "tasks.csv", TASK_HEAD, task_rows(6))
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "w"), str(table)])
    assert isinstance(result.exception, InvalidInput)
    assert "holds tasks or a trace" in str(result.exception)
    assert "needs usage counters" in str(result.exception)
    with pytest.raises(InvalidInput, match="`wattflow model fit` writes one"):
        modelfile.find("nosuch")


def test_what_a_file_holds_is_told_by_its_content(tmp_path: Path) -> None:
    trace = write_table(tmp_path / "trace.csv", NEXTFLOW_HEAD, nextflow_rows(1))
    assert sources.kind_of_file(trace) == sources.TRACE
    assert sources.kind_of_file(write_table(tmp_path / "t.csv", ("task",), [("a",)])) == sources.TASKS
    assert sources.kind_of_file(write_table(tmp_path / "c.csv", watts.COUNTERS, [(1, 2, 3, 4)])) == sources.COUNTERS
    with pytest.raises(InvalidInput, match="neither a trace that wattflow reads nor a table"):
        sources.kind_of_file(write_table(tmp_path / "x.csv", ("colour",), [("red",)]))


NEXTFLOW_HEAD = ("task_id", "hostname", "process", "tag", "name", "status", "cpus", "memory", "submit", "start",
                 "complete", "realtime", "peak_rss")  # fmt: skip


def nextflow_rows(run: int) -> list[tuple[object, ...]]:
    """Three processes over eight samples; a sample is as slow in every run, whatever the process's median says."""
    noise = np.random.default_rng(run)
    found: list[tuple[object, ...]] = []
    for p in range(3):
        for s in range(8):
            seconds = (5 + 10 * p) * 2.0 ** (s % 4) * np.exp(noise.normal(0, 0.02))
            begin = 1_700_000_000_000 + 1000 * len(found)
            found.append((len(found), f"n{s % 2}", f"P{p}", f"sample{s}", f"P{p} (sample{s})", "COMPLETED", 1, 1 << 30,
                          begin, begin, begin + int(1000 * seconds), int(1000 * seconds), 1 << 28))  # fmt: skip
    return found


def test_a_trace_teaches_the_next_run_of_its_workflow(tmp_path: Path, app: typer.Typer) -> None:
    first = write_table(tmp_path / "flow-1.csv", NEXTFLOW_HEAD, nextflow_rows(1))
    second = write_table(tmp_path / "flow-2.csv", NEXTFLOW_HEAD, nextflow_rows(2))
    out, answer = tmp_path / "m.model", tmp_path / "out.csv"
    assert CliRunner().invoke(app, ["fit", str(first), str(out)]).exit_code == 0
    result = CliRunner().invoke(app, ["predict", str(out), str(second), "--out", str(answer)])
    assert result.exit_code == 0, result.output
    with answer.open(newline="") as file:
        found = np.array([float(row["runtime_s"]) for row in csv.DictReader(file)])
    true = np.array([row[11] / 1000 for row in nextflow_rows(2)])  # type: ignore[operator]
    assert np.median(np.abs(found / true - 1)) < 0.06, "samples are told apart though each ran once"
    both = CliRunner().invoke(app, ["fit", str(first), str(out), "--also", str(second), "--force"])
    assert both.exit_code == 0, both.output
    assert modelfile.load(out)[1].metrics["rows"] == 48


def test_watts_are_learned_and_predicted_from_the_command_line(tmp_path: Path, app: typer.Typer) -> None:
    rng = np.random.default_rng(0)
    busy = rng.uniform(0, 16, 200)
    rows = [
        (i, 1000 * b, 1e5 * b, 3e9 * b, 3e9 * b, (60 + 10 * b) * (1 + 0.02 * (i % 3)))
        for i, b in enumerate(busy.tolist())
    ]
    table = write_table(tmp_path / "usage.csv", ("timestamp", *watts.COUNTERS, "power_w"), rows)
    model, out = tmp_path / "w.model", tmp_path / "out.csv"
    assert CliRunner().invoke(app, ["fit", str(table), str(model)]).exit_code == 0
    bare = write_table(tmp_path / "bare.csv", watts.COUNTERS, [row[1:5] for row in rows])
    assert CliRunner().invoke(app, ["predict", str(model), str(bare), "--out", str(out)]).exit_code == 0
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["power_w"]) for row in found], 60 + 10 * busy, rtol=0.1)
    assert all(float(row["power_low_w"]) < float(row["power_high_w"]) for row in found)
    result = CliRunner().invoke(app, ["fit", str(bare), str(tmp_path / "no.model")])
    assert "power_w, platform_power or package_power is needed" in str(result.exception)
    assert not (tmp_path / "no.model").exists()
    example = Path(__file__).parents[3] / "examples" / "kepler-nx12-platform.model"
    assert CliRunner().invoke(app, ["predict", str(example), str(bare)]).exit_code == 0


def test_few_joules_are_not_ignored_silently(tmp_path: Path, app: typer.Typer) -> None:
    rows = [(*row, 50.0 if i < 19 else "") for i, row in enumerate(task_rows())]
    table = write_table(tmp_path / "tasks.csv", (*TASK_HEAD, "energy_j"), rows)
    result = CliRunner().invoke(app, ["fit", str(table), str(tmp_path / "m.model")])
    assert result.exit_code == 0
    assert "energy_j was not learned: 19 rows" in result.output
    more = write_table(tmp_path / "more.csv", (*TASK_HEAD, "energy_j"), [(*row, 50.0) for row in task_rows(24)])
    result = CliRunner().invoke(app, ["fit", str(more), str(tmp_path / "m.model"), "--force"])
    assert "energy_j was not learned" not in result.output
    assert modelfile.load(tmp_path / "m.model")[0].power is not None


def test_a_folder_or_an_input_is_never_written_to(tmp_path: Path, app: typer.Typer) -> None:
    table = write_table(tmp_path / "tasks.csv", TASK_HEAD, task_rows())
    before = table.read_bytes()
    (tmp_path / "folder").mkdir()
    for target in ("folder", "none/m.model", "tasks.csv"):
        result = CliRunner().invoke(app, ["fit", str(table), str(tmp_path / target)])
        assert isinstance(result.exception, InvalidInput), target
    CliRunner().invoke(app, ["fit", str(table), str(tmp_path / "m.model")])
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "m.model"), str(table), "--out", str(table)])
    assert isinstance(result.exception, InvalidInput)
    assert table.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "m.model", "tasks.csv"]
    assert not list((tmp_path / "folder").iterdir())


def test_the_watts_model_of_the_examples_is_what_its_manifest_says(data_dir: Path) -> None:
    path = Path(__file__).parents[3] / "examples" / "kepler-nx12-platform.model"
    model, manifest = modelfile.load(path)
    assert {entry["licence"] for entry in manifest.data} == {"Apache-2.0"}
    for entry in manifest.data:
        path = data_dir / str(entry["path"])
        assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
        usage = sources.counter_table(path)
        found, _, _ = model.predict(usage.counters)
        assert np.nanmean(np.abs(found / usage.power_w - 1)) < 0.05
