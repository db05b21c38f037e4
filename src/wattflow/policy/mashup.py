"""Mashup: each phase on the side, serverless or fixed nodes, that is expected to end it sooner.

Roy, Patel, Gadepally, Tiwari: Mashup: making serverless computing useful for HPC workflows via hybrid execution,
PPoPP '22, doi:10.1145/3503221.3508407. On fixed nodes a phase of w tasks runs in ⌈w / slots⌉ waves; on the serverless
side all at once, but with cold start and with its data through storage. A task whose phase belongs on the fixed side
waits for it when it is full.

O(candidates + classes) per task; ties go to the lower index. A task without an estimate counts as one of one second.
"""

from __future__ import annotations

import math

from wattflow.engine import view
from wattflow.engine.tables import DOWN
from wattflow.kernel.jit import jit
from wattflow.policy import costs
from wattflow.policy.base import Policy


@jit
def fixed_slots(state, variant):  # type: ignore[no-untyped-def]
    """How many tasks of this variant the fixed nodes hold at once, when empty (cores only)."""
    slots = 0
    need = max(1, state.variants.need_u[variant])
    for cls in range(state.classes.size):
        if state.classes.serverless[cls] == 0 and state.class_ok[variant, cls] == 1:
            first = state.classes.first[cls]
            for i in range(first, first + state.classes.count[cls]):
                if state.nodes.power_state[state.class_nodes[i]] < DOWN:
                    slots += state.classes.request_u[cls] // need
    return slots


@jit
def fixed_speed_s(state, task, variant):  # type: ignore[no-untyped-def]
    """Seconds of the task on the fastest fixed node that can run it; inf without one."""
    best = math.inf
    estimate = state.tasks.estimate[task]
    if math.isnan(estimate):
        estimate = 1.0
    for cls in range(state.classes.size):
        if state.classes.serverless[cls] == 0 and state.class_ok[variant, cls] == 1:
            node = state.class_nodes[state.classes.first[cls]]
            best = min(best, estimate * view.work_factor(state, state.tasks.form[task], variant, node, -1))
    return best


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Expected end of the phase on the candidate's side; inf on the serverless side where fixed nodes are sooner."""
    fn = state.shapes.function[state.tasks.form[task]]
    width = state.functions.waiting[fn] + state.functions.running[fn]
    slots = fixed_slots(state, variant)
    waves = math.ceil(width / slots) if slots > 0 else 0.0
    fixed_s = waves * fixed_speed_s(state, task, variant) if slots > 0 else math.inf
    # A gang may need both sides at once, so it is never held back; a single task waits only while something runs.
    alone = state.shapes.parts[state.tasks.form[task]] == 1
    for c in range(out.size):
        run_s = costs.seconds(state, task, variant, c)
        start_s = view.ready_in_s(state, task, variant, c)
        if state.classes.serverless[state.nodes.cls[state.candidates.node[c]]] == 0:
            out[c] = start_s + max(1.0, waves) * run_s
        elif fixed_s < start_s + run_s and alone and state.counts.running[0] > 0:
            out[c] = math.inf
        else:
            out[c] = start_s + run_s


MASHUP = Policy(
    "mashup",
    "each phase on the side, serverless or fixed, that ends it sooner",
    "10.1145/3503221.3508407",
    score=score,
)
