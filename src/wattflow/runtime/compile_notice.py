"""Compiling is told where it takes a while: numba says when it begins and ends, whatever function it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SERVER_COMPILES = "compiling the engine for this machine, once, about a minute; the next start takes two seconds"
"""A server's line in its log, which `wattflow up` passes on."""


def on_compiling(tell: Callable[[], None], after_s: float = 1.0) -> None:
    """Call ``tell`` once, when compiling has taken so long from now on; many short ones count like a long one."""
    from numba.core import event

    class Notice(event.Listener):
        depth, left_s, began_s = 0, after_s, 0.0
        timer: threading.Timer | None = None

        def on_start(self, event: object) -> None:
            self.depth += 1
            # One function compiles those that it calls: only the outermost is timed.
            if self.depth == 1 and self.left_s > 0:
                self.began_s = time.monotonic()
                self.timer = threading.Timer(self.left_s, self.tell)
                self.timer.daemon = True
                self.timer.start()

        def on_end(self, event: object) -> None:
            self.depth -= 1
            if self.depth == 0 and self.timer is not None:
                self.timer.cancel()
                self.left_s -= time.monotonic() - self.began_s

        def tell(self) -> None:
            self.left_s = 0.0
            tell()

    event.register("numba:compile", Notice())  # type: ignore[no-untyped-call]
