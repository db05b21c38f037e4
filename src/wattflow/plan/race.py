"""A race of candidates on streams like what has arrived: which of them saves joules, and makes nobody wait.

Streams are drawn again and again from the workflows that arrived and from the gaps between them, so the load is
measured, with the runtimes that were measured and the estimates that were given. Candidates are numbers of one policy
(`policy.portfolio`), each simulated on the same streams as the reference. Racing is by successive halving over longer
and longer streams (`ROUNDS`). What is left has a paired interval for each of its ratios to the reference. That of
joules is corrected for the number of candidates (Bonferroni), so the reference stays where it overlaps 1; that of
waiting is one standard error (`LIKELY`): a race is a forecast, and what is observed afterwards judges it
(`plan.shield`).

Sleep is paid from what a rule earns. Each rule runs with all nodes on first; the sooner its workflows end beside the
reference's, the shorter the time-outs that its candidates may have (``rest_of``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining, measured
from wattflow.policy.base import Policy
from wattflow.policy.portfolio import FLAGSHIP, REFERENCE, SOONEST, SPREAD, THRIFT, with_own_offers
from wattflow.sim.repeated import Prepared, Repeated

Dials = Mapping[str, float]
Floats = NDArray[np.float64]
ROUNDS = ((2, 8, 600), (2, 4, 1200), (3, 4, 2000))
"""Streams of each round, how many candidates are left after it, and about how many tasks a stream has."""
FEWEST, MOST = 8, 80
"""Workflows of a stream."""
WIDE = 2_500
"""Tasks of a stream beyond which the flagship is left out: its cost grows with the tasks that wait, up to a hundred
times a plain rule's, and a race must end."""
KNOWN_GAPS = 12
"""Gaps between arrivals from which on they are drawn as they were; exponential before."""
DOUBT, LIKELY = 0.05, 1.0
"""Chance that the interval of any candidate's joules is too narrow; standard errors that are added to waiting."""
PRICE = 12.5
"""Cost of waiting in a round, in logarithms of joules: 8 % longer is worse than any saving."""
ALLOWED = 1.01
"""Ratio of waiting up to which it costs nothing."""
NEVER_S = 1e9
QUICKER = {"rule": SOONEST, "after_s": math.inf}
"""Dials of `eft` with all nodes on: the reference where the usual one's backlog grows."""
Row = tuple[float, float, float, float, float]
"""log(joules / the reference's), ratios of mean response, of the slowest quarter's and of p95, newly missed
deadlines."""


def candidates() -> dict[str, Dials]:
    """Every candidate by name: plain rules × time-outs, pools × their reserves, the flagship's dials.

    Each names its rule and a finite time-out, for what it leaves out is the reference's: kube-scheduler's points, and
    nodes that never sleep.
    """
    found: dict[str, Dials] = {}
    for after_s in (30.0, 120.0, 600.0):
        found[f"spread, sleep {after_s:g} s"] = {"rule": SPREAD, "after_s": after_s}
        found[f"soonest, sleep {after_s:g} s"] = {"rule": SOONEST, "after_s": after_s}
        for tolerance in (0.3, 1.0):
            dials = {"rule": THRIFT, "tolerance": tolerance, "after_s": after_s}
            found[f"thrift {tolerance:g}, sleep {after_s:g} s"] = dials
    for name, rule in (("soonest", SOONEST), ("thrift", THRIFT)):
        for reserve, least in ((0.3, 0.0), (1.0, 0.0), (0.3, 0.5)):
            dials = {"rule": rule, "after_s": 600.0, "reserve": reserve, "decay_s": 300.0, "least": least}
            found[f"{name}, pool {reserve:g}, least {least:g}"] = dials
    for margin, crowd, idle in ((0.05, 0.25, 2.0), (0.3, 4.0, 2.0), (0.05, 4.0, 10.0)):
        dials = {"rule": FLAGSHIP, "after_s": 600.0, "margin": margin, "crowd": crowd, "idle": idle}
        found[f"flagship {margin:g}/{crowd:g}/{idle:g}"] = dials
    return found


def steadiest(named: Mapping[str, Dials]) -> list[str]:
    """Name the candidate that differs least from the reference: kube-scheduler's points, the longest time-out.

    It runs the whole race whatever it saves, as what is left where nothing else keeps the bound; none if there is none.
    """
    spread = [name for name, dials in named.items() if dials.get("rule") == SPREAD]
    return [max(spread, key=lambda name: (named[name]["after_s"], name))] if spread else []


def sleepless(dials: Dials) -> Dials:
    """The candidate's rule with nodes that stay on."""
    return {
        **dials,
        "after_s": NEVER_S,
        "reserve": -1.0,
        "decay_s": 600.0,
        "least": 0.0,
        "rest_s": NEVER_S,
        "idle": 2.0,
    }


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that ran the whole race.

    Attributes:
        energy: Mean of log(joules / the reference's).
        energy_high: Upper end of the interval of that.
        mean_high, tail_high: Upper ends of the ratios of mean response, and of p95 or that of the slowest quarter,
            whichever is higher (p95 of a short stream says less, and a wake that one workflow in fifteen waits for
            hardly moves the quarter).
        missed: Deadlines missed that the reference met, in all streams.
        worst: The largest ratio of mean, slowest quarter or p95 in any stream: one in seven is more than may break.
        steady: It is the reference but for nodes that sleep after a long time (`steadiest`).
    """

    name: str
    dials: Dials
    energy: float
    energy_high: float
    mean_high: float
    tail_high: float
    missed: int
    worst: float = 1.0
    steady: bool = False


class Trial:
    """One stream, and what the reference does on it.

    The flagship and plain rules take different offers, so each has tables of its own: what a rule never takes would be
    looked at in every decision.
    """

    def __init__(self, workload: Workload, race: Race, seed: int) -> None:
        self.workload, self._race, self._seed = workload, race, seed
        self._tables: dict[bool, Repeated] = {}
        self.usual = self.outcome(race.reference)

    def outcome(self, dials: Dials) -> measured.Result:
        """Simulate a candidate."""
        policy = self._race.base.with_params(**dials)
        flagship = policy.params["rule"] == FLAGSHIP
        if flagship not in self._tables:
            own = with_own_offers(policy, self._race.cluster)
            shared = self._race.prepared[flagship]
            self._tables[flagship] = Repeated(self.workload, self._race.cluster, own, seed=self._seed, prepared=shared)
        return measured.result_of(self._tables[flagship].again(policy))


class Race:
    """Streams like these workflows, and who ran on them.

    Args:
        rest_of: A rule's ratio of waiting with all nodes on, to the least time-out of its candidates.
        reference: Dials that all others are compared with.
        prepared: What other races of the policy on the cluster have found out about its numbers.
    """

    def __init__(
        self,
        flows: Sequence[Workload],
        cluster: Cluster,
        base: Policy,
        rest_of: Callable[[float], float],
        reference: Dials = REFERENCE,
        prepared: dict[bool, Prepared] | None = None,
    ) -> None:
        self.cluster, self.base, self.reference = cluster, base, reference
        self.prepared: dict[bool, Prepared] = {False: {}, True: {}} if prepared is None else prepared
        self._flows, self._rest_of = flows, rest_of
        self._idle_w = idle_w(cluster)

    def run(self, tries: Mapping[str, Dials]) -> list[Tried]:
        """Race candidates; the survivors, the fewest joules first."""
        number, named, rows = 0, dict(tries), dict[str, list[Row]]()
        for streams, stay, tasks in ROUNDS:
            trials = [self._trial(number + i, tasks) for i in range(streams)]
            if number == 0:
                wide = max(len(trial.workload) for trial in trials) > WIDE
                named = {name: dials for name, dials in named.items() if not wide or dials.get("rule") != FLAGSHIP}
                named = self._careful(named, trials)
                rows = {name: [] for name in named}
            for trial in trials:
                for name, dials in named.items():
                    rows[name].append(self._beside(trial, dials))
            best = sorted(named, key=lambda name: (_price(rows[name]), name))[:stay]
            best += [name for name in steadiest(named) if name not in best]
            named, number = {name: named[name] for name in best}, number + streams
        sure = NormalDist().inv_cdf(1.0 - DOUBT / max(1, len(rows)))
        steady = steadiest(named)
        found = [
            replace(_summed(name, dials, np.array(rows[name]), sure), steady=name in steady)
            for name, dials in named.items()
        ]
        return sorted(found, key=lambda one: one.energy)

    def _trial(self, seed: int, tasks: int) -> Trial:
        return Trial(stream_of(self._flows, seed, tasks), self, seed)

    def _careful(self, tries: Mapping[str, Dials], trials: Sequence[Trial]) -> dict[str, Dials]:
        """Candidates with no time-out below what their rule's sleep is priced at, each once."""
        rest_s: dict[str, float] = {}
        found: dict[str, tuple[str, Dials]] = {}
        for name, dials in tries.items():
            awake = sleepless(dials)
            if str(awake) not in rest_s:
                rows = np.array([self._beside(trial, awake) for trial in trials])
                rest_s[str(awake)] = float(f"{self._rest_of(float(rows[:, 1:3].mean(axis=0).max())):.2g}")
            careful = {**dials, "rest_s": rest_s[str(awake)]}
            if dials.get("reserve", -1.0) < 0.0:  # time-outs below the least are the same
                careful["after_s"] = max(dials["after_s"], careful["rest_s"])
            found.setdefault(str(careful), (name, careful))
        return dict(found.values())

    def _beside(self, trial: Trial, dials: Dials) -> Row:
        return beside(trial.outcome(dials), trial.usual, self._idle_w)


def beside(ours: measured.Result, usual: measured.Result, idle: float) -> Row:
    """Logarithm of joules, ratios of mean and tail, newly missed deadlines; who ends first idles until the other."""
    span_s = max(ours.makespan_s, usual.makespan_s)
    own_j, usual_j = (one.energy_j + idle * (span_s - one.makespan_s) for one in (ours, usual))
    mean, tail, p95 = (getattr(ours, n) / max(1e-9, getattr(usual, n)) for n in ("mean_s", "tail_s", "p95_s"))
    return math.log(max(1e-9, own_j) / max(1e-9, usual_j)), mean, tail, p95, float(len(ours.missed - usual.missed))


def _price(rows: Sequence[Row]) -> float:
    """One number by which a round is decided: joules, and what waiting costs."""
    energy, mean, tail, p95, missed = np.mean(rows, axis=0).tolist()
    return float(energy + PRICE * max(0.0, mean - ALLOWED, max(tail, p95) - ALLOWED) + missed)


def _summed(name: str, dials: Dials, rows: Floats, sure: float) -> Tried:
    middle, error = rows.mean(axis=0), rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    mean_high, tail_high, p95_high = (middle + LIKELY * error)[1:4].tolist()
    missed = int(rows[:, 4].sum())
    energy_high = float(middle[0] + sure * error[0])
    worst = float(rows[:, 1:4].max())
    return Tried(name, dials, float(middle[0]), energy_high, mean_high, max(tail_high, p95_high), missed, worst)


def stream_of(flows: Sequence[Workload], seed: int, tasks: int) -> Workload:
    """Workflows and gaps drawn again from those that arrived; gaps are exponential where few are known."""
    rng = np.random.default_rng([seed, 0x4EB])
    count = int(np.clip(tasks / np.mean([len(flow) for flow in flows]), FEWEST, MOST))
    chosen = [flows[i] for i in rng.integers(len(flows), size=count).tolist()]
    gaps = np.maximum(0.0, np.diff([float(flow.workflow_submit_s[0]) for flow in flows]))
    mean_s = max(1e-3, float(gaps.mean())) if len(gaps) else 1.0
    drawn = rng.choice(gaps, count) if len(gaps) >= KNOWN_GAPS else rng.exponential(mean_s, count)
    return joining.together(chosen, np.concatenate([[0.0], np.cumsum(drawn)[:-1]]))


def idle_w(cluster: Cluster) -> float:
    """Idle watts of all nodes whose watts are known."""
    return sum(node.power.idle_w for node in cluster.nodes if node.power is not None)


__all__ = ["Race", "Tried", "candidates", "sleepless", "stream_of"]
