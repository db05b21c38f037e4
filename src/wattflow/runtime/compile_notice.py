"""Compiling is told where it takes a while: numba says when it begins and ends, whatever function it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattflow.live import Engine


def rehearse(engine: Engine) -> int:
    """A node, a task, its end, and why another one waits; returns how many tasks were placed."""
    # Not above: the command line loads this module while the kernel itself is being loaded.
    from wattflow.live import FINISHED, NODE, STARTED, TASK, Power
    from wattflow.model.cluster import Node
    from wattflow.model.profile import PowerProfile
    from wattflow.model.workflow import Variant

    power = PowerProfile((0.0, 1.0), (10.0, 20.0))
    node = engine.node(Node("rehearsal", cores=1, memory_bytes=1 << 30, power=power, allocatable_cores=1.0))
    engine.put(NODE, node, state=int(Power.ON))
    shape = engine.shape((Variant(cores=1.0),), function="rehearsal")
    flow = engine.workflow(deadline_s=None, tag=1)
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=1.0, tag=tag) for tag in (1, 2)]
    placed = engine.step(0.0).placements
    engine.why(tasks[-1])
    for placement in placed:
        engine.put(STARTED, placement.attempt)
        engine.put(FINISHED, placement.attempt)
    return len(placed) + len(engine.step(1.0).placements)


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
