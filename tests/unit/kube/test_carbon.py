"""Carbon holds: the cleanest start within the bound, never behind a forecast that says nothing, gates taken off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattflow.kube import carbon_hold, objects
from wattflow.kube.access import Access
from wattflow.kube.book import Book
from wattflow.kube.carbon_hold import GATE, WAIT, Forecast, Holds
from wattflow.kube.client import Client
from wattflow.model.errors import InvalidInput

from .making import pod

HOUR = 3600.0
NOON = 1767268800.0  # 2026-01-01T12:00Z
LINES = """time,grams
2026-01-01T12:00:00Z,400
2026-01-01T13:00:00Z,300
2026-01-01T14:00:00+00:00,100
2026-01-01T15:00:00Z,500
"""


def gated(name: str = "p", made: str = "2026-01-01T12:00:00Z", **notes: str) -> objects.Pod:
    one = pod(name, schedulingGates=[{"name": GATE}, {"name": "other"}])
    meta = msgspec.structs.replace(one.metadata, annotations=notes, creation_timestamp=made, resource_version="7")
    return msgspec.structs.replace(one, metadata=meta)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "forecast.csv"
    path.write_text(LINES)
    return path


def test_the_cleanest_start_within_the_bound(file: Path) -> None:
    forecast = carbon_hold.read(file)
    assert forecast.mean(NOON, 2 * HOUR) == 350 and forecast.mean(NOON + 1.5 * HOUR, HOUR) == 200
    assert forecast.go_at_s(NOON, NOON + 6 * HOUR, HOUR) == NOON + 2 * HOUR
    assert forecast.go_at_s(NOON, NOON + 1.5 * HOUR, HOUR) == NOON + HOUR, "no later than the bound"
    assert forecast.go_at_s(NOON, NOON, HOUR) == NOON
    assert forecast.go_at_s(NOON + 2.5 * HOUR, NOON + 9 * HOUR, 600.0) == NOON + 2.5 * HOUR, "now is the best"


@pytest.mark.parametrize("now_s", [NOON - 1.0, NOON + 4 * HOUR, NOON + 99 * HOUR])
def test_where_it_says_nothing_nobody_is_held(file: Path, now_s: float) -> None:
    assert carbon_hold.read(file).go_at_s(now_s, now_s + 9 * HOUR, HOUR) == now_s


def test_a_small_saving_is_not_waited_for() -> None:
    assert Forecast((0.0, HOUR), (100.0, 96.0)).go_at_s(10.0, 9 * HOUR, 60.0) == 10.0
    assert Forecast((0.0, HOUR), (100.0, 94.0)).go_at_s(10.0, 9 * HOUR, 60.0) == HOUR


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=24), st.floats(0, 24), st.floats(0, 12), st.floats(1, 1e5))
def test_it_never_goes_late_and_never_to_a_dirtier_start(
    grams: list[float], now_h: float, wait_h: float, run_s: float
) -> None:
    forecast = Forecast(tuple(HOUR * i for i in range(len(grams))), tuple(grams))
    now_s, latest_s = now_h * HOUR, (now_h + wait_h) * HOUR
    go_s = forecast.go_at_s(now_s, latest_s, run_s)
    assert now_s <= go_s <= max(now_s, latest_s)
    here, there = forecast.mean(now_s, run_s), forecast.mean(go_s, run_s)
    assert here is None or (there is not None and there <= here)


def test_bounds_come_from_the_pod(file: Path) -> None:
    holds = Holds(Client(Access("http://127.0.0.1:1")), file)
    assert holds.go_at_s(gated(), HOUR, NOON) == NOON + 2 * HOUR
    assert holds.go_at_s(gated(**{WAIT: "3700"}), HOUR, NOON) == NOON + HOUR
    assert holds.go_at_s(gated(**{WAIT: "soon"}), HOUR, NOON) == NOON, "a bound that is no number holds nobody"
    file.write_text("nonsense,1\nnonsense")
    import os

    os.utime(file, ns=(1, 1))
    holds.refresh()
    assert holds.forecast.grams[0] == 400, "a file that went wrong changes nothing"


def test_the_gate_is_taken_off_and_others_stay(file: Path) -> None:
    sent: list[tuple[str, str, Any]] = []

    class Kept(Client):
        async def call(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
            sent.append((method, path, body))
            return b"{}"

    assert asyncio.run(Holds(Kept(Access("http://127.0.0.1:1")), file).release(gated()))
    body = {"metadata": {"resourceVersion": "7"}, "spec": {"schedulingGates": [{"name": "other"}]}}
    assert sent == [("PATCH", "/api/v1/namespaces/default/pods/p", body)]


def test_the_book_knows_who_is_gated() -> None:
    class Nobody:
        def __getattr__(self, name: str) -> Any:
            return lambda *words, **more: None

    book = Book(Nobody(), owns=lambda one: True, power_of=lambda one: None)
    book.on_pod("ADDED", gated())
    assert set(book.gated) == {"uid-p"} and not book.waiting
    book.on_pod("MODIFIED", pod("p"))
    assert not book.gated and set(book.waiting) == {"uid-p"}
    book.on_pod("ADDED", gated("q"))
    book.on_pod("DELETED", gated("q"))
    assert not book.gated


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "holds no line"), ("2026-01-01T00:00:00Z,x", "line 1"), ("2026-01-01T00:00:00,5", "with its zone"),
     ("2026-01-01T00:00:00Z,5\n2026-01-01T00:00:00Z,5", "must rise"), ("2026-01-01T00:00:00Z,-5", "at least 0")],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=told):
        carbon_hold.read(path)
