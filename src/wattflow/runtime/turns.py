"""Turns of the service, one after the other, and the way back into the loop from the writer's thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from wattflow.live.protocol import Placement, Step
from wattflow.runtime.records import AttemptRecord
from wattflow.store.durations import Durations
from wattflow.store.writer import Writer

log = logging.getLogger(__name__)
PIECE = 16
"""Tasks that are taken in or placed before others have a turn of the loop."""


@dataclass(slots=True)
class UnderWay:
    """A step of the engine whose placements are made into leases, a few at a time.

    Nothing of it is written before all are: a step in the journal without its attempts would be work that nobody
    knows of.
    """

    step: Step
    now_s: float
    leases: list[AttemptRecord] = field(default_factory=list)
    taken: int = 0
    wake_at: float = math.inf

    def __post_init__(self) -> None:
        self.wake_at = self.step.wake_at

    @property
    def all_placed(self) -> bool:
        """Return whether every placement was taken."""
        return self.taken >= len(self.step.placements)

    def next_placements(self, most: int) -> Sequence[Placement]:
        """Take those that come next."""
        taken, self.taken = self.taken, self.taken + most
        return self.step.placements[taken : taken + most]

    def add(self, step: Step) -> None:
        """Take a further step of the engine's into the turn."""
        before, self.wake_at = self.step, step.wake_at
        # `next_placements` counts whole pieces and may point beyond the end; the new placements begin there.
        self.taken = min(self.taken, len(before.placements))
        self.step = Step(
            [*before.placements, *step.placements],
            [*before.actions, *step.actions],
            step.wake_at,
            [*before.ended, *step.ended],
            [*before.rejected, *step.rejected],
        )


def settle(waiters: Iterable[asyncio.Future[None]], error: Exception | None = None) -> None:
    """Let those go on who waited, or tell them that it was in vain."""
    for waiter in waiters:
        # Its client may have gone, and its request been cancelled, while the commit was under way.
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


@contextlib.contextmanager
def guarded(failed: Callable[[Exception], None]) -> Iterator[None]:
    """Whatever goes wrong within is handed on."""
    try:
        yield
    except Exception as error:
        failed(error)


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """Into the loop from another thread; a loop that is gone needs no answer."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        log.debug("the loop is closed")


async def on_disk(writer: Writer) -> None:
    """Wait until everything that was put so far is."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    writer.settled(partial(call_in, loop, settle, [done]))
    await done


class Alarm:
    """Rings once after a while; setting it anew forgets the time before."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, after_s: float) -> None:
        """Ring after so long; never where that is no number."""
        self.cancel()
        if math.isfinite(after_s):
            self._timer = asyncio.get_running_loop().call_later(max(0.001, after_s), self._ring)

    def cancel(self) -> None:
        """Ring not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Turns:
    """One turn after the other: each takes in what came since the last, and places a piece at a time.

    Args:
        begin: Steps the engine for everything that came in.
        place: Makes leases of so many of the placements that come next.
        goes_on: Has the engine decide again; says whether it placed something more.
        end: Ends a turn whose placements are all made.
        failed: Hears of a turn that raised, which is the last one.

    Attributes:
        under_way: The turn whose placements are being made.
        closed: No more turns are taken.
        took_s, took_cpu_s: How long their pieces took.
    """

    def __init__(
        self,
        begin: Callable[[], UnderWay],
        place: Callable[[UnderWay, int], None],
        goes_on: Callable[[UnderWay], bool],
        end: Callable[[UnderWay], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._begin, self._place, self._goes_on, self._end, self._failed = begin, place, goes_on, end, failed
        self.under_way: UnderWay | None = None
        self.closed = self._planned = self._again = False
        self.alarm = Alarm(self.soon)
        self.took_s, self.took_cpu_s = Durations(), Durations()

    def soon(self) -> None:
        """Take a turn with the loop's next round, or after the one under way, one for all who ask until then."""
        if self.under_way is not None:
            # Its step was made before this was asked for.
            self._again = True
        elif not self._planned and not self.closed:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def finish(self) -> None:
        """Bring a turn to its end at once: what comes next must see all of it."""
        self._go_on(time.perf_counter(), time.thread_time(), sys.maxsize)

    def close(self) -> None:
        """Take no more turns; one that is under way is dropped."""
        self.closed, self.under_way = True, None
        self.alarm.cancel()

    def _turn(self) -> None:
        if self.closed:
            return
        began = time.perf_counter(), time.thread_time()
        with guarded(self._failed):
            self.under_way = self._begin()
        self._go_on(*began)

    def _go_on(self, began: float, began_cpu: float, most: int = PIECE) -> None:
        """Place a piece at a time: a node that joins while thousands wait must not hold up the loop."""
        turn = self.under_way
        if turn is None:
            return
        with guarded(self._failed):
            self._place(turn, most)
            if turn.all_placed and not (most == PIECE and self._goes_on(turn)):
                self.under_way, self._planned = None, False
                self._end(turn)
                if self._again:
                    self._again = False
                    self.soon()
            else:
                asyncio.get_running_loop().call_soon(lambda: self._go_on(time.perf_counter(), time.thread_time()))
        self.took_s.add(time.perf_counter() - began)
        self.took_cpu_s.add(time.thread_time() - began_cpu)
