"""Budgets on the live view: the present rate of joules carried on, and nothing where there is none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from wattflow.files.columns import unpack
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import month_end_s
from wattflow.server import energy
from wattflow.server.forecasting import lately
from wattflow.server.reader_answers import ANSWERS
from wattflow.store import schema
from wattflow.store.schema import open_store

NOW_S = datetime(2026, 12, 31, 23, 0, tzinfo=UTC).timestamp()


@pytest.fixture
def store(tmp_path: Path) -> sa.Engine:
    """A workflow of ann's in a project: 600 J over the last 20 minutes, 60 J over the last minute, still running."""
    database = open_store(str(tmp_path / "store.db"))
    about = msgspec.msgpack.encode({"project": "sky"})
    task = {"workflow": "w", "name": "t", "spec": b"", "submitted_s": 0.0, "state": "running", "attempts": 1}
    attempt = {"number": 1, "node": "n", "device": -1, "variant": 0, "ready_s": 0.0}
    with database.begin() as to:
        to.execute(schema.workflows.insert().values(id="w", name="w", owner="ann", about=about, submitted_s=0.0,
                                                    state="open"))  # fmt: skip
        for number, ago_s, joules, outcome in ((1, 1200.0, 600.0, "done"), (2, 60.0, 60.0, None), (3, 9.0, None, None)):
            to.execute(schema.tasks.insert().values(task | {"id": number, "key": str(number)}))
            began_s = NOW_S - ago_s
            to.execute(schema.attempts.insert().values(attempt | {
                "task": number, "fence": number, "placed_s": began_s, "started_s": began_s, "energy_j": joules,
                "outcome": outcome, "ended_s": NOW_S if outcome else None}))  # fmt: skip
    return database


def budget(scope: str, name: str, budget_j: float | None, until_s: float | None = None) -> dict[str, Any]:
    workflow = name if scope == "workflow" else None
    return {"scope": scope, "workflow": workflow, "name": name, "spent_j": 660.0, "budget_j": budget_j,
            "until_s": until_s}  # fmt: skip


def test_joules_count_by_the_part_of_an_attempt_that_is_late_enough(store: sa.Engine) -> None:
    rate_w = (300.0 + 60.0) / 600.0
    found = energy.rates(store, NOW_S)
    assert found == {key: pytest.approx(rate_w) for key in (("workflow", "w"), ("user", "ann"), ("project", "sky"))}


def test_a_workflows_budget_runs_out_and_a_months_has_an_expected_end(store: sa.Engine) -> None:
    until_s = month_end_s(NOW_S)
    assert until_s == NOW_S + 3600.0, "the month that ends with the year"
    asked = [
        budget("workflow", "w", 840.0),
        budget("user", "ann", 3000.0, until_s),
        budget("project", "sky", 900.0, until_s),
    ]
    flow, user, project = energy.forecast(store, asked, NOW_S)
    assert flow["rate_w"] == pytest.approx(0.6) and flow["expected_j"] is None
    assert flow["runs_out_s"] == pytest.approx(NOW_S + 300.0)
    assert user["expected_j"] == pytest.approx(660.0 + 0.6 * 3600.0) and user["runs_out_s"] is None, "renewed before"
    assert project["runs_out_s"] == pytest.approx(NOW_S + 400.0)


def test_there_is_no_forecast_without_a_budget_or_without_joules_of_late(store: sa.Engine) -> None:
    none, quiet, still = energy.forecast(
        store,
        [budget("workflow", "w", None), budget("user", "ben", 5.0, 1e10), budget("user", "ann", 5.0, 1e10)],
        NOW_S,
    )
    for one in (none, quiet):
        assert (one["rate_w"], one["expected_j"], one["runs_out_s"]) == (None, None, None)
    assert still["runs_out_s"] == NOW_S, "it is used up already"
    assert energy.forecast(store, [budget("user", "ann", 5.0, 1e10)], NOW_S + 7200.0)[0]["rate_w"] is not None, (
        "runs on"
    )


def test_the_live_document_tells_budgets_ages_and_learned_curves(store: sa.Engine, tmp_path: Path) -> None:
    spec = m.pack((1, m.Task(key="1", name="t", function_name="f", command=["true"])))
    with store.begin() as to:
        for name, state in (("n", "on"), ("gone", "down")):
            told = m.pack((0, m.Node(name=name, cpus=4.0, memory_bytes=1, busy=[0.0, 4.0], watts=[9.0, 50.0])))
            to.execute(schema.nodes.insert().values(name=name, spec=told, state=state, seen_s=5.0))
        to.execute(schema.tasks.update().values(spec=spec))
    curve = {"busy": [0.0, 4.0], "watts": [10.0, 60.0], "low": [None, 55.0], "high": [None, 65.0], "measured_s": 7.0}
    present = {"now_s": NOW_S, "policy": "fifo", "nodes": [], "queue": [], "learned": {"n": curve},
               "budgets": [budget("workflow", "w", 840.0)]}  # fmt: skip
    about = unpack(ANSWERS["live"](store, tmp_path, owner=None, last_s=600.0, present=present, packed=False)).about
    nodes = {one["name"]: one for one in about["cluster"]["nodes"]}
    assert nodes["n"]["announced_s"] == 5.0 and nodes["n"]["learned"] == curve
    assert nodes["gone"]["announced_s"] is None and "learned" not in nodes["gone"]
    assert about["live"]["budgets"][0]["rate_w"] == pytest.approx(0.6) and "learned" not in about["live"]


def test_the_present_is_what_nodes_drew_and_unknown_where_one_that_is_on_told_nothing(store: sa.Engine) -> None:
    window = {"idle_j": 0.0, "tasks_j": 0.0, "unattributed_j": 0.0, "provenance": "attributed"}
    with store.begin() as to:
        to.execute(schema.nodes.insert().values(name="n", spec=b"", state="on", seen_s=5.0))
        for k in range(6):
            began_s = NOW_S - 60.0 + 10.0 * k
            told = {"node": "n", "began_s": began_s, "ended_s": began_s + 10.0, "counted_j": 200.0 + 100.0 * (k % 2)}
            to.execute(schema.energy.insert().values(window | told))
        to.execute(schema.tasks.update().where(schema.tasks.c.id == 1).values(state="done", submitted_s=NOW_S - 50.0,
                                                                              ended_s=NOW_S - 8.0))  # fmt: skip
    found = lately(store, NOW_S, 120.0)
    assert found["power_w"] == pytest.approx(25.0) and found["covered"] == pytest.approx(0.5)
    assert found["response_s"] == pytest.approx(42.0)
    with store.begin() as to:
        to.execute(schema.nodes.insert().values(name="dark", spec=b"", state="on", seen_s=5.0))
    assert lately(store, NOW_S, 120.0)["power_w"] is None and lately(store, NOW_S + 9999.0, 60.0)["response_s"] is None
