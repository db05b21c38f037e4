"""Rules that count other tasks: when a counter changes, the few masks that name it are rewritten.

A counter (``terms``) holds how many tasks of one kind are in each domain: a node, or all nodes that share a label's
value. A row of ``masks`` may ask several conditions of counters; ``bases`` holds what the nodes alone allow. So a
decision looks at one bit, and a placement costs what its own counters reach: one node for rules per node, the nodes of
one domain for others, all nodes where the fewest in any domain changed (spread) or a group begins or ends (together).
"""

from __future__ import annotations

import numpy as np

from wattflow.engine import groups
from wattflow.kernel.jit import inner, jit

NOTHING, APART, TOGETHER, SPREAD = 0, 1, 2, 3
"""Kinds of conditions; NOTHING is a row that is out of use."""
_ONE = np.uint64(1)


@inner
def count(state, shape, node, sign):
    """A task of a shape comes to a node (sign 1) or leaves it (−1)."""
    link = state.shapes[shape].counted
    while link > 0:
        change(state, state.counted[link].term, node, sign)
        link = state.counted[link].next


@inner
def _domain(state, topology, node):
    return np.int64(node) if topology < 0 else np.int64(state.domains[node, topology])


@inner
def change(state, term, node, more):
    """A counter changes at a node, and with it the masks that name it."""
    row = state.terms[term]
    domain = _domain(state, row.topology, node)
    if domain < 0:
        return
    before = np.int64(state.tallies[row.first + domain])
    state.tallies[row.first + domain] = before + more
    row.total += more
    c = row.condition
    while c > 0:
        _follow(state, c, domain, before, before + more)
        c = state.conditions[c].next_term


@inner
def _follow(state, c, domain, before, after):
    """What a condition makes of a counter's change in a domain."""
    condition = state.conditions[c]
    term = state.terms[condition.term]
    if condition.kind == SPREAD:
        low = condition.low
        if before == low or after < low:
            condition.low = _fewest(state, c)
        _rewrite(state, condition.row, term.topology, domain if condition.low == low else np.int64(-1))
    elif condition.kind != NOTHING and (before == 0 or after == 0):
        first_or_last = condition.kind == TOGETHER and condition.own == 1 and term.total == after
        _rewrite(state, condition.row, term.topology, np.int64(-1) if first_or_last else domain)


@inner
def _place(state, node):
    row = state.nodes[node]
    return np.int64(state.classes[row.cls].first) + row.pos


@inner
def _bit(masks, row, place):
    return (masks[row, place >> 6] >> np.uint64(place & 63)) & _ONE == _ONE


@inner
def _fewest(state, c):
    """The smallest count in any domain that has a node which the row allows by itself."""
    condition = state.conditions[c]
    term = state.terms[condition.term]
    low = np.int64(-1)
    for node in range(state.nodes.size):
        if state.nodes[node].pos < 0 or not _bit(state.bases, condition.row, _place(state, node)):
            continue
        domain = _domain(state, term.topology, node)
        if domain >= 0:
            found = np.int64(state.tallies[term.first + domain])
            if low < 0 or found < low:
                low = found
    return max(low, np.int64(0))


@inner
def _rewrite(state, row, topology, domain):
    """Set a mask's bits anew for the nodes of a domain; −1: for all nodes."""
    if topology < 0 and domain >= 0:
        _set(state, row, domain)
        return
    for node in range(state.nodes.size):
        if state.nodes[node].pos >= 0 and (domain < 0 or state.domains[node, topology] == domain):
            _set(state, row, node)


@inner
def _set(state, row, node):
    """A node's bit in a mask: what the node itself allows and every condition does. One that rises is worth a look."""
    if state.nodes[node].pos < 0:
        return
    place = _place(state, node)
    was = _bit(state.masks, row, place)
    now = _bit(state.bases, row, place) and permits(state, row, node)
    if now == was:
        return
    state.masks[row, place >> 6] ^= _ONE << np.uint64(place & 63)
    if now:
        groups.room_grew(state, node)


@inner
def permits(state, row, node):
    """Whether all conditions of a row that count tasks hold at a node."""
    c = state.mask_rows[row].condition
    while c > 0:
        if not holds(state, c, node):
            return False
        c = state.conditions[c].next_row
    return True


@inner
def holds(state, c, node):
    """Whether one condition holds at a node. Without the label, a node is in no domain: only `apart` allows it."""
    condition = state.conditions[c]
    kind = condition.kind
    if kind == NOTHING:
        return True
    term = state.terms[condition.term]
    domain = _domain(state, term.topology, node)
    if domain < 0:
        return kind == APART
    found = np.int64(state.tallies[term.first + domain])
    if kind == APART:
        return found == 0
    if kind == TOGETHER:
        return found > 0 or (condition.own == 1 and term.total == 0)
    return found + condition.own - condition.low <= condition.skew


@jit
def refresh(state, row):
    """Make a row's mask from its base and its conditions, for all nodes."""
    c = state.mask_rows[row].condition
    while c > 0:
        if state.conditions[c].kind == SPREAD:
            state.conditions[c].low = _fewest(state, c)
        c = state.conditions[c].next_row
    _rewrite(state, row, -1, np.int64(-1))


@jit
def broken(state, row, node):
    """The first condition of a row that keeps a node out; 0 without one."""
    c = state.mask_rows[row].condition
    while c > 0:
        if not holds(state, c, node):
            return c
        c = state.conditions[c].next_row
    return 0


@inner
def level(state, row, node):
    """How much a row's tasks prefer a node: 0 is best; the same for all where nobody has a preference."""
    wishes = state.mask_rows[row]
    place = _place(state, node)
    for at in range(wishes.wish_n):
        if _bit(state.wishes, wishes.wish_first + at, place):
            return at
    return wishes.wish_n
