"""Carbon holds: pods that may wait carry a scheduling gate of ours, taken off when electricity is clean enough.

A pod with the gate ``wattflow.io/carbon`` waits at most as long as its annotation ``wattflow.io/carbon-wait-s`` says
(six hours without one). It goes at the start within that time whose mean intensity over its expected runtime is the
least, but only where that saves a twentieth against now: the rule of the policy `carbon-delay`. The forecast is a file
of lines ``TIME,GRAMS_PER_KWH`` (ISO 8601 with zone; each holds until the next), read again when it changes. Without a
value for now, nobody is held: a gate must never depend on a forecast that has ended.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import aiohttp

from wattflow.kube import objects, tenant
from wattflow.kube.argo.collect import moment_s
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.tenant import PREFIX
from wattflow.model.errors import InvalidInput

_LOOK_S = 5.0
log = logging.getLogger(__name__)
GATE = f"{PREFIX}carbon"
WAIT = f"{PREFIX}carbon-wait-s"
LONGEST_S = 6 * 3600.0
LEAST_SAVING = 0.05  # as in the policy `carbon-delay`
USUAL_S = 3600.0
"""Runtime of a pod of which nothing is known."""


def is_gated(pod: objects.Pod) -> bool:
    """Tell whether our gate holds it."""
    return any(one.name == GATE for one in pod.spec.scheduling_gates)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Intensity over time: ``grams[i]`` holds from ``begin_s[i]`` (since 1970) until the next."""

    begin_s: tuple[float, ...]
    grams: tuple[float, ...]

    @property
    def end_s(self) -> float:
        """Return until when it speaks."""
        steps = self.begin_s[-2:]
        # The last value holds as long as the one before it; alone, an hour, the usual step of such
        # forecasts.
        return self.begin_s[-1] + (steps[1] - steps[0] if len(steps) == 2 else 3600.0)

    def mean(self, from_s: float, run_s: float) -> float | None:
        """Average over a run, as far as it is known; None where its start is not."""
        if not self.begin_s[0] <= from_s < self.end_s:
            return None
        # A run that reaches beyond the forecast is judged by the part that is known; at least a second, or
        # there is no mean.
        until_s = min(self.end_s, from_s + max(1.0, run_s))
        i = bisect.bisect_right(self.begin_s, from_s) - 1
        total, at_s = 0.0, from_s
        while at_s < until_s:
            next_s = min(until_s, self.begin_s[i + 1] if i + 1 < len(self.begin_s) else self.end_s)
            total += self.grams[i] * (next_s - at_s)
            at_s, i = next_s, i + 1
        return total / (until_s - from_s)

    def go_at_s(self, now_s: float, latest_s: float, run_s: float) -> float:
        """Return the best start from now on, no later than ``latest_s``."""
        here = self.mean(now_s, run_s)
        if here is None or latest_s <= now_s:
            return now_s
        first = bisect.bisect_right(self.begin_s, now_s)
        # Intensity is constant within a step, so the best start is now or at the beginning of one.
        starts = [at_s for at_s in self.begin_s[first:] if at_s <= latest_s]
        means = [(found, at_s) for at_s in starts if (found := self.mean(at_s, run_s)) is not None]
        # Of equal means the earlier start, since pairs compare by time next.
        best, start = min(means, default=(here, now_s))
        return start if best < here * (1.0 - LEAST_SAVING) else now_s


def read(path: Path) -> Forecast:
    """Read a forecast from its file. Raises InvalidInput, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    rows: list[tuple[float, float]] = []
    for number, line in enumerate(lines, 1):
        # A first line that does not begin with a year is a heading.
        if not line.strip() or (number == 1 and not line[:1].isdigit()):
            continue
        try:
            when, grams = line.split(",")[:2]
            moment = datetime.fromisoformat(when.strip().replace("Z", "+00:00"))
            row = (moment.timestamp(), float(grams))
        except ValueError:
            raise InvalidInput(str(path), f"line {number}: must be TIME,GRAMS_PER_KWH, not {line!r}") from None
        if moment.tzinfo is None or not (math.isfinite(row[1]) and row[1] >= 0):
            raise InvalidInput(str(path), f"line {number}: needs a time with its zone, and grams of at least 0")
        if rows and row[0] <= rows[-1][0]:
            raise InvalidInput(str(path), f"line {number}: times must rise")
        rows.append(row)
    if not rows:
        raise InvalidInput(str(path), "holds no line TIME,GRAMS_PER_KWH")
    return Forecast(*(tuple(column) for column in zip(*rows, strict=True)))


@dataclass(slots=True)
class Holds:
    """The gates of one scheduler. A file that goes wrong later is told, and the last good one stays."""

    client: Client
    path: Path
    forecast: Forecast = field(init=False)
    _seen: int = field(init=False)

    def __post_init__(self) -> None:
        self.forecast = read(self.path)
        self._seen = self.path.stat().st_mtime_ns

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            changed = self.path.stat().st_mtime_ns
            if changed != self._seen:
                # Before it is read: a wrong file is told once, not every five seconds.
                self._seen = changed
                self.forecast = read(self.path)
        except (OSError, InvalidInput) as error:
            log.error("carbon forecast not taken over: %s", error)

    def go_at_s(self, pod: objects.Pod, run_s: float | None, now_s: float) -> float:
        """Return when a pod with our gate may go."""
        # A wait that cannot be read counts as none: nobody is held by a typing mistake.
        wait_s = tenant.number(pod.metadata.annotations.get(WAIT, str(LONGEST_S))) or 0.0
        made_s = moment_s(pod.metadata.creation_timestamp)
        # From the pod's creation, not from now: else a restart of ours would begin its wait anew.
        latest_s = (now_s if made_s is None else made_s) + wait_s
        return self.forecast.go_at_s(now_s, latest_s, USUAL_S if run_s is None else run_s)

    async def run(
        self,
        gated: Mapping[str, objects.Pod],
        run_s: Callable[[objects.Pod], float | None],
        may_write: Callable[[], bool],
    ) -> None:
        """Let pods go that waited for clean electricity, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.refresh()
            now_s = time.time()
            # A list: pods whose gate is off leave the mapping while we write.
            for pod in [one for one in gated.values() if is_gated(one)] if may_write() else ():
                if self.go_at_s(pod, run_s(pod), now_s) <= now_s:
                    await self.release(pod)

    async def release(self, pod: objects.Pod) -> bool:
        """Take our gate off; whether it is."""
        rest = [{"name": one.name} for one in pod.spec.scheduling_gates if one.name != GATE]
        meta = pod.metadata
        # `null` takes the key away in a merge patch, where an empty list would stay. The version makes it a
        # precondition, since a list of gates is replaced as a whole and another's gate may have come
        # meanwhile.
        body = {"metadata": {"resourceVersion": meta.resource_version}, "spec": {"schedulingGates": rest or None}}
        try:
            await self.client.call(
                "PATCH", f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}", body, content=MERGE
            )
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("%s: gate not taken off: %s", pod.key, error)
            return False
        return True
