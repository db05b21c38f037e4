"""Simulate before commit: at planning points a portfolio is rolled forward from the live State, and the best is used.

Every member decides about the same open tasks under the same draws of their runtimes (`roll`). The first member is the
reference: of those that make nobody wait longer than it would (mean response, tasks ended by the horizon) and miss no
more deadlines, the one with the fewest joules is used until the next planning point, if it saves `WORTH` for sure. So
the outcome is no worse than the reference, up to the error of the model: estimates, unknown arrivals.

Roll-outs go to the end of all that is known; on more than 64 nodes or 2,000 open tasks as far as `HORIZON_S`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattflow.live.engine import Engine
from wattflow.live.roll import Forecast, roll
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry
from wattflow.policy.base import Policy

MEMBERS = (
    "wattflow",
    "learned",
    "learned:lean=0.5",
    "learned:wait=0.1",
    "wattflow:second=20",
    "wattflow:wait=0.1",
    "scp-wattflow",
)
"""The flagship, dials of the learned policy, and settings of the tuned portfolio. None but the learned ones has other
time-outs than the flagship: a look ahead that knows no arrivals finds that sleeping at once is always best."""
EVERY_S = 30.0
SEEDS = (0, 1, 2)
SPREAD = 0.2
HORIZON_S = 600.0
MOST_NODES, MOST_TASKS = 64, 2_000
WAIT = 0.02
WORTH = 0.02
"""How much longer people may wait than under the reference, and the saving below which nothing changes."""
SURE = 2.0
"""Standard errors, over the draws that all members share, by which a saving must exceed `WORTH`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided at a planning point: the member, and everybody's forecast (the reference first)."""

    policy: Policy
    forecasts: tuple[Forecast, ...]


class Twin:
    """Chooses among policies by looking ahead.

    Args:
        members: Policies, or as they are typed; the first is the reference.
        every_s: Least time between planning points.
        seeds: Draws of the runtimes; members × seeds roll-outs at each point.
        spread: σ of the logarithm of runtimes around their estimates.
    """

    def __init__(
        self,
        members: Sequence[str | Policy] = MEMBERS,
        every_s: float = EVERY_S,
        seeds: Sequence[int] = SEEDS,
        spread: float = SPREAD,
    ) -> None:
        if not members or not seeds:
            raise InvalidInput("twin", "needs at least one policy and one seed")
        if not every_s >= 0 or not 0 <= spread < 5:
            raise InvalidInput("twin", f"every_s {every_s} and spread {spread} must not be negative")
        self.members = tuple(registry.load(m) if isinstance(m, str) else m for m in members)
        self.every_s, self.seeds, self.spread = every_s, tuple(seeds), spread
        self._next_s = -math.inf

    @classmethod
    def beside(cls, reference: str | Policy) -> Twin:
        """The usual members with another reference: the policy that a driver was told to use."""
        name = reference if isinstance(reference, str) else reference.name
        return cls((reference, *(member for member in MEMBERS if member != name)))

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """After a step, at a planning point with open tasks: the policy to use from the next step on, if another.

        Before a step the engine has not folded what was put, so a look ahead would miss it.
        """
        if now_s < self._next_s or int(engine.state.counts.open[0]) == 0:
            return None
        self._next_s = now_s + self.every_s
        chosen = self.choose(engine).policy
        return None if chosen.name == engine.policy.name else chosen

    def choose(self, engine: Engine) -> Choice:
        """The member to use now; the engine does not change."""
        found = tuple(roll(engine, self.members, self.until_s(engine), self.seeds, self.spread))
        names = [member.name for member in self.members]
        allowed = [i for i, each in enumerate(found) if _keeps(each, found[0])]
        present = names.index(engine.policy.name) if engine.policy.name in names else 0
        best = present if present in allowed else 0
        leads = {i: lead(found[best].joules, found[i].joules) for i in allowed}
        ahead = max(allowed, key=lambda i: (leads[i], -i))
        return Choice(self.members[ahead if leads[ahead] > 0.0 else best], found)

    def until_s(self, engine: Engine) -> float:
        """How far roll-outs go: to the end, or to the horizon where that would take too long."""
        small = len(engine.state.nodes) <= MOST_NODES and int(engine.state.counts.open[0]) <= MOST_TASKS
        return math.inf if small else float(engine.state.clock.now[0]) + HORIZON_S


def lead(present_j: Sequence[float], other_j: Sequence[float]) -> float:
    """By how much more than `WORTH` another saves for sure, as a share; below 0 where it does not.

    Both were rolled under the same draws, so their differences say more than their means. Choosing by means alone was
    tried: members then changed places at every other planning point, and one stream in twenty took 3 % more joules.
    """
    before, after = np.asarray(present_j), np.asarray(other_j)
    if not ((before > 0.0) & (after > 0.0)).all():
        return -math.inf
    won = np.log(before / after)
    error = float(won.std(ddof=1)) / math.sqrt(len(won)) if len(won) > 1 else 0.0
    return float(won.mean()) - SURE * error - WORTH


def _keeps(one: Forecast, reference: Forecast) -> bool:
    """Whether nobody waits longer and no more deadlines are missed than under the reference."""
    slower = one.response_s.mean > reference.response_s.mean * (1 + WAIT) + 1e-9
    return not slower and one.late.mean <= reference.late.mean and one.ended.mean >= reference.ended.mean * (1 - WAIT)


__all__ = ["EVERY_S", "MEMBERS", "Choice", "Twin", "lead"]
