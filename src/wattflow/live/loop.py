"""One loop that joins an Engine to a Driver: for drivers that may block, in tests and in small programs."""

from __future__ import annotations

import math

from wattflow.live.engine import Engine
from wattflow.live.protocol import Act, Driver


def run(engine: Engine, driver: Driver, until_s: float = math.inf) -> None:
    """Step and carry out until no task is open, or the driver's clock has passed a time."""
    while True:
        step = engine.step(driver.now())
        for placement in step.placements:
            driver.start(placement)
        for action in step.actions:
            if action.kind == Act.STOP:
                driver.stop(action.who)
            else:
                driver.act(action)
        if engine.counts["open"] == 0 or driver.now() >= until_s:
            return
        for event in driver.events(min(step.wake_at, until_s)):
            engine.put(event.kind, *event.who, **event.fields)
