"""The built page and documents of runs over HTTP on loopback: what browser tests open."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wattflow.lab.figures.metrics import metrics
from wattflow.lab.show.viewer import HEADERS, page
from wattflow.model.run import Run

WEB = Path(str(resources.files("wattflow"))) / "data" / "web"


class _Handler(BaseHTTPRequestHandler):
    documents: Mapping[str, bytes] = {}
    runs: Mapping[str, Run] = {}

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path == "/v1/page":
            who = {"name": "you", "role": "viewer", "expires_s": None}
            about = {"mode": "files", "wattflow": "test", "session": who, "policies": [], "clusters": []}
            return self._answer(json.dumps(about).encode(), "application/json")
        if path == "/v1/runs":
            return self._answer(
                json.dumps([_row(name, self.runs.get(name)) for name in self.documents]).encode(), "application/json"
            )
        name = path.removeprefix("/v1/runs/")
        if path != name and name in self.documents:
            return self._answer(self.documents[name], "application/vnd.wattflow.columns")
        found = page(path)
        if found is None:
            return self._answer(b'{"error": "There is no such run."}', "application/json", 404)
        self._send(found.status, found.headers, found.data)

    def _answer(self, body: bytes, kind: str, status: int = 200) -> None:
        self._send(status, HEADERS | {"content-type": kind, "content-encoding": "gzip"}, _packed(body))

    def _send(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing: tests read what the browser saw."""


@lru_cache(maxsize=16)
def _packed(body: bytes) -> bytes:
    return gzip.compress(body, 6)


def _row(name: str, run: Run | None) -> dict[str, object]:
    figures = metrics(run) if run is not None else {}
    known = {key: figures.get(key) for key in ("makespan_s", "energy_j", "response_mean_s")}
    count = None if run is None else len(run.attempts)
    return {"id": name, "title": name, "workload": name, "policy": "" if run is None else run.policy, "state": "done",
            "simulated": True, "source": "file", "owner": None, "submitted_s": None, "attempts": count,
            **known}  # fmt: skip


@contextmanager
def files_page(documents: Mapping[str, bytes], runs: Mapping[str, Run] | None = None) -> Iterator[str]:
    """Serve until the block ends; answers the page's address."""
    handler = type("Handler", (_Handler,), {"documents": documents, "runs": runs or {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
