"""Objects in an S3-compatible store: ``s3://bucket/prefix?endpoint=http://host:9000&region=us-east-1``.

Three calls are enough (PUT, GET, HEAD), signed as Amazon's documentation of Signature Version 4 describes; an SDK of
theirs would be a hundred times this module. Keys come from ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and, where
given, ``AWS_SESSION_TOKEN``; they are never logged.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import os
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from wattflow.model.errors import InvalidInput
from wattflow.store.database import StoreTrouble
from wattflow.store.objects import checked_name, object_name

TRIES = 4
FIRST_PAUSE_S = 0.1
TIMEOUT_S = 60.0
_OPTIONS = ("endpoint", "region")


@dataclass(frozen=True, slots=True)
class Keys:
    """Who asks. Its text says nothing of the secret."""

    access: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Keys:
        """From the environment's usual names."""
        try:
            access, secret = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        except KeyError as lacking:
            raise InvalidInput("--objects", f"s3:// needs {lacking.args[0]} in the environment") from None
        return cls(access, secret, environment.get("AWS_SESSION_TOKEN") or None)


class S3Objects:
    """Objects in a bucket, below a prefix."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        parts = urllib.parse.urlsplit(url)
        given = dict(urllib.parse.parse_qsl(parts.query))
        unknown = sorted(set(given) - set(_OPTIONS))
        if not parts.netloc or unknown:
            why = f"knows no option {unknown[0]!r}" if unknown else "names no bucket"
            raise InvalidInput(url, f"{why}; write s3://bucket/prefix?endpoint=http://host:9000&region=us-east-1")
        self._region = given.get("region") or environment.get("AWS_REGION") or "us-east-1"
        endpoint = given.get("endpoint") or environment.get("AWS_ENDPOINT_URL") or _amazon(self._region)
        self._endpoint = urllib.parse.urlsplit(endpoint)
        if self._endpoint.scheme not in ("http", "https") or not self._endpoint.hostname:
            raise InvalidInput(url, f"the endpoint {endpoint!r} is not a URL such as http://host:9000")
        self._keys = Keys.of(environment)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._local = threading.local()
        self._reach()

    def put(self, data: bytes) -> str:
        """Keep the bytes; returns their name. The same bytes are kept once."""
        name = object_name(data)
        if not self.has(name):
            self._done("PUT", name, data)
        return name

    def get(self, name: str) -> bytes:
        """The bytes of a name; KeyError where it is not here."""
        status, data = self._ask("GET", self._path(name))
        if status == 404:
            raise KeyError(name)
        self._judge("GET", status, data)
        if object_name(data) != name:
            raise StoreTrouble(f"{self._shown}: the object {name} was changed there")
        return data

    def has(self, name: str) -> bool:
        """Whether a name is here."""
        status, data = self._ask("HEAD", self._path(name))
        if status == 404:
            return False
        self._judge("HEAD", status, data)
        return True

    # ---- requests

    @property
    def _shown(self) -> str:
        return f"s3://{self._bucket} at {self._endpoint.netloc}"

    def _path(self, name: str) -> str:
        whole = "/".join(part for part in (self._bucket, self._prefix, checked_name(name)) if part)
        return "/" + urllib.parse.quote(whole, safe="/~-._")

    def _reach(self) -> None:
        """Refuse at once what can never work: a bucket that is not there, keys that are not taken."""
        status, data = self._ask("HEAD", f"/{urllib.parse.quote(self._bucket)}")
        if status == 404:
            raise InvalidInput(self._shown, "there is no such bucket; make it first")
        if status in (301, 307, 400, 401, 403):
            raise InvalidInput(self._shown, f"the keys or the region are not taken there (status {status})")
        self._judge("HEAD", status, data)

    def _done(self, method: str, name: str, data: bytes) -> None:
        status, answer = self._ask(method, self._path(name), data)
        self._judge(method, status, answer)

    def _judge(self, method: str, status: int, answer: bytes) -> None:
        if status >= 300:
            said = answer[:200].decode(errors="replace").replace("\n", " ")
            raise StoreTrouble(f"{self._shown} answered {method} with {status} {said}".rstrip())

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One call, made again where the store is away or busy: all of them may be made twice."""
        pause_s = FIRST_PAUSE_S
        for left in reversed(range(TRIES)):
            try:
                status, data = self._call(method, path, body)
                if status < 500 or left == 0:
                    return status, data
            except (OSError, http.client.HTTPException) as error:
                self._local.connection = None
                if left == 0:
                    raise StoreTrouble(f"{self._shown} does not answer: {error or type(error).__name__}") from None
            time.sleep(pause_s)
            pause_s *= 3
        raise AssertionError

    def _call(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection = getattr(self._local, "connection", None) or self._connect()
        now = datetime.datetime.now(datetime.UTC)
        headers = {"host": self._endpoint.netloc}
        connection.request(
            method, path, body or None, signed(method, path, headers, body, now, self._region, self._keys)
        )
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._endpoint.hostname or "", self._endpoint.port
        made: http.client.HTTPConnection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        if self._endpoint.scheme == "https":
            made = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=ssl.create_default_context())
        self._local.connection = made
        return made


def signed(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime.datetime,
    region: str,
    keys: Keys,
) -> dict[str, str]:
    """The headers of a request with its signature (AWS Signature Version 4, one chunk, path as it is sent)."""
    stamp, digest = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    every = {name.lower(): value.strip() for name, value in headers.items()}
    every |= {"x-amz-date": stamp, "x-amz-content-sha256": digest}
    if keys.session is not None:
        every["x-amz-security-token"] = keys.session
    names = ";".join(sorted(every))
    lines = "".join(f"{name}:{every[name]}\n" for name in sorted(every))
    request = "\n".join((method, path, "", lines, names, digest))
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    every["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return every


def _amazon(region: str) -> str:
    return f"https://s3.{region}.amazonaws.com"
