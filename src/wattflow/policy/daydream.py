"""DayDream's hot starts: containers made ahead of a phase, as many as the fitted distribution of phase concurrency
asks for.

Roy, Patel, Tiwari: DayDream: executing dynamic scientific workflows on serverless platforms with hot starts, SC
'22, doi:10.1109/SC41404.2022.00027. A phase of a function lasts from the first task of it that waits or runs to the
moment when none does; its width is the most that did so at once. A Weibull distribution is fitted by its moments to
the widths seen so far in the run, anew after each phase; before the first has ended nothing is made ahead. While
something runs, idle and busy containers of a function are kept at the chosen quantile. In the paper a hot container
serves any function; ours are bound to one.

O(functions + containers made × nodes) per instant, O(candidates) per task; ties go to the lower index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.policy import effects, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(quantile=0.5)
NOTES = view.notes("pool", "peak", "phases", "sum", "squares", "ordered", "done_at")


def score(state, task, variant, out):
    """A hot container first, then the least loaded node."""
    for c in range(out.size):
        out[c] = view.cold_start_s(state, task, variant, c) + view.core_share(state, variant, c)


@jit
def roomiest(state, skip):
    """The node that is on, keeps containers and has the most free cores beyond ``skip`` each; −1 without one."""
    best = -1
    most = 0.0
    for node in range(view.nodes_n(state)):
        if not view.is_on(state, node) or view.keep_alive_s(state, node) <= 0.0:
            continue
        free = view.free_cores(state, node) - skip[node]
        if free >= 1.0 and free > most:
            most = free
            best = node
    return best


@jit
def weibull_quantile(mean, spread, quantile):
    """λ (−ln(1 − q))^(1/k) of the Weibull distribution with this mean and spread; k is kept in 0.2 … 50."""
    if spread <= 0.0 or mean <= 0.0:
        return mean
    low = 0.2
    high = 50.0
    k = high
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
        phases = view.recall(state, NOTES.phases, fn) + 1.0
        total = view.recall(state, NOTES.sum, fn) + peak
        squares = view.recall(state, NOTES.squares, fn) + peak * peak
        effects.note(state, NOTES.peak, fn, 0.0)
        effects.note(state, NOTES.phases, fn, phases)
        effects.note(state, NOTES.sum, fn, total)
        effects.note(state, NOTES.squares, fn, squares)
        mean = total / phases
        spread = math.sqrt(max(0.0, squares / phases - mean * mean))
        quantile = min(max(view.param(state, DIAL.quantile), 0.0), 0.999)
        effects.note(state, NOTES.pool, fn, math.ceil(weibull_quantile(mean, spread, quantile) - 1e-9))


def act(state):
    """Order the containers that a function's pool lacks."""
    now = view.now_s(state)
    given = np.zeros(view.nodes_n(state))
    for fn in range(view.functions_n(state)):
        if view.container_start_s(state, fn) <= 0.0:
            continue
        watch(state, fn)
        if view.running(state) == 0:
            continue
        if now >= view.recall(state, NOTES.done_at, fn):
            effects.note(state, NOTES.ordered, fn, 0.0)
        have = view.idle_containers(state, fn) + view.function_running(state, fn)
        lacking = int(view.recall(state, NOTES.pool, fn) - have - view.recall(state, NOTES.ordered, fn))
        for _ in range(lacking):
            node = roomiest(state, given)
            if node < 0:
                return
            given[node] += 1.0
            seconds = view.container_start_s(state, fn) * view.cold_factor(state, node)
            effects.order_warm(state, node, fn)
            effects.note(state, NOTES.ordered, fn, view.recall(state, NOTES.ordered, fn) + 1.0)
            effects.note(state, NOTES.done_at, fn, max(view.recall(state, NOTES.done_at, fn), now + seconds))


def prepare(state: Any, cluster: Cluster) -> None:
    """Nothing is known of any function's phases yet."""
    nothing = np.zeros(len(state.functions))
    view.lay_out(state, NOTES, **{name: nothing for name in NOTES._fields})


DAYDREAM = Policy(
    "daydream",
    "containers made ahead of a phase, by the concurrency fitted so far",
    "10.1109/SC41404.2022.00027",
    score=score,
    act=act,
    params=DIAL.defaults,
    prepare=prepare,
)
