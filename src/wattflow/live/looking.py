"""The rule of simulate before commit: looks of all members in, the number of the one to use out. It simulates nothing.

The first member is the reference. A look ahead errs where estimates do, and the same way at every planning point, so
there is a look back beside it: all that has arrived, replayed from the start under a member with the runtimes that are
known by now. A member is changed for another that keeps what the reference keeps and saves enough in the look ahead,
for sure (the draws are common to all), and that would not have been worse until now. One that would have been worse
than the reference gives its place back, and until enough workflows have ended to look back on the reference stays.

The live twin and the simulator's foresight both decide by it, so what is measured is what runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SPREAD = 0.2
"""σ of the logarithm of runtimes around their estimates, as they are drawn for looks."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one member would do with the workflows that count.

    Attributes:
        energy_j: All nodes.
        response_s: Mean seconds from submission to the end.
        late: Workflows that miss their deadline.
        last_s: Until the last of them ends.
        ended: Tasks that end as far as was looked.
    """

    energy_j: float
    response_s: float
    late: float
    last_s: float = 0.0
    ended: float = 0.0

    @classmethod
    def of(cls, energy_j: float, ends: Ends, since_s: float, ended: float = 0.0) -> Look:
        """From the ends of the workflows that count."""
        late = float(np.count_nonzero(ends.end_s > ends.due_s + 1e-6))
        response_s = float((ends.end_s - ends.submit_s).mean()) if len(ends.end_s) else 0.0
        return cls(energy_j, response_s, late, float(ends.end_s.max(initial=since_s)) - since_s, ended)

    @classmethod
    def mean(cls, looks: Sequence[Look]) -> Look:
        """Over draws."""
        return cls(*(float(np.mean([getattr(look, one.name) for look in looks])) for one in fields(cls)))


@dataclass(frozen=True, slots=True)
class Ends:
    """Workflows by columns: when each was submitted, should end and ends."""

    submit_s: Floats
    due_s: Floats
    end_s: Floats


@dataclass(frozen=True, slots=True)
class Rule:
    """When the member in use is changed.

    Attributes:
        wait: How much longer people may wait than under the reference, the last of them too.
        worth: The saving below which nothing changes.
        sure: Standard errors, over the draws that all members share, by which a saving must exceed ``worth``.
        worse: A member that would have taken so much more than the reference until now is given up.
        learnt: Workflows without whose end a look back says nothing. (Members that were chosen before were what cost
            most, on seeds on which no threshold had been chosen; after two the worst of 60 streams lost 8 %.)
    """

    wait: float = 0.02
    worth: float = 0.02
    sure: float = 2.0
    worse: float = 0.005
    learnt: int = 4

    def keeps(self, one: Look, reference: Look) -> bool:
        """Whether nobody waits longer, the last not either, no more are late and as much is done."""
        sooner = one.response_s <= reference.response_s * (1 + self.wait) + 1e-9
        in_time = one.last_s <= reference.last_s * (1 + self.wait) + 1e-9
        return sooner and in_time and one.late <= reference.late and one.ended >= reference.ended * (1 - self.wait)

    def no_worse(self, one: Look, other: Look) -> bool:
        """Whether looking back says nothing against it."""
        return self.keeps(one, other) and one.energy_j <= (1.0 + self.worse) * other.energy_j

    def lead(self, present: Sequence[Look], other: Sequence[Look]) -> float:
        """By how much more than ``worth`` another saves for sure, as a share; below 0 where it does not.

        Both were looked at under the same draws, so their differences say more than their means. Choosing by means
        alone was tried: members changed places at every other planning point, and one stream in twenty took 3 % more.
        """
        before, after = (np.array([look.energy_j for look in looks]) for looks in (present, other))
        if not ((before > 0.0) & (after > 0.0)).all():
            return -math.inf
        won = np.log(before / after)
        error = float(won.std(ddof=1)) / math.sqrt(len(won)) if len(won) > 1 else 0.0
        return float(won.mean()) - self.sure * error - self.worth

    def ahead(self, present: int, looks: Sequence[Sequence[Look]]) -> tuple[int, list[int]]:
        """Who stays if nobody is borne out, and who is wanted in its place, the best first.

        Args:
            looks: Of every member, one for each draw.
        """
        means = [Look.mean(some) for some in looks]
        able = [i for i, look in enumerate(means) if self.keeps(look, means[0])]
        if present not in able:
            return 0, []
        leads = {i: self.lead(looks[present], looks[i]) for i in able if i != present}
        return present, [i for i, won in sorted(leads.items(), key=lambda one: -one[1]) if won > 0.0]

    def back(self, present: int, wanted: Sequence[int], hindsight: Callable[[int], Look]) -> int:
        """The first of those wanted that looking back bears out; the reference where it would have been better."""
        if present == 0 and not wanted:
            return present
        reference = hindsight(0)
        mine = reference if present == 0 else hindsight(present)
        if not self.no_worse(mine, reference):
            return 0
        return next((i for i in wanted if self.no_worse(hindsight(i), mine)), present)


USUAL = Rule()

__all__ = ["SPREAD", "USUAL", "Ends", "Look", "Rule"]
