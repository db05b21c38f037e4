"""Saved runs on loopback: who gets in, what is answered, and one sentence for every file that cannot be drawn."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wattflow.files.columns import unpack
from wattflow.lab.run.run_file import KEY, read_run, write_run
from wattflow.lab.show.run_columns import run_columns
from wattflow.lab.show.viewer import Viewer, find_runs
from wattflow.model.errors import InvalidInput

from .runs import two_node_run


def old_file(path: Path) -> Path:
    """As version 1 wrote it: attempts and manifest alone."""
    write_run(path, two_node_run())
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[KEY])
    del about["version"]
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(about).encode()}), path)
    return path


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    (tmp_path / "runs").mkdir()
    write_run(tmp_path / "runs" / "a&b <i>.parquet", two_node_run())
    (tmp_path / "runs" / "c.wfcols").write_bytes(run_columns(two_node_run()))
    old_file(tmp_path / "runs" / "old.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "runs" / "other.parquet")
    made = Viewer(find_runs([tmp_path / "runs"]))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def ask(viewer: Viewer, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", viewer.server_port, timeout=30)
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.getheader("content-encoding") == "gzip":
        data = gzip.decompress(data)
    is_json = answer.getheader("content-type", "").startswith("application/json")
    return answer.status, json.loads(data) if is_json else data, {k.lower(): v for k, v in answer.getheaders()}


def login(viewer: Viewer) -> str:
    code = viewer.address.split("#code=")[1].split("&")[0]
    status, _, headers = ask(viewer, "POST", "/v1/session", {"code": code})
    assert status == 200 and "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
    return headers["set-cookie"].split(";")[0]


def test_only_the_address_lets_one_in(viewer: Viewer) -> None:
    assert ask(viewer, "GET", "/v1/runs")[0] == 401
    assert ask(viewer, "POST", "/v1/session", {"code": "x"})[0] == 401
    assert ask(viewer, "POST", "/v1/session", ["x"])[0] == 422
    assert ask(viewer, "GET", "/v1/runs", cookie="wattflow_files=guess")[0] == 401
    assert ask(viewer, "GET", "/v1/page", host="evil.example")[0] == 403
    status, told, headers = ask(viewer, "GET", "/v1/page")
    assert status == 200 and told["mode"] == "files" and told["session"] is None
    assert "script-src 'self'" in headers["content-security-policy"]


def test_runs_are_listed_and_drawn_and_an_old_one_says_why_not(viewer: Viewer) -> None:
    cookie = login(viewer)
    lines = {line["id"]: line for line in ask(viewer, "GET", "/v1/runs", cookie=cookie)[1]}
    assert set(lines) == {"a&b <i>.parquet", "c.wfcols", "old.parquet"}
    assert lines["a&b <i>.parquet"]["energy_j"] == two_node_run().total_j and lines["c.wfcols"]["policy"] == "fifo"
    assert "older version" in lines["old.parquet"]["error"]
    for name in ("a%26b%20%3Ci%3E.parquet", "c.wfcols"):
        status, data, _ = ask(viewer, "GET", f"/v1/runs/{name}", cookie=cookie)
        assert status == 200 and len(unpack(data).tables["attempts"]["start"]) == 3
    status, told, _ = ask(viewer, "GET", "/v1/runs/old.parquet", cookie=cookie)
    assert status == 422 and "older version" in told["error"]
    assert ask(viewer, "GET", "/v1/runs/..%2f..%2fx", cookie=cookie)[0] == 404


def test_the_address_of_one_run_names_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a&b #1.parquet", two_node_run())
    made = Viewer(find_runs([tmp_path / "a&b #1.parquet"]))
    made.server_close()
    assert made.address.endswith("&run=a%26b%20%231.parquet")


def test_every_bad_file_is_one_sentence(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    write_run(good, two_node_run())
    bad = {
        "cut.parquet": good.read_bytes()[:-200], "empty.parquet": b"", "text.parquet": b"no run",
        "cut.wfcols": run_columns(two_node_run())[:300], "foreign.wfcols": good.read_bytes(),
    }  # fmt: skip
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidInput) as told:
            find_runs([tmp_path / name])
        assert "\n" not in str(told.value) and name in str(told.value)
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidInput, match="holds no run"):
        find_runs([tmp_path / "none"])


def test_a_newer_and_a_damaged_run_file_say_so(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_run(path, two_node_run())
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[KEY])
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(about | {"version": 99}).encode()}), path)
    with pytest.raises(InvalidInput, match="newer wattflow"):
        read_run(path)
    pq.write_table(table, path)  # without what it was made of
    with pytest.raises(InvalidInput, match="is damaged"):
        read_run(path)
    saved = read_run(old_file(path))
    assert saved.run is None and "older version" in saved.notes[0] and len(saved.attempts) == 3


def test_the_command_refuses_what_it_cannot_open(tmp_path: Path) -> None:
    from wattflow.cli.main import app

    for given in (["nothing/there.parquet"], [str(tmp_path)], [str(tmp_path), "workflow"]):
        told = CliRunner().invoke(app, ["view", "--no-browser", "--home", str(tmp_path / "home"), *given])
        assert told.exit_code == 2 and told.stderr.startswith("error: ") and told.stderr.count("\n") == 1
