"""DayDream's hot starts: containers made ahead of a phase, as many as the fitted distribution of phase concurrency
asks for, each ready for whichever function comes.

Roy, Patel, Tiwari: DayDream: executing dynamic scientific workflows on serverless platforms with hot starts, SC
'22, doi:10.1109/SC41404.2022.00027. A phase of a function lasts from the first task of it that waits or runs to the
moment when none does; its width is the most that did so at once. A Weibull distribution is fitted by its moments to
the widths of all phases seen so far in the run, anew after each; before the first has ended nothing is made ahead.
While something runs, hot containers are kept at the chosen quantile. A hot container belongs to no function until a
task takes it; making one takes as long as the slowest function's.

O(functions + containers made × nodes) per instant, O(candidates) per task; ties go to the lower index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.policy import effects, prewarm, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(quantile=0.5)
NOTES = view.notes("pool", "peak", "phases", "sum", "squares", "ordered", "done_at")


def score(state, task, variant, out):
    """Prefer a hot container, then the least loaded node."""
    for c in range(out.size):
        out[c] = view.cold_start_s(state, task, variant, c) + view.core_share(state, variant, c)


@jit
def weibull_quantile(mean, spread, quantile):
    """λ (−ln(1 − q))^(1/k) of the Weibull distribution with this mean and spread; k is kept in 0.2 … 50."""
    # All phases alike: every quantile is the mean.
    if spread <= 0.0 or mean <= 0.0:
        return mean
    low = 0.2
    high = 50.0
    k = high
    # The squared coefficient of variation falls with k, so bisection finds it; 60 halvings reach the last bit.
    for _ in range(60):
        k = 0.5 * (low + high)
        first = math.gamma(1.0 + 1.0 / k)
        if math.gamma(1.0 + 2.0 / k) / (first * first) - 1.0 > (spread / mean) * (spread / mean):
            low = k
        else:
            high = k
    scale = mean / math.gamma(1.0 + 1.0 / k)
    return scale * math.pow(-math.log(1.0 - quantile), 1.0 / k)


@jit
def watch(state, fn):
    """Follow the function's phase; when it ends its width joins the fit and the pool is sized anew."""
    width = float(view.function_waiting(state, fn) + view.function_running(state, fn))
    peak = view.recall(state, NOTES.peak, fn)
    if width > peak:
        effects.note(state, NOTES.peak, fn, width)
    elif width == 0.0 and peak > 0.0:
        phases = view.recall(state, NOTES.phases, 0) + 1.0
        total = view.recall(state, NOTES.sum, 0) + peak
        squares = view.recall(state, NOTES.squares, 0) + peak * peak
        effects.note(state, NOTES.peak, fn, 0.0)
        effects.note(state, NOTES.phases, 0, phases)
        effects.note(state, NOTES.sum, 0, total)
        effects.note(state, NOTES.squares, 0, squares)
        mean = total / phases
        # Rounding may make the variance of equal widths negative.
        spread = math.sqrt(max(0.0, squares / phases - mean * mean))
        # At 1 the quantile would be infinite.
        quantile = min(max(view.param(state, DIAL.quantile), 0.0), 0.999)
        # A rounding above a whole number must not add a container.
        effects.note(state, NOTES.pool, 0, math.ceil(weibull_quantile(mean, spread, quantile) - 1e-9))


def act(state):
    """Order the hot containers that the pool lacks."""
    for fn in range(view.functions_n(state)):
        if view.container_start_s(state, fn) > 0.0:
            watch(state, fn)
    if view.running(state) > 0:
        lacking = view.recall(state, NOTES.pool, 0) - view.idle_containers(state, view.ANY_FUNCTION)
        prewarm.order(state, view.ANY_FUNCTION, lacking, NOTES.ordered, NOTES.done_at, 0)


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay the memory out: nothing is known of any phases yet."""
    one = np.zeros(1)
    blocks = {name: np.zeros(len(state.functions)) if name == "peak" else one for name in NOTES._fields}
    view.lay_out(state, NOTES, **blocks)


DAYDREAM = Policy(
    "daydream",
    "containers made ahead of a phase, by the concurrency fitted so far",
    "10.1109/SC41404.2022.00027",
    score=score,
    act=act,
    params=DIAL.defaults,
    prepare=prepare,
)
