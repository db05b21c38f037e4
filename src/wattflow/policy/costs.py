"""Terms that several policies put together: joules that a placement adds, and needs of a task. All are finite."""

from __future__ import annotations

import math

from wattflow.engine import view
from wattflow.engine.tables import MICRO, UNKNOWN_COST
from wattflow.kernel.jit import jit


@jit
def bounded(cost):  # type: ignore[no-untyped-def]
    """Products with an unknown factor stay at the cost of the unknown."""
    return cost if cost < UNKNOWN_COST else UNKNOWN_COST


@jit
def seconds(state, task, variant, candidate):  # type: ignore[no-untyped-def]
    """Estimated run seconds; without an estimate those of a task of one second, so that faster nodes still win."""
    place = state.candidates[candidate]
    task_row = state.tasks[task]
    estimate = task_row.estimate
    if math.isnan(estimate):
        estimate = 1.0
    return estimate * view.work_factor(state, task_row.form, variant, place.node, place.device)


@jit
def added_j(state, task, variant, candidate):  # type: ignore[no-untyped-def]
    """Joules that the placement adds: run, cold start, transfer and waking; UNKNOWN_COST without a power profile."""
    run_w = view.added_w(state, task, variant, candidate)
    if run_w >= UNKNOWN_COST:
        return UNKNOWN_COST
    place = state.candidates[candidate]
    node = place.node
    rules = state.rules[0]
    counts = state.counts[0]
    joules = run_w * seconds(state, task, variant, candidate)
    if counts.asleep_n > 0:
        joules += view.wake_j(state, candidate)
    if rules.cold == 1 or place.device >= 0:
        cold_s = view.cold_start_s(state, task, variant, candidate)
        if cold_s > 0.0:
            joules += view.node_added_w(state, variant, node, -1) * cold_s
    if rules.has_data == 1:
        joules += view.bytes_to(state, task, node) * state.classes[state.nodes[node].cls].j_per_byte
    return bounded(joules)


@jit
def cores(state, task):  # type: ignore[no-untyped-def]
    """Cores that all parts of the task ask for in its first variant."""
    shape = state.tasks.form[task]
    return state.variants.cores_u[state.shapes.variant_first[shape]] * state.shapes.parts[shape] / MICRO


@jit
def core_share(state, variant, candidate):  # type: ignore[no-untyped-def]
    """Guaranteed cores over what requests may sum to, the task included."""
    node = state.candidates.node[candidate]
    used = state.nodes.used_u[node] + state.variants.need_u[variant]
    return used / state.classes.request_u[state.nodes.cls[node]]


@jit
def memory_share(state, variant, candidate):  # type: ignore[no-untyped-def]
    """Memory in use over the node's memory, the task included; 0 for a node that has none."""
    node = state.candidates.node[candidate]
    memory = state.classes.memory[state.nodes.cls[node]]
    return (state.nodes.used_mem[node] + state.variants.memory[variant]) / memory if memory > 0 else 0.0


@jit
def spare_containers(state, node, fn):  # type: ignore[no-untyped-def]
    """Idle containers of a function on a node that no task placed in this instant will take."""
    spare = 0
    c = state.nodes.first_container[node]
    oldest = state.clock.now[0] - state.classes.keep_alive_s[state.nodes.cls[node]]
    while c >= 0:
        if state.containers.function[c] == fn and state.containers.idle_since[c] > oldest:
            spare += 1
        c = state.containers.next_node[c]
    if spare > 0:
        for i in range(state.counts.placed_n[0]):
            a = state.placed[i]
            if state.attempts.node[a] == node and state.shapes.function[state.tasks.form[state.attempts.task[a]]] == fn:
                spare -= 1
    return spare
