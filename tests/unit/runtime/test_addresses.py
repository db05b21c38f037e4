"""Clients and agents ask the servers that they know in turn."""

from __future__ import annotations

import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattflow.cli.live import connect
from wattflow.model.errors import InvalidInput
from wattflow.runtime import processes
from wattflow.runtime.addresses import MOST, SILENT_S, Addresses, trust
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home, NotRunning
from wattflow.runtime.transport import Unreachable
from wattflow.server.settings import ServerSettings, listen

A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"


def test_one_that_refuses_has_its_turn_again_and_a_silent_one_is_left_alone() -> None:
    now = [0.0]
    known = Addresses(f"{A}/, {B}", lambda: now[0])
    assert known.current == A
    known.failed(A)
    known.failed(A)  # a second call that was under way: nobody turns back for it
    assert known.current == B
    known.failed(B)
    assert known.current == A
    known.failed(A, silent=True)
    known.failed(B)
    assert known.current == B  # it may take over at any moment, while the other is not answering
    known.learn([C, B, "http://d:3", "https://d:4", "ftp://e", "nonsense"])
    assert str(known) == f"{A},{B},{C}"
    known.failed(B, silent=True)
    known.failed(C, silent=True)
    assert known.current == A  # all are silent: the one that was so first
    now[0] = 2 * SILENT_S
    known.failed(A)
    assert known.current == B


def test_a_server_that_was_started_anew_elsewhere_is_found_where_it_says_so() -> None:
    """As after `wattflow up --port 0` in the place of a server that was killed."""
    home: list[str] = []

    def look() -> str:
        if not home:
            raise NotRunning("no server is running")
        return ",".join(home)

    known = Addresses(A, look=look)
    known.failed(A)
    assert known.current == A  # it may come back where it was
    home[:] = [B, "https://127.0.0.1:4", "nonsense"]
    known.failed(A)
    assert known.current == B and str(known) == f"{B},{A}"
    for port in range(10, 40):
        home[:] = [f"http://127.0.0.1:{port}"]
        known.failed(known.current)
        assert known.current == home[0] and len(known) <= MOST


@pytest.mark.parametrize("text", ["", "a:1", "http://", "http://a:x", f"{A},b"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a URL"):
        Addresses(text)


class Answer(http.server.BaseHTTPRequestHandler):
    """Says that all is well."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_GET(self) -> None:
        body = json.dumps({"error": "away"}).encode() if self.status != 200 else b"\x01"
        self.send_response(self.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def served() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_call_goes_on_to_whoever_answers(served: str) -> None:
    with socket.socket() as refuses, socket.socket() as silent:
        refuses.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        first, second = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in (refuses, silent))
        connection = Connection(f"{first},{second},{served}", "token", timeout_s=0.3)
        assert connection.call("GET", "/") == 1 and connection.server == served
        assert connection.call("GET", "/") == 1
        connection.close()
        alone = Connection(first, "token", timeout_s=0.3)
        with pytest.raises(Unreachable, match=first):
            alone.call("GET", "/")


def test_a_server_in_trouble_is_turned_away_from(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "status", 503)
    connection = Connection(f"{served},{A}", "token", timeout_s=5)
    with pytest.raises(Unreachable, match="away"):
        connection.call("GET", "/")
    assert connection.server == A


def test_a_command_finds_a_server_that_was_started_anew_elsewhere(served: str, tmp_path: Path) -> None:
    place = Home(tmp_path)
    place.token_file("user").write_text("token")
    processes.mark(place.server_file, os.getpid(), url=A)
    connection = connect(tmp_path, None, None)
    with pytest.raises(Unreachable, match=A):
        connection.call("GET", "/")
    processes.mark(place.server_file, os.getpid(), url=served)
    assert connection.patiently("GET", "/", for_s=5) == 1 and connection.server == served
    connection.close()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_named(content: str | None, tmp_path: Path) -> None:
    """By agents (`trust`), clients and `wattflow up`."""
    path = tmp_path / "a.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match=r"a\.pem: holds no certificate: "):
        trust(str(path))
    with pytest.raises(InvalidInput, match=r"a\.pem: holds no certificate: "):
        Connection("https://127.0.0.1:1", "token", str(path))
    place = Home(tmp_path)
    for settings in (ServerSettings(home=place, tls_cert=path), ServerSettings(home=place, tls_key=path)):
        with pytest.raises(InvalidInput, match=r"a\.pem"):
            listen(settings)
