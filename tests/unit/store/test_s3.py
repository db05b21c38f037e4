"""Objects in an S3 store: the published signature, bad URLs, a server that fails. A real server: tests/cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.store import s3

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


def test_the_signature_of_the_documentations_example() -> None:
    """AWS, "Signature Calculations for the Authorization Header", example GET Object."""
    _, keys = s3.parse("s3://examplebucket", KEYS)
    headers = {"Host": "examplebucket.s3.amazonaws.com", "Range": "bytes=0-9"}
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    made = s3.signed(keys, "us-east-1", "GET", "/test.txt", headers, empty, "20130524T000000Z")
    assert made["authorization"].endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")
    assert "wJalr" not in repr(keys)


@pytest.mark.parametrize(
    ("url", "keys", "message"),
    [
        ("s3://", KEYS, "names no bucket"),
        ("s3://b", {}, "AWS_ACCESS_KEY_ID"),
        ("s3://me:secret@b", KEYS, "holds keys"),
        ("s3://b?endpoint=ftp://x", KEYS, "http or https"),
        ("s3://b?endpoint=http://10.0.0.7:9000", KEYS, "use https"),
        ("s3://b?colour=red", KEYS, "unknown option 'colour'"),
    ],
)
def test_a_bad_url_is_told(url: str, keys: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as told:
        s3.parse(url, keys)
    assert "secret@" not in str(told.value)


def test_the_parts_of_a_url() -> None:
    place, _ = s3.parse("s3://bucket/a/b/?endpoint=https://s3.example.org:9000&region=eu-west-1", KEYS)
    assert place == s3.Place("s3.example.org:9000", True, "bucket", "a/b/", "eu-west-1")
    assert s3.parse("s3://bucket", KEYS)[0].host == "s3.us-east-1.amazonaws.com"
    with pytest.raises(InvalidInput, match="folder"):
        s3.open_objects("gopher://x")


class _Server(BaseHTTPRequestHandler):
    """Keeps bytes by path; a fault is answered instead of the next request."""

    kept: ClassVar[dict[str, bytes]] = {}
    faults: ClassVar[list[int]] = []
    asked: ClassVar[list[str]] = []

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.asked.append(f"{self.command} {self.path}")
        status = self.faults.pop(0) if self.faults else 200
        found = b""
        if status == 200 and self.command == "PUT":
            self.kept[self.path] = body
        elif status == 200 and self.path.count("/") > 1:
            status = 200 if self.path in self.kept else 404
            found = self.kept.get(self.path, b"")
        self.send_response(status)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found)

    do_GET = do_PUT = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.S3Objects]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3, "_FIRST_WAIT_S", 0.001)
    _Server.kept, _Server.faults, _Server.asked = {}, [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = s3.open_objects(f"s3://b/p?endpoint=http://127.0.0.1:{server.server_port}")
    assert isinstance(found, s3.S3Objects)
    yield found
    found._kept.connection.close()
    server.shutdown()
    server.server_close()


def test_an_overloaded_server_is_asked_again_and_bytes_are_sent_once(store: s3.S3Objects) -> None:
    _Server.faults = [503, 500]
    name = store.put(b"abc")
    assert (store.get(name), store.put(b"abc"), store.has("0" * 64)) == (b"abc", name, False)
    assert sum(line.startswith("PUT") for line in _Server.asked) == 1
    with pytest.raises(KeyError):
        store.get("0" * 64)
    with pytest.raises(InvalidInput, match="not the name"):
        store.get("../../etc/passwd")


def test_damage_refusal_and_silence_are_told(store: s3.S3Objects) -> None:
    name = store.put(b"abc")
    _Server.kept = dict.fromkeys(_Server.kept, b"abd")
    with pytest.raises(WattflowError, match="damaged"):
        store.get(name)
    _Server.faults = [403]
    with pytest.raises(WattflowError, match="answer 403"):
        store.get(name)
    _Server.faults = [500] * 4
    with pytest.raises(WattflowError, match="cannot be reached: answer 500"):
        store.get(name)
    _Server.faults = [404]
    with pytest.raises(InvalidInput, match="no such bucket"):
        store.check()
