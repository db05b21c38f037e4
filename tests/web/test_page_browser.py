"""The page in a real browser over saved runs: what it draws, what it says of bad input, what it saves."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from wattflow.files.columns import Column, Values, pack, unpack
from wattflow.generate.recipe import Recipe
from wattflow.lab.figures.metrics import metrics
from wattflow.lab.figures.power_series import power_curve
from wattflow.lab.run.run_file import write_run
from wattflow.lab.show.run_columns import More, run_columns
from wattflow.lab.show.viewer import Viewer, find_runs
from wattflow.model.run import Run
from wattflow.sim.simulate import SimOptions, simulate
from wattflow.traces import wfformat

from .browser import browse
from .files_page import files_page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
RECIPE = Recipe("montage", tasks=30, workflows=3, name="small <b>montage</b>")


def made(policy: str) -> Run:
    return simulate(RECIPE, "mixed", policy, options=SimOptions(record_power=True))


@pytest.fixture(scope="module")
def run() -> Run:
    return made("hpe-sleep")


@pytest.fixture(scope="module")
def other() -> Run:
    return made("fifo")


@pytest.fixture(scope="module")
def address(run: Run, other: Run) -> Iterator[str]:
    documents = {
        "one": run_columns(run, More(about={"id": "one"})),
        "two": run_columns(other, More(about={"id": "two"})),
    }
    with files_page(documents, {"one": run, "two": other}) as found:
        yield found


VIEWS = {
    "runs": "/#/", "run": "/#/run/one", "workflow": "/#/workflow/one", "compare": "/#/compare?a=one&b=two",
    "profiles": "/#/profiles/one",
}  # fmt: skip
READY = {"runs": "tbody", "run": ".timeline", "workflow": ".dag", "compare": ".both", "profiles": ".profile canvas"}


def test_every_view_draws_the_figures_of_the_lab_without_violations(address: str, run: Run, other: Run) -> None:
    seen = browse(address, "views", views=VIEWS, ready=READY)
    for name, each in seen.items():
        assert each["violations"] == [], name
        assert each.get("width", 0) <= 390, name
    drawn = {name.split()[0]: each["drawn"] for name, each in seen.items() if name.endswith("light")}
    _same_run(drawn["run"]["run"], run)
    assert sum(one["joules"] for one in drawn["run"]["joules"]["shares"]) == pytest.approx(
        run.energy_j_by_task().sum(), rel=1e-4
    )
    assert [(one["x"], one["y"]) for one in sorted(drawn["compare"]["compare"], key=lambda one: str(one["id"]))] == [
        pytest.approx((figures["response_mean_s"], figures["energy_j"])) for figures in (metrics(run), metrics(other))
    ]
    assert drawn["compare"]["pair"]["moved"] == int((_places(run) != _places(other)).sum())
    _same_graph(drawn["workflow"]["workflow"], run)
    known = {tuple(node.power.watts) for node in run.cluster.nodes if node.power}
    shown = {tuple(one["curve"]["watts"]) for one in drawn["profiles"]["profiles"] if one["what"] == "node"}
    assert shown == known
    told = {(one["age"], one["band"]) for one in drawn["profiles"]["profiles"]}
    assert told == {("age not known", "band not known")}, "a simulation's curves have neither"


def _places(run: Run) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Node of each task; neither run retried any."""
    node = np.full(len(run.workload), -1, np.int64)
    node[run.attempts["task"]] = run.attempts["node"]
    return node


def _same_run(drawn: dict[str, object], run: Run) -> None:
    about = drawn["about"]
    assert isinstance(about, dict)
    figures = metrics(run)
    assert about["energy_total_j"] == pytest.approx(figures["energy_j"])
    assert about["makespan_s"] == pytest.approx(figures["makespan_s"]) and drawn["attempts"] == len(run.attempts)
    watts = drawn["watts"]
    assert isinstance(watts, dict)
    curve = power_curve(run)
    total = sum(curve.energy_j(node) for node in range(len(run.cluster.nodes)))
    assert sum(band["joules"][-1] for band in watts["bands"]) == pytest.approx(total, rel=1e-4)
    means = curve.binned(len(run.cluster.nodes), watts["edges"])[1].sum(axis=0)
    stacked = np.diff(np.sum([band["joules"] for band in watts["bands"]], axis=0)) * watts["edges"] / run.span_s
    assert np.abs(stacked - means).max() <= 0.02 * means.max()


def _same_graph(drawn: dict[str, object], run: Run) -> None:
    """Slack and critical path by brute force over all paths' ends: the longest path through each task."""
    workload = run.workload
    tasks = np.flatnonzero(workload.workflow == 0)
    ran = dict(zip(tasks.tolist(), (run.end_s_by_task() - run.start_s_by_task())[tasks].tolist(), strict=True))
    parents = {t: workload.parent[workload.parent_start[t] : workload.parent_start[t + 1]].tolist() for t in ran}
    before: dict[int, float] = {}
    for t in sorted(ran):
        before[t] = max((before[p] + ran[p] for p in parents[t]), default=0.0)
    after = dict.fromkeys(ran, 0.0)
    for t in sorted(ran, reverse=True):
        for p in parents[t]:
            after[p] = max(after[p], ran[t] + after[t])
    longest = max(before[t] + ran[t] + after[t] for t in ran)
    assert drawn["slack"] == pytest.approx([longest - before[t] - ran[t] - after[t] for t in sorted(ran)], abs=0.01)
    assert drawn["tasks"] == len(tasks) and drawn["grouped"] is False


def test_a_reader_zooms_pans_searches_and_the_link_carries_the_view(address: str) -> None:
    seen = browse(address, "explore", path="/#/run/one")
    whole, zoomed = seen["whole"], seen["zoomed"]
    assert whole[0] == 0 and zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) * 0.8**6)
    assert seen["again"] == whole and seen["stepped"] != seen["steppedOn"]
    assert seen["wheeled"][1] - seen["wheeled"][0] < whole[1] - whole[0]
    assert seen["dragged"][0] > seen["wheeled"][0]
    assert seen["matches"] == "0 attempts match" and "by=outcome" in seen["hash"] and "find=fail" in seen["hash"]
    assert seen["linked"]["range"] == pytest.approx(seen["last"]) and seen["linked"]["panel"] == seen["panel"]
    assert seen["linked"]["by"] == "outcome"


def test_bars_have_their_colours_and_names_where_they_are_drawn(address: str) -> None:
    seen = browse(address, "bars", path="/#/run/two?rows=lanes", count=9)
    assert len(seen) >= 4
    for each in seen:
        assert each["tip"] == each["title"] and each["colour"] == each["key"], each


def broken(run: Run) -> dict[str, bytes]:
    """Documents that cannot be drawn as they are."""
    whole = run_columns(run)
    found = unpack(whole)

    def again(without: str = "", about: Mapping[str, object] | None = None, **attempts: Values) -> bytes:
        tables = {name: dict(table) for name, table in found.tables.items() if name != without}
        tables["attempts"].update(attempts)
        columns = {name: {key: Column(values) for key, values in table.items()} for name, table in tables.items()}
        return pack({**found.about, **(about or {})}, found.strings, columns)

    ends = np.asarray(found.tables["attempts"]["end"]).copy()
    ends[:5] -= 10_000_000
    nan = np.full(len(found.tables["attempts"]["energy_j"]), np.nan, np.float32)
    return {
        "foreign": b"PAR1" + bytes(40), "short": whole[:2000], "cut": whole[: len(whole) // 2], "empty": b"",
        "newer": whole.replace(b'"version":1', b'"version":7', 1), "no head": whole[:16] + b"x" * (len(whole) - 16),
        "no power": again("power", {"power": "none"}), "stepped": again(end=ends),
        "nan": again(energy_j=nan), "no nodes": again(about={"cluster": {"nodes": []}}),
    }  # fmt: skip


def test_bad_runs_are_one_sentence_each_and_never_half_a_chart(run: Run) -> None:
    documents = broken(run)
    with files_page(documents) as address:
        seen = browse(address, "bad", ids=[*documents, "nowhere"])
    for name in ("foreign", "short", "cut", "empty", "newer", "no head", "no nodes", "nowhere"):
        (sentence,) = seen[name]["trouble"]
        assert sentence.removesuffix("Try again").strip().endswith(".") and seen[name]["charts"] == 0, name
    assert "another format" in seen["foreign"]["trouble"][0] and "format 7" in seen["newer"]["trouble"][0]
    assert "cut short" in seen["cut"]["trouble"][0] and "no node" in seen["no nodes"]["trouble"][0]
    for name, note in {"no power": "no power log", "stepped": "clock was stepped back"}.items():
        assert seen[name]["charts"] == 1 and note in " ".join(seen[name]["notes"]), name
    assert seen["nan"]["charts"] == 1 and all(each["bold"] == 0 for each in seen.values())


def test_every_saved_file_is_read_by_its_own_reader(address: str, run: Run, tmp_path: Path) -> None:
    names = browse(address, "exports", path="/#/run/one", folder=str(tmp_path))
    assert names["Perfetto"].endswith(".perfetto-trace") and "<" not in "".join(names.values())
    assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "SVG").read_text(encoding="utf-8")
    assert svg.startswith("<svg") and svg.count("<rect") > len(run.attempts) and "<b>" not in svg
    rows = list(csv.DictReader(io.StringIO((tmp_path / "CSV").read_text(encoding="utf-8"))))
    assert sum(float(row["energy_j"]) for row in rows) == pytest.approx(run.energy_j_by_task().sum(), rel=1e-4)
    workflow, problems = wfformat.parse(json.loads((tmp_path / "WfFormat").read_text(encoding="utf-8")))
    assert problems == () and workflow is not None and len(workflow.tasks) == len(run.workload)


def test_a_trace_for_perfetto_is_decoded_by_its_own_messages(address: str, run: Run, tmp_path: Path) -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    browse(address, "exports", path="/#/run/one", folder=str(tmp_path))
    trace = messages.Trace()
    trace.ParseFromString((tmp_path / "Perfetto").read_bytes())
    events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
    begun = [event for event in events if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN]
    assert len(begun) == len(run.attempts) and any(event.type == messages.TrackEvent.TYPE_COUNTER for event in events)
    joules = sum(note.double_value for event in begun for note in event.debug_annotations if note.name == "energy_j")
    assert joules == pytest.approx(run.energy_j_by_task().sum(), rel=1e-4)


def test_a_saved_run_is_opened_by_wattflow_view(run: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "one.parquet", run)
    viewer = Viewer(find_runs([tmp_path]))
    thread = threading.Thread(target=viewer.serve_forever, daemon=True)
    thread.start()
    try:
        seen = browse(viewer.address, "opened", login=viewer.address)
    finally:
        viewer.shutdown()
        viewer.server_close()
    assert seen["hash"] == "#/run/one.parquet" and "printed" in seen["stranger"]
    assert seen["drawn"]["about"]["energy_total_j"] == pytest.approx(metrics(run)["energy_j"])
