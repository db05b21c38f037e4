"""The dashboard's page: built files of the package, and the headers that let nothing in from elsewhere."""

from __future__ import annotations

import functools
import gzip
import mimetypes
import re
from dataclasses import dataclass
from importlib import resources

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
class Answer:
    """A status, headers and bytes."""

    status: int
    headers: dict[str, str]
    data: bytes


def page(path: str) -> Answer | None:
    """Answer for a path of the page; None where it is none."""
    if path == "/":
        missing = Answer(404, HEADERS | {"content-type": "text/html; charset=utf-8"}, NOT_BUILT)
        return _answer("index.html", "no-cache") or missing
    folder, _, name = path[1:].rpartition("/")
    # One folder deep and plain names: no path leads out of the package.
    if folder not in ("", "assets") or not _NAME.fullmatch(name):
        return None
    # Files of `assets` carry a hash in their name, so they never change.
    return _answer(path[1:], _FOR_GOOD if folder else "no-cache")


def _answer(path: str, caching: str) -> Answer | None:
    data = _compressed(path)
    if data is None:
        return None
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if kind in ("text/html", "text/css", "text/javascript"):
        kind += "; charset=utf-8"
    # Every browser of today takes gzip, and nobody else asks for the page.
    return Answer(200, HEADERS | {"cache-control": caching, "content-encoding": "gzip", "content-type": kind}, data)


@functools.lru_cache(maxsize=64)
def _compressed(path: str) -> bytes | None:
    file = resources.files("wattflow") / "data" / "web"
    for part in path.split("/"):
        file = file / part
    try:
        # Without a time, so that a cache can compare answers.
        return gzip.compress(file.read_bytes(), 9, mtime=0)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
