"""An instant: what happened is folded, then decisions fall, then the policy acts. The only loop of decisions.

`decide` is one pass over the queue and knows no driver; here is when passes are made and what stands around them.

A driver folds (the simulator what its clocks and its agenda say is due, a live engine what it was told) and calls
`run`. ``driver`` is the simulator's World or a live engine's Desk; ``hand`` is None, or tables by which somebody
answers in the policy's place (`decide`): then `run` returns ASKED at each decision, and the next call goes on from
there. The bodies of the hooks here are for a driver that has nothing to add.
"""

from __future__ import annotations

import math

from wattflow.engine import agenda, decide, fold, life
from wattflow.engine.parts import RICH
from wattflow.engine.tables import ACT_CAP, ACT_FREQUENCY, ACT_SLEEP, ACT_TIMER, ACT_WAKE, ACT_WARM
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner, optional


@hook
def arrive(state, driver, priority):
    """Let the tasks arrive that come after all else of the instant."""


@hook
def may_decide(state, driver):
    """Tell whether decisions fall now; not where they fall in rounds."""
    return True


@hook
def ramps(state, driver):
    """Tell whether a node's capacity grows with time."""
    return False


@hook
def begun(state, driver):
    """Note that all placements have begun."""


@hook
def has_rows(state, driver):
    """Tell whether decisions may go on after attempt rows ran out, now that what was placed has begun."""
    return False


@hook
def come_back(state, driver):
    """See to it that the engine is asked again when a hold ends or a node has grown."""


@hook
def is_last(state, driver):
    """Tell whether nothing else is due at this time: the policy acts last."""
    return True


@inner
def start(state, driver, priority):
    """Begin an instant whose events are folded."""
    arrive(state, driver, priority)
    # A hold counts until the next instant only: whoever is held is tried again and says anew until when.
    state.clock[0].retry_at = math.inf


@inner
def open_decisions(state, driver, hand):
    """Begin to decide: platforms have grown to what this time gives them, and no task was looked at yet."""
    if ramps(state, driver):
        fold.grow_platforms(state)
    decide.open_hand(state, hand)


@inner
def start_placed(state, driver):
    """Let what was placed begin, in the order in which it was placed."""
    for i in range(state.counts[0].placed_n):
        life.begin(state, driver, state.placed[i])
    begun(state, driver)


@inner
def _decide_all(state, driver, hand, functions):
    while True:
        status = decide.decide(state, hand, functions.priority, functions.score)
        if status == decide.ASKED:
            return status
        # Before more decisions: a node that is woken for one task is no sleeping candidate for the next.
        start_placed(state, driver)
        if status != decide.MORE or not has_rows(state, driver):
            return status


@inner
def run(state, driver, hand, functions):
    """Decide and act. ALL_TRIED when the instant is over; ASKED, MORE (make room) and BAD_COST leave it open."""
    asked = decide.is_open(state, hand)
    if not asked:
        start(state, driver, functions.priority)
    if asked or (state.counts[0].waiting > 0 and may_decide(state, driver)):
        if not asked:
            open_decisions(state, driver, hand)
        status = _decide_all(state, driver, hand, functions)
        if status != decide.ALL_TRIED:
            return status
        come_back(state, driver)
    # Asked here: a kernel without actions then holds no call of `act`.
    if state.rules[0].has_act == 1:
        act(state, driver, functions)
    return decide.ALL_TRIED


@optional(RICH)
def act(state, driver, functions):
    """Let a policy that acts do so, and carry out in State what it asked for."""
    if state.rules[0].has_act == 1 and is_last(state, driver):
        before = state.counts[0].action_n
        functions.act(state)
        _apply_actions(state, driver, before)


@inner
def _apply_actions(state, driver, first):
    """Carry out the policy's rows, from ``first`` on, and leave out of them what the driver need not do."""
    counts = state.counts[0]
    asked = counts.action_n
    # A live engine's hooks append what the driver is asked for, so the policy's rows are read first and then left out.
    for k in range(first, asked):
        kind = state.actions[k].kind
        node = state.actions[k].node
        value = state.actions[k].value
        if kind == ACT_TIMER:
            if state.actions[k].at > state.clock[0].now:
                agenda.push(state, state.actions[k].at, agenda.LOOK, 0, 0)
        elif kind == ACT_SLEEP:
            life.fall_asleep(state, driver, node)
        elif kind == ACT_WAKE:
            life.wake(state, driver, node)
        elif kind == ACT_WARM:
            life.warm(state, driver, node, value)
        elif kind == ACT_FREQUENCY:
            life.set_level(state, driver, node, value, kind, value)
        elif kind == ACT_CAP:
            life.set_level(state, driver, node, fold.level_below(state, node, float(value)), kind, value)
    kept = first
    for k in range(asked, counts.action_n):
        state.actions[kept].kind = state.actions[k].kind
        state.actions[kept].node = state.actions[k].node
        state.actions[kept].value = state.actions[k].value
        kept += 1
    counts.action_n = kept
