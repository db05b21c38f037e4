"""Where a server may be: the addresses that were given and those that it told of, tried in turn.

One that refuses is tried again at the next turn, for a standby refuses until it takes over. One that is silent takes a
whole timeout to find out, so it is left alone for a while as long as there are others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.clear_text import is_private

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
