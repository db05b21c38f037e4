"""The price of a promise to people in joules: the least energy that keeps a bound, beside the least without it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.figures.metrics import METRICS
from wattflow.model.errors import InvalidInput
from wattflow.model.units import duration_s

NAMES = {
    "mean_wait": "wait_mean_s",
    "p95_wait": "wait_p95_s",
    "p99_wait": "wait_p99_s",
    "mean_response": "workflow_response_mean_s",
    "p95_response": "workflow_response_p95_s",
    "makespan": "makespan_s",
    "p95_slowdown": "slowdown_p95",
    "p99_slowdown": "slowdown_p99",
    "deadlines_missed": "deadlines_missed",
    "peak": "peak_w",
}
"""Short names of bounds; a figure's own name does too."""


@dataclass(frozen=True, slots=True)
class Slo:
    """A figure that must not exceed a bound, on the mean over seeds."""

    name: str
    metric: str
    most: float

    @classmethod
    def parse(cls, text: str) -> Slo:
        """``p95_wait=10m``, ``p95_slowdown=2``, or a figure of -o json with its bound."""
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidInput(f"--slo {text}", "write NAME=BOUND, such as p95_wait=10m")
        metric = NAMES.get(name, name)
        if metric not in METRICS or METRICS[metric].less_is_better is not True:
            near = difflib.get_close_matches(name, [*NAMES, *_bounded()], n=1)
            meant = f"did you mean {near[0]!r}? Else " if near else ""
            usual = f"the usual ones are {', '.join(NAMES)}; any figure of `-o json` of which less is better will do"
            raise InvalidInput(f"--slo {text}", f"there is no bound on {name!r}; {meant}{usual}")
        try:
            most = duration_s(value.strip())
        except ValueError as error:
            raise InvalidInput(f"--slo {text}", str(error)) from error
        # "10m" would be 600 of whatever the figure counts.
        if METRICS[metric].unit != "s" and not _plain(value):
            raise InvalidInput(f"--slo {text}", f"{name} is no time; give a plain number")
        if not 0.0 <= most < float("inf"):
            raise InvalidInput(f"--slo {text}", "the bound must be a number of at least 0")
        return cls(name, metric, most)


@dataclass(frozen=True, slots=True)
class Cost:
    """The bound on one workload.

    Attributes:
        keeps: Policies that keep it, the least energy first.
        free: The policy with the least energy, bound or not.
        nearest: The policy with the least value of the bounded figure.
        extra: What keeping it adds to the least energy, as a part of it; None where no policy keeps it.
    """

    workload: str
    keeps: tuple[str, ...]
    free: str
    nearest: str
    extra: float | None


def costs(comparison: Comparison, slo: Slo) -> list[Cost]:
    """Price the bound on each workload where energy is known."""
    found = []
    for workload in comparison.workloads:
        energy = _means(comparison, workload, "energy_j")
        value = _means(comparison, workload, slo.metric)
        # Names break ties, so that the same table comes out each time.
        ranked = sorted((policy for policy in energy if policy in value), key=lambda p: (energy[p], p))
        if not ranked:
            continue
        keeps = tuple(policy for policy in ranked if value[policy] <= slo.most)
        least = energy[ranked[0]]
        extra = energy[keeps[0]] / least - 1.0 if keeps and least > 0 else None
        found.append(Cost(workload, keeps, ranked[0], min(ranked, key=lambda p: (value[p], p)), extra))
    return found


def _means(comparison: Comparison, workload: str, metric: str) -> dict[str, float]:
    each = {policy: comparison.summary(workload, policy, metric).mean for policy in comparison.policies}
    return {policy: mean for policy, mean in each.items() if mean is not None}


def _bounded() -> list[str]:
    return [name for name, metric in METRICS.items() if metric.less_is_better is True]


def _plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
