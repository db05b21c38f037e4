"""A server's cap on watts as time passes: a series of its start, and signals from outside (demand response).

The lowest of all that holds counts. The policy `power-cap` keeps it: at each change, and whenever a signal comes, the
server writes the cap of this moment and the next changes into the policy's text (`steps=`), so the engine's journal has
every cap as an ordinary change of policy. Signals are in the store's ``meta`` until they are over: a restart has them.
Where the server decides by another policy, `power-cap` takes its place for as long as a signal holds, a while before
included, and gives back all clocks at its end.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import math
from collections.abc import Callable, Collection, Coroutine
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec

from wattflow.live import Engine
from wattflow.live.workflow_notes import live_policy
from wattflow.model.errors import InvalidInput
from wattflow.policy import power_cap, spec
from wattflow.runtime.aside import Background
from wattflow.runtime.cap_series import CapSeries
from wattflow.runtime.decider import KEEPER, JournaledEngine

STEPS, META = "steps=", "cap"
LEAST_W, MOST_W = 1e-3, 1e9
BEFORE_S = 3600.0
"""A cap that is announced is planned for so long before it begins: nobody starts then what would run into it."""
MOST_SIGNALS = 1000
Watts = Annotated[float, msgspec.Meta(ge=LEAST_W, le=MOST_W)]
Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cap from outside; another one of the same name takes its place, and one without watts takes it away.

    ``from_s`` and ``until_s`` are seconds since 1970, ``for_s`` counts from the beginning. Without them it begins now,
    and holds until it is taken away.
    """

    watts: Watts | None
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] = "signal"
    from_s: Time | None = None
    until_s: Time | None = None
    for_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None


@dataclass(slots=True)
class _Held:
    """A signal with its beginning and end, as the store has it."""

    watts: float
    from_s: float
    until_s: float
    by: str


class CapBook:
    """All caps that a server was told, over time."""

    def __init__(self, series: CapSeries | None = None) -> None:
        self.series = series
        self.signals: dict[str, _Held] = {}

    def take(self, signal: Signal, now_s: float, by: str) -> None:
        """Take a signal up, or away.

        Raises:
            InvalidInput: It says nothing that can hold.
        """
        if signal.watts is None:
            if self.signals.pop(signal.name, None) is None:
                raise InvalidInput("cap", f"no signal {signal.name!r} holds; there {_listed(self.signals)}")
            return
        if signal.until_s is not None and signal.for_s is not None:
            raise InvalidInput("cap", "until_s and for_s are two ends; leave one of them out")
        from_s = now_s if signal.from_s is None else max(now_s, signal.from_s)
        begins_s = from_s if signal.from_s is None else signal.from_s
        until_s = begins_s + signal.for_s if signal.for_s is not None else signal.until_s
        until_s = math.inf if until_s is None else until_s
        if until_s <= from_s:
            raise InvalidInput("cap", f"the signal ends at {until_s:.0f} and would begin at {from_s:.0f}: it is over")
        if signal.name not in self.signals and len(self.signals) >= MOST_SIGNALS:
            raise InvalidInput("cap", f"{MOST_SIGNALS} signals hold already; take one away")
        self.signals[signal.name] = _Held(signal.watts, from_s, until_s, by)

    def forget_over(self, now_s: float) -> bool:
        """Let go of signals that are over; tell whether there were any."""
        over = [name for name, held in self.signals.items() if held.until_s <= now_s]
        for name in over:
            del self.signals[name]
        return bool(over)

    def at(self, time_s: float) -> float:
        """Return the cap at a time; inf where none holds."""
        held = [one.watts for one in self.signals.values() if one.from_s <= time_s < one.until_s]
        return min([*held, self._series_w(time_s)])

    def edges(self, now_s: float, most: int = power_cap.AHEAD) -> list[float]:
        """Return when any of the caps begins, changes or ends next."""
        known = self.series.edges(now_s, most) if self.series is not None else []
        # Beyond the last edge of the series that is known, nobody knows what holds.
        last_s = known[-1] if len(known) == most else math.inf
        ends = [time_s for one in self.signals.values() for time_s in (one.from_s, one.until_s)]
        return sorted({time_s for time_s in (*known, *ends) if now_s < time_s <= last_s and time_s < math.inf})

    def changes(self, now_s: float, most: int = power_cap.AHEAD) -> list[tuple[float, float]]:
        """Return when the cap changes next and what it is from then on, so many times at most."""
        found: list[tuple[float, float]] = []
        before_w = self.at(now_s)
        later = sorted(self.signals.values(), key=lambda one: one.from_s, reverse=True)
        # The lowest first. To ask all signals at each of their edges would hold the loop up.
        held: list[tuple[float, float]] = []
        for time_s in self.edges(now_s, most):
            while later and later[-1].from_s <= time_s:
                one = later.pop()
                heapq.heappush(held, (one.watts, one.until_s))
            while held and held[0][1] <= time_s:
                heapq.heappop(held)
            watts = min(held[0][0] if held else math.inf, self._series_w(time_s))
            if watts != before_w:
                found.append((time_s, watts))
                before_w = watts
            if len(found) == most:
                break
        return found

    def _series_w(self, time_s: float) -> float:
        return self.series.at(time_s) if self.series is not None else math.inf


def _listed(signals: Collection[str]) -> str:
    return f"are {', '.join(sorted(signals))}" if signals else "is none"


def steps(now_w: float, changes: list[tuple[float, float]]) -> str:
    """Write a cap and its next changes as the policy reads them."""
    return "/".join(repr(number) for number in (now_w, *(part for change in changes for part in change)))


def keeper(own: str, told: str, alone: bool = False) -> str:
    """Return the policy that keeps these steps: `power-cap` with the settings that it was started with, if it was.

    Its own cap holds besides, the share that it has by itself included; ``alone`` says that it has none.
    """
    base, settings = spec.base_of(own)
    kept = list(settings) if base == KEEPER else []
    if base == KEEPER and not alone and not any(one.startswith(("share=", "watts=")) for one in kept):
        kept.append(f"share={power_cap.DIAL.defaults['share']!r}")
    return ":".join((KEEPER, *kept, STEPS + told))


def plain_policy(policy: str) -> str:
    """Return a policy's text without its steps, as it is shown."""
    return policy.partition(f":{STEPS}")[0]


def is_keeper(policy: str) -> bool:
    """Tell whether a policy is one that `keeper` made."""
    return plain_policy(policy) != policy


class Capping:
    """Sees to it that the cap of this moment is the one that the engine keeps.

    Args:
        now: The service's clock.
        keep: Writes a setting with the next commit.
        stored: Takes a turn and waits until it is on disk.
        soon: Plans a turn.
    """

    def __init__(
        self,
        decider: JournaledEngine,
        now: Callable[[], float],
        keep: Callable[[str, str], None],
        stored: Callable[[], Coroutine[Any, Any, None]],
        soon: Callable[[], None],
    ) -> None:
        self.book = CapBook()
        self._decider, self._now, self._keep, self._stored, self._soon = decider, now, keep, stored, soon
        self._alarm: asyncio.TimerHandle | None = None
        self._ending = Background()

    def restore(self, told: str | None, policy: str, open_work: bool) -> bool:
        """Take up the signals that the store has; tell whether the first `look` decides by which policy to go on."""
        kept: dict[str, Any] = json.loads(told) if told is not None else {"own": policy, "signals": {}}
        for name, held in kept["signals"].items():
            self.book.signals[name] = _Held(**held | {"until_s": held["until_s"] or math.inf})
        if not is_keeper(self._decider.policy):
            gives_back = not open_work and self._leaves_lowered(policy)
            if _base(self._decider.policy) == KEEPER:
                self._decider.again()
            if gives_back:
                self._decider.keeps(policy)
            return gives_back
        # Work that is open under a policy ends under it; but a cap of the last start's own ended with that start.
        capped = KEEPER in (_base(kept["own"]), _base(policy))
        self._decider.keeps(policy if capped or not open_work else kept["own"])
        self._write()
        return True

    def look(self) -> None:
        """Have the engine keep the cap of now, and be here again when it changes."""
        now_s = self._now()
        if self.book.forget_over(now_s):
            self._write()
        now_w, later = self.book.at(now_s), self.book.changes(now_s)
        # Without a cap now: some time before the first one begins.
        begins_s = now_s if math.isfinite(now_w) else later[0][0] - BEFORE_S if later else math.inf
        if begins_s <= now_s:
            before = self._decider.keeper
            # With a series of the start it is the series that `power-cap` was started for.
            alone = self.book.series is not None
            self._decider.cap(keeper(self._decider.own, steps(now_w, later), alone))
            if before is None:
                self._write()
        elif self._decider.keeper is not None:
            self._give_back()
        # Each edge, also one that a lower cap hides: what lies beyond those that are known shows up there.
        ahead_s = [time_s for time_s in (begins_s, *self.book.edges(now_s, 1)) if time_s > now_s]
        self._wake_at(min(ahead_s, default=math.inf) - now_s)
        self._soon()

    async def signal(self, signal: Signal, by: str) -> None:
        """Take a signal up, or away; over when it is on disk and in force."""
        self.book.take(signal, self._now(), by)
        self._write()
        if _base(self._decider.policy) != KEEPER:
            # Compiled in a thread the first time, or nobody would be answered for seconds.
            await asyncio.to_thread(Engine, keeper(KEEPER, "inf", alone=True))
        self.look()
        await self._stored()

    async def use(self, policy: str) -> None:
        """Have another policy decide from now on, below the caps that hold."""
        live_policy(policy)  # refused before anything is done
        if self._decider.keeper is None and self._leaves_lowered(policy):
            await self._lift()
        self._decider.use(policy)
        self.look()
        if self._decider.keeper is not None:
            self._write()

    def told(self) -> dict[str, Any]:
        """Return the caps as `GET /v1/cap` shows them."""
        now_s = self._now()
        signals = [
            {"name": name, "watts": one.watts, "from_s": one.from_s, "until_s": _known(one.until_s), "by": one.by}
            for name, one in sorted(self.book.signals.items())
        ]
        return {
            "watts": _known(self.book.at(now_s)),
            "changes": [{"at_s": at_s, "watts": _known(watts)} for at_s, watts in self.book.changes(now_s)],
            "series": self.book.series is not None,
            "in_place_of": None if self._decider.keeper is None else self._decider.own,
            "signals": signals,
        }

    def sentence(self) -> str:
        """Say that a cap holds; empty where none does."""
        watts = self.book.at(self._now())
        return f"all nodes are kept below {watts:g} W" if math.isfinite(watts) else ""

    def close(self) -> None:
        """Wait for no change any more."""
        self._wake_at(math.inf)
        for task in self._ending:
            task.cancel()

    def _wake_at(self, after_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        # A little after the change: a timer that comes before it would find the old cap.
        later = asyncio.get_running_loop().call_later
        self._alarm = later(after_s + 1e-3, self.look) if math.isfinite(after_s) else None

    def _leaves_lowered(self, policy: str) -> bool:
        """Return whether clocks would stay low for ever with this policy: it did not lower them, and knows of none."""
        return _base(policy) != _base(self._decider.policy) and self._decider.lowered()

    def _give_back(self) -> None:
        self._decider.cap(keeper(self._decider.own, "inf"))
        self._ending.begin(self._end(str(self._decider.keeper)))

    async def _end(self, last: str) -> None:
        await self._raised()
        # Unless another cap has come meanwhile.
        if self._decider.keeper == last:
            self._decider.cap(None)
            self._soon()

    async def _lift(self) -> None:
        self._decider.cap(keeper(KEEPER, "inf", alone=True))
        await self._raised()
        self._decider.keeper = None

    async def _raised(self) -> None:
        """Wait for the turn that gives all clocks back: one that was under way had its step before, and ends first."""
        await self._stored()
        if self._decider.lowered():
            await self._stored()

    def _write(self) -> None:
        signals = {name: asdict(one) | {"until_s": _known(one.until_s)} for name, one in self.book.signals.items()}
        self._keep(META, json.dumps({"own": self._decider.own, "signals": signals}))


def _base(policy: str) -> str:
    return spec.base_of(policy)[0]


def _known(value: float) -> float | None:
    """Return a number, or None where there is no end."""
    return value if math.isfinite(value) else None
