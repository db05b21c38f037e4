"""Probes, figures, tokens and limits of a real server, as monitors, operators and strangers meet them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattflow.runtime.connection import Connection
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Denied
from wattflow.server.serve import serve
from wattflow.server.settings import ServerSettings, listen

pytestmark = pytest.mark.xdist_group("runtime")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    place = Home(tmp_path_factory.mktemp("operations"))
    settings = ServerSettings(home=place, policy="fifo")
    thread = threading.Thread(target=serve, args=(settings, AgentsDriver(), listen(settings)), daemon=True)
    thread.start()
    while place.server() is None:
        assert thread.is_alive()
        time.sleep(0.05)
    yield place
    Connection(place.url(), place.token("operator")).call("POST", "/v1/shutdown")
    thread.join(20)


def ask(home: Home, path: str, token: str = "") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(home.url().removeprefix("http://"), timeout=30)
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def operator(home: Home) -> Connection:
    return Connection(home.url(), home.token("operator"))


def test_probes_need_no_token_and_tell_nothing_else(home: Home) -> None:
    assert ask(home, "/healthz")[:2] == (200, "ok\n")
    assert ask(home, "/readyz")[:2] == (200, "ready\n")
    assert ask(home, "/metrics")[0] == 401
    assert len(ask(home, "/healthz")[2]["x-request-id"]) == 16


def test_metrics_are_openmetrics(home: Home) -> None:
    agent = Connection(home.url(), home.token("agent"))
    odd = 'a "quoted" \\ node'
    agent.call("POST", "/v1/nodes", {"node": {"name": odd, "cpus": 1, "memory_bytes": 1 << 30}, "boot": "one"})
    agent.call("POST", "/v1/agents/sync", {"node": odd, "boot": "one", "load": {"cpu_busy": 0.5, "watts": 12.5}})
    status, text, headers = ask(
        home, "/metrics", operator(home).call("POST", "/v1/tokens", {"name": "prometheus", "role": "viewer"})["token"]
    )
    assert status == 200 and headers["content-type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert 'wattflow_node_watts{node="a \\"quoted\\" \\\\ node",provenance="modelled"} 12.5' in text
    families: dict[str, str] = {}
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families
            families[name] = kind
        elif not line.startswith("#"):
            name = line.split("{")[0].split(" ")[0]
            assert name.removesuffix("_total").removesuffix("_info") in families
            float(line.rsplit(" ", 1)[1])
    assert families["wattflow_http_requests"] == "counter" and families["wattflow_nodes"] == "gauge"


def test_tokens_are_made_listed_and_revoked(home: Home) -> None:
    boss = operator(home)
    made = boss.call("POST", "/v1/tokens", {"name": "alice", "project": "climate", "lifetime_s": 3600})
    alice = Connection(home.url(), made["token"])
    assert alice.call("GET", "/v1/workflows") == []
    with pytest.raises(Denied, match="needs the role operator"):
        alice.call("GET", "/v1/tokens")
    shown = next(one for one in boss.call("GET", "/v1/tokens") if one["name"] == "alice")
    assert shown["project"] == "climate" and "token" not in shown and made["token"] not in json.dumps(shown)
    assert [one["id"] for one in boss.call("DELETE", f"/v1/tokens/{shown['id']}")] == [shown["id"]]
    with pytest.raises(Denied, match="does not know this token"):
        alice.call("GET", "/v1/workflows")
    brief = Connection(home.url(), boss.call("POST", "/v1/tokens", {"name": "bob", "lifetime_s": 0.01})["token"])
    time.sleep(0.05)
    with pytest.raises(Denied, match="does not know this token"):
        brief.call("GET", "/v1/workflows")
    with pytest.raises(Denied, match="is not one of"):
        boss.call("POST", "/v1/tokens", {"name": "eve", "role": "root"})


def test_no_token_lies_in_clear_in_the_store(home: Home) -> None:
    made = operator(home).call("POST", "/v1/tokens", {"name": "carol"})["token"]
    for path in [home.store, Path(f"{home.store}-wal")]:
        assert not path.exists() or made.encode() not in path.read_bytes()
