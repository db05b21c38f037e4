"""Limits of users and projects, and what they use: the books of each month, by owner, project and function.

A budget is kept by reservation. An attempt is started only where its predicted joules fit beside what was used and what
the attempts that run have reserved; its measured joules settle that, and what it did not use is free again. So a hard
budget is exceeded by at most what the running attempts use above their reservations.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from wattflow.model.errors import InvalidInput
from wattflow.model.units import J_PER_KWH, human_energy
from wattflow.runtime import messages as m
from wattflow.runtime.records import Trace

Key = tuple[str, str, str, str]
"""Month, owner, project, function."""


def month_of(at_s: float) -> str:
    """The month of a moment, in UTC: ``2026-11``."""
    return time.strftime("%Y-%m", time.gmtime(at_s))


def month_end_s(at_s: float) -> float:
    """When the month of a moment ends, in UTC."""
    first = datetime.fromtimestamp(at_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1).timestamp()


@dataclass(slots=True)
class Sums:
    """Sums of attempts. Grams are None where nobody says what a kilowatt-hour emits."""

    attempts: int = 0
    cpu_s: float = 0.0
    energy_j: float = 0.0
    carbon_g: float | None = None


class Usage:
    """The books of the months that are written to, as the store has them or will with the next commit.

    Attributes:
        intensity: What the site's electricity emits at a moment, in grams for a kWh that a node draws; None where
            nobody says.
    """

    def __init__(self) -> None:
        self.intensity: Callable[[float], float] | None = None
        self._sums: defaultdict[Key, Sums] = defaultdict(Sums)
        self._of: defaultdict[tuple[str, str, str], Sums] = defaultdict(Sums)
        self._changed: dict[Key, None] = {}

    def restore(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Go on from what the store has."""
        for row in rows:
            key = (row["month"], row["owner"], row["project"], row["function"])
            self._book(key, Sums(row["attempts"], row["cpu_s"], row["energy_j"], row["carbon_g"]))
        self._changed.clear()

    def ended(self, trace: Trace, cpu_s: float, at_s: float) -> None:
        """An attempt is over."""
        self._book(_key(trace, at_s), Sums(1, cpu_s))

    def joules(self, trace: Trace, energy_j: float, at_s: float) -> None:
        """Joules of an attempt that were not known before."""
        grams = None if self.intensity is None else energy_j / J_PER_KWH * self.intensity(at_s)
        self._book(_key(trace, at_s), Sums(energy_j=energy_j, carbon_g=grams))

    def used(self, scope: str, name: str, at_s: float) -> Sums:
        """Sum up what a user or a project used in the month of a moment."""
        return self._of.get((month_of(at_s), scope, name)) or Sums()

    def rows(self) -> list[dict[str, object]]:
        """Rows that changed since they were last asked for: whole sums, so writing one twice changes nothing."""
        # Whole sums are written, not differences: a commit that is repeated after a lost answer changes nothing.
        changed, self._changed = self._changed, {}
        made: list[dict[str, object]] = []
        for key in changed:
            sums = self._sums[key]
            named = dict(zip(("month", "owner", "project", "function"), key, strict=True))
            made.append({**named, "attempts": sums.attempts, "cpu_s": sums.cpu_s, "energy_j": sums.energy_j,
                         "carbon_g": sums.carbon_g})  # fmt: skip
        return made

    def _book(self, key: Key, more: Sums) -> None:
        month, owner, project, _ = key
        # The sums of users and projects are kept beside the rows: a budget is asked for every placement.
        places = [self._sums[key], self._of[month, "user", owner]]
        places += [self._of[month, "project", project]] if project else []
        for sums in places:
            sums.attempts += more.attempts
            sums.cpu_s += more.cpu_s
            sums.energy_j += more.energy_j
            if more.carbon_g is not None:
                sums.carbon_g = (sums.carbon_g or 0.0) + more.carbon_g
        self._changed[key] = None


def _key(trace: Trace, at_s: float) -> Key:
    return month_of(at_s), trace.owner, trace.project, trace.function


log = logging.getLogger(__name__)
Account = tuple[str, str]
"""Scope (``user`` or ``project``) and name."""
Scope = Literal["user", "project"]
ALERTS = (0.8, 1.0)
"""Shares of a budget at which somebody is told, once a month each."""
GUESS_S, GUESS_W = 60.0, 10.0
"""Of a task that nothing is known of, for each processor."""
LEAST_J = 1e-6
"""Less than this is reserved by nobody."""
SETTLE_S = 30.0
"""Joules that were not told so long after an attempt's end do not come: its node is gone."""
WEIGHT = 0.2


class Limits(Struct, frozen=True, omit_defaults=True):
    """Limits of a user or a project.

    Attributes:
        energy_j, carbon_g: In a month (UTC).
        mode: ``hard`` starts nothing beyond the budget, ``soft`` only what nobody else wants to run, ``alert`` tells.
        running, waiting: Attempts at a time; tasks that are open.
        share: Of the nodes, beside the others who want them.
        priority: Who has a higher one goes first.
    """

    energy_j: m.Amount | None = None
    carbon_g: m.Amount | None = None
    mode: Literal["hard", "soft", "alert"] = "hard"
    running: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    waiting: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    share: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0


NONE = Limits()


class Accounts:
    """Limits, reservations and alerts.

    Args:
        usage: The books.
        now: Seconds on the service's clock.
        alert: Called with the time, an account and words, once a month for each share of a budget.
    """

    def __init__(self, usage: Usage, now: Callable[[], float], alert: Callable[[float, Account, str], None]) -> None:
        self.limits: dict[Account, Limits] = {}
        self.usage, self.now, self._alert = usage, now, alert
        self.reserved_j: defaultdict[Account, float] = defaultdict(float)
        self._over: deque[tuple[float, Trace]] = deque()
        self._mean_j: dict[str, float] = {}
        self._told: set[tuple[str, Account, float]] = set()

    def set(self, account: Account, limits: Limits) -> None:
        """Change what an account may use, from now on."""
        if limits.carbon_g is not None and self.usage.intensity is None:
            raise InvalidInput(
                " ".join(account),
                "a budget of carbon needs what electricity emits: `carbon` in zone.toml, or `wattflow up --carbon G`",
            )
        self.limits[account] = limits

    def of(self, owner: str, project: str) -> Iterator[tuple[Account, Limits]]:
        """The accounts that something of an owner's counts for, with their limits."""
        yield ("user", owner), self.limits.get(("user", owner), NONE)
        if project:
            yield ("project", project), self.limits.get(("project", project), NONE)

    def predicted_j(self, task: m.Task, variant: int, node: m.Node, runtime_s: float | None) -> float:
        """Joules that an attempt will probably use: as its function's last ones, else its time by its part of watts."""
        # Measured joules of the function win over any estimate: they hold its real time and its real watts.
        known = self._mean_j.get(task.function_name)
        if known is not None:
            return known
        cpus = task.variants[variant].cpus
        per_cpu_w = max(node.watts) / node.cpus if node.watts else GUESS_W
        return (task.estimate_s or runtime_s or GUESS_S) * per_cpu_w * cpus

    def beyond(self, owner: str, project: str, predicted_j: float) -> Iterator[tuple[str, Limits, bool]]:
        """Budgets that an attempt does not fit into: in words, the limits, and whether it may when others end."""
        if not self.limits:
            return
        self._forget_unsettled()
        for account, limits in self.of(owner, project):
            for what, budget_j, used_j in self.budgets(account, limits):
                if used_j + self.reserved_j[account] + predicted_j > budget_j:
                    reserved = f", {human_energy(self.reserved_j[account])} reserved"
                    said = (
                        f"the {what} of {' '.join(account)} for {month_of(self.now())} is {human_energy(budget_j)}: "
                        f"{human_energy(used_j)} used{reserved}, {human_energy(predicted_j)} predicted"
                    )
                    yield said, limits, used_j + predicted_j <= budget_j

    def budgets(self, account: Account, limits: Limits) -> Iterator[tuple[str, float, float]]:
        """Budgets of an account and what was used of them, in joules: grams are joules of this site's electricity."""
        used = self.usage.used(*account, self.now())
        if limits.energy_j is not None:
            yield "energy budget", limits.energy_j, used.energy_j
        intensity = self.usage.intensity(self.now()) if self.usage.intensity is not None else 0.0
        if limits.carbon_g is not None and intensity:
            joules = J_PER_KWH / intensity
            yield f"carbon budget ({limits.carbon_g:g} g)", limits.carbon_g * joules, (used.carbon_g or 0.0) * joules

    def reserve(self, trace: Trace, predicted_j: float) -> None:
        """An attempt starts."""
        trace.reserved_j = predicted_j
        for account, _ in self.of(trace.owner, trace.project):
            self.reserved_j[account] += predicted_j

    def ended(self, trace: Trace) -> None:
        """An attempt is over; its joules are still to come."""
        if trace.reserved_j:
            self._over.append((self.now(), trace))
        # Here, too: where nobody has a budget nobody asks `beyond`, and every attempt that ever ran would stay.
        self._forget_unsettled()

    def settle(self, trace: Trace, more_j: float) -> None:
        """Measured joules take the place of reserved ones."""
        # Released before the measured joules are booked, so that no moment counts both against the budget.
        self._release(trace)
        self.usage.joules(trace, more_j, self.now())
        mean_j = self._mean_j.get(trace.function, trace.energy_j)
        self._mean_j[trace.function] = mean_j + WEIGHT * (trace.energy_j - mean_j)
        for account, limits in self.of(trace.owner, trace.project) if self.limits else ():
            for what, budget_j, used_j in self.budgets(account, limits):
                self._tell(account, what, budget_j, used_j)

    def _tell(self, account: Account, what: str, budget_j: float, used_j: float) -> None:
        month = month_of(self.now())
        for share in ALERTS:
            # Once a month for each share: an alert at every attempt would be read by nobody.
            if used_j >= share * budget_j and (month, account, share) not in self._told:
                self._told.add((month, account, share))
                self._alert(
                    self.now(), account, f"{share:.0%} of the {what} for {month} is used ({human_energy(used_j)})"
                )

    def _release(self, trace: Trace) -> None:
        for account, _ in self.of(trace.owner, trace.project):
            left_j = self.reserved_j[account] - trace.reserved_j
            # What sums of floats leave over is nobody's reservation.
            self.reserved_j[account] = left_j if left_j > LEAST_J else 0.0
        trace.reserved_j = 0.0

    def _forget_unsettled(self) -> None:
        while self._over and self.now() - self._over[0][0] > SETTLE_S:
            self._release(self._over.popleft()[1])
