"""Portions of `make bench-promise`: what one machine measured another goes on from, and sources are never mixed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def promise(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import promise

    return promise


def row_of(promise: ModuleType, load: float, energy: float = 0.6543211) -> dict[str, Any]:
    """A stream as `promise.measure` gives it."""
    found = promise.Verdict("x", energy, 0.98, 1.01, 0.001, 0.002, 0)
    policies = {name: asdict(found) | {"policy": name} for name in promise.FEW}
    return {
        "place": asdict(promise.Place("equal", "pods", load)), "workflows": 120, "doubt": 0.004, "grows": False,
        "keeps_itself": True, "bound": None, "policies": policies,
    }  # fmt: skip


def test_what_is_kept_is_gone_on_with_on_another_machine(promise: ModuleType, tmp_path: Path) -> None:
    kept, rows = tmp_path / "kept.jsonl.gz", [row_of(promise, load) for load in (0.2, 0.5)]
    promise.keep(kept, rows, promise.stamp())
    before = kept.read_bytes()
    promise.keep(kept, rows, promise.stamp())
    assert kept.read_bytes() == before and len(before) < 1000, "the same rows are the same bytes"
    record = promise.Record(tmp_path / "out", 1, kept)
    assert list(record.rows) == [promise.Place("equal", "pods", load) for load in (0.2, 0.5)]
    assert promise.joules(record.rows[promise.Place("equal", "pods", 0.2)], promise.OURS) == 1.0
    made: list[Any] = []
    record.run(record.rows, made.append, 1, 0.1)
    assert made == [], "nothing is measured twice"


def test_rows_of_other_sources_are_kept_apart_until_their_stream_is_measured_anew(
    promise: ModuleType, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.jsonl.gz"
    promise.keep(kept, [row_of(promise, 0.2), row_of(promise, 0.5)], "older")
    assert not promise.Record(tmp_path / "out", 1, kept).rows
    promise.keep(kept, [row_of(promise, 0.5, 0.5)], promise.stamp())
    assert [place.load for place in promise.Record(tmp_path / "out", 1, kept).rows] == [0.5]
    assert [(row["place"]["load"], row["stamp"]) for row in promise.kept(kept)] == [
        (0.2, "older"), (0.5, promise.stamp()),
    ]  # fmt: skip


def test_what_is_kept_is_what_was_measured_to_six_digits(promise: ModuleType) -> None:
    row = row_of(promise, 0.2)
    again = promise.unpacked(promise.packed(row))
    assert again["place"] == row["place"] and set(again) == set(row)
    assert promise.verdict(again, promise.OURS).energy == pytest.approx(0.654321, abs=1e-9)
    assert promise.verdict(again, promise.OURS).kept == promise.verdict(row, promise.OURS).kept


def test_cells_of_the_phase_picture_add_up(
    promise: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import promise_phase

    monkeypatch.setattr(promise_phase, "SOME", 1)
    cell = (1.0, 0.5, 0.5, "20")
    rows = [promise_phase.measure(cell, first, "wattflow:shield=none") for first in range(2)]
    assert rows[0]["energy"] != rows[1]["energy"] and promise_phase.key(rows[0]) != promise_phase.key(rows[1])
    (both,) = promise_phase.merged(rows)
    assert both["streams"] == 2
    assert both["energy"] == pytest.approx((rows[0]["energy"] * rows[1]["energy"]) ** 0.5)
    promise.keep_rows(tmp_path / "cells.gz", rows)
    assert promise_phase.merged(promise.kept_rows(tmp_path / "cells.gz")) == [{**both, "cell": cell}]
