"""Clocks and caps of one Kubernetes node: an annotation is the order, another one the answer (`deploy/levels`).

    python -m wattflow.kube.node_levels

runs in a pod on each node that has something to set. The order is a JSON object in ``wattflow.io/levels``:

    {"clock_mhz": 2000, "cap_w": 150, "until_s": 1767225600}

for all processors of the node, or by knob (``"cpu-policy0.clock_mhz": 2000``). What is not named is as it was, and so
is everything once ``until_s`` (seconds since 1970) is over; without it the order stands until it is taken away. The
answer ``wattflow.io/levels-status`` has the knobs with their ranges, what is in force, and what was refused and why. A
device with a process of somebody else is never touched, so a GPU with pods on it says so. When the API server is not
heard of for a while, everything is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wattflow.kube import access, objects
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob, LevelRefused
from wattflow.model.errors import InvalidInput

log = logging.getLogger(__name__)
ORDER, STATUS = "wattflow.io/levels", "wattflow.io/levels-status"
LOOK_S, SILENT_S = 2.0, 15.0
"""How often the node is read; an API server that is silent for so long has no say any more."""
_OF_ALL = {"clock_mhz": "cpu-", "cap_w": "package-"}


def read_order(text: str, now_s: float) -> dict[str, float]:
    """Return the values of an order by kind or knob; empty where there is none or its time is over.

    Raises:
        InvalidInput: It is no order; the message says what one looks like.
    """
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    numbers = isinstance(found, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
        for value in found.values()
    )
    if not numbers:
        raise InvalidInput(ORDER, f'{text[:80]!r} is no order; write numbers above 0, as in {{"clock_mhz": 2000}}')
    until_s = found.pop("until_s", math.inf)
    return {} if now_s >= until_s else {str(name): float(value) for name, value in found.items()}


def targets(order: Mapping[str, float], knobs: Sequence[Knob]) -> dict[str, float]:
    """Return the value of each knob that an order names; a cap of the node is shared evenly between its packages."""
    wanted: dict[str, float] = {}
    for name, value in order.items():
        mine = [knob.id for knob in knobs if knob.kind == name and knob.device.startswith(_OF_ALL.get(name, ""))]
        if name in _OF_ALL and mine:
            wanted |= dict.fromkeys(mine, value / len(mine) if name == "cap_w" else value)
        else:
            # Of what is not there, too: it is refused by name.
            wanted[name] = value
    return wanted


class NodeLevels:
    """Sets what a node's annotation orders.

    Args:
        now: Seconds since 1970.
    """

    def __init__(self, holder: Holder, now: Callable[[], float] = time.time) -> None:
        self._holder, self._now = holder, now
        self._set: dict[str, float] = {}
        self._refused: dict[str, tuple[float, str]] = {}

    def follow(self, annotation: str) -> dict[str, Any]:
        """Bring the knobs to what is ordered; returns the answer. What was refused is tried again when it changes."""
        gone = self._holder.check()
        for knob, why in gone.items():
            self._refused[knob] = (self._set.pop(knob, math.nan), why)
        try:
            wanted = targets(read_order(annotation, self._now()), self._holder.knobs)
            problem = ""
        except InvalidInput as error:
            wanted, problem = {}, str(error)
        for knob in [one for one in self._set if one not in wanted]:
            self._holder.give_back(knob)
            del self._set[knob]
        self._refused = {knob: told for knob, told in self._refused.items() if wanted.get(knob) == told[0]}
        for knob, value in wanted.items():
            if self._set.get(knob) != value and knob not in self._refused:
                self._turn(knob, value)
        return self._answer(problem, annotation)

    def let_go(self) -> None:
        """Give everything back: nobody orders any more."""
        self._holder.give_back_all()
        self._set.clear()

    def _turn(self, knob: str, value: float) -> None:
        try:
            self._holder.set(knob, value)
            self._set[knob] = value
        except (LevelRefused, OSError) as error:
            # Full clock, not the level before: a half-followed order is worse than none.
            self._holder.give_back(knob)
            self._set.pop(knob, None)
            self._refused[knob] = (value, str(error))
            log.warning("%s", error)

    def _answer(self, problem: str, annotation: str) -> dict[str, Any]:
        knobs = {knob.id: [knob.low, knob.high] for knob in self._holder.knobs if knob.mine}
        refused = {knob: why for knob, (_, why) in self._refused.items()}
        return {
            "knobs": knobs,
            "in_force": dict(self._set),
            "refused": refused | ({"order": problem} if problem else {}),
            # Whoever renews an order sees by this end that it was read.
            "until_s": 0.0 if problem or not annotation else json.loads(annotation).get("until_s", 0.0),
        }


async def serve(client: Client, node: str, levels: NodeLevels, stop: asyncio.Event) -> None:
    """Follow the node's annotation until told to stop; then everything is as before."""
    path, told, heard_s = f"/api/v1/nodes/{node}", "", time.monotonic()
    try:
        while not stop.is_set():
            try:
                notes = (await client.get(path, objects.Node)).metadata.annotations
                answer = json.dumps(await asyncio.to_thread(levels.follow, notes.get(ORDER, "")), sort_keys=True)
                heard_s = time.monotonic()
                if answer != told or notes.get(STATUS) != answer:
                    body = {"metadata": {"annotations": {STATUS: answer}}}
                    await client.call("PATCH", path, body, content=MERGE)
                    told = answer
            except (ApiError, OSError, TimeoutError) as error:
                log.warning("node %s: %s", node, error)
                if time.monotonic() - heard_s > SILENT_S:
                    levels.let_go()
            try:
                await asyncio.wait_for(stop.wait(), LOOK_S)
            except TimeoutError:
                continue
    finally:
        levels.let_go()
        # Nobody shall count on what nobody can set any more; who cannot be told notices by the silence.
        with contextlib.suppress(ApiError, OSError, TimeoutError):
            await client.call("PATCH", path, {"metadata": {"annotations": {STATUS: None}}}, content=MERGE)


async def run(node: str) -> None:
    """Serve one node until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    holder = Holder(find_actuators(), notes_folder())
    try:
        async with Client(access.find()) as client:
            await serve(client, node, NodeLevels(holder), stop)
    finally:
        holder.close()


def main() -> None:
    """Serve the node named in NODE_NAME."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    node = os.environ.get("NODE_NAME", "")
    if not node:
        raise SystemExit("NODE_NAME names no node; set it from spec.nodeName, as deploy/levels does")
    asyncio.run(run(node))


if __name__ == "__main__":
    main()
