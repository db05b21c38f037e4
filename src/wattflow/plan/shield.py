"""The shield: whatever a policy saves, nobody waits longer than under the reference; and the rehearsal below it.

*Observed.* A window of what has arrived is replayed under the reference with all nodes on, with the runtimes that were
measured: the shadow. The response of each workflow that has ended stands beside its shadow's in a ledger of the last
`KEPT` workflows; so does what an open one is late already. The window begins with the backlog that the shadow had by
then, as far as it is known; a shadow near its begin still waits a little too little, so we look later than we are: the
error is on the safe side, and workflows of the window's first quarter keep what was known of them before.

*Paid.* While the ledger's lateness in sum is at most `LATE` and its p95 within `TAIL` of the shadow's, beyond what the
reference's own ties (`Ledger.doubt`) and the few workflows of a tail (`Ledger.tail_doubt`) explain, the rehearsed
choice holds. Else the budget is spent: the reference decides and all nodes wake, until the ledger has recovered
(`RECOVERED`); they stay on, unless the last race found that late sleep alone keeps the bound with room to spare
(`CALM`). Each time the choice that follows is more careful.

*Sleep has a price before it has a cost.* A node that sleeps too early makes those wait who arrive while it wakes:
w seconds, and as many workflows as arrive in w, each time-out T. As a share of the responses R that is at most about
w² / (T R). What may be spent is the bound and what the rule earns beside the reference with all nodes on (m, the ratio
of waiting): so no time-out is below `PRICED` × w² / (R × (1 + `LATE` − m)), `CAREFUL` times that after each time that
the budget was spent, and `EASIER` times that where little of it was. A race does not replace it: its streams are as
short as a few wakes, and end before what sleeps is missed.

*Crowded.* While the shadow's backlog grows, responses under the reference say little: it is itself what makes people
wait. Then the earliest end with all nodes on (`race.QUICKER`) is the reference, for the ledger, the race and what is
fallen back to.

*Begun with late sleep.* Nodes that nobody has needed for ten minutes (`portfolio.SLEEPY`) cost hardly anybody anything.
So a stream begins with that, and it holds where no candidate keeps the bound for certain, unless a race finds that it
breaks the bound itself (`LOOSE`) or is due and cannot be held yet. Its time-out grows each time it spent the budget.

*Chosen.* `race` tells which candidates save joules and keep the bound, by intervals; the one with the fewest joules is
used. It is held after `FIRST` workflows, then when twice as many have arrived, and when the load has drifted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.plan import joining, race
from wattflow.plan.reference_replay import MOST_TASKS, Shadow, backlog_grows, filled
from wattflow.policy import registry
from wattflow.policy.base import Policy, Seen, Steering
from wattflow.policy.portfolio import FLAGSHIP, PORTFOLIO, REFERENCE, SLEEPY, SPREAD, THRIFT
from wattflow.sim.repeated import Prepared

Floats = NDArray[np.float64]
KEPT = 100
LATE, TAIL, RECOVERED = 0.016, 1.02, (0.012, 1.018)
"""Lateness in sum as a share of the shadow's responses, and p95 over the shadow's, that spend the budget (the promise
is 2 % of each; what is seen late is paid late), and below which it is open again."""
PROMISED = 0.02
ENOUGH, REDRAWN = 20, 64
"""Workflows from which on p95 says something, and how often these are drawn again for its error."""
PRIOR = 40
"""Workflows that the ledger counts at least: while fewer are known, the others are taken to be on time."""
PRICED, CAREFUL, EASIER = 0.25, 3.0, 0.5
"""The price of sleep; its factor after each time that the budget was spent, and after each race since which less than
half of it was, where nodes could sleep."""
TRIED = 2.0
"""Time-outs that must have passed under a choice before what it cost says what sleep costs."""
SPOTLESS = 0.99
"""The quantile of responses that must keep the bound, too, where sleep becomes cheaper."""
WORTH = 0.01
"""Joules that a candidate saves at least, as a share: for less nobody is put at risk."""
FIRST, AGAIN, EVERY, RARELY = 4, 2.0, 4, 10
"""The first race, when to race again (× arrivals), every how many arrivals to look, and how many say something."""
GROWN, SHRUNK, LATELY = 1.5, 0.5, 8
"""Ratios of the load of the last so many arrivals, all after the race, to the race's, above and below which it is held
again. One that shrinks makes nobody wait, and a race that changes the choice for nothing costs joules."""
QUICK = "eft"
"""`race.QUICKER` as a policy of its own, for the shadow."""
BOUND, STRICTER = 1.015, 0.005
"""The ratio of responses that a race's intervals may reach; less by so much after each time the budget was spent."""
WORST = 1.06
"""The ratio that waiting may reach in any stream of a race: where a wake takes longer than a workflow, means and their
errors over seven streams do not tell what one bad stream in seven costs."""
CALM, CALM_WORST = 1.01, 1.03
"""The same for nodes that sleep although the budget is spent: well within what is promised, so that it is won back."""
LATE_SLEEP = "late sleep"
LOOSE, LOOSE_WORST = 1.03, 1.1
"""The ratios by a race, in the mean and in any stream, beyond which late sleep holds no longer where nothing else does:
wider than the bound, for it has spent no budget, and a race's intervals are wide."""
ROUSED_S = 60.0
"""Seconds within which a driver has taken up a choice that begins with all nodes on."""
RECENT, LARGEST = 32, 1_500
"""Workflows that a race draws from, at most, and tasks of the largest of them."""


class Ledger:
    """Responses of the last workflows beside their shadows'."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[float, float]] = {}
        self._open = (0.0, 0.0)

    def note(self, number: int, response_s: float, shadow_s: float) -> None:
        """Enter a workflow that has ended, by the number of its arrival."""
        self._rows[number] = response_s, shadow_s
        for old in sorted(self._rows)[:-KEPT]:
            del self._rows[old]

    def note_open(self, late_s: float, shadow_s: float) -> None:
        """Enter what open workflows are late already, in sum, and their shadows' responses."""
        self._open = late_s, shadow_s

    def rows(self) -> list[list[float]]:
        """Response and shadow of each, the oldest first."""
        return [list(self._rows[number]) for number in sorted(self._rows)]

    def restore(self, rows: Sequence[Sequence[float]]) -> None:
        """Take up what an earlier ledger held; its arrivals were before the first that is counted now."""
        for i, (response_s, shadow_s) in enumerate(rows):
            self.note(i - len(rows), response_s, shadow_s)

    def __contains__(self, number: int) -> bool:
        return number in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def _table(self) -> Floats:
        return np.array(list(self._rows.values())).reshape(-1, 2)

    @property
    def late(self) -> float:
        """Lateness in sum over the shadows' responses in sum; below 0 where we are sooner."""
        rows, (late_s, shadow_s) = self._table(), self._open
        late_s = float((rows[:, 0] - rows[:, 1]).sum()) + late_s
        return late_s / max(1e-9, self._whole_s(rows) + shadow_s)

    @staticmethod
    def _whole_s(rows: Floats) -> float:
        """Shadows' responses in sum, of `PRIOR` workflows at least."""
        return float(rows[:, 1].sum()) * max(1.0, PRIOR / max(1, len(rows)))

    @property
    def tail(self) -> float:
        """The 95th percentile over the shadows'; 1 while there are too few."""
        return self.at(0.95) if len(self) >= ENOUGH else 1.0

    def at(self, quantile: float) -> float:
        """A quantile of responses over that of the shadows'."""
        ours_s, shadow_s = np.quantile(self._table(), quantile, axis=0).tolist()
        return float(ours_s / max(1e-9, shadow_s))

    @property
    def doubt(self) -> float:
        """Standard error of the lateness: the reference's own ties move it this far either way."""
        rows = self._table()
        if len(rows) < 2:
            return 0.0
        return float((rows[:, 0] - rows[:, 1]).std(ddof=1) * math.sqrt(len(rows)) / max(1e-9, self._whole_s(rows)))

    @property
    def tail_doubt(self) -> float:
        """Standard error of the tail: five of a hundred workflows make it, and each of them may be any of several."""
        rows = self._table()
        if len(rows) < ENOUGH:
            return 0.0
        drawn = rows[np.random.default_rng(len(rows)).integers(len(rows), size=(REDRAWN, len(rows)))]
        tails = np.quantile(drawn, 0.95, axis=1)
        return float((tails[:, 0] / np.maximum(1e-9, tails[:, 1])).std(ddof=1))

    def latest(self, count: int = 3) -> list[int]:
        """Numbers of the workflows that are late by the most seconds: theirs is the lateness that was paid."""
        late = sorted(self._rows, key=lambda n: self._rows[n][1] - self._rows[n][0])
        return [n for n in late[:count] if n >= 0 and self._rows[n][0] > self._rows[n][1]]


class Shield:
    """Steers a policy by what is observed.

    Args:
        policy: Whose rules are steered; its own numbers are what is used where nothing else is told.
        tries: Candidates; without any nothing is raced.
    """

    def __init__(self, policy: Policy, cluster: Cluster, reference: str, tries: Mapping[str, race.Dials]) -> None:
        self.notes: list[dict[str, object]] = []
        # By crowded: responses beside one reference say nothing of those beside the other.
        self._ledgers = {False: Ledger(), True: Ledger()}
        self._shadows = {False: Shadow(cluster, registry.load(reference)), True: Shadow(cluster, registry.load(QUICK))}
        self._crowded, self._waiting = False, dict[int, float]()
        self._policy, self._cluster, self._tries = policy, cluster, tries
        self._spent, self._times, self._care, self._response_s = False, 0, 1.0, math.nan
        self._looked, self._raced, self._race_at, self._raced_load = 0, 0, FIRST, math.nan
        self._ranking: list[race.Tried] = []
        self._broke: frozenset[str] = frozenset()
        self._recent: dict[int, Workload] = {}
        self._prepared: dict[bool, Prepared] = {False: {}, True: {}}
        self._name, self._dials = LATE_SLEEP, dict(SLEEPY)
        # How often late sleep has spent the budget.
        self._overslept = 0
        self._saves, self._saved, self._forbidden = 0.0, 0.0, ""
        self._on_until_s = -1.0
        # Since when nodes could sleep by the time-out in use, or by a shorter one, and it was not made easier for that.
        self._chosen_s, self._eased = 0.0, 0

    @property
    def ledger(self) -> Ledger:
        """The ledger beside the reference that is meant now."""
        return self._ledgers[self._crowded]

    @property
    def _reference(self) -> race.Dials:
        return race.QUICKER if self._crowded else REFERENCE

    @property
    def choice(self) -> Policy:
        """The policy with the dials that hold now."""
        return self._policy.with_params(**{**self._dials, "on_until_s": self._on_until_s})

    def move_to(self, cluster: Cluster) -> None:
        """Nodes came or left: what was rehearsed without them says nothing."""
        if cluster != self._cluster:
            self._cluster, self._race_at, self._ranking = cluster, FIRST, []
            self._prepared = {False: {}, True: {}}
            for shadow in self._shadows.values():
                shadow.cluster = cluster

    def is_due(self, arrived: int) -> bool:
        """Every few arrivals."""
        return arrived - self._looked >= EVERY

    def consider(self, now_s: float, seen: Seen) -> Policy | None:
        """Look at the shadow; race if it is time; choose."""
        arrived = seen.number + len(seen.flows)
        self._saved += self._saves * (arrived - self._looked)
        self._looked = arrived
        flows, error = filled(seen)
        if sum(map(len, flows)) > MOST_TASKS:
            return None  # one workflow alone is too much to replay: nothing is known of it, so nothing changes
        self._remember(seen, flows)
        self._observe(now_s, seen, flows, 1.0 if math.isnan(error) else math.exp(error))
        load = load_of(flows[-LATELY:])
        drifted = arrived >= self._raced + LATELY and self._has_drifted(load)
        # Before some tasks have ended, runtimes are hearsay: estimates may be off by any factor.
        measurable = not math.isnan(error) and all(node.power is not None for node in self._cluster.nodes)
        # While the budget is spent, too: a race tells whether nodes may sleep late meanwhile (`_calm`).
        if measurable and (arrived >= self._race_at or drifted):
            some = [self._recent[number] for number in sorted(self._recent)]
            # Of all that the race draws from: that of the last few alone would drift by chance.
            self._raced, self._race_at, self._raced_load = arrived, math.ceil(AGAIN * arrived), load_of(some or flows)
            if not self._spent:
                self._ease(now_s, arrived)
            base = replace(self._policy, steer=None)
            held = race.Race(some, self._cluster, base, self._rest_s, self._reference, self._prepared)
            # One race is seven streams: who broke in the race before is not trusted yet, however well it does now.
            self._broke = frozenset(one.name for one in self._ranking if one.worst > WORST)
            self._ranking = held.run(self._tries) if self._tries and len(some) >= EVERY else []
        return self._choose(now_s, arrived)

    def _ease(self, now_s: float, arrived: int) -> None:
        """Let nodes sleep sooner where what was chosen has cost less than half of the budget.

        Only where they could sleep by then: else, in a stream shorter than its time-outs, sleep would become cheap
        without having been tried. Or where workflows end so much sooner than the reference's that they pay for it.
        """
        if self._name == "reference" or len(self.ledger) < RARELY or arrived < AGAIN * self._eased:
            return
        cost, tried = self.ledger.late + self.ledger.doubt, now_s - self._chosen_s >= TRIED * time_out(self._dials)
        earns = cost < -LATE and self.ledger.tail < 1.0
        # Where one in twenty may wait, the first in a hundred is a warning: what p95 tells it tells too late.
        if earns or (tried and cost < LATE / 2.0 and self.ledger.at(SPOTLESS) <= TAIL):
            self._care *= EASIER
            self._chosen_s, self._eased = now_s, arrived

    def _remember(self, seen: Seen, flows: Sequence[Workload]) -> None:
        """Keep the last workflows for races: a window of large ones holds too few to draw from."""
        for number, flow in enumerate(flows, seen.number):
            if len(flow) <= LARGEST:
                self._recent[number] = flow
        for old in sorted(self._recent)[:-RECENT]:
            del self._recent[old]

    def _judge_backlog(self, first: int) -> None:
        """Go over to the quicker reference while the usual one's backlog grows, and back when it does not."""
        self._waiting.update(enumerate(self._shadows[False].waiting.tolist(), first))
        for old in sorted(self._waiting)[: -4 * KEPT]:
            del self._waiting[old]
        waiting = np.array([self._waiting[number] for number in sorted(self._waiting)])
        crowded = len(waiting) >= RARELY and backlog_grows(waiting)
        if crowded != self._crowded:  # what was raced beside the one before says nothing
            self._crowded, self._ranking, self._race_at, self._spent = crowded, [], FIRST, False

    def _has_drifted(self, load: float) -> bool:
        return not math.isnan(self._raced_load) and not SHRUNK <= load / max(1e-12, self._raced_load) <= GROWN

    def _observe(self, now_s: float, seen: Seen, flows: Sequence[Workload], doubt: float) -> None:
        """Replay the window under the reference, and enter what has ended.

        The shadow of an open workflow rests on estimates: it is overdue beyond ``doubt`` times that, as its runtimes
        are as likely to be longer than estimated as its places are to be worse.
        """
        shadow_s = self._shadows[False].responses(seen.number, flows)
        self._judge_backlog(seen.number)
        if self._crowded:
            shadow_s = self._shadows[True].responses(seen.number, flows)
        begin = 0 if seen.number == 0 else len(flows) // 4
        late_s = open_s = 0.0
        for i, (flow, end_s) in enumerate(zip(flows, seen.end_s.tolist(), strict=True)):
            submit_s, number = float(flow.workflow_submit_s[0]), seen.number + i
            if not math.isnan(end_s):
                if i >= begin or number not in self.ledger:
                    self.ledger.note(number, end_s - submit_s, float(shadow_s[i]))
            elif now_s - submit_s > doubt * shadow_s[i]:
                late_s, open_s = late_s + now_s - submit_s - doubt * shadow_s[i], open_s + shadow_s[i]
        self.ledger.note_open(float(late_s), float(open_s))
        self._response_s = float(shadow_s[np.isfinite(shadow_s)].mean())
        late, tail, noise = self.ledger.late, self.ledger.tail, self.ledger.doubt
        if not self._spent and (late > LATE + noise or tail > TAIL + max(2.0 * noise, self.ledger.tail_doubt)):
            self._spent = True
            if self._name != "reference":
                self._times, self._care = self._times + 1, self._care * CAREFUL
                self._overslept += self._name == LATE_SLEEP
        elif self._spent and late < RECOVERED[0] and tail < RECOVERED[1]:
            self._spent = False

    def _rest_s(self, waiting: float) -> float:
        """The least time-out of a rule that has this ratio of waiting while all nodes are on."""
        wake_s = max((node.sleep.wake_s for node in self._cluster.nodes if node.sleep is not None), default=0.0)
        earned = max(LATE, 1.0 + LATE - waiting)
        rest_s = PRICED * self._care * wake_s**2 / (max(1e-3, self._response_s) * earned)
        return rest_s if math.isfinite(rest_s) else race.NEVER_S

    def _pick(self, arrived: int) -> tuple[str, race.Tried | None]:
        """The cheapest that keeps the bound by its interval, or None for the reference; and why."""
        why, found = "no candidate keeps the bound for certain", self._permitted()
        if self._spent:
            found = self._calm()
            why = "the budget is spent"
            if found is not None:
                why += ", and nodes that sleep so late cost little of it"
        elif not self._ranking:
            # A race is due: until it has judged late sleep, deadlines are not put at stake. Where workflows are too
            # large for races, the ledger alone watches.
            why, found = "too little is known", None if arrived < RARELY else self._late_sleep()
        elif found is not None:
            why = "the fewest joules of those that keep the bound"
        else:
            found = self._late_sleep()
            why += "" if found is None else "; nothing speaks against late sleep"
        return why, found

    def _choose(self, now_s: float, arrived: int) -> Policy | None:
        why, found = self._pick(arrived)
        name, dials = ("reference", dict(self._reference)) if found is None else (found.name, dict(found.dials))
        self._saves = 0.0 if found is None else 1.0 - math.exp(found.energy)
        before, self._name = self._dials, name
        if dials == before or (_plain(dials) == _plain(before) is not None):
            return None  # also under another name, or with another least time-out below its own
        if time_out(dials) < time_out(before):
            self._chosen_s = now_s
        self._dials = dials
        # A race begins with all nodes on. Those that sleep by the choice before would stay asleep while the others are
        # crowded, for kube-scheduler's points count what is free, not what is slow. Where these points decided before,
        # nobody has gathered tasks on few nodes, and to wake all would be ten minutes of idle watts for each change.
        rouses = self._spent or before.get("rule") != SPREAD
        self._on_until_s = now_s + ROUSED_S if found is not None and found.steady and rouses else -1.0
        self._note(now_s, arrived, why)
        return self.choice

    def _late_sleep(self) -> race.Tried | None:
        """The reference with nodes that sleep late, unless a race finds that people wait for it."""
        raced = next((one for one in self._ranking if one.steady), None)
        if self._crowded or (self._ranking and raced is None):
            return None
        if raced is not None:
            waits = max(raced.mean_high, raced.tail_high)
            if waits > LOOSE or raced.worst > LOOSE_WORST or raced.missed:
                return None
        after_s = max(SLEEPY["after_s"] * CAREFUL**self._overslept, float(f"{self._rest_s(1.0):.2g}"))
        energy = 0.0 if raced is None else raced.energy
        return race.Tried(LATE_SLEEP, {**SLEEPY, "after_s": after_s}, energy, 0.0, 1.0, 1.0, 0, steady=True)

    def _calm(self) -> race.Tried | None:
        """The reference with nodes that sleep late, if by the last race it keeps the bound with room to spare: what was
        spent is won back without having all nodes on."""
        for one in self._ranking:
            within = max(one.mean_high, one.tail_high) <= CALM and one.worst <= CALM_WORST
            if one.steady and within and one.energy_high < 0.0 and one.missed == 0:
                return one
        return None

    def _permitted(self) -> race.Tried | None:
        """The first of the ranking that keeps the bound; note the first that does not and would save more."""
        self._forbidden = ""
        for one in self._ranking:
            # What is the reference but for late sleep has spent no budget: others have.
            limit = BOUND if one.steady else BOUND - STRICTER * self._times
            waits = max(one.mean_high, one.tail_high)
            steady = one.worst <= WORST and one.name not in self._broke
            saves = one.energy_high < 0.0 and one.energy <= -WORTH
            if waits <= limit and steady and saves and one.missed == 0:
                return one
            if not self._forbidden and saves:
                shown = waits if waits > limit else max(one.worst, WORST)
                why = f"{shown:.3f} of the reference's waiting" if one.missed == 0 else f"{one.missed} deadlines missed"
                self._forbidden = f"{one.name} (would save {1.0 - math.exp(one.energy):.0%}; {why})"
        return None

    def _note(self, now_s: float, arrived: int, why: str) -> None:
        late, tail = (round(one, 4) for one in (self.ledger.late, self.ledger.tail))
        shown = " ".join(f"{name}={value:g}" for name, value in self._dials.items())
        self.notes.append({
            "at_s": now_s, "workflows": arrived, "chosen": self._name, "dials": shown, "why": why,
            "late": late, "tail": tail, "latest": self.ledger.latest(), "saves": round(self._saves, 4),
            "forbade": self._forbidden,
        })  # fmt: skip

    def summary(self) -> dict[str, object]:
        """Figures for reports and metrics: waiting beside the shadow, and modelled joules as shares of the reference's.

        ``kept`` is the promise itself, on the workflows of the ledger; ``saved`` is by the races, over all workflows;
        ``raced`` is how many had arrived at the last one.
        """
        late, tail = self.ledger.late, self.ledger.tail
        return {
            "workflows": self._looked, "raced": self._raced, "judged": len(self.ledger),
            "kept": late <= PROMISED and tail <= 1.0 + PROMISED, "late": round(late, 4), "tail": round(tail, 4),
            "chosen": self._name, "spent": self._times,
            "saved": round(self._saved / max(1, self._looked), 4), "forbade": self._forbidden,
        }  # fmt: skip


def time_out(dials: race.Dials) -> float:
    """Seconds after which a node may sleep under a choice: a pool and the flagship have none but the least."""
    own = dials.get("reserve", -1.0) >= 0.0 or dials.get("rule") == FLAGSHIP
    return max(dials.get("rest_s", 0.0), 0.0 if own else dials.get("after_s", math.inf))


def _plain(dials: race.Dials) -> tuple[float, ...] | None:
    """Return the numbers of a plain rule without a pool; None for others."""
    if dials.get("rule", FLAGSHIP) == FLAGSHIP or dials.get("reserve", -1.0) >= 0.0:
        return None
    return dials["rule"], dials.get("tolerance", 0.0) if dials["rule"] == THRIFT else 0.0, time_out(dials)


def told(note: Mapping[str, object]) -> str:
    """A note as a sentence: what was chosen when, why, what was forbidden, and whose lateness was paid for."""
    late, tail, latest = note["late"], note["tail"], note["latest"]
    assert isinstance(late, float)
    assert isinstance(latest, list)
    saves = f", saves {note['saves']:.0%} (modelled)" if note.get("saves") else ""
    forbade = f"; forbade {note['forbade']}" if note.get("forbade") else ""
    whose = f"; latest: workflow {', '.join(str(number + 1) for number in latest)}" if latest else ""
    dials = f" ({note['dials']})" if note["dials"] else ""
    return (
        f"{note['workflows']} workflows, {note['at_s']:.0f} s: {note['chosen']}{dials}, {note['why']}{saves};"
        f" {abs(late):.1%} {'later' if late >= 0 else 'sooner'} than the shadow, p95 {tail:.3f} of its{whose}{forbade}"
    )


def summed(summary: Mapping[str, object]) -> str:
    """The summary as a sentence, for a person."""
    late = summary["late"]
    assert isinstance(late, float)
    kept = "kept" if summary["kept"] else "not kept"
    saved = "" if summary["saved"] is None else f" {summary['saved']:.1%} of its joules saved (modelled);"
    return (
        f"promise {kept} on the last {summary['judged']} of {summary['workflows']} workflows: {abs(late):.1%} "
        f"{'later' if late >= 0 else 'sooner'} than under the reference, p95 {summary['tail']:.3f} of its;"
        f"{saved} budget spent {summary['spent']} times"
    )


def load_of(flows: Sequence[Workload]) -> float:
    """Core-seconds that arrive in a second; NaN where they came at once."""
    span_s = float(flows[-1].workflow_submit_s[0]) - float(flows[0].workflow_submit_s[0])
    return sum(joining.core_seconds(flow) for flow in flows[1:]) / span_s if span_s > 0 else math.nan


def steer(policy: Policy, cluster: Cluster) -> Steering:
    """Rehearse and shield, with `kubernetes` as the reference."""
    return Shield(policy, cluster, "kubernetes", race.candidates())


def rehearsed(policy: Policy, reference: str) -> Policy:
    """`wattflow` under the shield, which chooses by rehearsal. Dials that were set by hand stay."""
    plain = registry.load("wattflow")
    # Whether lower clocks are offered is nobody's order, queue or time-out: it is the caller's to say.
    offered = policy.settings.frequencies
    if replace(policy, params=plain.params) != plain.with_settings(frequencies=offered):
        raise InvalidInput(
            f"wattflow:shield={reference}",
            "chooses order, queue and time-outs itself; leave sleep, queue and order out",
        )
    given = {name: value for name, value in policy.params.items() if value != plain.params[name]}
    return replace(PORTFOLIO.with_settings(frequencies=offered).with_params(**{**given, **SLEEPY}), steer=steer)


__all__ = ["Ledger", "Shield", "rehearsed", "steer", "summed", "told"]
