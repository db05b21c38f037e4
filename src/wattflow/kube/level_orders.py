"""Clocks that the policy wants of nodes, ordered of the pods that can set them (`node_levels`, `deploy/levels`).

The policy meets frequency levels only on nodes whose levels pod says in its answer which clocks it can set, and whose
order is nobody else's. An order ends by itself and is renewed meanwhile, so the clocks of a scheduler that is gone are
given back; each is answered with the end that it names, so a levels pod that is gone is noticed by its silence. What is
refused, taken over or not answered is full clock to the policy from then on, and tried again after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.node_levels import ORDER, STATUS
from wattflow.levels.clock_grid import frequencies_of, grid
from wattflow.live import Engine
from wattflow.live.protocol import Act, Action
from wattflow.model.cluster import Frequency

log = logging.getLogger(__name__)
BY = "wattflow.io/levels-by"
"""Who has written the order: ours are told from an operator's own, which are left alone."""
LASTS_S, ANSWER_S, AGAIN_S, EVERY_S = 60.0, 15.0, 300.0, 1.0
_MOST_MHZ, _AT_ONCE = 1e5, 16


@dataclass(slots=True)
class _Order:
    """A clock that is wanted, since when, and the end of the order that was written; 0 before."""

    clock_mhz: float
    asked_s: float
    until_s: float = 0.0
    answered: bool = False


class _Answer(msgspec.Struct, frozen=True):
    """A levels pod's answer. A kubelet may write its own node's annotations, so it is read like anybody's."""

    knobs: dict[str, tuple[float, float]] = {}
    refused: dict[str, str] = {}
    until_s: float = 0.0

    @property
    def clocks_mhz(self) -> list[float]:
        """Return the clocks that all processors can be set to, the highest first."""
        ranges = [ends for knob, ends in self.knobs.items() if knob.startswith("cpu-") and knob.endswith(".clock_mhz")]
        low, high = max((one[0] for one in ranges), default=0.0), min((one[1] for one in ranges), default=0.0)
        return grid(low, high) if 1.0 <= low < high <= _MOST_MHZ else []


class LevelOrders:
    """Orders of one scheduler; without a name it has none, and every node has one level.

    Args:
        who: Name of the scheduler.
        now: Seconds since 1970.
    """

    def __init__(self, who: str = "", now: Callable[[], float] = time.time) -> None:
        self.who, self._now = who, now
        self._clocks: dict[str, list[float]] = {}
        self._wanted: dict[str, _Order] = {}
        self._ours: set[str] = set()
        self._aside_s: dict[str, float] = {}
        self._changed = asyncio.Event()

    def of(self, node: objects.Node) -> tuple[Frequency, ...]:
        """Return the levels that the policy may count on, and take up what the levels pod has answered."""
        name, notes = node.metadata.name, node.metadata.annotations
        ours = bool(self.who) and notes.get(BY) == self.who
        (self._ours.add if ours else self._ours.discard)(name)
        answer, order = _read(notes.get(STATUS, "")), self._wanted.get(name)
        if order is not None and notes.get(ORDER) and not ours:
            self._put_aside(name, "somebody else has ordered its levels")
        elif order is not None and answer.until_s == order.until_s > 0:
            order.answered = True
            if answer.refused:
                self._put_aside(name, "; ".join(answer.refused.values()))
        theirs = bool(notes.get(ORDER)) and not ours
        usable = bool(self.who) and not theirs and name not in self._aside_s
        self._clocks[name] = answer.clocks_mhz if usable else []
        return frequencies_of(self._clocks[name])

    def take(self, actions: Sequence[Action], names: Mapping[int, str], engine: Engine) -> None:
        """Order what a step has decided: the clock that the engine reckons with now, also below a cap in watts."""
        for action in actions:
            if action.kind not in (Act.FREQUENCY, Act.CAP) or action.who not in names:
                continue
            name, level = names[action.who], int(engine.describe(action.who)["frequency"])
            clocks = self._clocks.get(name, [])
            if 0 < level < len(clocks):
                self._wanted[name] = _Order(clocks[level], self._now())
            else:
                self._wanted.pop(name, None)
            self._changed.set()

    def reckoned(self, name: str, level: int) -> None:
        """Take an order away whose node the engine reckons with at full clock now: it would be renewed for ever.

        No step has decided so: the node has fewer levels, as of a levels pod that starts anew, or another curve.
        """
        if level == 0 and self._wanted.pop(name, None) is not None:
            self._changed.set()

    def dropped(self, name: str) -> None:
        """Forget a node that is no longer ours to order."""
        self._clocks.pop(name, None)
        self.reckoned(name, 0)

    async def run(self, client: Client, may: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Write orders while we lead, and give all back at the end; ``tell`` has a node looked at anew."""
        try:
            while True:
                if may():
                    for name in self.look():
                        tell(name)
                    await self._write_due(client)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), EVERY_S)
                self._changed.clear()
        finally:
            if may():
                self._wanted.clear()
                await self._write_due(client)

    def look(self) -> list[str]:
        """Put aside who does not answer; returns the nodes whose levels are others now."""
        now_s = self._now()
        silent = [name for name, one in self._wanted.items() if not one.answered and now_s - one.asked_s > ANSWER_S]
        for name in silent:
            self._put_aside(name, f"no answer within {ANSWER_S:g} s")
        back = [name for name, until_s in self._aside_s.items() if now_s >= until_s]
        for name in back:
            del self._aside_s[name]
        return silent + back

    def due(self) -> dict[str, _Order | None]:
        """Return orders to be written or renewed, and None for those to be taken away."""
        now_s = self._now()
        soon = {name: one for name, one in self._wanted.items() if one.until_s - now_s < LASTS_S / 2}
        return {**soon, **dict.fromkeys(self._ours - self._wanted.keys())}

    async def _write_due(self, client: Client) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def write(name: str, order: _Order | None) -> None:
            async with gate:
                await self._write(client, name, order)

        await asyncio.gather(*(write(name, order) for name, order in sorted(self.due().items())))

    async def _write(self, client: Client, name: str, order: _Order | None) -> None:
        path, now_s = f"/api/v1/nodes/{name}", self._now()
        until_s = float(round(now_s + LASTS_S))
        try:
            found = (await client.get(path, objects.Node)).metadata
            # Whoever orders by hand goes first; `of` is told by the watch.
            if found.annotations.get(ORDER) and found.annotations.get(BY) != self.who:
                return
            text = None if order is None else json.dumps({"clock_mhz": order.clock_mhz, "until_s": until_s})
            notes = {ORDER: text, BY: None if order is None else self.who}
            body = {"metadata": {"resourceVersion": found.resource_version, "annotations": notes}}
            if order is not None:  # before it is written: the answer may come first
                order.asked_s, order.until_s, order.answered = (
                    now_s if order.answered else order.asked_s,
                    until_s,
                    False,
                )
            await client.call("PATCH", path, body, content=MERGE)
            (self._ours.discard if order is None else self._ours.add)(name)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            if order is not None:
                order.until_s = 0.0
            if isinstance(error, ApiError) and error.code == 404:
                self._ours.discard(name)
                self._wanted.pop(name, None)
            elif not (isinstance(error, ApiError) and error.code == 409):
                log.warning("node %s: its clock is not ordered: %s", name, error or type(error).__name__)

    def _put_aside(self, name: str, reason: str) -> None:
        log.warning("node %s: full clock, %s", name, reason)
        self._aside_s[name] = self._now() + AGAIN_S
        self._wanted.pop(name, None)


def _read(text: str) -> _Answer:
    try:
        return msgspec.json.decode(text, type=_Answer) if text else _Answer()
    except (msgspec.DecodeError, RecursionError):
        return _Answer()
