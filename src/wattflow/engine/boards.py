"""Costs that are kept: for policies whose cost of a node follows from the node's present state and the variant alone.

A placement changes one node, so of thousands of costs nearly all are what they were when the variant was last asked
about. A *board* holds a variant's cost at every place (a class's first place and the node's position in it, as in
``class_nodes``) and the least of each 64 places, which are one word of a mask. A place whose node changed bears a later
stamp than the board, and is scored again when the board is next asked. There are fewer boards than variants may be:
the oldest one is given away.

A board answers what `fit.candidates` and a pass over the costs would: the least cost, of equal ones the lowest node of
those that stand for their groups. What else a candidate can depend on (sleep that may be ended, data and containers
nearby, time limits, devices, preferences, a reservation, a cap on what is scored) is not on it; `serves` tells.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import fit, groups
from wattflow.engine.tables import NO_DEVICE, ON, WAKING
from wattflow.kernel.jit import inner

_ONE = np.uint64(1)
_ALL = ~np.uint64(0)
WORTH_IT = 128
"""Fewer groups than this are looked at more quickly than a board."""
NEVER = math.inf
HELD_COST = 1.7976931348623157e308
"""On a board: the node does not fit; it fits but the policy holds the task."""


@inner
def serves(state, task):
    """Whether boards know all that decides where this task goes."""
    rules = state.rules[0]
    if state.boards.size == 0 or rules.local == 0 or rules.score_limit > 0 or rules.has_score == 0:
        return False
    if state.counts[0].active_n < WORTH_IT or rules.grouped == 0 or rules.samples == 1:
        return False
    if rules.has_data == 1 or rules.cold == 1 or rules.limits == 1:
        return False
    if (rules.wakes == 1 and state.counts[0].asleep_n > 0) or state.choice[0].reserved >= -1:
        return False
    task_row = state.tasks[task]
    constraint = state.shapes[task_row.form].constraint
    return task_row.pinned < 0 and (rules.wishes == 0 or state.mask_rows[constraint].wish_n == 0)


@inner
def board_of(state, variant):
    """The board of a variant; a fresh one is given to it where it has none."""
    b = np.int64(state.variants[variant].board)
    if 0 <= b < state.boards.size and state.boards[b].owner == variant + 1:
        return b
    turn = state.touches[0]
    b = turn.following
    turn.following = b + 1 if b + 1 < state.boards.size else 0
    state.variants[variant].board = b
    state.boards[b].owner = variant + 1
    state.boards[b].synced = -1
    return np.int64(b)


@inner
def _note_costs(state, b, n):
    """Write the costs of the first n candidates, whose places stand in ``gang``; False when one is no number."""
    kept = state.board_costs[b]
    cost = state.cost
    places = state.gang
    bad = False
    for c in range(n):
        x = cost[c]
        bad = bad or math.isnan(x)
        kept[places[c]] = x if x < math.inf else HELD_COST
    return not bad


@inner
def _fits(state, variant, node):
    """Whether a node that is on has what a variant needs; constraints apart."""
    needs = state.variants[variant]
    row = state.nodes[node]
    if row.power_state != ON and row.power_state != WAKING:
        return False
    if row.used_u + needs.need_u > row.capacity_u or row.used_mem + needs.memory > row.capacity_mem:
        return False
    if state.class_ok[variant, row.cls] == 0 or fit.is_full_of_pods(state, node):
        return False
    return needs.counts_n == 0 or fit.counts_fit(state, variant, node)


@inner
def sync(state, b, variant, task, score):
    """Score what has changed since the board was last asked; False when a cost is no number."""
    board = state.boards[b]
    since = board.synced
    kept = state.board_costs[b]
    touched = state.touched
    touched_words = state.touched_words
    class_nodes = state.class_nodes
    words = touched_words.size
    n = 0
    for w in range(words):
        if touched_words[w] <= since:
            continue
        for place in range(w << 6, (w + 1) << 6):
            if touched[place] <= since:
                continue
            node = class_nodes[place]
            if node >= 0 and _fits(state, variant, node):
                candidate = state.candidates[n]
                candidate.node = node
                candidate.device = -1
                state.gang[n] = place
                n += 1
            else:
                kept[place] = NEVER
    if n > 0:
        state.counts[0].candidate_n = n
        score(state, task, variant, state.cost[:n])
        state.counts[0].scored += n
        if not _note_costs(state, b, n):
            board.owner = 0
            return False
    lows = state.board_lows[b]
    for w in range(words):
        if touched_words[w] > since:
            lows[w] = _least(kept, w << 6)
    board.synced = state.touches[0].now
    return True


@inner
def _least(kept, first):
    """The least of 64 costs, in four strands that do not wait for each other."""
    a = b = c = d = NEVER
    for at in range(first, first + 64, 4):
        a = min(a, kept[at])
        b = min(b, kept[at + 1])
        c = min(c, kept[at + 2])
        d = min(d, kept[at + 3])
    return min(min(a, b), min(c, d))


@inner
def best_place(state, b, constraint):
    """(cost, node): the least cost that a constraint allows and the lowest node of those that have it; −1 for none.

    A group is stood for by the first of its nodes that the constraint allows, as among candidates.
    """
    kept = state.board_costs[b]
    lows = state.board_lows[b]
    free = constraint == 0 and state.rules[0].tainted == 0
    mask = state.masks[constraint]
    best = NEVER
    chosen = np.int64(-1)
    if free:
        for w in range(lows.size):
            best = min(best, lows[w])
    for w in range(lows.size):
        if lows[w] > best or lows[w] == NEVER:
            continue
        bits = _ALL if free else mask[w]
        if bits == np.uint64(0):
            continue
        for at in range(64):
            x = kept[(w << 6) + at]
            if x > best or x == NEVER or (bits >> np.uint64(at)) & _ONE != _ONE:
                continue
            node = np.int64(state.class_nodes[(w << 6) + at])
            if chosen >= 0 and x == best and node > chosen:
                continue
            g = np.int64(state.nodes[node].group)
            if state.groups[g].count > 1:
                low = np.int64(state.groups[g].low) if free else groups.lowest_allowed(state, g, constraint)
                if low != state.nodes[node].pos:
                    continue
            best = x
            chosen = node
    return best, chosen


@inner
def suits(state, variant):
    """Whether a variant's candidates are nodes, not devices."""
    return state.variants[variant].device == NO_DEVICE
