"""DayDream's hot starts: containers made ahead of a phase, as many as the fitted distribution of phase concurrency
asks for.

Roy, Patel, Tiwari: DayDream: executing dynamic scientific workflows on serverless platforms with hot starts, SC
'22, doi:10.1109/SC41404.2022.00027. A phase is the tasks of one function on one level of one workflow. A Weibull
distribution is fitted to the phases' widths by its moments; the workload's own DAGs stand for the record of earlier
runs. While tasks of a function are still to come and something runs, idle and busy containers of it are kept at the
chosen quantile.

O(functions + containers made × nodes) per instant, O(candidates) per task; ties go to the lower index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine import view
from wattflow.engine.tables import ACT_WARM, MICRO, ON
from wattflow.kernel.jit import jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import costs, levels
from wattflow.policy.base import Policy

# state.memory, per function: pool size, tasks in all, containers ordered, when the last order is done
POOL, TASKS, ORDERED, DONE_AT, COLUMNS = 0, 1, 2, 3, 4


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """A hot container first, then the least loaded node."""
    for c in range(out.size):
        out[c] = view.cold_start_s(state, task, variant, c) + costs.core_share(state, variant, c)


@jit
def idle_containers(state, fn):  # type: ignore[no-untyped-def]
    """Containers of a function that wait and are not too old."""
    count = 0
    c = state.functions.first_container[fn]
    while c >= 0:
        keep_s = state.classes.keep_alive_s[state.nodes.cls[state.containers.node[c]]]
        if state.containers.idle_since[c] > state.clock.now[0] - keep_s:
            count += 1
        c = state.containers.next_function[c]
    return count


@jit
def roomiest(state, skip):  # type: ignore[no-untyped-def]
    """The node that is on, keeps containers and has the most free cores beyond ``skip`` each; −1 without one."""
    best = -1
    most = 0
    for node in range(state.nodes.size):
        if state.nodes.power_state[node] != ON or state.classes.keep_alive_s[state.nodes.cls[node]] <= 0.0:
            continue
        free = state.nodes.capacity_u[node] - state.nodes.used_u[node] - skip[node] * MICRO
        if free >= MICRO and free > most:
            most = free
            best = node
    return best


def act(state):  # type: ignore[no-untyped-def]
    """Order the containers that a function's pool lacks."""
    if state.counts.running[0] == 0:
        return
    now = state.clock.now[0]
    given = np.zeros(state.nodes.size, np.int64)
    for fn in range(state.functions.size):
        at = COLUMNS * fn
        note = state.memory
        if state.functions.cold_start_s[fn] <= 0.0:
            continue
        if now >= note[at + DONE_AT]:
            note[at + ORDERED] = 0.0
        to_come = note[at + TASKS] - state.functions.started[fn]
        have = idle_containers(state, fn) + state.functions.running[fn] + note[at + ORDERED]
        lacking = int(min(note[at + POOL], to_come) - have)
        for _ in range(lacking):
            node = roomiest(state, given)
            if node < 0:
                return
            given[node] += 1
            seconds = state.functions.cold_start_s[fn] * state.classes.cold_factor[state.nodes.cls[node]]
            view.request_action(state, ACT_WARM, node, fn, now)
            note[at + ORDERED] += 1.0
            note[at + DONE_AT] = max(note[at + DONE_AT], now + seconds)


def weibull(widths: NDArray[np.float64]) -> tuple[float, float]:
    """(shape k, scale λ) with the widths' mean and variance; the shape is kept in 0.2 … 50."""
    mean, spread = float(widths.mean()), float(widths.std())
    if spread <= 0 or mean <= 0:
        return 50.0, mean
    low, high = 0.2, 50.0
    for _ in range(60):
        k = 0.5 * (low + high)
        first, second = math.gamma(1 + 1 / k), math.gamma(1 + 2 / k)
        if second / first**2 - 1 > (spread / mean) ** 2:
            low = k
        else:
            high = k
    return k, mean / math.gamma(1 + 1 / k)


def prepare(state: Any, workload: Workload, cluster: Cluster) -> None:
    """Pool size of every function: the quantile q of its phases' Weibull distribution, λ (−ln(1 − q))^(1/k)."""
    found = levels.levels(workload, cluster)
    function = np.array([shape.function for shape in workload.shapes], np.int64)[workload.shape]
    notes = np.zeros((len(state.functions), COLUMNS))
    quantile = min(max(float(state.params[0]), 0.0), 0.999)
    for fn in range(len(workload.functions)):
        mine = function == fn
        if not mine.any():
            continue
        phases = np.stack([workload.workflow[mine].astype(np.int64), found.phase[mine]])
        _, widths = np.unique(phases, axis=1, return_counts=True)
        k, scale = weibull(widths.astype(np.float64))
        notes[fn, POOL] = math.ceil(scale * (-math.log(1 - quantile)) ** (1 / k) - 1e-9)
        notes[fn, TASKS] = int(mine.sum())
    levels.note(state, notes.ravel())


DAYDREAM = Policy(
    "daydream",
    "containers made ahead of a phase, by its fitted concurrency",
    "10.1109/SC41404.2022.00027",
    score=score,
    act=act,
    params={"quantile": 0.5},
    prepare=prepare,
)
