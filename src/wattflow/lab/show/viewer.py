"""Saved runs in the dashboard's page: a small server on this machine's loopback, for as long as somebody looks.

It answers the same routes as a real server, as far as files go. Only the browser that was given the address with its
code gets in: other users of the machine can reach the port, and a page of another site can make a browser ask.
"""

from __future__ import annotations

import functools
import gzip
import json
import mimetypes
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from wattflow.files.columns import MEDIA_TYPE, unpack
from wattflow.lab.figures.metrics import metrics
from wattflow.lab.run.run_file import is_run, read_run
from wattflow.lab.show.page import web_file
from wattflow.lab.show.run_columns import view_of
from wattflow.model.errors import InvalidInput, WattflowError

# Only what comes from here: a name of a task with a script in it stays text.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
NOT_BUILT = (
    b"<!doctype html><html lang=en><title>wattflow</title><p>The page is not part of this build: data/web is missing. "
    b"What it would show is answered under /v1 all the same."
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class ViewerAnswer:
    """A status, headers and bytes."""

    status: int
    headers: dict[str, str]
    data: bytes


def page(path: str) -> ViewerAnswer | None:
    """Answer for a path of the page; None where it is none."""
    if path == "/":
        missing = ViewerAnswer(404, HEADERS | {"content-type": "text/html; charset=utf-8"}, NOT_BUILT)
        return _answer("index.html", "no-cache") or missing
    folder, _, name = path[1:].rpartition("/")
    # One folder deep and plain names: no path leads out of the package.
    if folder not in ("", "assets") or not _NAME.fullmatch(name):
        return None
    # Files of `assets` carry a hash in their name, so they never change.
    return _answer(path[1:], _FOR_GOOD if folder else "no-cache")


def _answer(path: str, caching: str) -> ViewerAnswer | None:
    data = _compressed(path)
    if data is None:
        return None
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if kind in ("text/html", "text/css", "text/javascript"):
        kind += "; charset=utf-8"
    # Every browser of today takes gzip, and nobody else asks for the page.
    return ViewerAnswer(
        200, HEADERS | {"cache-control": caching, "content-encoding": "gzip", "content-type": kind}, data
    )


@functools.lru_cache(maxsize=64)
def _compressed(path: str) -> bytes | None:
    try:
        # Without a time, so that a cache can compare answers.
        return gzip.compress(web_file(path), 9, mtime=0)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


COOKIE = "wattflow_files"
MOST_FILES = 1000
LOGIN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Saved:
    """A file with a run, by the name that the page calls it."""

    id: str
    path: Path

    def columns(self) -> bytes:
        """Its document."""
        if self.path.suffix == ".wfcols":
            data = self.path.read_bytes()
            # Looked at before it is sent: a damaged file is an error here, not in the browser.
            unpack(data, str(self.path))
            return data
        return view_of(read_run(self.path), self.id)

    def listed(self) -> dict[str, Any]:
        """It as a line of the list; what cannot be read says why."""
        nothing = dict.fromkeys(("owner", "submitted_s", "policy", "makespan_s", "energy_j", "response_mean_s"))
        line = {"id": self.id, "title": self.id, "workload": self.id, "source": "file", "attempts": 0, **nothing}
        try:
            return line | self._figures()
        # One bad file of a folder must not hide the others.
        except (WattflowError, OSError) as error:
            return line | {"state": "failed", "simulated": True, "error": str(error)}

    def _figures(self) -> dict[str, Any]:
        if self.path.suffix == ".wfcols":
            about = unpack(self.path.read_bytes(), str(self.path)).about
            known = {key: about.get(key) for key in ("workload", "policy", "state", "simulated", "makespan_s")}
            response = about.get("figures", {}).get("response_mean_s")
            return known | {"energy_j": about.get("energy_total_j"), "response_mean_s": response}
        saved = read_run(self.path)
        if saved.run is None:
            raise InvalidInput(str(self.path), saved.notes[0])
        run, values = saved.run, metrics(saved.run)
        return {
            "workload": run.workload.name,
            "policy": run.policy,
            "simulated": run.simulated,
            "state": "done" if bool(run.finished.all()) else "failed",
            "makespan_s": run.makespan_s,
            "energy_j": values["energy_j"],
            "response_mean_s": values["response_mean_s"],
            "attempts": len(run.attempts),
            "title": f"{run.workload.name} under {run.policy}",
            "submitted_s": run.manifest.get("started_at_s"),
            "owner": run.manifest.get("owner"),
        }


def find_runs(targets: Sequence[Path]) -> list[Saved]:
    """Return the files named, and all runs of the folders named.

    Raises:
        InvalidInput: One is no run, or a folder has none.
    """
    found: list[Path] = []
    for target in targets:
        if not target.is_dir():
            if target.suffix == ".wfcols":
                unpack(target.read_bytes(), str(target))
            else:
                read_run(target)  # one sentence now rather than on the page
            found.append(target)
            continue
        inside = sorted(path for path in target.iterdir() if path.suffix == ".wfcols" or is_run_file(path))
        if not inside:
            raise InvalidInput(str(target), "holds no run: `wattflow simulate --attempts` and `run --out` write them")
        found += inside[:MOST_FILES]
    names: dict[str, int] = {}
    made = []
    for path in found:
        count = names[path.name] = names.get(path.name, 0) + 1
        # Two folders may hold files of one name.
        made.append(Saved(path.name if count == 1 else f"{path.name} ({count})", path))
    return made


def is_run_file(path: Path) -> bool:
    """Tell whether a file of a folder is a run; others are left alone."""
    return path.suffix == ".parquet" and is_run(path)


class Viewer(ThreadingHTTPServer):
    """The server. `address` opens the page for whoever has it."""

    daemon_threads = True

    def __init__(self, runs: Sequence[Saved], port: int = 0) -> None:
        # Loopback alone.
        super().__init__(("127.0.0.1", port), _Handler)
        self.runs = {run.id: run for run in runs}
        # Two secrets: the code is in an address that browsers keep, the cookie's is never shown.
        self.code, self.secret = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._lines: list[dict[str, Any]] | None = None

    @property
    def address(self) -> str:
        """Where a browser looks; of a single run, at it."""
        only = f"&run={quote(next(iter(self.runs)), safe='')}" if len(self.runs) == 1 else ""
        # Behind the #: a browser sends it to nobody, and no log has it.
        return f"http://127.0.0.1:{self.server_port}/#code={self.code}{only}"

    def lines(self) -> list[dict[str, Any]]:
        """Return the list of runs, read once."""
        if self._lines is None:
            self._lines = [run.listed() for run in self.runs.values()]
        return self._lines


class _Handler(BaseHTTPRequestHandler):
    # For types: handlers know it as any server.
    server: Viewer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a person looks at the page, not at requests."""

    def do_GET(self) -> None:
        """Answer a look."""
        self._send(self._checked() or self._get(urlsplit(self.path).path))

    def do_POST(self) -> None:
        """Answer the login; there is nothing else to be changed."""
        self._send(self._checked() or self._login())

    def _checked(self) -> ViewerAnswer | None:
        """Refuse a browser that was led here by another name: a site that calls this machine its own."""
        # The name by which it was asked, without the port: DNS rebinding leads here by another one.
        host = self.headers.get("host", "").rsplit(":", 1)[0]
        return None if host in ("127.0.0.1", "localhost") else _error(403, "this page answers to 127.0.0.1 alone")

    def _get(self, path: str) -> ViewerAnswer:
        if path == "/v1/page":
            return _json(
                {"mode": "files", "wattflow": _version(), "session": self._session(), "policies": [], "clusters": []}
            )
        # The page itself holds nothing of anybody's; only its data need a login.
        if not path.startswith("/v1/"):
            return page(path) or _error(404, f"no page {path}")
        if self._session() is None:
            return _error(401, "open the address that `wattflow view` printed: it holds the code that lets you in")
        if path == "/v1/session":
            return _json(self._session())
        if path == "/v1/runs":
            return _json(self.server.lines())
        run = self.server.runs.get(unquote(path.removeprefix("/v1/runs/")))
        if run is None:
            return _error(404, f"nothing at {path}: files have runs alone")
        return _document(run)

    def _login(self) -> ViewerAnswer:
        size = self.headers.get("content-length", "0")
        # Bounded before it is read.
        if urlsplit(self.path).path != "/v1/session" or not size.isdecimal() or int(size) > LOGIN_BYTES:
            return _error(404, "there is nothing to change here")
        try:
            given = str(json.loads(self.rfile.read(int(size)))["code"])
        except (ValueError, KeyError, TypeError):
            return _error(422, 'a login is {"code": "…"}')
        # In constant time: how long it takes tells nothing of the code.
        if not secrets.compare_digest(given.encode(), self.server.code.encode()):
            return _error(401, "this code is another page's: open the address that `wattflow view` printed")
        cookie = f"{COOKIE}={self.server.secret}; Path=/; HttpOnly; SameSite=Strict"
        found = _json({"name": "you", "role": "viewer", "expires_s": None})
        return ViewerAnswer(200, found.headers | {"set-cookie": cookie}, found.data)

    def _session(self) -> dict[str, Any] | None:
        try:
            given = SimpleCookie(self.headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        good = given is not None and secrets.compare_digest(given.value.encode(), self.server.secret.encode())
        # Nobody can change anything here.
        return {"name": "you", "role": "viewer", "expires_s": None} if good else None

    def _send(self, answer: ViewerAnswer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        # Kept connections need to know where an answer ends.
        self.send_header("content-length", str(len(answer.data)))
        self.end_headers()
        self.wfile.write(answer.data)


def _document(run: Saved) -> ViewerAnswer:
    try:
        data = gzip.compress(run.columns(), 6)
    except (WattflowError, OSError) as error:
        return _error(422, str(error))
    # Files may change: a browser must ask again.
    headers = {"content-type": MEDIA_TYPE, "content-encoding": "gzip", "cache-control": "no-store"}
    return ViewerAnswer(200, HEADERS | headers, data)


def _json(value: object, status: int = 200) -> ViewerAnswer:
    headers = HEADERS | {"content-type": "application/json", "cache-control": "no-store"}
    return ViewerAnswer(status, headers, json.dumps(value, allow_nan=False).encode())


def _error(status: int, sentence: str) -> ViewerAnswer:
    return _json({"error": sentence}, status)


def _version() -> str:
    from wattflow import __version__

    return __version__
