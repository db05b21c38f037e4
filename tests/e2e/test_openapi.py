"""Whatever is sent to the server, it never answers with a 5xx; requests are drawn from its own OpenAPI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

schemathesis = pytest.importorskip("schemathesis")

from wattflow.runtime.connection import Connection  # noqa: E402
from wattflow.runtime.drivers.agents import AgentsDriver  # noqa: E402
from wattflow.runtime.home import Home  # noqa: E402
from wattflow.server.serve import serve  # noqa: E402
from wattflow.server.settings import ServerSettings, listen  # noqa: E402

pytestmark = pytest.mark.xdist_group("runtime")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    place = Home(tmp_path_factory.mktemp("api"))
    settings = ServerSettings(home=place, policy="fifo")
    thread = threading.Thread(target=serve, args=(settings, AgentsDriver(), listen(settings)), daemon=True)
    thread.start()
    end = asyncio.new_event_loop()
    while place.server() is None:
        assert thread.is_alive()
        end.run_until_complete(asyncio.sleep(0.05))
    end.close()
    yield place
    Connection(place.url(), place.token("operator")).call("POST", "/v1/shutdown")
    thread.join(20)


def test_no_request_makes_the_server_stumble(home: Home) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    token = home.token("operator")
    headers = {"authorization": f"Bearer {token}"}
    api = schemathesis.openapi.from_url(f"{home.url()}/openapi.json", headers=headers)
    operations = [found.ok() for found in api.get_all_operations() if not found.ok().path.endswith("/shutdown")]
    assert len(operations) >= 18
    stumbles: list[str] = []
    for operation in operations:
        cases = operation.as_strategy()

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None,
                  phases=[Phase.generate])  # fmt: skip
        @given(case=cases, data=st.data())
        def send(case: object, data: object) -> None:
            if getattr(case, "query", None) and "wait_s" in case.query:  # type: ignore[attr-defined]
                case.query["wait_s"] = 0  # type: ignore[attr-defined]
            body = case.body if isinstance(getattr(case, "body", None), dict) else None  # type: ignore[attr-defined]
            if body is not None and "wait_s" in body:
                body["wait_s"] = 0
            answer = case.call(base_url=home.url(), headers=headers, timeout=60)  # type: ignore[attr-defined]
            if answer.status_code >= 500:
                where = f"{operation.method} {operation.path}"  # noqa: B023
                stumbles.append(f"{where}: {answer.status_code} {answer.text[:200]}")

        send()
    assert not stumbles, "\n".join(stumbles[:10])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/submissions", b""),
        ("/v1/submissions", b"\x80\x04\x95 a pickle"),
        ("/v1/submissions", b'{"workflow": "w", "tasks": [{"key": "a", "name": "a"}]}'),
        (
            "/v1/submissions",
            b'{"workflow": "w", "tasks": [{"key": "a", "name": "a", "command": ["x"], "parents": ["b"]}]}',
        ),
        ("/v1/nodes", b'{"node": {"name": "n", "cpus": 1e400, "memory_bytes": 1}, "boot": "b"}'),
        ("/v1/nodes", b'{"node": {"name": "n", "cpus": 1, "memory_bytes": -5}, "boot": "b"}'),
        ("/v1/agents/sync", b'{"node": "n", "boot": "b", "ended": [{"fence": 1, "outcome": "won"}]}'),
        ("/v1/policy", b'{"policy": "no-such-policy"}'),
        ("/v1/policy", b'{"policy": "nsga2"}'),
    ],
)
def test_wrong_bodies_are_refused_with_a_message(home: Home, path: str, body: bytes) -> None:
    import http.client
    import json

    connection = http.client.HTTPConnection(home.url().removeprefix("http://"), timeout=60)
    headers = {"authorization": f"Bearer {home.token('operator')}", "content-type": "application/json"}
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    assert 400 <= answer.status < 500 and data["error"], (answer.status, data)


def test_ends_of_unknown_attempts_change_nothing(home: Home) -> None:
    agent = Connection(home.url(), home.token("agent"))
    agent.call("POST", "/v1/nodes", {"node": {"name": "quiet", "cpus": 1, "memory_bytes": 1 << 30}, "boot": "one"})
    ended = {"fence": (3 << 59) + 5, "outcome": "done"}
    answer = agent.call("POST", "/v1/agents/sync", {"node": "quiet", "boot": "one", "ended": [ended, ended]})
    assert "leases" not in answer and "stop" not in answer


def test_the_store_is_not_in_the_home_of_others(home: Home) -> None:
    assert (Path(home.folder).stat().st_mode & 0o077) == 0 or home.folder.parent.stat().st_mode & 0o077 == 0
    for role in ("user", "agent", "operator"):
        assert home.token_file(role).stat().st_mode & 0o077 == 0
