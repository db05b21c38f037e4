"""The page on a real server: followed live across kill -9, explained, forecast, users apart, session at its end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.board_server import Server, new_token

from .browser import browse
from .node import need_browser, need_node

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
TASKS = 40


def at_flags(server: Server, folder: Path, token: str) -> None:
    """Do what the scenario asks for by files: submit once it watches, kill the server in the middle, start it again."""
    for name in ("watching", "kill"):
        end_s = time.monotonic() + 120
        while not (folder / name).exists():
            if time.monotonic() > end_s:
                return
            time.sleep(0.05)
        if name == "watching":
            server.submit("followed", [{"key": f"t{i}", "estimate_s": 0.6} for i in range(TASKS)], token)
        else:
            server.kill()
            time.sleep(1.0)
            server.start()
            (folder / "back").touch()


def hold_up(server: Server, token: str) -> None:
    """Keep three of four cores of both nodes busy, one task of two cores waiting behind them, and ann in a budget."""
    server.connection("operator").call("PATCH", "/v1/accounts/user/ann", {"energy_j": 3e7, "mode": "alert"})
    server.submit("held", [{"key": f"long-{i}", "cpus": 3.0, "estimate_s": 900} for i in range(2)], token)
    connection, end_s = server.connection(token=token), time.monotonic() + 60
    while len(connection.call("GET", "/v1/workflows/held/attempts")) < 2:
        assert time.monotonic() < end_s
        time.sleep(0.1)
    server.submit("stuck", [{"key": "big", "cpus": 2.0, "estimate_s": 1}], token)


def test_a_server_is_followed_across_a_kill_explained_and_forecast(tmp_path: Path) -> None:
    need_node(), need_browser()
    server = Server(tmp_path)
    try:
        ann, ben = new_token(server, "ann"), new_token(server, "ben")
        server.submit("past", [{"key": "a", "function": "<i>odd</i>"}, {"key": "b", "parents": ["a"]}], ann)
        server.until_over("past", ann)
        hold_up(server, ann)
        helper = threading.Thread(target=at_flags, args=(server, tmp_path, ann), daemon=True)
        helper.start()
        parts = {"tasks": TASKS, "over": "past", "waiting": "stuck"}
        seen = browse(f"http://127.0.0.1:{server.port}/", "live", ann=ann, ben=ben, folder=str(tmp_path), parts=parts)
        helper.join(60)
    finally:
        server.stop()
    live = seen["live"]
    assert live["sequences"] == sorted(set(live["sequences"])) and live["done"] == TASKS and live["failed"] == 0
    assert "does not answer" in seen["gone"] and "does not know this token" in seen["refused"]
    assert "least-energy chose" in seen["past"] and "In the end it cost" in seen["past"]
    assert seen["waiting"].startswith("It waits.") and "2 cores" in seen["waiting"]
    results = {one["policy"]: one for one in seen["forecast"]["results"]}
    assert set(results) == {"least-energy", "fifo"} and all(one["error"] is None for one in results.values())
    _beside_the_present(seen)
    assert "past" not in seen["ofBen"] and "followed" not in seen["ofBen"]
    assert "no workflow" in seen["notBens"] and "The session is over" in seen["expired"] and seen["back"] == "past"
    assert {name: found for name, found in seen["violations"].items() if found} == {}


def _beside_the_present(seen: dict[str, Any]) -> None:
    """The month's budget has a forecast, each chart of the what-if has the present, curves tell age and band."""
    assert "user ann" in seen["budgets"] and "by the month's end" in seen["budgets"]
    assert "carries the present rate on" in seen["budgets"]
    present = seen["forecast"]["present"]
    assert all(one["response_s"]["high"] < 3600 for one in seen["forecast"]["results"]), "from submission on"
    assert present["power_w"] > 0 and 0 < present["covered"] <= 1 and present["response_s"] > 0
    assert [one["said"].split(" mean and")[0] for one in seen["spreads"]] == ["Mean power", "Mean response"]
    for one in seen["spreads"]:
        assert one["names"] == ["the present", "least-energy", "fifo"] and one["marks"] == [one["now"]] * 3
    assert all(one["age"].startswith("announced ") and "ago" in one["age"] for one in seen["profiles"])
    assert {one["band"] for one in seen["profiles"]} == {"band not known"}, "played nodes have no counter to learn from"
