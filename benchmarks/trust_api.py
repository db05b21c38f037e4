"""Requests drawn from the server's own OpenAPI, by every role, in JSON and MessagePack; and floods of bad connections.

No answer may be a 5xx, none may take long, no node may be lost, and a good client goes on almost as quickly as before.
"""

from __future__ import annotations

import random
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from trust_rig import calls, house, lasting
from trust_tally import Portion

from wattflow.runtime.home import Home

ROLES = ("user", "agent", "operator")
HANG_S = 20.0
LEFT_OUT = ("/shutdown",)
"""What would end the house for the requests behind it."""


def requests_of(home: Home, number: int, each: int) -> Portion:
    """So many requests of each operation, role and form."""
    import requests
    import schemathesis

    began_s, sent, failures = time.monotonic(), 0, []  # type: float, int, list[str]
    session = requests.Session()
    tokens = {role: home.token(role) for role in ROLES}
    api = schemathesis.openapi.from_url(f"{home.url()}/openapi.json", headers=_bearer(tokens["operator"]))
    operations = [found.ok() for found in api.get_all_operations()]
    for operation in (one for one in operations if not one.path.endswith(LEFT_OUT)):

        @seed(number)
        @settings(max_examples=each, deadline=None, suppress_health_check=list(HealthCheck), database=None,
                  phases=[Phase.generate])  # fmt: skip
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            nonlocal sent
            _no_waits(case)
            for role in ROLES:
                for packed in (False, True) if isinstance(case.body, dict | list) else (False,):
                    sent += 1
                    failures.extend(_sent(session, case, home.url(), tokens[role], packed))

        send()
    counts = {"requests": sent, "stumbles": sum("answered 5" in one for one in failures),
              "hangs": sum("no answer" in one for one in failures), "operations": len(operations)}  # fmt: skip
    return Portion(part="api", seed=number, took_s=time.monotonic() - began_s, counts=counts, failures=failures[:50])


def _sent(session: Any, case: Any, url: str, token: str, packed: bool) -> list[str]:
    import requests

    about = case.as_transport_kwargs(base_url=url, headers=_bearer(token))
    if packed:
        about.pop("json", None)
        try:
            about["data"] = msgspec.msgpack.encode(case.body)
        except (OverflowError, UnicodeEncodeError, TypeError):
            return []  # MessagePack has no such number or text
        about["headers"]["content-type"] = "application/msgpack"
    shown = f"{about['method']} {case.formatted_path} {'msgpack' if packed else 'json'} {str(case.body)[:200]}"
    try:
        status = session.request(**about, timeout=HANG_S).status_code
    except requests.exceptions.Timeout:
        return [f"no answer: {shown}"]
    except (requests.exceptions.RequestException, ValueError, UnicodeError):
        return []  # such a request cannot be put on the wire
    return [f"answered {status}: {shown}"] if status >= 500 else []


def _no_waits(case: Any) -> None:
    """A long poll is no hang."""
    for place in (case.query, case.body):
        if isinstance(place, dict) and "wait_s" in place:
            place["wait_s"] = 0


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# ---- floods


class Flood(threading.Thread):
    """Bad connections, one kind after the other, until told to stop."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._draw, self.over = random.Random(number), threading.Event()
        self.made = 0
        self._held: list[socket.socket] = []

    def run(self) -> None:
        kinds = (self._half, self._endless_header, self._garbage, self._large, self._denied)
        while not self.over.is_set():
            try:
                self._draw.choice(kinds)()
                self.made += 1
            except OSError:
                time.sleep(0.01)
        for one in self._held:
            one.close()

    def _open(self) -> socket.socket:
        made = socket.create_connection(self._address, timeout=2)
        self._held.append(made)
        if len(self._held) > 1500:
            self._held.pop(0).close()
        return made

    def _half(self) -> None:
        self._open().sendall(b"POST /v1/submissions HTTP/1.1\r\nhost: x\r\ncontent-len")

    def _endless_header(self) -> None:
        one = self._open()
        one.sendall(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(64):
            one.sendall(b"a" * 65536)

    def _garbage(self) -> None:
        self._open().sendall(self._draw.randbytes(self._draw.randrange(1, 4096)))

    def _large(self) -> None:
        one = self._open()
        one.sendall(b"POST /v1/objects HTTP/1.1\r\nhost: x\r\ncontent-length: 1073741823\r\n\r\n" + bytes(65536))

    def _denied(self) -> None:
        self._open().sendall(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer no\r\n\r\n")


def trips(home: Home, count: int) -> list[float]:
    """Seconds of calls of a good client, sorted."""
    connection, took_s = calls(home, "user"), []
    for _ in range(count):
        began_s = time.perf_counter()
        connection.patiently("GET", "/v1/status", for_s=HANG_S)
        took_s.append(time.perf_counter() - began_s)
        time.sleep(0.005)
    return sorted(took_s)


def flood(home: Home, number: int, count: int) -> Portion:
    """A good client before a flood and in it."""
    began_s = time.monotonic()
    log = home.folder / "server.log"
    before, lost_before = lasting(home.folder), log.read_text(errors="replace").count("is lost")
    quiet_s = trips(home, count)
    storms = [Flood(home.url(), number + n) for n in range(2)]
    for storm in storms:
        storm.start()
    wet_s = trips(home, count)
    for storm in storms:
        storm.over.set()
    for storm in storms:
        storm.join(30)
    lost = log.read_text(errors="replace").count("is lost") - lost_before
    gone = [kind for pid, kind in before.items() if pid not in lasting(home.folder)]
    late, calm = wet_s[int(0.99 * count)], quiet_s[int(0.99 * count)]
    failures = [f"ended: {kind}" for kind in gone] + ([f"{lost} nodes lost in the flood"] if lost else [])
    print(f"# p50 of a good client {1e3 * statistics.median(quiet_s):.2f} ms, {1e3 * statistics.median(wet_s):.2f} ms "
          f"in the flood; p99 {1e3 * calm:.2f}, {1e3 * late:.2f} ms", flush=True)  # fmt: skip
    return Portion(part="flood", seed=number, took_s=time.monotonic() - began_s, failures=failures,
                   counts={"connections": sum(storm.made for storm in storms), "lost": lost, "ended": len(gone)},
                   worst={"p99_ratio": late / calm})  # fmt: skip


def portions(folder: Path, number: int, each: int, count: int) -> list[Portion]:
    """Requests, then a flood, on a house each: nodes that requests announce are lost by right, 3 s later.

    On one house the flood was told to have lost nodes. In two tries that were looked at they bore the requests' drawn
    names; the first loss was not seen again, so this is its likely cause, not a proven one.
    """
    with house(folder / "requests", "--cpus", "2") as home:
        asked = requests_of(home, number, each)
    with house(folder / "flood", "--cpus", "2") as home:
        return [asked, flood(home, number, count)]
