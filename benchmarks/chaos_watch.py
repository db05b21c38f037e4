"""How long the server took to notice each loss, read from its log as it grows and stamped with the watcher's own clock.

The server's clock cannot be asked: `make chaos` sets it forward and back. A kill counts from the moment it was done to
the first line that says the node is lost. A node that the server did not hold for present when it was killed cannot be
lost. A loss without a kill (an agent that got no processor for three seconds) is none of these.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOST = re.compile(r"node (\S+) is lost: (.*)")
HERE = re.compile(r"node (\S+) is here")
LONGEST_S = 120.0
READY = "the server is ready"
Seen = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Loss:
    """A killed agent that was noticed. ``server_away``: the server was killed or starting in between."""

    node: str
    after_s: float
    server_away: bool

    def __str__(self) -> str:
        away = ", the server was away meanwhile" if self.server_away else ""
        return f"loss of {self.node} noticed after {self.after_s:.2f} s{away}"


class Watch(threading.Thread):
    """Follows a log."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path, self._over = path, threading.Event()
        self.losses: list[Seen] = []
        self.joins: list[Seen] = []
        self.ready_s: list[float] = []

    def run(self) -> None:
        with self._path.open(errors="replace") as log:
            while True:
                last = self._over.is_set()
                while line := log.readline():
                    self._take(line)
                if last:
                    return
                self._over.wait(0.02)

    def stop(self) -> None:
        self._over.set()
        self.join(10)

    def _take(self, line: str) -> None:
        now_s = time.monotonic()
        if found := LOST.search(line):
            self.losses.append((found[1], now_s))
        elif found := HERE.search(line):
            self.joins.append((found[1], now_s))
        elif READY in line:
            self.ready_s.append(now_s)


def detections(
    kills: Sequence[Seen], losses: Sequence[Seen], joins: Sequence[Seen], starts_s: Sequence[float],
    ready_s: Sequence[float],
) -> list[Loss]:  # fmt: skip
    """The loss that each kill of a present node brought."""
    found = []
    for node, killed_s in kills:
        before = [(at_s, True) for name, at_s in joins if name == node and at_s <= killed_s]
        before += [(at_s, False) for name, at_s in losses if name == node and at_s <= killed_s]
        if before and not max(before)[1]:
            continue
        noticed_s = min((at_s for name, at_s in losses if name == node and at_s > killed_s), default=None)
        if noticed_s is None or noticed_s - killed_s > LONGEST_S:
            continue
        if any(other == node and killed_s < at_s < noticed_s for other, at_s in kills):
            continue  # killed again before anybody noticed: the later one counts
        found.append(Loss(node, noticed_s - killed_s, _away(killed_s, noticed_s, starts_s, ready_s)))
    return found


def _away(from_s: float, to_s: float, starts_s: Sequence[float], ready_s: Sequence[float]) -> bool:
    """Whether a server was starting at any time between."""
    for start_s in starts_s:
        up_s = min((at_s for at_s in ready_s if at_s > start_s), default=float("inf"))
        if start_s < to_s and up_s > from_s:
            return True
    return False
