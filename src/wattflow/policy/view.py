"""The public page of a policy: all that it may ask. Compiled, scalar, free of effects (those are in `effects`).

A *candidate* c is a place that has room for the task now: `node_of(state, c)`, and a device of it or −1. Seconds,
watts, joules and cores are plain numbers. What is unknown costs `UNKNOWN_COST`, finite and worse than anything known;
a task without an estimate counts as one of `GUESS_S` seconds wherever seconds are needed (`has_estimate` tells).
What a driver computes at a workflow's arrival (`rank`, `slack_s`, `latest_start_s`, `typical_s`, `path_s`) is there
when the policy asked for it (``Policy.rank``, ``Policy.slack``).

A policy's own numbers have names:

    DIAL = view.dials(late=1.0)                  # Policy(params=DIAL.defaults)
    view.param(state, DIAL.late)

and so has its memory, which `prepare` lays out and compiled code reads:

    NOTES = view.notes("pool", "ordered")
    view.lay_out(state, NOTES, pool=sizes, ordered=zeros)
    view.recall(state, NOTES.pool, function)
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np

from wattflow.engine.tables import HOT as ANY_FUNCTION
from wattflow.engine.tables import MICRO, UNKNOWN_COST
from wattflow.engine.view import (
    added_w,
    bytes_to,
    cold_start_s,
    crowding_w,
    data_latency_s,
    device_added_w,
    device_watts,
    idle_w,
    load,
    node_added_w,
    priced_w,
    ready_in_s,
    transfer_s,
    wait_s,
    waited_s,
    wake_j,
    warm,
    warming_s,
    work_factor,
)
from wattflow.policy.device_view import (
    WHOLE_U,
    attempt_end_s,
    attempt_variant,
    cold_factor,
    container_start_s,
    device_tasks,
    device_turns,
    first_attempt,
    free_u,
    function_arrived,
    function_running,
    function_waiting,
    idle_containers,
    is_gpu,
    keep_alive_s,
    next_attempt,
    shape_seen,
    spare_containers,
    stands_for,
    taken_u,
    variant_devices,
    variant_need_u,
    variant_share_u,
    wants_gpu,
)
from wattflow.policy.jit import jit
from wattflow.policy.levels import GUESS_S
from wattflow.policy.node_view import (
    all_ask,
    asks_cores,
    asks_memory,
    busy_cores,
    busy_until_s,
    can_sleep,
    class_count,
    class_node,
    class_of,
    class_takes,
    classes_n,
    core_share,
    device_suits,
    devices_of,
    enter_j,
    expects_end,
    factor_on,
    free_cores,
    frequencies_of,
    frequency_power,
    frequency_speed,
    has_profile,
    idle_since_s,
    is_asleep,
    is_gone,
    is_on,
    is_serverless,
    is_waking,
    mean_w,
    memory_share,
    next_room,
    node_cores,
    node_idle_w,
    node_memory,
    node_now_w,
    node_sleep_w,
    node_tdp_w,
    node_threads,
    node_wake_s,
    request_cores,
    requested,
    sleep_after_s,
    sleep_cycle_j,
    tasks_on,
    throughput,
    transfer_j,
    unasked,
    watts_at,
    zone_of,
)
from wattflow.policy.node_view import variant_device as variant_needs_device
from wattflow.policy.variant_view import (
    candidate_room,
    first_variants,
    level_seconds,
    shape_count,
    variant_cores,
    variant_frequency,
    variant_guarantee,
    variant_guaranteed,
    variant_level,
    variants_of,
)

__all__ = [
    "ANY_FUNCTION", "GUESS_S", "UNKNOWN_COST", "WHOLE_U", "added_j", "added_w", "all_ask", "asks_cores", "asks_memory",
    "asleep", "attempt_end_s", "attempt_variant", "awake_and_until", "awake_j", "bounded", "busy_cores", "busy_until_s",
    "bytes_to", "can_sleep", "candidate_room", "class_count", "class_node", "class_of", "class_takes", "classes_n",
    "cold_factor", "cold_start_s", "container_start_s", "core_share", "cores_of", "crowded_finish_s", "crowding_s",
    "crowding_w", "deadline_s", "decision", "device_added_w", "device_of", "device_suits", "device_tasks",
    "device_turns", "device_watts", "devices_of", "dials", "enter_j", "estimate_s", "expects_end", "factor",
    "factor_on", "finish_and_worth", "finish_in_s", "first_attempt", "first_variants", "free_cores", "free_u",
    "frequencies_of", "frequency_power", "frequency_speed", "function_arrived", "function_of", "function_running",
    "function_waiting", "functions_n", "has_estimate", "has_profile", "idle_containers", "idle_since_s", "idle_w",
    "is_asleep", "is_gone", "is_gpu", "is_on", "is_serverless", "is_waking", "keep_alive_s", "latest_start_s",
    "lay_out", "level_seconds", "load", "lost_s", "mean_w", "memory_share", "next_attempt", "next_room", "node_added_w",
    "node_cores", "node_idle_w", "node_memory", "node_now_w", "node_of", "node_sleep_w", "node_tdp_w", "node_threads",
    "node_wake_s", "nodes_n", "notes", "now_s", "objective_weight", "param", "parts_of", "path_s", "place_of",
    "priced_w", "rank", "ready_in_s", "ready_s", "recall", "request_cores", "requested", "running", "runtime_s",
    "shape_count", "shape_seen", "slack_s", "sleep_after_s", "sleep_cycle_j", "spare_containers", "stands_for",
    "submit_s", "taken_u", "tasks_on", "throughput", "transfer_j", "transfer_s", "typical_s", "unasked",
    "variant_cores", "variant_devices", "variant_frequency", "variant_guarantee", "variant_guaranteed", "variant_level",
    "variant_need_u", "variant_needs_device", "variant_share_u", "variants_of", "wait_s", "waited_s", "waiting",
    "wake_j", "wants_gpu", "warm", "warming_s", "watts_at", "worth_j", "zone_of",
]  # fmt: skip


# --- names -----------------------------------------------------------------------------------------------------------
def dials(**defaults: float) -> Any:
    """Names of a policy's numbers: each attribute is a place for `param`, ``.defaults`` is for ``Policy(params=…)``."""
    make: Any = namedtuple
    kind = make("dials", list(defaults))
    kind.defaults = dict(defaults)
    return kind(*range(len(defaults)))


def notes(*names: str) -> Any:
    """Names of the blocks of a policy's memory."""
    make: Any = namedtuple
    return make("notes", names)(*range(len(names)))


def lay_out(state: Any, names: Any, **blocks: Any) -> None:
    """Fill the policy's memory, a block of numbers per name; for ``prepare``. A block may have any length."""
    # Either way: a block that is missing, or one that has no name.
    missing = set(names._fields) ^ set(blocks)
    if missing:
        raise ValueError(f"the memory has the blocks {', '.join(names._fields)}; these differ: {sorted(missing)}")
    parts = [np.ravel(np.asarray(blocks[name], np.float64)) for name in names._fields]
    starts = len(parts) + np.cumsum([0] + [len(part) for part in parts[:-1]])
    flat = np.concatenate([starts.astype(np.float64), *parts])
    if len(flat) > len(state.memory):
        state.replace(memory=flat)
    else:  # in place: tables that moved need a new handle, and a copy of all of them where a run is begun anew
        state.memory[: len(flat)], state.memory[len(flat) :] = flat, 0.0


@jit
def param(state, place):
    """One of the policy's numbers: ``param(state, DIAL.late)``."""
    return state.params[place]


@jit
def recall(state, block, i):
    """Number i of a block of the policy's memory."""
    return state.memory[int(state.memory[block]) + i]


@jit
def place_of(state, block):
    """Where a block begins in ``state.memory``, for code that reads it as a slice."""
    return int(state.memory[block])


# --- time and totals -------------------------------------------------------------------------------------------------
@jit
def now_s(state):
    """The time."""
    return state.clock[0].now


@jit
def running(state):
    """Attempts under way."""
    return state.counts[0].running


@jit
def waiting(state):
    """Tasks in the queue."""
    return state.counts[0].waiting


@jit
def asleep(state):
    """Nodes that sleep or are falling asleep."""
    return state.counts[0].asleep_n


@jit
def decision(state):
    """A number that changes with every placement and every arrival: tells one decision from the next."""
    return state.clock[0].sequence


@jit
def nodes_n(state):
    """Nodes of the cluster."""
    return state.nodes.size


@jit
def functions_n(state):
    """Functions known."""
    return state.functions.size


# --- candidates ------------------------------------------------------------------------------------------------------
@jit
def node_of(state, candidate):
    """The candidate's node."""
    return state.candidates[candidate].node


@jit
def device_of(state, candidate):
    """The candidate's device; −1 where the variant needs none."""
    return state.candidates[candidate].device


@jit
def runtime_s(state, task, variant, candidate):
    """Run seconds on the candidate, alone there; a task without an estimate counts as one of a second."""
    return estimate_s(state, task) * factor(state, task, variant, candidate)


# --- tasks -----------------------------------------------------------------------------------------------------------
@jit
def has_estimate(state, task):
    """Tell whether anything is known of the task's runtime."""
    return not math.isnan(state.tasks[task].estimate)


@jit
def estimate_s(state, task):
    """Estimated seconds on a node of speed 1; `GUESS_S` when unknown."""
    found = state.tasks[task].estimate
    return GUESS_S if math.isnan(found) else found


@jit
def function_of(state, task):
    """The task's function."""
    return state.shapes[state.tasks[task].form].function


@jit
def cores_of(state, task):
    """Cores that all parts of the task ask for in its first variant."""
    form = state.shapes[state.tasks[task].form]
    return state.variants[form.variant_first].cores_u * form.parts / MICRO


@jit
def ready_s(state, task):
    """When the task became ready."""
    return state.tasks[task].ready


@jit
def rank(state, task):
    """The number that the policy's rank gave it."""
    return state.extra[task].rank


@jit
def submit_s(state, task):
    """When the task's workflow arrived."""
    return state.workflows[state.tasks[task].workflow].submit


@jit
def objective_weight(state, task, place):
    """A weight of the task's workflow (`policy.weighted.packed`), or of the policy's numbers where it carries none."""
    packed = int(state.workflows[state.tasks[task].workflow].rank)
    return ((packed >> (12 * place)) & 4095) / 4095.0 if packed > 0 else state.params[place]


@jit
def parts_of(state, task):
    """Parts of the task that start together."""
    return state.shapes[state.tasks[task].form].parts


@jit
def deadline_s(state, task):
    """The task's deadline; inf without one."""
    return state.extra[task].deadline


@jit
def slack_s(state, task):
    """Seconds that the task may start after its earliest start without making its workflow late."""
    return state.extra[task].slack


@jit
def latest_start_s(state, task):
    """The latest start that keeps the deadline, or without one the length of the workflow's critical path."""
    return state.extra[task].start_at


@jit
def typical_s(state, task):
    """Estimated seconds at the cluster's mean speed."""
    return state.extra[task].typical


@jit
def path_s(state, task):
    """Critical path of the task's workflow at the cluster's mean speed."""
    return state.extra[task].path


# --- sums that several policies share --------------------------------------------------------------------------------
@jit
def factor(state, task, variant, candidate):
    """Seconds on the candidate per second of the task's estimate, alone there."""
    place = state.candidates[candidate]
    return work_factor(state, state.tasks[task].form, variant, place.node, place.device)


@jit
def bounded(cost):
    """Products with an unknown factor stay at the cost of the unknown."""
    return cost if cost < UNKNOWN_COST else UNKNOWN_COST


@jit
def finish_in_s(state, task, variant, candidate):
    """Seconds from now to the end: wake, cold start, data and run."""
    return ready_in_s(state, task, variant, candidate) + runtime_s(state, task, variant, candidate)


@jit
def added_j(state, task, variant, candidate):
    """Joules that the placement adds: run, cold start, transfer and waking; UNKNOWN_COST without a power profile."""
    run_w = priced_w(state, task, variant, candidate)
    if run_w >= UNKNOWN_COST:
        return UNKNOWN_COST
    place = state.candidates[candidate]
    rules = state.rules[0]
    joules = run_w * runtime_s(state, task, variant, candidate)
    if state.counts[0].asleep_n > 0:
        joules += wake_j(state, candidate)
    if rules.cold == 1 or place.device >= 0:
        cold_s = cold_start_s(state, task, variant, candidate)
        if cold_s > 0.0:
            joules += node_added_w(state, variant, place.node, -1) * cold_s
    if rules.has_data == 1:
        joules += transfer_j(state, task, place.node)
    return bounded(joules)


# --- nodes that are shared and may sleep -----------------------------------------------------------------------------
@jit
def crowded_run_s(state, variant, candidate, run_s):
    """Run seconds with as many busy threads on the node as there are now, the task's own included."""
    wanted = variant_cores(state, variant)
    if state.candidates[candidate].device < 0 and wanted > 0.0:
        node = node_of(state, candidate)
        busy = busy_cores(state, node) + wanted
        run_s *= busy / throughput(state, node, busy)
    return run_s


@jit
def crowded_finish_s(state, task, variant, candidate):
    """`finish_in_s` with as many busy threads on the node as there are now, the task's own included."""
    run_s = crowded_run_s(state, variant, candidate, runtime_s(state, task, variant, candidate))
    return ready_in_s(state, task, variant, candidate) + run_s


@jit
def crowding_s(state, task, variant, candidate):
    """Seconds that those on the node together lose while the task runs there beside them."""
    return lost_s(state, variant, candidate, runtime_s(state, task, variant, candidate))


@jit
def lost_s(state, variant, candidate, run_s):
    """`crowding_s` by the run seconds, alone there."""
    wanted = variant_cores(state, variant)
    node = node_of(state, candidate)
    before = busy_cores(state, node)
    if state.candidates[candidate].device >= 0 or wanted <= 0.0 or before <= 0.0:
        return 0.0
    if before + wanted <= node_cores(state, node):
        return 0.0  # a core for each
    slower = (before + wanted) / throughput(state, node, before + wanted) - before / throughput(state, node, before)
    return run_s * before * slower


@jit
def worth_j(state, task, variant, candidate):
    """Joules of run, cold start and transfer, the run's by what its threads add to the node's throughput.

    c threads that add less than c cores' worth of work (X(D + c) − X(D) < c) cost as much more.
    """
    run_w = added_w(state, task, variant, candidate)
    return finish_and_worth(state, task, variant, candidate, run_w, runtime_s(state, task, variant, candidate))[1]


@jit
def finish_and_worth(state, task, variant, candidate, run_w, run_s):
    """(`crowded_finish_s`, `worth_j`) by added watts and run seconds; what both need is looked up once."""
    node = node_of(state, candidate)
    kind = state.classes[state.nodes[node].cls]
    cold_s = cold_start_s(state, task, variant, candidate)
    size = bytes_to(state, task, node)
    moved_s = 0.0 if size <= 0.0 else data_latency_s(state, task, node) + size / kind.bandwidth
    finish_s = wait_s(state, candidate) + cold_s + moved_s + crowded_run_s(state, variant, candidate, run_s)
    wanted = variant_cores(state, variant)
    dear = 1.0
    if state.candidates[candidate].device < 0 and wanted > 0.0:
        before = busy_cores(state, node)
        gained = throughput(state, node, before + wanted) - throughput(state, node, before)
        # At least a twentieth: beyond all threads the gain is 0, and the price would be infinite.
        dear = wanted / max(gained, 0.05 * wanted)
    joules = run_w * run_s * dear
    if cold_s > 0.0:
        joules += node_added_w(state, variant, node, -1) * cold_s
    return finish_s, joules + size * kind.j_per_byte


@jit
def awake_j(state, candidate, finish_s):
    """Joules of waking the candidate's node, and of its idling longer than without a task of so many seconds."""
    return awake_and_until(state, candidate, finish_s)[0]


@jit
def awake_and_until(state, candidate, finish_s):
    """(`awake_j`, `busy_until_s` of the node); −inf for the second where the first does not depend on it."""
    node = node_of(state, candidate)
    joules = wake_j(state, candidate)
    after_s = sleep_after_s(state, node)
    if after_s == math.inf:
        return joules, -math.inf
    saved_w = node_idle_w(state, node) - node_sleep_w(state, node)
    until_s = busy_until_s(state, node)
    joules += saved_w * max(0.0, state.clock[0].now + finish_s - until_s)
    if joules > 0.0 and wait_s(state, candidate) > 0.0:
        # It will idle again before it sleeps again.
        joules += saved_w * after_s + enter_j(state, node)
    return max(0.0, joules), until_s
