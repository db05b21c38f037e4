"""An agent's clocks and power limits: what the server may set, set while it is wanted, given back whatever happens.

What can be set is announced with the node; what was refused or ignored is announced no more for a while, so the engine
never counts on it. Where several attempts share a device, the highest level that any of them wants is in force, and one
that wants none has full clock. A server that is not heard of for a while has no say any more: full clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from wattflow.levels.clock_grid import cap_grid, gpu_grid, grid
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob, LevelRefused
from wattflow.runtime import messages as m

if TYPE_CHECKING:
    from wattflow.levels.function_profile import FunctionProfile

log = logging.getLogger(__name__)
LOOK_S, SILENT_S, TRY_AGAIN_S = 0.5, 3.0, 300.0
"""A server that is silent for so long has lost the lease of its levels: it takes an agent for lost after as long."""
KINDS = ("clock_mhz", "cap_w")


class AgentLevels:
    """The levels of one agent's node; without a holder it can set nothing and says so.

    Args:
        now: A clock that never goes back.
        profiles: What was measured of functions on GPUs like those here.
    """

    def __init__(
        self,
        holder: Holder | None = None,
        now: Callable[[], float] = time.monotonic,
        profiles: Sequence[FunctionProfile] = (),
    ) -> None:
        self._holder, self._now, self._heard_s, self._profiles = holder, now, now(), profiles
        self._turning = asyncio.Lock()
        self._orders: dict[tuple[int, str], float] = {}
        self._wanted: dict[tuple[int, str], dict[int, float]] = {}
        self._refused: dict[tuple[int, str], float] = {}
        self._limit_w: dict[str, float] = {}
        self.changed = asyncio.Event()

    def describe(self, node: m.Node) -> m.Node:
        """Say with the node what can be set on it now."""
        devices = [self._with_levels(number, device) for number, device in enumerate(node.devices)]
        caps = bool(self._knobs(-1, "cap_w"))
        return msgspec.structs.replace(node, clocks_mhz=self._clocks(-1), caps=caps, devices=devices)

    async def order(self, level: m.Level) -> None:
        """Have a level in force for the whole node or device until another is ordered; 0 is none."""
        place = (level.device, level.kind)
        self._orders.pop(place, None)
        if level.value > 0:
            self._orders[place] = level.value
        await self._turn(*place)

    @contextlib.asynccontextmanager
    async def held(self, lease: m.Lease) -> AsyncIterator[None]:
        """Hold the level of an attempt while it runs; an attempt without one has its device at full clock."""
        wants = self._wants(lease)
        try:
            for place, value in wants.items():
                self._wanted.setdefault(place, {})[lease.fence] = value
                await self._turn(*place)
            yield
        finally:
            for place in wants:
                self._wanted.get(place, {}).pop(lease.fence, None)
                # A cancelled attempt gives its level back all the same: a clock that nobody wants would slow down
                # whoever comes next.
                await asyncio.shield(self._turn(*place))

    def _wants(self, lease: m.Lease) -> dict[tuple[int, str], float]:
        """Say what an attempt wants of each knob of its device; of processors only what it names, the rest is the
        node's order."""
        if self._holder is None:
            return {}
        wants = {(lease.device, kind): 0.0 for kind in KINDS if lease.device >= 0}
        if (level := lease.level) is not None:
            # A clock of processors is none of the GPU that the attempt has besides.
            wants[lease.device if level.device >= 0 else -1, level.kind] = level.value
        return wants

    def heard(self) -> None:
        """The server has answered: its orders stand."""
        self._heard_s = self._now()

    async def forget(self) -> None:
        """Give everything back: whoever ordered it knows nothing of it any more."""
        self._orders.clear()
        self._wanted.clear()
        if self._holder is not None:
            async with self._turning:
                await asyncio.to_thread(self._holder.give_back_all)

    async def look(self) -> None:
        """Look after what is in force, a little later."""
        await asyncio.sleep(LOOK_S)
        await self.check()

    async def check(self) -> None:
        """Give back what a server that is gone has ordered; notice what others did to our levels."""
        if self._holder is None:
            return
        # As long as the server waits before it takes this agent for lost: neither side counts on a level alone.
        if self._now() - self._heard_s > SILENT_S and (self._orders or self._wanted):
            log.warning("the server is not heard of: clocks and limits are given back")
            await self.forget()
            self.changed.set()  # announced anew, so that a server that comes back orders them again
        async with self._turning:
            gone = await asyncio.to_thread(self._holder.check)
        for knob, reason in gone.items():
            log.warning("%s: given back, %s", knob, reason)
        lost = {place for place in (*self._orders, *self._wanted) if any(k.id in gone for k in self._knobs(*place))}
        self._set_aside(lost)
        back = [place for place, until_s in self._refused.items() if self._now() >= until_s]
        for place in back:
            del self._refused[place]
        if back:
            self.changed.set()

    def close(self) -> None:
        """Give everything back; what cannot be is left to the watchdog and the next start."""
        if self._holder is not None:
            try:
                self._holder.close()
            except (LevelRefused, OSError) as error:
                log.error("clocks and limits are not given back: %s", error)

    def _knobs(self, device: int, kind: str) -> list[Knob]:
        """Find the knobs of a device, or of the node's processors, that may be turned and were not refused."""
        if self._holder is None or (device, kind) in self._refused or self._holder.notes.off:
            return []
        prefix = {"clock_mhz": "cpu-", "cap_w": "package-"}[kind]
        return [
            knob
            for knob in self._holder.knobs
            if knob.mine
            and knob.kind == kind
            and (knob.device.startswith(prefix) if device < 0 else knob.device == f"gpu-{device}")
        ]

    def _with_levels(self, number: int, device: m.Device) -> m.Device:
        """Say what can be set on a device: clocks, or limits where it has none."""
        clocks = self._clocks(number)
        # One kind of level, which a policy can compare; of clocks more is known.
        caps = [] if len(clocks) > 1 else self._limits(number)
        told = msgspec.structs.replace(device, clocks_mhz=clocks, caps_w=caps)
        if not self._profiles:
            return told
        # Loads linear algebra, for which an agent without profiles does not wait.
        from wattflow.runtime.level_profiles import with_responses

        return with_responses(told, self._profiles)

    def _limits(self, number: int) -> list[float]:
        knobs = self._knobs(number, "cap_w")
        if not knobs or self._holder is None:
            return []
        # An administrator's limit is full: no level of ours is above it. Asked before anything was set by us.
        full_w = self._limit_w.setdefault(knobs[0].id, self._holder.read(knobs[0].id) or knobs[0].high)
        return cap_grid(knobs[0].low, min(full_w, knobs[0].high))

    def _clocks(self, device: int) -> list[float]:
        knobs = self._knobs(device, "clock_mhz")
        if not knobs:
            return []
        offered = grid if device < 0 else gpu_grid
        return offered(max(knob.low for knob in knobs), min(knob.high for knob in knobs))

    async def _turn(self, device: int, kind: str) -> None:
        """Bring knobs to what is wanted now. What is refused leaves full clock, and is not tried again for a while."""
        async with self._turning:
            knobs = self._knobs(device, kind)
            wanted = self._effective((device, kind))
            try:
                await asyncio.to_thread(self._apply, knobs, wanted)
            except (LevelRefused, OSError) as error:
                log.warning("%s; full clock", error)
                self._set_aside({(device, kind)})
                await asyncio.to_thread(self._apply, knobs, 0.0)

    def _effective(self, place: tuple[int, str]) -> float:
        """Return the level that is in force with all that is wanted: the highest; 0 is full."""
        base = self._orders.get(place, 0.0)
        wants = [value or base for value in self._wanted.get(place, {}).values()] or [base]
        # Nobody is slowed down by a neighbour's wish: the one that wants most sets the level.
        return 0.0 if 0.0 in wants else max(wants)

    def _apply(self, knobs: list[Knob], value: float) -> None:
        assert self._holder is not None or not knobs
        # A node's cap is shared by its packages; each device has its own.
        share = value / len(knobs) if knobs and knobs[0].kind == "cap_w" else value
        for knob in knobs:
            assert self._holder is not None
            if value <= 0 or share >= knob.high:
                self._holder.give_back(knob.id)
            else:
                self._holder.set(knob.id, max(share, knob.low))

    def _set_aside(self, places: set[tuple[int, str]]) -> None:
        for place in places:
            self._refused[place] = self._now() + TRY_AGAIN_S
            self._orders.pop(place, None)
        if places:
            self.changed.set()
