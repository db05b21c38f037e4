"""Costs that are kept: for policies whose cost of a node follows from the node's present state and the variant alone.

A placement changes one node, so of thousands of costs nearly all are what they were when the variant was last asked
about. A *board* holds a variant's cost at every place (a class's first place and the node's position in it, as in
``class_nodes``) and the least of each 64 places, which are one word of a mask. Changes of nodes bear stamps, and the
latest ones stand in a ring; what changed since a board was last asked is scored again when it is asked next. Variants
that are alike share a board. There may be fewer boards than variants: the one made first is given away.

A board answers what `fit.candidates` and a pass over the costs would: the least cost, of equal ones the lowest node of
those that stand for their groups. What else a candidate can depend on (sleep that may be ended, data and containers
nearby, time limits, devices, preferences, a reservation) is not on it; `serves` tells. Under a cap on what is scored a
decision looks at whole words, from where the last one ended, until one more could have more finite costs than the cap;
only these words are brought up to date.
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
WORD = 64
NEVER = math.inf
HELD_COST = 1.7976931348623157e308
STALE = -math.inf
"""On a board: the node does not fit; it fits but the policy holds the task; the least of a word is not known."""
NOBODY = np.uint64(0)


@inner
def serves(state, task):
    """Tell whether boards know all that decides where this task goes."""
    rules = state.rules[0]
    # A cap below one word could not be kept: a board looks at whole words of 64 places.
    if state.boards.size == 0 or rules.local == 0 or rules.has_score == 0 or 0 < rules.score_limit < WORD:
        return False
    if state.counts[0].active_n < WORTH_IT or rules.grouped == 0 or rules.samples == 1:
        return False
    if rules.has_data == 1 or rules.cold == 1 or rules.limits == 1:
        return False
    # Sleeping nodes and EASY's reservation are candidates, or forbid some, by rules that a board does not know.
    if (rules.wakes == 1 and state.counts[0].asleep_n > 0) or state.choice[0].reserved >= -1:
        return False
    task_row = state.tasks[task]
    constraint = state.shapes[task_row.form].constraint
    return task_row.pinned < 0 and (rules.wishes == 0 or state.mask_rows[constraint].wish_n == 0)


@inner
def suits(state, variant):
    """Tell whether a variant's candidates are nodes, not devices."""
    return state.variants[variant].device == NO_DEVICE


@inner
def board_of(state, variant):
    """Return the board of a variant and all that are like it; a fresh one where there is none."""
    likeness = state.variants[variant].likeness
    b = np.int64(state.variants[variant].board)
    # The board may have been given to other variants since; its owner tells.
    if 0 <= b < state.boards.size and state.boards[b].owner == likeness:
        return b
    for other in range(state.boards.size):
        if state.boards[other].owner == likeness:
            state.variants[variant].board = other
            return np.int64(other)
    turn = state.touches[0]
    b = np.int64(turn.following)
    turn.following = b + 1 if b + 1 < state.boards.size else 0
    state.variants[variant].board = b
    state.boards[b].owner = likeness
    # Before every stamp, also before the 0 of places that never changed: all are scored at the first look.
    state.boards[b].synced = -1
    if state.rules[0].score_limit > 0:
        state.board_synced[b][:] = -1
    return b


@inner
def _fits(state, variant, node):
    """Tell whether a node that is on has what a variant needs; constraints apart."""
    # As `fit.node_fits`, but for what `serves` rules out and for the mask, which `best_place`
    # looks at: so one board serves all constraints. A new test there belongs here, too.
    needs = state.variants[variant]
    row = state.nodes[node]
    if row.power_state != ON and row.power_state != WAKING:
        return False
    if row.used_u + needs.need_u > row.capacity_u or row.used_mem + needs.memory > row.capacity_mem:
        return False
    if state.class_ok[variant, row.cls] == 0:
        return False
    if state.rules[0].pods > 0 and fit.is_full_of_pods(state, node):
        return False
    return needs.counts_n == 0 or fit.counts_fit(state, variant, node)


@inner
def _list(state, n, b, variant, place):
    """List a place to be scored again as a candidate if its node fits; returns how many there are then."""
    node = state.class_nodes[place]
    if node >= 0 and _fits(state, variant, node):
        candidate = state.candidates[n]
        candidate.node = node
        candidate.device = -1
        # `gang` is scratch memory: it takes a candidate's row back to its place on the board.
        state.gang[n] = place
        return n + 1
    _keep(state, b, place, NEVER)
    return n


@inner
def _keep(state, b, place, cost):
    """Note a cost, and the least of its word; a word whose least rose may hold another: it is looked through later."""
    kept = state.board_costs[b]
    lows = state.board_lows[b]
    w = place >> 6
    if cost <= lows[w]:
        lows[w] = cost
    elif kept[place] == lows[w]:
        lows[w] = STALE
    kept[place] = cost


@inner
def _score(state, n, b, variant, task, score):
    """Score the places listed; False when a cost is no number."""
    if n == 0:
        return True
    cost = state.cost[:n]
    state.counts[0].candidate_n = n
    score(state, task, variant, cost)
    state.counts[0].scored += n
    for c in range(n):
        x = cost[c]
        if math.isnan(x):
            # Some costs are written and some are not: nobody may read this board any more.
            state.boards[b].owner = NOBODY
            return False
        _keep(state, b, np.int64(state.gang[c]), x if x < math.inf else HELD_COST)
    return True


@inner
def _find_least(state, b, w):
    """Return the least of a word, in four strands that do not wait for each other."""
    kept = state.board_costs[b]
    a = b0 = c = d = NEVER
    for at in range(w << 6, (w + 1) << 6, 4):
        a = min(a, kept[at])
        b0 = min(b0, kept[at + 1])
        c = min(c, kept[at + 2])
        d = min(d, kept[at + 3])
    least = min(min(a, b0), min(c, d))
    state.board_lows[b, w] = least
    return least


@inner
def sync(state, b, variant, task, score):
    """Score what has changed since the board was last asked; False when a cost is no number."""
    board = state.boards[b]
    now = state.touches[0].now
    since = board.synced
    touched = state.touched
    n = 0
    # The ring has forgotten some of the changes: all places are looked at, by their own stamps.
    if since < 0 or now - since > state.touch_ring.size:
        if since < 0:
            state.board_lows[b][:] = NEVER
            state.board_costs[b][:] = NEVER
        for place in range(touched.size):
            if touched[place] > since:
                n = _list(state, n, b, variant, place)
    else:
        for stamp in range(since + 1, now + 1):
            latest = np.int64(state.touch_ring[stamp & (state.touch_ring.size - 1)])
            if touched[latest] == stamp:  # not changed again since
                n = _list(state, n, b, variant, latest)
    board.synced = now
    return _score(state, n, b, variant, task, score)


@inner
def sync_word(state, b, w, variant, task, score):
    """Do the same for one word."""
    since = state.board_synced[b, w]
    if state.touched_words[w] <= since:
        return True
    if since < 0:
        state.board_lows[b, w] = NEVER
        state.board_costs[b][w << 6 : (w + 1) << 6] = NEVER
    n = 0
    for place in range(w << 6, (w + 1) << 6):
        if state.touched[place] > since:
            n = _list(state, n, b, variant, place)
    state.board_synced[b, w] = state.touches[0].now
    return _score(state, n, b, variant, task, score)


@inner
def best_place(state, b, constraint):
    """(cost, node): the least cost that a constraint allows and the lowest node of those that have it; −1 for none.

    A group is stood for by the first of its nodes that the constraint allows, as among candidates.
    """
    lows = state.board_lows[b]
    least = NEVER
    first = 0
    for w in range(lows.size):
        low = lows[w]
        if low == STALE:
            low = _find_least(state, b, w)
        if low < least:
            least = low
            first = w
    # The word with the least of all goes first: hardly another one is looked through then.
    best, chosen = _best_of_word(state, b, first, constraint, NEVER, np.int64(-1))
    for w in range(lows.size):
        if lows[w] <= best and lows[w] < NEVER and w != first:
            best, chosen = _best_of_word(state, b, w, constraint, best, chosen)
    return best, chosen


@inner
def _best_of_word(state, b, w, constraint, best, chosen):
    """Return the best so far, or a place of this word that is better."""
    kept = state.board_costs[b]
    free = constraint == 0 and state.rules[0].tainted == 0
    bits = _ALL if free else state.masks[constraint, w]
    for at in range(WORD if bits != np.uint64(0) else 0):
        x = kept[(w << 6) + at]
        if x > best or x == NEVER or (bits >> np.uint64(at)) & _ONE != _ONE:
            continue
        node = np.int64(state.class_nodes[(w << 6) + at])
        if chosen >= 0 and x == best and node > chosen:
            continue
        g = np.int64(state.nodes[node].group)
        # One node stands for its group here as among candidates, or ties would fall to nodes that grouping never shows.
        if state.groups[g].count > 1:
            low = np.int64(state.groups[g].low) if free else groups.lowest_allowed(state, g, constraint)
            if low != state.nodes[node].pos:
                continue
        best = x
        chosen = node
    return best, chosen


@inner
def best_of_some(state, b, variant, task, score):
    """Return the same of some words only, under a cap; cost `nan` when a cost is no number."""
    constraint = state.shapes[state.tasks[task].form].constraint
    choice = state.choice[0]
    limit = state.rules[0].score_limit
    mask = state.masks[constraint]
    free = constraint == 0 and state.rules[0].tainted == 0
    words = state.touched_words.size
    kept = state.board_costs[b]
    lows = state.board_lows[b]
    w = choice.scan_at if choice.scan_at < words else 0
    best = NEVER
    chosen = np.int64(-1)
    finite = 0
    for _ in range(words):
        bits = _ALL if free else mask[w]
        if bits != np.uint64(0):
            if not sync_word(state, b, w, variant, task, score):
                return math.nan, chosen
            for at in range(WORD if lows[w] != NEVER else 0):
                x = kept[(w << 6) + at]
                if x == NEVER or (bits >> np.uint64(at)) & _ONE != _ONE:
                    continue
                finite += 1 if x < HELD_COST else 0
                if x <= best:
                    node = np.int64(state.class_nodes[(w << 6) + at])
                    if x < best or node < chosen:
                        best = x
                        chosen = node
        w = w + 1 if w + 1 < words else 0
        # Whole words only, so it stops where the next word could
        # exceed the cap; but not before something can be placed.
        if finite + WORD > limit and best < HELD_COST:
            break
    choice.scan_at = w
    return best, chosen
