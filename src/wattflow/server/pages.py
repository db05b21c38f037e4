"""The page itself: built files of the package, under a policy that lets nothing in from elsewhere."""

from __future__ import annotations

import functools
import gzip
import mimetypes
import re
from importlib import resources

from starlette.responses import Response

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
    "<!doctype html><html lang=en><title>wattflow</title><p>The page is not part of this build: data/web is missing. "
    "The server answers under /v1 all the same."
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOR_GOOD = "public, max-age=31536000, immutable"


def page(path: str) -> Response | None:
    """Answer for a path of the page; None where it is none."""
    if path == "/":
        return _answer("index.html", "no-cache") or Response(NOT_BUILT, 404, HEADERS, "text/html")
    folder, _, name = path[1:].rpartition("/")
    if folder not in ("", "assets") or not _NAME.fullmatch(name):
        return None
    return _answer(path[1:], _FOR_GOOD if folder else "no-cache")


def _answer(path: str, caching: str) -> Response | None:
    data = _compressed(path)
    if data is None:
        return None
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if kind in ("text/html", "text/css", "text/javascript"):
        kind += "; charset=utf-8"
    # Every browser of today takes gzip, and nobody else asks for the page.
    headers = {**HEADERS, "cache-control": caching, "content-encoding": "gzip", "content-type": kind}
    return Response(data, 200, headers)


@functools.lru_cache(maxsize=64)
def _compressed(path: str) -> bytes | None:
    file = resources.files("wattflow") / "data" / "web"
    for part in path.split("/"):
        file = file / part
    try:
        return gzip.compress(file.read_bytes(), 9, mtime=0)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
