"""Where a server may be, tried in turn; and where a token may be sent: never in the clear, unless a person said so.

An address that refuses is tried again at the next turn, for a standby refuses until it takes over. One that is silent
takes a whole timeout to find out, so it is left alone for a while as long as there are others.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from wattflow.model.errors import InvalidInput, WattflowError

if TYPE_CHECKING:
    import ssl

VARIABLE = "WATTFLOW_CLEAR_TEXT"
"""Set to 1 it allows clients and agents to send their token over plain HTTP."""


def trust(ca: str | None) -> ssl.SSLContext:
    """Make the context that a server's certificate is checked by: by the certificates in a file, else the system's."""
    import ssl  # most servers are of this machine and need none

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise InvalidInput(str(ca), f"holds no certificate: {error.strerror or error}") from None


def is_local(host: str) -> bool:
    """Say whether an address is this machine's own: loopback, or no address at all (0.0.0.0)."""
    try:
        address = ipaddress.ip_address(host.strip("[]").split("%")[0])
        return address.is_loopback or address.is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_server(server: str) -> None:
    """Refuse the address of a server (or several, with commas between) to which a token would travel in the clear."""
    if not all(is_private(one) for one in server.split(",")):
        raise InvalidInput(
            server[:200],
            "a token would travel in the clear; use https (`wattflow up --tls-cert`), or set "
            f"{VARIABLE}=1 where the network itself is private",
        )


def is_private(server: str) -> bool:
    """Return whether a token may be sent to an address: to this machine, encrypted, or where a person has said so."""
    parts = urlsplit(server)
    return parts.scheme != "http" or is_local(parts.hostname or "") or os.environ.get(VARIABLE) == "1"


def check_listening(host: str, tls: bool, allowed: bool) -> None:
    """Refuse to listen where tokens would come in the clear."""
    unspecified = host.strip("[]") in ("0.0.0.0", "::", "")
    if not tls and not allowed and (unspecified or not is_local(host)):
        raise InvalidInput(
            f"--host {host}",
            "tokens would travel in the clear: give --tls-cert and --tls-key, or say --clear-text where the network "
            "itself is private",
        )


def segment(name: str) -> str:
    """Quote a name, whatever it holds, as one part of a path or as a value of its query."""
    return quote(name, safe="", errors="replace")


SILENT_S = 30.0
"""How long one that did not answer in time is not asked, while there are others."""
MOST = 16


class Addresses:
    """The servers that one may be served by, and which of them is asked now.

    Args:
        given: One address, or several with commas between.
        now: A clock that never goes back.
        look: Where to look again when one does not serve: a server that was started anew may listen elsewhere.

    Attributes:
        current: The one that is asked.
    """

    def __init__(
        self, given: str, now: Callable[[], float] = time.monotonic, look: Callable[[], str] | None = None
    ) -> None:
        self._now, self._look = now, look
        self._known = [one.strip().rstrip("/") for one in given.split(",") if one.strip()]
        for one in self._known or [given]:
            if not is_address(one):
                raise InvalidInput("server", f"{one!r} is not a URL such as http://127.0.0.1:8765")
        self._schemes = {urlsplit(one).scheme for one in self._known}
        self._silent_until_s: dict[str, float] = {}
        self.current = self._known[0]

    def __len__(self) -> int:
        return len(self._known)

    def __str__(self) -> str:
        return ",".join(self._known)

    def learn(self, others: Iterable[str]) -> None:
        """Addresses that a server told of. A token is not sent over a scheme that nobody asked for."""
        for one in others:
            if one not in self._known and len(self._known) < MOST and is_address(one) and is_private(one):
                self._known += [one] if urlsplit(one).scheme in self._schemes else []

    def failed(self, address: str, silent: bool = False) -> None:
        """The address did not serve: the next one is asked from now on."""
        if silent:
            self._silent_until_s[address] = self._now() + SILENT_S
        if address != self.current:
            return  # somebody else has turned away from it already
        if (found := self._found_again()) is not None:
            self.current = found
            return
        start = self._known.index(address) if address in self._known else -1
        turn = self._known[start + 1 :] + self._known[: start + 1]
        awake = [one for one in turn if self._silent_until_s.get(one, 0.0) <= self._now()]
        self.current = awake[0] if awake else min(turn, key=lambda one: self._silent_until_s[one])

    def _found_again(self) -> str | None:
        """An address that was not known before; None where there is none, or no server yet."""
        if self._look is None:
            return None
        try:
            found = self._look().split(",")
        except WattflowError:
            return None
        # Those of before make room: a server that takes any free port has another one at each start.
        fresh = [one for one in found if one not in self._known and is_address(one)]
        fresh = [one for one in fresh if urlsplit(one).scheme in self._schemes]
        self._known = [*fresh, *self._known][:MOST]
        return fresh[0] if fresh else None


def is_address(text: str) -> bool:
    """Return whether it is the URL of a server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
