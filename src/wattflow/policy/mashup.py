"""Mashup: each phase on the side, serverless or fixed nodes, that is expected to end it sooner.

Roy, Patel, Gadepally, Tiwari: Mashup: making serverless computing useful for HPC workflows via hybrid execution,
PPoPP '22, doi:10.1145/3503221.3508407. On fixed nodes a phase of w tasks runs in ⌈w / slots⌉ waves; on the serverless
side all at once, but with cold start and with its data through storage. A task whose phase belongs on the fixed side
waits for it when it is full.

O(candidates + classes) per task; ties go to the lower index. A task without an estimate counts as one of one second.
"""

from __future__ import annotations

import math

from wattflow.policy import view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit


@jit
def fixed_slots(state, variant):
    """Return how many tasks of this variant the fixed nodes hold at once, when empty (cores only)."""
    slots = 0.0
    # Without a guarantee the division would be by 0; a millionth fits as often as memory lets it.
    need = max(1e-6, view.variant_guaranteed(state, variant))
    for cls in range(view.classes_n(state)):
        if not view.class_takes(state, variant, cls):
            continue
        for i in range(view.class_count(state, cls)):
            node = view.class_node(state, cls, i)
            if not view.is_serverless(state, node) and not view.is_gone(state, node):
                # Sums of cores stray from whole numbers by a rounding.
                slots += math.floor(view.request_cores(state, node) / need + 1e-9)
    return slots


@jit
def fixed_speed_s(state, task, variant):
    """Return seconds of the task on the fastest fixed node that can run it; inf without one."""
    best = math.inf
    for cls in range(view.classes_n(state)):
        # Nodes of a class are alike: the first stands for all.
        node = view.class_node(state, cls, 0)
        if not view.is_serverless(state, node) and view.class_takes(state, variant, cls):
            best = min(best, view.estimate_s(state, task) * view.factor_on(state, task, variant, node, -1))
    return best


def score(state, task, variant, out):
    """Expected end of the phase on the candidate's side; inf on the serverless side where fixed nodes are sooner."""
    fn = view.function_of(state, task)
    width = view.function_waiting(state, fn) + view.function_running(state, fn)
    slots = fixed_slots(state, variant)
    waves = math.ceil(width / slots) if slots > 0.0 else 0.0
    fixed_s = waves * fixed_speed_s(state, task, variant) if slots > 0.0 else math.inf
    # A gang may need both sides at once, so it is never held back; a single task waits only while something runs.
    alone = view.parts_of(state, task) == 1
    for c in range(out.size):
        run_s = view.runtime_s(state, task, variant, c)
        start_s = view.ready_in_s(state, task, variant, c)
        if not view.is_serverless(state, view.node_of(state, c)):
            # Without slots there are no waves, yet a task here still takes one run.
            out[c] = start_s + max(1.0, waves) * run_s
        elif fixed_s < start_s + run_s and alone and view.running(state) > 0:
            out[c] = math.inf
        else:
            out[c] = start_s + run_s


MASHUP = Policy(
    "mashup",
    "each phase on the side, serverless or fixed, that ends it sooner",
    "10.1145/3503221.3508407",
    score=score,
)
