"""The runtime as a person meets it: processes of their own, HTTP, a real store, real tasks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import wattflow
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.messages import PROTOCOL, Orders
from wattflow.runtime.transport import Denied
from wattflow.traces.wfformat import read_document

pytestmark = pytest.mark.xdist_group("runtime")
WORKFLOW = {
    "name": "little",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "write", "id": "write", "parents": [], "children": ["read"]},
                {"name": "read", "id": "read", "parents": ["write"], "children": []},
            ],
            "files": [],
        },
        "execution": {
            "makespanInSeconds": 2,
            "executedAt": "2024-01-01T00:00:00Z",
            "tasks": [
                {
                    "id": "write",
                    "runtimeInSeconds": 1,
                    "command": {"program": "sh", "arguments": ["-c", "echo hi > f"]},
                },
                {"id": "read", "runtimeInSeconds": 1, "command": {"program": "cat", "arguments": ["f"]}},
            ],
            "machines": [],
        },
    },
}


def cli(home: Path, *args: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"WATTFLOW_HOME": str(home), "COLUMNS": "200"}
    command = [sys.executable, "-m", "wattflow.cli", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    started = cli(folder, "up", "--port", "0")
    assert started.returncode == 0, started.stderr
    yield folder
    ended = cli(folder, "down")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def client(home: Path) -> Iterator[wattflow.Client]:
    place = Home.of(home)
    with wattflow.Client(place.url(), place.token("user")) as made:
        yield made


double = eval("lambda x: 2 * x")  # of no module that a worker could import: travels by value


def test_submit_map_and_dags(client: wattflow.Client) -> None:
    first = client.submit(double, 1)
    second = client.submit(double, first)
    total = client.submit(lambda values, *, extra: sum(values) + extra, [first, second, 10], extra=first)
    assert total.result(60) == 2 + 4 + 10 + 2
    assert list(client.map(double, range(5), timeout=60)) == [0, 2, 4, 6, 8]


def test_large_arguments_and_results_travel_as_objects(client: wattflow.Client) -> None:
    data = os.urandom(300_000)
    assert client.submit(lambda value: value[::-1], data).result(60) == data[::-1]


def test_errors_come_back_as_themselves_and_children_are_given_up(client: wattflow.Client) -> None:
    bad = client.submit(int, "x")
    child = client.submit(double, bad)
    with pytest.raises(ValueError, match="invalid literal"):
        bad.result(60)
    with pytest.raises(wattflow.WattflowError, match="waits for failed"):
        child.result(60)


def test_retries_count_and_time_limits_hold(client: wattflow.Client, tmp_path: Path) -> None:
    @wattflow.task(retries=2)
    def third_time(path: str) -> int:
        with Path(path).open("a") as file:
            file.write("x")
        if Path(path).stat().st_size < 3:
            raise OSError("not yet")
        return Path(path).stat().st_size

    @wattflow.task(timeout=0.5)
    def forever() -> None:
        time.sleep(100)

    assert client.submit(third_time, str(tmp_path / "count")).result(60) == 3
    with pytest.raises(wattflow.WattflowError, match="longer than"):
        client.submit(forever).result(60)


def test_cancelling_a_running_task(client: wattflow.Client, home: Path) -> None:
    future = client.submit(time.sleep, 100)
    connection = Connection(Home.of(home).url(), Home.of(home).token("user"))
    deadline = time.monotonic() + 60

    def attempts() -> list[dict[str, Any]]:
        known = [row["id"] for row in connection.call("GET", "/v1/workflows")]
        path = f"/v1/workflows/{client.workflow}/attempts"
        return connection.call("GET", path) if client.workflow in known else []

    while not any(row["started_s"] for row in attempts()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(60)
    while not (rows := attempts())[0]["outcome"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert rows[0]["outcome"] == "cancelled"


def test_joules_of_tasks_close_on_the_meter(client: wattflow.Client, home: Path) -> None:
    """What tasks were charged is what the node's windows say tasks used, to one per cent."""

    def burn(seconds: float) -> float:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return seconds

    futures = [client.submit(burn, 0.3) for _ in range(6)]
    energies = [future.energy(60) for future in futures]
    assert all(energy.joules > 0 and energy.low_j <= energy.joules <= energy.high_j for energy in energies)
    assert {energy.provenance for energy in energies} <= {"modelled", "attributed"}
    import sqlite3

    with contextlib.closing(sqlite3.connect(home / "store.db")) as store:
        windows = store.execute("select counted_j, idle_j + tasks_j + unattributed_j, tasks_j from energy").fetchall()
        charged = store.execute("select sum(energy_j) from attempts").fetchone()[0]
        for counted, accounts, _ in windows:
            assert accounts == pytest.approx(counted, rel=0.01)
        assert charged == pytest.approx(sum(window[2] for window in windows), rel=0.01)


def test_a_workflow_file_runs_and_its_run_is_a_run(home: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "little.json", tmp_path / "run.parquet"
    path.write_text(json.dumps(WORKFLOW))
    done = cli(home, "run", str(path), "--out", str(out))
    assert done.returncode == 0, done.stderr
    import pyarrow.parquet as pq

    table = pq.read_table(out)
    assert table.column("task_id").to_pylist() == ["write", "read"]
    assert table.column("outcome_name").to_pylist() == ["done", "done"]
    manifest = json.loads(table.schema.metadata[b"wattflow"])
    assert manifest["simulated"] is False and manifest["nodes"]
    listed = json.loads(cli(home, "ps", "-o", "json").stdout)["rows"]
    workflow = next(row for row in listed if row["name"] == "little")
    assert workflow["state"] == "done" and workflow["tasks"] == {"done": 2}
    assert cli(home, "logs", f"{workflow['id']}/read").stdout == "hi\n"
    report = tmp_path / "report.html"
    compared = cli(home, "compare", str(out), "-p", "fifo,eft", "-o", "json", "--report", str(report))
    assert compared.returncode == 0, compared.stderr
    assert "(real)</b> is real, all others are <b>simulated</b>" in report.read_text()
    again = cli(home, "compare", str(out), "-p", "fifo", "--report", str(report))
    assert again.returncode == 2 and "--force" in again.stderr
    lines = json.loads(compared.stdout)["rows"]
    assert [line["simulated"] for line in lines] == [False, *[True] * (len(lines) - 1)] and len(lines) >= 3
    assert all(line["makespan_s"] > 0 and line["energy_j"] > 0 for line in lines)


def test_a_finished_workflow_is_wfformat_with_joules(home: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "little.json", tmp_path / "done.json"
    path.write_text(json.dumps(WORKFLOW))
    done = cli(home, "run", str(path), "--out", str(out))
    assert done.returncode == 0, done.stderr
    document = read_document(out)
    assert [task.id for task in document.tasks] == ["write", "read"] and document.tasks[1].parents == ("write",)
    assert all(
        task.runtime_s is not None and task.runtime_s > 0 and task.energy_j is not None for task in document.tasks
    )
    assert all(task.machine == document.machines[0].name and task.energy_provenance for task in document.tasks)
    assert document.makespan_s is not None and document.makespan_s >= sum(
        task.runtime_s or 0.0 for task in document.tasks
    )
    assert document.executed_at is not None and not document.executed_at.startswith("1970")
    first, second = document.tasks
    assert first.start_s is not None and first.runtime_s is not None and second.start_s is not None
    assert second.start_s >= first.start_s + first.runtime_s


def test_describe_tells_people_and_programs_how_a_workflow_stands(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "little.json"
    path.write_text(json.dumps(WORKFLOW))
    assert cli(home, "run", str(path)).returncode == 0
    name = json.loads(cli(home, "ps", "-o", "json").stdout)["rows"][0]["id"]
    told = cli(home, "describe", name).stdout
    assert "2 done" in told and "lasted" in told and "_s " not in told and "{" not in told
    (about,) = json.loads(cli(home, "describe", name, "-o", "json").stdout)["rows"]
    assert about["state"] == "done" and [row["key"] for row in about["attempts"]] == ["write", "read"]
    assert {row["variant_name"] for row in about["attempts"]} == {"cpu"} and " cpu " in told
    task = cli(home, "describe", f"{name}/write").stdout
    assert "write" in task and "done" in task and "2 done" not in task


@pytest.mark.parametrize("name", ["my flow", "Übung?x#y%20", "a/b:c\nd", "", "é" * 300, "a\ud800b"])
def test_a_workflow_may_be_named_anything(home: Path, tmp_path: Path, name: str) -> None:
    path, out = tmp_path / "named.json", tmp_path / "run.parquet"
    path.write_text(json.dumps(WORKFLOW | {"name": name}))
    done = cli(home, "run", str(path), "--out", str(out))
    assert done.returncode == 0 and out.exists(), done.stderr
    identity = json.loads(cli(home, "ps", "-o", "json").stdout)["rows"][0]["id"]
    tasks = json.loads(cli(home, "ps", identity, "-o", "json").stdout)["rows"]
    assert [row["key"] for row in tasks] == ["write", "read"]
    assert cli(home, "logs", f"{identity}/read").stdout == "hi\n"
    assert "2 done" in cli(home, "describe", identity).stdout
    assert cli(home, "cancel", identity).stderr == "0 open tasks cancelled\n"


def test_a_client_may_name_its_workflow_anything(home: Path) -> None:
    place = Home.of(home)
    for name in ("my run", "Übung?x#y%20", "a/b", "a\nb", "é" * 200):
        with wattflow.Client(place.url(), place.token("user"), name=name, patience=5) as client:
            future = client.submit(double, 1)
            assert future.result(60) == 2
            assert not future.cancel() and future.energy(60).joules >= 0
    with pytest.raises(ZeroDivisionError), wattflow.Client(place.url(), place.token("user"), name="? #") as client:
        client.submit(time.sleep, 100)
        raise ZeroDivisionError  # cancels it


def test_a_failing_workflow_has_exit_code_one(home: Path, tmp_path: Path) -> None:
    document = json.loads(json.dumps(WORKFLOW))
    document["workflow"]["execution"]["tasks"][0]["command"]["arguments"] = ["-c", "exit 7"]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    done = cli(home, "run", str(path))
    assert done.returncode == 1 and "exit code 7" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("up", "--port", "0"), "running already"),
        (("run", "nothing.json"), "no such file"),
        (("why", "999999999"), "no task"),
        (("cancel", "nothing"), "no workflow"),
        (("ps", "ü"), "no workflow ü"),
        (("cancel", "a?b #"), "no workflow a?b #"),
        (("why", "²"), "is not a task"),
        (("ps", "a/b"), "'a/b': is not a workflow"),
        (("cancel", ""), "'': is not a workflow"),
        (("describe", "nothing"), "server knows no such workflow"),
        (("up", "--home", "{other}", "--port", "{port}"), "`--port 0` takes a free port"),
        (("ps", "--home", "{other}"), "wattflow up"),
    ],
)
def test_mistakes_are_told_in_one_message(home: Path, tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    port = Home.of(home).url().rsplit(":", 1)[1]
    done = cli(home, *(arg.format(other=tmp_path / "other", port=port) for arg in args))
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_passes_without_the_right_token(home: Path) -> None:
    place = Home.of(home)
    paths = ["/v1/status", "/v1/workflows", "/openapi.json", "/v1/objects/" + "0" * 64, "/nothing"]
    for path in paths:
        with pytest.raises(Denied, match="token"):
            Connection(place.url(), "wf_user_wrong").call("GET", path)
    agent, user = (Connection(place.url(), place.token(role)) for role in ("agent", "user"))
    for connection, method, path in ((agent, "GET", "/v1/workflows"), (user, "POST", "/v1/shutdown"),
                                     (user, "POST", "/v1/agents/sync"), (user, "POST", "/v1/policy")):  # fmt: skip
        with pytest.raises(Denied, match="role"):
            connection.call(method, path, {})
    for path in ("/v1/objects/../tokens.json", "/v1/objects/..%2f..%2fetc%2fpasswd"):
        with pytest.raises(Denied):
            user.raw("GET", path)
    assert not any(place.token(role) in (home / "server.log").read_text() for role in ("user", "agent", "operator"))


def test_too_large_a_body_is_refused_before_it_is_read(home: Path) -> None:
    import http.client

    place = Home.of(home)
    connection = http.client.HTTPConnection(place.url().removeprefix("http://"), timeout=30)
    connection.putrequest("POST", "/v1/submissions")
    connection.putheader("authorization", f"Bearer {place.token('user')}")
    connection.putheader("content-length", str(10**12))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    """Kill −9 in the middle: running tasks are kept, waiting ones run later, none twice, no error for the client."""
    folder = tmp_path / "home"
    assert cli(folder, "up", "--port", "0").returncode == 0
    place = Home.of(folder)
    url = place.url()
    try:
        counter = tmp_path / "count"

        def note(path: str, seconds: float) -> int:
            time.sleep(seconds)
            with Path(path).open("a") as file:
                file.write("x")
            return os.getpid()

        with wattflow.Client(url, place.token("user")) as client:
            first = client.submit(note, str(counter), 0.1)
            first.result(60)
            futures = [client.submit(note, str(counter), 0.5) for _ in range(12)]
            after = client.submit(lambda values: len(values), futures)
            time.sleep(0.6)
            about = place.server()
            assert about is not None
            os.kill(int(str(about["pid"])), signal.SIGKILL)
            port = url.rsplit(":", 1)[1]
            again = cli(folder, "up", "--port", port, "--no-agent")
            assert again.returncode == 0, again.stderr
            assert after.result(90) == 12
        assert counter.read_text() == "x" * 13
        rows: list[dict[str, Any]] = Connection(url, place.token("user")).call(
            "GET", f"/v1/workflows/{client.workflow}/attempts"
        )
        assert [row["outcome"] for row in rows] == ["done"] * 14
    finally:
        assert cli(folder, "down").returncode == 0


def test_up_after_the_agent_was_killed_starts_it_and_waiting_work_goes_on(tmp_path: Path) -> None:
    folder, document = tmp_path / "home", tmp_path / "little.json"
    document.write_text(json.dumps(WORKFLOW))
    assert cli(folder, "up", "--port", "0", "--no-agent").returncode == 0
    try:
        env = os.environ | {"WATTFLOW_HOME": str(folder), "COLUMNS": "200"}
        command = [sys.executable, "-m", "wattflow.cli", "run", str(document), "--out", str(tmp_path / "out.json")]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            told = waiting.stderr.readline()
            while told and "no node" not in told:
                told = waiting.stderr.readline()
            assert "wattflow up" in told
            again = cli(folder, "up")
            assert again.returncode == 0 and "without its agent" in again.stderr, again.stderr
            waiting.communicate(timeout=120)
            assert waiting.returncode == 0
        third = cli(folder, "up")
        assert third.returncode == 2 and "running already" in third.stderr
        nodes = Connection(Home.of(folder).url(), Home.of(folder).token("operator")).call("GET", "/v1/nodes")
        assert [row["state"] for row in nodes] == ["on"]
    finally:
        assert cli(folder, "down").returncode == 0


def test_of_two_at_once_one_starts_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    env = {**os.environ, "WATTFLOW_HOME": str(folder)}
    command = [sys.executable, "-m", "wattflow.cli", "up", "--port", "0", "--cap-w", "10"]
    both = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        told = [process.communicate(timeout=600)[1] for process in both]
        assert sorted(process.returncode for process in both) == [0, 2], told
        said = told[0 if both[0].returncode else 1]
        assert "is starting a server here" in said or "is running already" in said, said
        assert "cap: 10 W is too low" in told[1 if both[0].returncode else 0]
    finally:
        ended = cli(folder, "down")
    assert ended.returncode == 0
    # Whatever an `up` starts names its folder.
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if os.fsencode(folder) in _command_of(path)]
    assert left == [], [_command_of(path) for path in left]


def _command_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_up_leaves_no_server(how: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    env = os.environ | {"WATTFLOW_HOME": str(folder)}
    starting = subprocess.Popen(
        [sys.executable, "-m", "wattflow.cli", "up", "--port", "0"], env=env, stderr=subprocess.PIPE, text=True,
        # A shell that runs the suite in the background has signals ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(how, signal.SIG_DFL),
    )  # fmt: skip
    end_s = time.monotonic() + 120
    children = Path(f"/proc/{starting.pid}/task/{starting.pid}/children")
    while not (started := children.read_text().split()):
        assert starting.poll() is None and time.monotonic() < end_s
        time.sleep(0.01)
    time.sleep(0.5)  # a server takes seconds to start, and its process is known by then
    starting.send_signal(how)
    _, told = starting.communicate(timeout=120)
    assert starting.returncode == 130 and "Traceback" not in told, told
    assert not any(Path(f"/proc/{pid}").exists() for pid in started) and not (folder / "server.json").exists()
    assert "running" not in cli(folder, "down").stdout


def test_down_ends_a_server_whose_token_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    assert cli(folder, "up", "--port", "0", "--quiet").returncode == 0
    server = json.loads((folder / "server.json").read_text())["pid"]
    (folder / "operator.token").write_text("")
    done = cli(folder, "down")
    assert done.returncode == 0, done.stderr
    with contextlib.suppress(FileNotFoundError):  # nobody may have collected it yet
        assert "(zombie)" in Path(f"/proc/{server}/status").read_text()


def test_a_folder_with_modules_of_pythons_names_starts_a_server_and_an_agent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("copy", "types", "queue", "random", "token"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    wattflow_here = [sys.executable, "-P", "-m", "wattflow.cli"]
    env = os.environ | {"WATTFLOW_HOME": str(home), "COLUMNS": "200"}
    started = subprocess.run(
        [*wattflow_here, "up", "--port", "0"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    try:
        assert started.returncode == 0, started.stderr
        document = tmp_path / "w.json"
        document.write_text(json.dumps(WORKFLOW))
        done = cli(home, "run", str(document), timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        cli(home, "down")


def test_a_server_that_is_told_to_end_leaves_nothing_half_done(tmp_path: Path) -> None:
    """As a service manager ends it: by a signal to all of its processes."""
    home = tmp_path / "home"
    server = subprocess.Popen([sys.executable, "-m", "wattflow.server", "--home", str(home)], start_new_session=True)
    try:
        end_s = time.monotonic() + 120
        while not (home / "server.json").exists():
            assert server.poll() is None and time.monotonic() < end_s
            time.sleep(0.05)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        for pid in [server.pid, *map(int, children)]:
            os.kill(pid, signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
    left = {path.name for path in home.iterdir()}
    assert "store.db" in left and not {"server.json", "store.db-wal"} & left


def test_agents_of_the_version_before_are_taken_and_others_refused_by_name(home: Path) -> None:
    place = Home.of(home)
    agent = Connection(place.url(), place.token("agent"))
    node = {"name": "older", "cpus": 0.001, "memory_bytes": 1 << 30}  # too small for any task here
    taken = agent.call("POST", "/v1/nodes", {"node": node, "boot": "b"})  # as 0.1.0 says it
    assert taken["protocol"] == PROTOCOL and taken["epoch"] > 0
    orders = agent.call("POST", "/v1/agents/sync", {"node": "older", "boot": "b"}, Orders)
    assert orders.epoch == taken["epoch"] and not orders.announce
    for protocol, said in ((0, "the agent is too old.*Bring the agent up to date"), (99, "too new.*server.*first")):
        with pytest.raises(Denied, match=said):
            agent.call("POST", "/v1/nodes", {"node": node, "boot": "b", "protocol": protocol})
