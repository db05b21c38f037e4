"""Objects in an S3-compatible store: ``s3://BUCKET/PREFIX?endpoint=URL&region=NAME``.

Four requests are all we need (HEAD of the bucket, HEAD, GET and PUT of an object), so they are made here, signed by
version 4 of AWS's signatures (docs.aws.amazon.com, "Authenticating Requests: Using the Authorization Header"), without
a client library. The bytes' hash that a signature wants is the object's name already. Keys come from the usual
variables of the environment and are never part of a URL, a message or a log.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import ipaddress
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.store.objects import FolderObjects, ObjectDamaged, Objects, checked_name, object_name
from wattflow.store.schema import StoreTrouble

_EMPTY = hashlib.sha256(b"").hexdigest()
_TRIES, _FIRST_WAIT_S, _TIMEOUT_S = 4, 0.2, 60.0
_KNOWN = ("endpoint", "region")


@dataclass(frozen=True, slots=True)
class Keys:
    """Who asks; the secret is not shown."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket on a server, and what the names of objects begin with there."""

    host: str
    secure: bool
    bucket: str
    prefix: str
    region: str


def signed(
    keys: Keys, region: str, method: str, path: str, headers: Mapping[str, str], payload_hash: str, when: str
) -> dict[str, str]:
    """The headers of a request with its signature; ``when`` is as in 20130524T000000Z, the path is quoted already."""
    everything = {key.lower(): value for key, value in headers.items()}
    everything |= {"x-amz-content-sha256": payload_hash, "x-amz-date": when}
    if keys.session:
        everything["x-amz-security-token"] = keys.session
    names = ";".join(sorted(everything))
    lines = "".join(f"{key}:{everything[key].strip()}\n" for key in sorted(everything))
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{payload_hash}"
    scope = f"{when[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (when[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    who = f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope},SignedHeaders={names},Signature={signature}"
    return everything | {"authorization": who}


class S3Objects:
    """Objects of one bucket. Safe to use from several threads, each of which keeps a connection."""

    def __init__(self, place: Place, keys: Keys) -> None:
        self.place, self._keys = place, keys
        self._kept = threading.local()

    def check(self) -> None:
        """Raise InvalidInput where the bucket cannot be used."""
        status, _ = self._ask("HEAD", f"/{self.place.bucket}")
        if status != 200:
            why = {404: "there is no such bucket", 403: "these keys may not use it"}.get(status, f"answered {status}")
            raise InvalidInput(f"s3://{self.place.bucket} on {self.place.host}", why)

    def put(self, data: bytes) -> str:
        """Keep the bytes; returns their name. The same bytes are sent once."""
        name = object_name(data)
        if not self.has(name):
            status, said = self._ask("PUT", self._path(name), data, name)
            if status != 200:
                raise self._problem("keep", name, status, said)
        return name

    def get(self, name: str) -> bytes:
        """The bytes of a name; KeyError where it is not here."""
        status, data = self._ask("GET", self._path(name))
        if status == 404:
            raise KeyError(name)
        if status != 200:
            raise self._problem("read", name, status, data)
        if object_name(data) != name:
            raise ObjectDamaged(name, f"s3://{self.place.bucket}")
        return data

    def has(self, name: str) -> bool:
        """Say whether a name is here."""
        status, _ = self._ask("HEAD", self._path(name))
        if status not in (200, 404):
            raise self._problem("look for", name, status, b"")
        return status == 200

    def _path(self, name: str) -> str:
        checked_name(name)
        return quote(f"/{self.place.bucket}/{self.place.prefix}{name[:2]}/{name[2:]}")

    def _problem(self, what: str, name: str, status: int, said: bytes) -> WattflowError:
        detail = said[:300].decode(errors="replace")
        return WattflowError(f"s3://{self.place.bucket} would not {what} {name}: answer {status} {detail}".rstrip())

    def _ask(self, method: str, path: str, data: bytes = b"", payload_hash: str = _EMPTY) -> tuple[int, bytes]:
        """One request, again where the connection broke or the server is overloaded; all four may be repeated."""
        problem: object = ""
        for turn in range(_TRIES):
            if turn:
                time.sleep(_FIRST_WAIT_S * 2 ** (turn - 1))
            when = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
            about = {"host": self.place.host}
            headers = signed(self._keys, self.place.region, method, path, about, payload_hash, when)
            try:
                connection = self._connection()
                connection.request(method, path, data or None, headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._kept.connection, problem = None, error
                continue
            if answer.status < 500:
                return answer.status, body
            problem = f"answer {answer.status}"
        raise StoreTrouble(f"s3://{self.place.bucket} on {self.place.host} cannot be reached: {problem}")

    def _connection(self) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is None:
            kind = http.client.HTTPSConnection if self.place.secure else http.client.HTTPConnection
            kept = self._kept.connection = kind(self.place.host, timeout=_TIMEOUT_S)
        return kept


def parse(url: str, environment: Mapping[str, str]) -> tuple[Place, Keys]:
    """The parts of a URL and the keys of the environment. Raises InvalidInput with what is missing."""
    parts = urlsplit(url)
    options = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
    shown = f"s3://{parts.hostname or ''}{parts.path}"
    problems = [f"unknown option {key!r}; known: {', '.join(_KNOWN)}" for key in options if key not in _KNOWN]
    if not parts.hostname:
        problems.append("names no bucket; write s3://BUCKET/PREFIX")
    if parts.username or parts.password:
        problems.append("holds keys; put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
    keys = Keys(
        *(environment.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
    )
    if not (keys.access and keys.secret):
        problems.append("needs the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    region = options.get("region") or environment.get("AWS_REGION") or "us-east-1"
    server = options.get("endpoint") or environment.get("AWS_ENDPOINT_URL") or f"https://s3.{region}.amazonaws.com"
    end = urlsplit(server)
    if end.scheme not in ("http", "https") or not end.hostname:
        problems.append(f"the endpoint must be an http or https URL, not {server!r}")
    elif end.scheme == "http" and not _is_local(end.hostname):
        problems.append(f"the endpoint {end.hostname} is another machine: use https")
    if problems:
        raise InvalidInput(shown, "; ".join(problems))
    prefix = parts.path.strip("/")
    return Place(end.netloc, end.scheme == "https", parts.netloc, f"{prefix}/" if prefix else "", region), keys


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_objects(url: str | Path) -> Objects:
    """Open a folder by its path, or an S3-compatible store (tried once) by ``s3://BUCKET/PREFIX?endpoint=URL``."""
    if str(url).startswith("s3://"):
        found = S3Objects(*parse(str(url), os.environ))
        found.check()
        return found
    if "://" in str(url):
        raise InvalidInput(str(url), "objects are kept in a folder (give its path) or in an S3 store (s3://BUCKET)")
    return FolderObjects(Path(url))
