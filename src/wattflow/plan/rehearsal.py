"""The rehearsal without a shield: flagship or learned rule, chosen with its dials by simulating what arrived.

Experiments judge it, and `planned` looks at its settings; what users get is `wattflow.plan.shield`.

Which dials are best differs between clusters and applications by more than a rule can learn to tell, but a stream
of the same workflows tells it at once. So when the first workflow is there, streams of such workflows (drawn again and
again with the estimates that are known, Poisson arrivals at the ``load`` that the cluster usually has) are simulated
under some three dozen settings; the one that would have cost the fewest joules, and made nobody wait, is used. On a
stream a setting costs

    log(joules / baseline's) + fine(over), or + 1 at least with a deadline newly missed,
    fine(over) = min(1, over / 0.08) + min(0.5, 0.5 · (over − 0.08)) where that is above 0,

``over`` being how far the mean or p95 response is above 0.96 × that of `kubernetes` with all nodes on, or the makespan
above 1.00 ×: whichever is more. Compared is the mean over the streams + 0.15 standard deviations. A single kind of
workflow says little about those that follow, so it is done again when 2, 4, 8, … have arrived, with the last 16 of
them. Settings are tried on two streams, the best twelve on two more, the best six of them on two more.

The settings (data/learn/rehearsal.json) are those which together did best on other applications and clusters
(`research/candidates.py`), four that make nobody wait whatever it costs, the tuned portfolio's for the load, and the
`learned` policy with six: the rules are its own, which with ``lean`` = 0 are the flagship's to the bit, so the
simulation decides between heuristic and learned rule. The future is not looked at.

``sure`` above 0 asks for something else: less risk beside the tuned portfolio, not none (docs/learned.md has what it
lost). Its setting for the load is used, and left only after `ENOUGH` workflows, for one of the flagship's that makes
nobody wait longer in the mean of the streams, and that in every one of them, fines counted in, saves joules: `WORTH` at
least, by so many standard errors (3 was chosen on training streams).

``load`` = 0 says that what has arrived is all there is: no streams are drawn, the workflows that are there are
simulated as they came, at every arrival anew.

About 110 simulations of some hundred tasks each time, some seconds. Same workflows, cluster and dials: same choice.
Less than `LEAST` tasks say too little and workflows of more than `MOST` take too long: then the dials stay, as they do
where most estimates or a node's watts are unknown. Those are the flagship's own dials, with ``sure`` too, not the
portfolio's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files.data_folder import packaged
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining, measured
from wattflow.plan.measured import BASELINE, PUNCTUAL, Result
from wattflow.policy import learned, levels
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions
from wattflow.sim.repeated import Repeated

Dials = Mapping[str, float]
TABLE = ("learn", "rehearsal.json")
ROUNDS = (12, 6, 1)
"""How many settings are left after each round; a round is ``STREAMS`` streams, the same for all."""
STREAMS = 2
TASKS, FEWEST_FLOWS, MOST_FLOWS = 400, 8, 30
"""Size of a rehearsed stream, about."""
LEAST, MOST = 5, 1500
"""Tasks that are known from which on, and up to which, a rehearsal is held."""
RECENT = 16
"""Workflows that a rehearsal draws from, at most: the last ones."""
SPREAD = 0.2
"""How far estimates err in the rehearsal (σ of the logarithm)."""
PATIENCE, ON_TIME, WIDTH = 0.96, 1.0, 0.08
"""From which ratio to the baseline's response, and to its makespan, on a setting is fined, and over what breadth."""
RISK = 0.15
"""Standard deviations over the streams that are added to the mean: a setting that fails in one of them is worse."""
LEANING: tuple[Dials, ...] = (
    {},
    {"second": 20.0},
    {"late": 800.0, "merit": 6.0},
    {"second": 20.0, "idle": 4.0},
)
"""Dials below the learned rule that are tried, beside the portfolio's own and the safest setting."""
ENOUGH, WORTH = 4, 0.05
LOAD = 0.6


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting in the rehearsal: mean over the streams it was tried on.

    Attributes:
        cost: What is compared: beside the baseline with `RISK`.
        energy: Geometric mean of joules over the baseline's.
        slower: Mean of the largest of the three ratios of waiting.
        streams: How many.
        error: Standard error of the cost.
        worst: The largest cost in a stream.
    """

    dials: Dials
    cost: float
    energy: float
    slower: float
    streams: int
    error: float = math.inf
    worst: float = math.inf

    def is_sure(self, sure: float) -> bool:
        """Tell whether it is better than what it was compared with, everywhere and by far enough."""
        return self.worst < 0.0 and self.slower <= 1.0 and self.cost + sure * self.error < -WORTH


def settings(name: str = "all") -> tuple[Dials, ...]:
    """Return the settings that are tried; ``fold-N`` are those chosen without the applications of a fold."""
    return tuple(_table()["settings"][name])


def leaning(usual: Dials, name: str = "all") -> list[Dials]:
    """Return settings of the learned policy; ``usual`` is the portfolio's."""
    below = (*LEANING, usual, _table()["safest"][name])
    return [{**dials, "lean": 1.0} for dials in below]


def distinct(some: Sequence[Dials], defaults: Dials) -> list[Dials]:
    """Return each setting once, whichever dials it leaves out because they have their defaults."""
    once: dict[tuple[tuple[str, float], ...], Dials] = {}
    for one in some:
        once.setdefault(tuple(sorted({**defaults, **one}.items())), one)
    return list(once.values())


def reference(load: float, name: str = "all") -> Dials:
    """Return the tuned portfolio's setting at the nearest load."""
    known = _table()["references"][name]
    found: Dials = known[min(known, key=lambda text: abs(float(text) - load))]
    return found


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(packaged(*TABLE).read_text(encoding="utf-8"))
    return found


def next_at(policy: Policy, seen: int) -> int:
    """After how many arrivals to rehearse again: twice as many; the next one, where what is there is all there is."""
    return seen + 1 if policy.params["load"] == 0.0 else 2 * seen


def recent(known: Sequence[Workload]) -> list[Workload]:
    """Return the last workflows that may be rehearsed together, in order of arrival."""
    found: list[Workload] = []
    tasks = 0
    for workflow in reversed(known):
        if len(found) < RECENT and tasks + len(workflow) <= MOST:
            found.append(workflow)
            tasks += len(workflow)
    return found[::-1]


def rehearse(
    known: Sequence[Workload],
    cluster: Cluster,
    load: float,
    base: Policy,
    tries: Sequence[Dials],
    beside: Dials | None = None,
) -> list[Tried]:
    """Return all settings, the best first: judged by the baseline and the punctual policy, or by another setting."""
    parts = [small(workflow) for workflow in known]
    costs: list[list[tuple[float, float, float]]] = [[] for _ in tries]
    left = list(range(len(tries)))
    for number, stay in enumerate(ROUNDS):
        for seed in range(number * STREAMS, (number + 1) * STREAMS):
            stream = stream_of(parts, cluster, load, seed) if load > 0.0 else as_they_came(parts, cluster)
            options = SimOptions(runtime_error=SPREAD)
            trial = Repeated(stream, cluster, base, seed=seed, options=options)
            judge = _judge(trial, base, beside)
            for i in left:
                costs[i].append(judge(measured.result_of(trial.again(base.with_params(**tries[i])))))
        # Ties go to the setting that is listed first, whatever the rounds before said.
        left = sorted(left, key=lambda i: (compared(np.array(costs[i])[:, 0], beside is None), i))[:stay]
    found = []
    for dials, some in zip(tries, costs, strict=True):
        _, energy, slower = np.mean(some, axis=0).tolist()
        each = np.array(some)[:, 0]
        total = compared(each, beside is None)
        error = float(each.std(ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else math.inf
        found.append(Tried(dials, total, math.exp(energy), slower, len(some), error, float(each.max())))
    # Those that came further first: costs over other streams do not compare.
    return sorted(found, key=lambda one: (-one.streams, one.cost))


def compared(each: NDArray[np.float64], with_risk: bool) -> float:
    """Return one number of what a setting costs on each stream."""
    return float(each.mean() + (RISK * each.std() if with_risk else 0.0))


def _judge(trial: Repeated, base: Policy, beside: Dials | None) -> Callable[[Result], tuple[float, float, float]]:
    """Make the function that prices a result on a stream."""
    if beside is not None:
        theirs = measured.result_of(trial.again(base.with_params(**beside)))
        return lambda ours: harm(ours, theirs)
    usual, punctual = (
        measured.measure(trial.workload, trial.cluster, name, trial.seed, trial.options)
        for name in (BASELINE, PUNCTUAL)
    )
    return lambda ours: cost(ours, usual, punctual)


def harm(ours: Result, theirs: Result) -> tuple[float, float, float]:
    """As `cost`, beside another setting: whoever waits longer than under it, or is late who was not, is a fine."""
    energy = math.log(max(1e-9, ours.energy_j) / max(1e-9, theirs.energy_j))
    slower = measured.slower(ours, theirs)
    late = 1.0 if ours.missed - theirs.missed else 0.0
    return energy + max(late, fine(slower - 1.0)), energy, slower


def cost(ours: Result, usual: Result, punctual: Result) -> tuple[float, float, float]:
    """Return what is compared, the logarithm of joules over the baseline's, and the largest of the three ratios of
    waiting."""
    energy = math.log(max(1e-9, ours.energy_j) / max(1e-9, usual.energy_j))
    ratio = measured.ratios(ours, usual)
    over = max(ratio["mean_s"] - PATIENCE, ratio["p95_s"] - PATIENCE, ratio["makespan_s"] - ON_TIME)
    late = 1.0 if ours.missed - punctual.missed else 0.0
    return energy + max(late, fine(over)), energy, max(ratio.values())


def fine(over: float) -> float:
    """Price waiting: steep at first, then flat, lest one bad stream outweigh all others."""
    return min(1.0, max(0.0, over) / WIDTH) + min(0.5, 0.5 * max(0.0, over - WIDTH))


def stream_of(parts: Sequence[Workload], cluster: Cluster, load: float, seed: int) -> Workload:
    """Return workflows like those that are known, arriving at a load; deadlines as far off as theirs."""
    rng = np.random.default_rng([seed, 0x4EA])
    size = float(np.mean([len(part) for part in parts]))
    count = int(np.clip(TASKS / size, FEWEST_FLOWS, MOST_FLOWS))
    chosen = [parts[i] for i in rng.integers(len(parts), size=count).tolist()]
    work_s = float(np.mean([joining.core_seconds(part) for part in parts]))
    gaps = rng.exponential(work_s / (load * max(1e-9, joining.capacity(cluster))), count)
    submit_s = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
    return joining.joined(chosen, submit_s, cluster, float(np.median([_slack(p, cluster) for p in parts])), "rehearsal")


def as_they_came(parts: Sequence[Workload], cluster: Cluster) -> Workload:
    """Return the workflows that are known, when they arrived, and no others."""
    submit_s = np.array([float(part.workflow_submit_s[0]) for part in parts])
    slack = float(np.median([_slack(part, cluster) for part in parts]))
    return joining.joined(parts, submit_s - submit_s.min(), cluster, slack, "rehearsal")


def _slack(workflow: Workload, cluster: Cluster) -> float:
    """Its deadline in critical paths."""
    path_s = float(levels.levels(workflow, cluster).path.max())
    left_s = float(workflow.deadline_s.min()) - float(workflow.workflow_submit_s[0])
    return left_s / path_s if path_s > 0 else math.inf


def small(workflow: Workload) -> Workload:
    """With the shapes and functions that it has, not those of the whole workload."""
    used, shape = np.unique(workflow.shape, return_inverse=True)
    shapes = [workflow.shapes[i] for i in used.tolist()]
    functions = sorted({one.function for one in shapes})
    return replace(
        workflow,
        shape=shape.astype(np.int32),
        shapes=tuple(replace(one, function=functions.index(one.function)) for one in shapes),
        functions=tuple(workflow.functions[i] for i in functions),
    )


def filled(workflow: Workload, usual_s: float) -> Workload:
    """Estimates for all, and those as runtimes."""
    seconds = np.where(np.isfinite(workflow.estimate_s), workflow.estimate_s, usual_s)
    return replace(workflow, runtime_s=seconds, estimate_s=seconds)


def tailored(policy: Policy, known: Sequence[Workload], cluster: Cluster, name: str = "all") -> Policy:
    """Return the policy with the dials that did best; dials that were set by hand stay as they are."""
    # A trial must not rehearse in its turn.
    fitted, seen = replace(policy, tailor=None, tailor_next=None), len(known)
    known = recent(known)
    seconds = np.concatenate([np.zeros(0), *(workflow.estimate_s for workflow in known)])
    told = np.isfinite(seconds)
    if len(seconds) < LEAST or told.mean() < 0.5 or any(node.power is None for node in cluster.nodes):
        return fitted
    known = [filled(workflow, float(np.median(seconds[told]))) for workflow in known]
    # A dial set by hand to its default cannot be told from one that was not set.
    given = {k: v for k, v in policy.params.items() if v != REHEARSED.params[k]}
    load, sure = policy.params["load"], policy.params["sure"]
    usual, trial = {**reference(load, name), **given}, replace(fitted, name="trial")
    tries = [{**dials, **given} for dials in settings(name)]
    if sure > 0.0:
        best = rehearse(known, cluster, load, trial, tries, usual)[0] if seen >= ENOUGH else None
        return fitted.with_params(**(best.dials if best is not None and best.is_sure(sure) else usual))
    tries += [usual, *({**dials, **given} for dials in leaning(usual, name))]
    return fitted.with_params(**rehearse(known, cluster, load, trial, distinct(tries, trial.params))[0].dials)


REHEARSED = replace(
    learned.LEARNED,
    name="rehearsed",
    summary="flagship or learned rule, chosen with its dials by simulating what arrived",
    params={**learned.DIAL.defaults, "lean": 0.0, "load": LOAD, "sure": 0.0},
    limits={**learned.LIMITS, "load": (0.0, 1.0), "sure": (0.0, math.inf)},
    tailor=tailored,
    tailor_next=next_at,
)
