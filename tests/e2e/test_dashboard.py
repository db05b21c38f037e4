"""What the page calls, on a real server: events across kill -9, users apart, views, explanations, what-if, login."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.files.columns import unpack
from wattflow.runtime.transport import Denied

from .board_server import Server, Watcher, new_token

pytestmark = pytest.mark.xdist_group("runtime")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("board"))
    yield made
    made.stop()


def test_no_event_is_lost_or_doubled_when_the_server_is_killed(server: Server) -> None:
    token = new_token(server, "ann")
    watcher = Watcher(server, token)
    watcher.until(lambda: watcher.events)
    assert watcher.events[0][0] == "hello"
    tasks = [{"key": f"t{i}", "estimate_s": 0.4} for i in range(60)]
    server.submit("killed", tasks, token)
    watcher.until(lambda: sum("outcome" in one for one in watcher.changes("attempts")) >= 5)
    server.kill()
    server.start()
    server.until_over("killed", token)
    watcher.until(lambda: any(one["state"] == "done" for one in watcher.changes("workflows")))
    watcher.over.set()
    assert Counter(name for name, _ in watcher.events) == {"hello": 1, "batch": len(watcher.events) - 1}
    numbers = [body["sequence"] for name, body in watcher.events if name == "batch"]
    assert numbers == sorted(set(numbers))
    rows = server.connection(token=token).call("GET", "/v1/workflows/killed/attempts")
    ends = Counter((one["task"], one["number"]) for one in watcher.changes("attempts") if "outcome" in one)
    assert ends == Counter((row["task"], row["number"]) for row in rows)
    placed = Counter((one["task"], one["number"]) for one in watcher.changes("attempts") if "placed_s" in one)
    assert placed == ends
    joules = {(one["task"], one["number"]): one["energy_j"] for one in watcher.changes("attempts") if "energy_j" in one}
    assert joules == {key: j for row in rows if (j := row["energy_j"]) is not None
                      and (key := (row["task"], row["number"])) in joules}  # fmt: skip
    born = Counter(one["id"] for one in watcher.changes("tasks") if "key" in one)
    assert len(born) == 60 and set(born.values()) == {1}


def test_users_do_not_see_each_other(server: Server) -> None:
    ben, cleo = new_token(server, "ben"), new_token(server, "cleo")
    watcher, boss = Watcher(server, ben), Watcher(server, server.home.token("operator"))
    watcher.until(lambda: watcher.events and boss.events)
    server.submit("of-cleo", [{"key": "a"}], cleo)
    server.submit("of-ben", [{"key": "b"}], ben)
    server.until_over("of-cleo", cleo)
    server.until_over("of-ben", ben)
    watcher.until(lambda: any(one["state"] == "done" for one in watcher.changes("workflows")))
    boss.until(lambda: sum(one["state"] == "done" for one in boss.changes("workflows")) >= 2)
    watcher.over.set()
    boss.over.set()
    assert {one["id"] for one in watcher.changes("workflows")} == {"of-ben"}
    assert "cleo" not in json.dumps(watcher.events) and "of-cleo" not in json.dumps(watcher.events)
    assert {"of-ben", "of-cleo"} <= {one["id"] for one in boss.changes("workflows")}
    mine = server.connection(token=ben)
    assert [run["id"] for run in mine.call("GET", "/v1/runs")] == ["of-ben"]
    for path in ("/v1/runs/of-cleo", f"/v1/tasks/{_task(server, 'of-cleo', cleo)}/explain"):
        with pytest.raises(Denied, match="no workflow"):
            mine.raw("GET", path)
    seen = unpack(mine.raw("GET", "/v1/live?last_s=3600")[0])
    assert seen.tables["workflows"]["id"] == ["of-ben"]


def _task(server: Server, workflow: str, token: str = "", key: int = 0) -> int:
    found = server.connection(token=token).call("GET", f"/v1/workflows/{workflow}/tasks")
    return int(found[key]["id"])


def test_a_run_is_drawn_while_it_goes_on_and_when_it_is_over(server: Server) -> None:
    tasks: list[dict[str, Any]] = [
        {"key": "first", "function": "split"},
        {"key": "then", "parents": ["first"], "estimate_s": 3.0},
    ]
    server.submit("drawn", tasks, seal=False)  # open for as long as the first answer takes
    read = unpack(server.connection().raw("GET", "/v1/runs/drawn")[0])
    assert read.about["kind"] == "open" and read.about["owner"] == "user" and read.about["sequence"] > 0
    assert read.tables["tasks"]["id"] == ["first", "then"]
    assert list(read.tables["edges"]["parent"]) == [0] and list(read.tables["edges"]["child"]) == [1]
    server.submit("drawn", [])
    server.until_over("drawn")
    server.until_billed("drawn")  # the last joules come with a window of their node
    status, headers, packed = server.ask("GET", "/v1/runs/drawn", accept_encoding="gzip",
                                         authorization=f"Bearer {server.home.token('user')}")  # fmt: skip
    assert status == 200 and headers["content-encoding"] == "gzip"
    read = unpack(gzip.decompress(packed))
    assert read.about["kind"] == "run" and read.about["power"] == "log" and read.about["figures"]["makespan_s"] > 1
    rows = read.tables["attempts"]
    assert list(rows["outcome"]) == [0, 0] and np.isfinite(rows["energy_j"]).all()
    low_j, joules, high_j = (np.asarray(rows[name]) for name in ("low_j", "energy_j", "high_j"))
    assert (low_j <= joules).all() and (joules <= high_j).all()
    assert {read.strings["provenances"][int(kind)] for kind in rows["provenance"]} == {"modelled"}
    power = read.tables["power"]
    assert np.nanmax(power["dynamic_w"]) > 0 and np.nanmin(power["idle_w"]) >= 19
    (listed,) = [run for run in server.connection().call("GET", "/v1/runs") if run["id"] == "drawn"]
    assert listed["state"] == "done" and listed["attempts"] == 2 and listed["energy_j"] > 0


def test_waiting_and_past_tasks_are_explained(server: Server) -> None:
    many = [{"key": f"w{i}", "cpus": 4.0, "estimate_s": 1.0} for i in range(8)]
    connection = server.connection()
    server.submit("before", many[:2])  # the first question may compile for longer than the queue lasts
    connection.call("GET", f"/v1/tasks/{_task(server, 'before', key=-1)}/explain")
    server.submit("queue", many)
    last = _task(server, "queue", key=-1)
    told = connection.call("GET", f"/v1/tasks/{last}/explain")
    assert told["when"] == "waiting" and "cores" in told["why"]
    present = unpack(connection.raw("GET", "/v1/live")[0]).about["live"]
    assert {node["name"] for node in present["nodes"]} == {"quick", "slow"}
    assert present["waiting"] >= 1 and any(group["workflow"] == "queue" for group in present["queue"])
    server.until_over("queue")
    told = connection.call("GET", f"/v1/tasks/{last}/explain")
    assert told["when"] == "past" and told["attempt"] == 1
    assert told["chosen"]["node"] in ("quick", "slow") and told["candidates"]
    taken = [one for one in told["candidates"] if one["chosen"]]
    assert len(taken) == 1 and taken[0] == told["candidates"][0], "it took the cheapest"
    assert sum(taken[0]["terms"].values()) == pytest.approx(taken[0]["cost"])
    with pytest.raises(Denied, match="never placed"):
        connection.call("GET", f"/v1/tasks/{last}/explain?number=7")


def test_a_forecast_is_made_bounded_and_cancelled(server: Server) -> None:
    # Longer than a cold forecast takes to begin: it must find them open.
    server.submit("held", [{"key": f"h{i}", "cpus": 4.0, "estimate_s": 60.0} for i in range(6)])
    connection = server.connection()
    made = connection.call("POST", "/v1/forecasts", {"policies": ["least-energy", "nsga2"], "seeds": 2})
    ended = _forecast(server, made["id"])
    assert ended["state"] == "done", ended
    assert [one["policy"] for one in ended["results"]] == ["least-energy", "nsga2"]
    first, second = ended["results"]
    assert first["error"] is None and 0 < first["energy_j"]["low"] <= first["energy_j"]["high"]
    assert "live" in second["error"]
    assert 4 < first["response_s"]["mean"] < 3000, "from submission on, not from the epoch"
    assert first["power_w"] is None and ended["present"]["power_w"] > 0, (
        "no span, so no mean power; nodes were measured"
    )
    for bad, said in (({"policies": ["/etc/passwd.py:x"]}, "not a name"), ({"policies": ["nope"]}, "no policy"),
                      ({"kind": "rerun"}, "which one"), ({"kind": "rerun", "workflow": "nope"}, "no workflow"),
                      ({"kind": "rerun", "workflow": "held", "cluster": "../x.toml"}, "no cluster")):  # fmt: skip
        with pytest.raises(Denied, match=said):
            connection.call("POST", "/v1/forecasts", bad)
    running = [connection.call("POST", "/v1/forecasts", {"seeds": 20})["id"] for _ in range(2)]
    status, _, body = server.ask("POST", "/v1/forecasts", {}, authorization=f"Bearer {server.home.token('user')}")
    assert status == 429 and "2 forecasts run at once" in json.loads(body)["error"]
    cancelled = [connection.call("DELETE", f"/v1/forecasts/{one}")["state"] for one in running]
    assert cancelled == ["cancelled", "cancelled"]
    connection.call("POST", "/v1/workflows/held/cancel")
    server.until_over("held")
    server.submit("future", [{"key": f"f{i}", "cpus": 4.0, "estimate_s": 0.5} for i in range(6)])
    server.until_over("future")
    again = connection.call("POST", "/v1/forecasts", {"kind": "rerun", "workflow": "future", "policies": ["fifo"],
                                                      "cluster": "mixed", "seeds": 1})  # fmt: skip
    told = _forecast(server, again["id"])
    (result,) = told["results"]
    real = unpack(connection.raw("GET", "/v1/runs/future")[0]).about["figures"]
    assert told["present"]["makespan_s"] == pytest.approx(real["makespan_s"])
    assert told["present"]["response_s"] == pytest.approx(real["response_mean_s"])
    assert result["makespan_s"]["mean"] > 0 and result["ended"]["mean"] == 6


def _forecast(server: Server, identity: str) -> dict[str, Any]:
    end_s = time.monotonic() + 300
    while True:
        told: dict[str, Any] = server.connection().call("GET", f"/v1/forecasts/{identity}")
        if told["state"] != "running":
            return told
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_energy_of_windows_sums_up(server: Server) -> None:
    connection = server.connection()
    fine = connection.call("GET", "/v1/energy?step=1")
    coarse = connection.call("GET", f"/v1/energy?from={fine['from_s']}&to={fine['to_s']}&step=600")
    assert set(fine["nodes"]) == {"quick", "slow"}
    for node, series in fine["nodes"].items():
        total = sum(j for j in series["counted_j"] if j is not None)
        assert total > 0 and sum(j for j in coarse["nodes"][node]["counted_j"] if j is not None) == pytest.approx(total)
    with pytest.raises(Denied, match="more than 10000"):
        connection.call("GET", "/v1/energy?from=1&to=100000000&step=1")


def test_a_browser_logs_in_stays_in_across_a_restart_and_out(server: Server) -> None:
    assert server.ask("GET", "/v1/runs")[0] == 401
    assert json.loads(server.ask("GET", "/v1/page")[2])["session"] is None
    assert server.ask("POST", "/v1/session", {"token": "wf_user_wrong"})[0] == 401
    assert server.ask("POST", "/v1/session", {"token": server.home.token("agent")})[0] == 403
    status, headers, body = server.ask("POST", "/v1/session", {"token": server.home.token("user")})
    assert status == 200 and json.loads(body)["role"] == "user"
    given = headers["set-cookie"]
    assert "HttpOnly" in given and "SameSite=Strict" in given and server.home.token("user") not in given
    cookie = given.split(";")[0]
    server.stop()
    server.start()
    assert server.ask("GET", "/v1/runs", cookie=cookie)[0] == 200
    assert server.ask("POST", "/v1/forecasts", {"policies": ["nope"]}, cookie=cookie)[0] == 403
    assert server.ask("POST", "/v1/forecasts", {"policies": ["nope"]}, cookie=cookie, wattflow_page="1")[0] == 422
    assert server.ask("DELETE", "/v1/session", cookie=cookie, wattflow_page="1")[0] == 200
    status, _, body = server.ask("GET", "/v1/runs", cookie=cookie)
    assert status == 401 and "log in again" in json.loads(body)["error"]


def test_a_code_opens_one_session_and_a_revoked_token_ends_it(server: Server) -> None:
    token = new_token(server, "dan")
    code = server.connection(token=token).call("POST", "/v1/session/link")["code"]
    status, headers, _ = server.ask("POST", "/v1/session", {"code": code})
    cookie = headers["set-cookie"].split(";")[0]
    assert status == 200 and server.ask("POST", "/v1/session", {"code": code})[0] == 401
    assert json.loads(server.ask("GET", "/v1/session", cookie=cookie)[2])["name"] == "dan"
    server.connection("operator").call("DELETE", "/v1/tokens/dan")
    assert server.ask("GET", "/v1/session", cookie=cookie)[0] == 401


def test_the_page_lets_nothing_in_from_elsewhere(server: Server) -> None:
    status, headers, _ = server.ask("GET", "/")
    assert status in (200, 404) and "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    for path in ("/assets/../../../etc/passwd", "/assets/..%2f..%2fversion", "//etc/passwd", "/.hidden"):
        assert server.ask("GET", path)[0] in (401, 404)


def test_a_server_without_work_has_a_page_too(tmp_path: Path) -> None:
    """Nothing ran, no node ever slept, nobody measured: the documents are empty, not missing."""
    from wattflow.server.reader_answers import ANSWERS
    from wattflow.store.schema import open_store

    present = {"now_s": 1e9, "policy": "fifo", "nodes": [], "queue": []}
    data = ANSWERS["live"](open_store(tmp_path / "store.db"), tmp_path, owner=None, last_s=60.0, present=present,
                           packed=False)  # fmt: skip
    read = unpack(data)
    assert read.about["kind"] == "live" and len(read.tables["attempts"]["start"]) == 0
    assert read.about["energy_total_j"] is None
