"""Probes, figures, tokens and limits of a real server, as monitors, operators and strangers meet them."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wattflow.cli.main import app
from wattflow.runtime.connection import Connection
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.home import Home
from wattflow.runtime.ledger import first_fault
from wattflow.runtime.transport import Denied
from wattflow.server.serve import serve
from wattflow.server.settings import ServerSettings, listen

pytestmark = pytest.mark.xdist_group("runtime")


@contextlib.contextmanager
def running(place: Home) -> Iterator[Home]:
    settings = ServerSettings(home=place, policy="fifo", carbon_g_per_kwh=360.0)
    thread = threading.Thread(target=serve, args=(settings, AgentsDriver(), listen(settings)), daemon=True)
    thread.start()
    while place.server() is None:
        assert thread.is_alive()
        time.sleep(0.05)
    yield place
    Connection(place.url(), place.token("operator")).call("POST", "/v1/shutdown")
    thread.join(20)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with running(Home(tmp_path_factory.mktemp("operations"))) as place:
        yield place


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
    assert families["wattflow_http_requests"] == families["wattflow_set_aside"] == "counter"
    assert families["wattflow_nodes"] == "gauge"


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


def node_of(name: str) -> dict[str, object]:
    return {"name": name, "cpus": 8, "memory_bytes": 1 << 30, "watts": [10.0, 20.0], "busy": [0.0, 1.0]}


def test_attempts_belong_to_their_node_and_joules_to_what_it_can_draw(home: Home) -> None:
    """A stranger's node had ended another's attempt with its own bytes, and booked 1e17 J."""
    boss = operator(home)
    tokens = {name: boss.call("POST", "/v1/tokens", {"name": name, "role": "agent", "node": name})["token"]
              for name in ("worker", "stranger")}  # fmt: skip
    agents = {name: Connection(home.url(), token) for name, token in tokens.items()}
    agents["worker"].call("POST", "/v1/nodes", {"node": node_of("worker"), "boot": "w"})
    user = Connection(home.url(), home.token("user"))
    task = {"key": "a", "name": "a", "command": ["true"], "variants": [{"cpus": 8.0}]}
    user.call("POST", "/v1/submissions", {"workflow": "bound", "tasks": [task], "seal": True})
    turn = {"node": "worker", "boot": "w", "wait_s": 1.0}
    (lease,) = agents["worker"].call("POST", "/v1/agents/sync", turn)["leases"]
    fence = lease["fence"]
    agents["stranger"].call("POST", "/v1/nodes", {"node": node_of("stranger"), "boot": "s"})
    forged = {"fence": fence, "outcome": "done", "result": {"data": b"evil"}}
    huge = {"fence": fence, "energy": {"energy_j": 1e17, "low_j": 1e17, "high_j": 1e17, "provenance": "measured"}}
    agents["stranger"].call(
        "POST", "/v1/agents/sync", {"node": "stranger", "boot": "s", "ended": [forged], "energy": [huge]}
    )
    with pytest.raises(Denied, match="is not one of this agent's"):
        agents["stranger"].call("POST", f"/v1/attempts/{fence}/log?offset=0", b"lies")
    with pytest.raises(Denied, match="is for node stranger"):
        agents["stranger"].call("POST", "/v1/agents/sync", {"node": "worker", "boot": "w", "ended": [forged]})
    with pytest.raises(Denied, match="has a token of its own"):
        Connection(home.url(), home.token("agent")).call("POST", "/v1/nodes", {"node": node_of("worker"), "boot": "x"})
    (row,) = user.call("GET", "/v1/workflows/bound/attempts")
    assert row["outcome"] is None and row["energy_j"] is None
    window = {"began_s": time.time() - 1, "ended_s": time.time(), "counted_j": 1e17, "idle_j": 0.0, "tasks_j": 1e17,
              "unattributed_j": 0.0, "provenance": "measured"}  # fmt: skip
    ended = {"fence": fence, "outcome": "done"}
    news = {"ended": [ended], "energy": [huge], "windows": [window]}
    agents["worker"].call("POST", "/v1/agents/sync", {"node": "worker", "boot": "w", **news})
    good = {"fence": fence, "energy": {"energy_j": 5.0, "low_j": 4.0, "high_j": 6.0, "provenance": "measured"}}
    for _ in range(2):  # told again after a cut
        agents["worker"].call("POST", "/v1/agents/sync", {"node": "worker", "boot": "w", "energy": [good]})
    end_s = time.monotonic() + 60
    while (row := user.call("GET", "/v1/workflows/bound/attempts")[0])["energy_j"] is None:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert (row["outcome"], row["energy_j"]) == ("done", 5.0)
    text = ask(home, "/metrics", home.token("operator"))[1]
    assert 'wattflow_reports_refused_total{reason="implausible joules of an attempt"} 1' in text
    assert 'wattflow_reports_refused_total{reason="implausible joules of a node"} 1' in text
    with pytest.raises(Denied, match="offset must be within"):
        agents["worker"].call("POST", f"/v1/attempts/{fence}/log?offset={1 << 40}", b"far")


def address(home: Home) -> tuple[str, int]:
    host, port = home.url().removeprefix("http://").split(":")
    return host, int(port)


def test_an_endless_header_line_is_cut_off(home: Home) -> None:
    """94 MiB of one line, without a token, had held the loop for 6 s."""
    with socket.create_connection(address(home), 10) as stranger:
        sent = 0
        try:
            stranger.sendall(b"GET / HTTP/1.1\r\nx: ")
            for _ in range(94):
                stranger.sendall(b"a" * (1 << 20))
                sent += 1
        except OSError:
            pass
        assert sent < 20
    with socket.create_connection(address(home), 10) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000)
        assert stranger.recv(1000).startswith(b"HTTP/1.1 431 ")
    text = ask(home, "/metrics", home.token("operator"))[1]
    assert 'wattflow_http_connections_refused_total{limit="header size"}' in text


def test_trailers_are_no_way_round(home: Home) -> None:
    with socket.create_connection(address(home), 10) as stranger:
        head = f"POST /v1/objects HTTP/1.1\r\nauthorization: Bearer {home.token('user')}\r\n"
        stranger.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
        with pytest.raises(OSError):
            for number in range(100_000):
                stranger.sendall(b"x%d: " % number + b"y" * 1000 + b"\r\n")


def test_three_thousand_half_requests_do_not_stay_and_keep_nobody_out(home: Home) -> None:
    good = Connection(home.url(), home.token("user"))
    good.call("GET", "/v1/status")
    strangers = []
    try:
        for _ in range(3000):
            stranger = socket.create_connection(address(home), 10)
            stranger.sendall(b"GET / HTTP/1.1\r\nx: ")
            strangers.append(stranger)
        began_s = time.monotonic()
        good.call("GET", "/v1/status")
        Connection(home.url(), home.token("user")).call("GET", "/v1/status")
        assert time.monotonic() - began_s < 5.0
        assert sum(_is_open(stranger) for stranger in strangers) <= 1000
    finally:
        for stranger in strangers:
            stranger.close()


def _is_open(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return bool(stranger.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_strangers_who_ask_too_often_are_told_to_wait(home: Home) -> None:
    answers = [ask(home, "/v1/status")[0] for _ in range(250)]
    assert set(answers) == {401, 429} and answers[0] == 401
    assert ask(home, "/v1/status", home.token("user"))[0] == 200


class Played:
    """An agent that ends every lease at once with so many joules."""

    def __init__(self, home: Home, name: str) -> None:
        token = operator(home).call("POST", "/v1/tokens", {"name": name, "role": "agent", "node": name})["token"]
        self.name, self._server = name, Connection(home.url(), token)
        self._server.call(
            "POST", "/v1/nodes", {"node": node_of(name) | {"watts": [8.0, 80.0], "busy": [0.0, 8.0]}, "boot": name}
        )

    def turn(self, joules: float) -> int:
        sync = {"node": self.name, "boot": self.name}
        leases = self._server.call("POST", "/v1/agents/sync", sync | {"wait_s": 0.2}).get("leases", [])
        fences = [lease["fence"] for lease in leases]
        energy = {"energy_j": joules, "low_j": joules, "high_j": joules, "provenance": "measured"}
        ended = [{"fence": fence, "outcome": "done", "cpu_s": 2.0} for fence in fences]
        told = [{"fence": fence, "energy": energy} for fence in fences]
        self._server.call("POST", "/v1/agents/sync", sync | {"ended": ended, "energy": told})
        return len(fences)


def submit(user: Connection, workflow: str, count: int) -> None:
    tasks = [{"key": str(n), "name": "t", "function_name": "simulate", "command": ["true"], "estimate_s": 10.0,
              "variants": [{"cpus": 8.0}]} for n in range(count)]  # fmt: skip
    user.call("POST", "/v1/submissions", {"workflow": workflow, "tasks": tasks, "seal": True})


def outcome(user: Connection, workflow: str) -> dict[str, int]:
    tasks: dict[str, int] = user.call("GET", f"/v1/workflows/{workflow}")["tasks"]
    return tasks


def test_a_hard_budget_a_report_and_an_audit_log_that_survive_a_restart(tmp_path: Path) -> None:
    place = Home(tmp_path / "home")
    with running(place) as home:
        boss = operator(home)
        alice = boss.call("POST", "/v1/tokens", {"name": "alice", "project": "climate"})["token"]
        limits = boss.call("PATCH", "/v1/accounts/project/climate", {"energy_j": 1000.0})
        assert limits["energy_j"] == 1000.0 and limits["mode"] == "hard"
        with pytest.raises(Denied):
            Connection(home.url(), alice).call("PATCH", "/v1/accounts/project/climate", {"energy_j": None})
        user, agent = Connection(home.url(), alice), Played(home, "n")
        submit(user, "first", 3)  # 10 s of 80 W are 800 J each, predicted; 300 J each, measured
        end_s = time.monotonic() + 30
        while outcome(user, "first").get("done", 0) + outcome(user, "first").get("failed", 0) < 3:
            agent.turn(300.0)
            assert time.monotonic() < end_s, (outcome(user, "first"), user.call("GET", "/v1/tasks/2/why"))
        assert outcome(user, "first") == {"done": 3}
        (used,) = boss.call("GET", "/v1/accounts")
        assert used["used_j"] == 900.0 and used["reserved_j"] == 0.0 and used["used_g"] == pytest.approx(0.09)
    with running(place) as home:
        boss, user = operator(home), Connection(home.url(), alice)
        agent = Played(home, "other")
        submit(user, "second", 1)  # nothing is known of the function after a restart: 800 J do not fit
        end_s = time.monotonic() + 30
        while outcome(user, "second") != {"failed": 1}:
            agent.turn(1.0)
            assert time.monotonic() < end_s
        (task,) = user.call("GET", "/v1/workflows/second/tasks")
        assert "energy budget of project climate" in task["reason"] and "900 J used" in task["reason"]
        boss.call("PATCH", "/v1/accounts/project/climate", {"energy_j": 900.0})
        with pytest.raises(Denied, match="energy budget of project climate"):
            submit(user, "third", 1)
        for by, name in (("user", "alice"), ("project", "climate"), ("function", "simulate")):
            (row,) = user.call("GET", f"/v1/usage?by={by}")
            assert (row[by], row["attempts"], row["cpu_s"], row["energy_j"]) == (name, 3, 6.0, 900.0)
        assert user.call("GET", "/v1/usage?month=2020-01") == []
        entries = boss.call("GET", "/v1/audit")
        assert first_fault(entries) is None
        actions = [entry["action"] for entry in entries]
        assert actions.count("submit") == 2 and actions.count("limits") == 2 and actions.count("token create") == 3
        assert "alert" in actions and actions.count("shutdown") == 1
        with pytest.raises(Denied):
            user.call("GET", "/v1/audit")
        runner = CliRunner()
        options = ["--home", str(home.folder)]
        told = runner.invoke(app, ["report", "--by", "project", *options])
        assert told.exit_code == 0 and "climate" in told.stdout and "900 J" in told.stdout and "0.09 g" in told.stdout
        told = runner.invoke(app, ["audit", "--verify", *options])
        assert told.exit_code == 0 and f"{len(entries)} entries" in told.stderr
        told = runner.invoke(app, ["account", "set", "user", "bob", "--energy", "2kWh", "--running", "3", *options])
        assert told.exit_code == 0, told.output
        assert "7.2 MJ" in runner.invoke(app, ["account", "list", *options]).stdout.replace("2 kWh", "7.2 MJ")
        told = runner.invoke(app, ["token", "create", "carol", "--expires", "1d", *options])
        assert told.exit_code == 0 and told.stdout.startswith("wf_user_")
        assert "carol" in runner.invoke(app, ["token", "list", *options]).stdout
        assert runner.invoke(app, ["token", "revoke", "carol", *options]).exit_code == 0
        assert runner.invoke(app, ["token", "revoke", "nobody", *options]).exit_code == 2


def test_who_came_later_has_a_share_at_once_and_no_room_stays_free(tmp_path: Path) -> None:
    """One user's thousand tasks are before another's four: both run side by side, on all processors."""
    with running(Home(tmp_path / "home")) as home:
        boss = operator(home)
        users = {name: Connection(home.url(), boss.call("POST", "/v1/tokens", {"name": name})["token"])
                 for name in ("alice", "bob")}  # fmt: skip
        token = boss.call("POST", "/v1/tokens", {"name": "n", "role": "agent", "node": "n"})["token"]
        agent = Connection(home.url(), token)
        agent.call("POST", "/v1/nodes", {"node": node_of("n") | {"cpus": 4}, "boot": "n"})
        held: list[int] = []
        leased: list[str] = []

        def turn() -> None:
            """End what was leased, and take home what is leased next."""
            ended = [{"fence": fence, "outcome": "done"} for fence in held]
            sync = {"node": "n", "boot": "n", "wait_s": 1.0, "ended": ended}
            got = agent.call("POST", "/v1/agents/sync", sync).get("leases", [])
            held[:] = [lease["fence"] for lease in got]
            leased.extend(lease["workflow"] for lease in got)

        for name, count in (("alice", 1000), ("bob", 4)):
            tasks = [{"key": str(n), "name": "t", "command": ["x"], "estimate_s": 0.1} for n in range(count)]
            users[name].call("POST", "/v1/submissions", {"workflow": name, "tasks": tasks, "seal": True})
            if name == "alice":
                for _ in range(5):
                    turn()
        before, end_s = len(leased), time.monotonic() + 120
        while leased.count("bob") < 4:
            turn()
            assert time.monotonic() < end_s
        # Bob has two processors of four from the next end on. What is leased is counted, not how long that takes: at
        # most the four that were placed before he came, and two beside each two of his.
        assert leased[before:].count("alice") <= 12
        users["alice"].call("POST", "/v1/workflows/alice/cancel", b"")
