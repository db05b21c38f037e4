"""Going on learning: a choice among members that follows what recorded runs say, with shadow tests and a way back.

Work comes in blocks of workflows. A block is run with the member in use; then its record (arrivals, true runtimes) is
replayed under every other member, as a shadow: a bandit with full information, so nothing is lost by exploring. A
member is promoted only when it beat the one in use on the same recent blocks (paired log-joules, mean at least
``SURE`` standard errors above 0) without anyone waiting longer; if the blocks after a promotion say otherwise, the one
before comes back. Only recent blocks count, so that what is true no longer is forgotten.

`recovery` measures it: a stream changes (another application, or nodes that draw 30 % more), and what was the best
member is so no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.learn import portfolio, scenarios
from wattflow.learn.portfolio import Result
from wattflow.learn.scenarios import Scenario
from wattflow.model.cluster import Cluster
from wattflow.policy import registry
from wattflow.policy.base import Policy

Floats = NDArray[np.float64]
RECENT, LEAST = 8, 3
"""Blocks that count, and without which nothing is promoted."""
SURE = 1.0
WAIT = 0.02
ALARM = 0.01
"""A promoted member that takes so much more than the one before, over the blocks since, goes."""


@dataclass(slots=True)
class Chooser:
    """The member in use, and what was seen of all of them.

    Attributes:
        joules, response: A row for each recent block: logarithms, a column for each member.
        before: Who was in use before the last promotion; −1: nobody.
        since: Blocks since then.
    """

    members: int
    present: int = 0
    before: int = -1
    since: int = 0
    joules: list[Floats] = field(default_factory=list)
    response: list[Floats] = field(default_factory=list)

    def see(self, joules: Floats, response: Floats) -> int:
        """Take a block's record in, all members' figures of it; returns the member to use next."""
        self.joules = [*self.joules, np.log(joules)][-RECENT:]
        self.response = [*self.response, np.log(response)][-RECENT:]
        self.since += 1
        if self._alarm():
            self.present, self.before, self.since = self.before, -1, 0
            return self.present
        best = max(range(self.members), key=lambda one: (self._lead(one), -one))
        if self._lead(best) > 0.0:
            self.present, self.before, self.since = best, self.present, 0
        return self.present

    def _lead(self, one: int) -> float:
        """What a member saves for sure beside the one in use; −inf where it may not be promoted."""
        if one == self.present or len(self.joules) < LEAST:
            return -math.inf
        won = np.array([row[self.present] - row[one] for row in self.joules])
        slower = float(np.mean([row[one] - row[self.present] for row in self.response]))
        if slower > math.log1p(WAIT):
            return -math.inf
        return float(won.mean() - SURE * won.std(ddof=1) / math.sqrt(len(won)))

    def _alarm(self) -> bool:
        """Whether the blocks since the promotion say that it was a mistake."""
        if self.before < 0 or self.since < 2:
            return False
        recent = self.joules[-self.since :]
        return float(np.mean([row[self.present] - row[self.before] for row in recent])) > ALARM


@dataclass(frozen=True, slots=True)
class Recovery:
    """After a change: shares of joules.

    Attributes:
        achievable: What the best member in hindsight saves beside the one that was in use at the change.
        regained: The part of that which is saved in the last quarter of the blocks.
        lost: The most by which the blocks up to any time took more than with the member of before, over all blocks.
    """

    achievable: float
    regained: float
    lost: float
    changes: int


def blocks(scenario: Scenario, members: Sequence[Policy], count: int, first_seed: int) -> list[list[Result]]:
    """Every member on every block."""
    made = []
    for seed in range(first_seed, first_seed + count):
        workload = scenario.draw(seed)
        made.append([portfolio.measure(workload, scenario.cluster, m, seed, scenario.options) for m in members])
    return made


def figures(block: Sequence[Result]) -> tuple[Floats, Floats]:
    """Joules and mean response of all members."""
    return np.array([r.energy_j for r in block]), np.array([r.mean_s for r in block])


def recovery(old: Sequence[list[Result]], new: Sequence[list[Result]]) -> Recovery:
    """Run through the blocks before and after a change."""
    chooser = Chooser(len(old[0]))
    for block in old:
        chooser.see(*figures(block))
    start = present = chooser.present
    used, changes = [], 0
    for block in new:
        used.append(present)
        now = chooser.see(*figures(block))
        changes += now != present
        present = now
    logs = np.log(np.array([figures(block)[0] for block in new]))
    slow = np.log(np.array([figures(block)[1] for block in new])).mean(axis=0)
    able = slow - slow[start] <= math.log1p(WAIT)
    best = int(np.argmin(np.where(able, logs.mean(axis=0), np.inf)))
    mine = logs[np.arange(len(new)), used]
    last = slice(-max(1, len(new) // 4), None)
    achievable = float((logs[:, start] - logs[:, best]).mean())
    gap = float((logs[last, start] - logs[last, best]).sum())
    regained = float((logs[last, start] - mine[last]).sum()) / gap if gap > 0.0 else 1.0
    lost = float(np.maximum(0.0, np.cumsum(mine - logs[:, start])).max()) / len(new)
    return Recovery(achievable, regained, lost, changes)


def members() -> list[Policy]:
    """Settings of the portfolio, and the learned policy."""
    names = (
        "wattflow", "wattflow:second=20:sleep=1", "wattflow:sleep=4", "wattflow:merit=6", "scp-wattflow",
        "swf-eft:sleep=60", "learned",
    )  # fmt: skip
    return [registry.load(name) for name in names]


def drifted(cluster: Cluster, share: float = 0.3) -> Cluster:
    """Every second kind of node draws so much more; profiles are taken to be refitted, so policies know."""
    kinds = sorted({str(node.class_key) for node in cluster.nodes})
    nodes = []
    for node in cluster.nodes:
        power = node.power
        if power is not None and kinds.index(str(node.class_key)) % 2 == 0:
            power = replace(power, watts=tuple(w * (1.0 + share) for w in power.watts))
        nodes.append(replace(node, power=power))
    return replace(cluster, nodes=tuple(nodes))


Change = Callable[[Scenario], Scenario]


def new_application(name: str, tasks: int) -> Change:
    """The stream becomes one of another application."""
    return lambda scenario: replace(scenario, stream=scenarios.stream_of(name, scenario.stream.load, tasks))


def power_drift() -> Change:
    """Nodes draw more."""
    return lambda scenario: replace(scenario, cluster=drifted(scenario.cluster))


def measured(scenario: Scenario, change: Change, workflows: int = 200) -> Recovery:
    """Half as many workflows before the change as after it, in blocks of one stream."""
    after = change(scenario)
    before = max(LEAST, workflows // 2 // scenario.stream.workflows)
    count = max(4, workflows // after.stream.workflows)
    some = members()
    return recovery(blocks(scenario, some, before, 0), blocks(after, some, count, 500))
