"""Rules that count other tasks: when a counter changes, the few masks that name it are rewritten.

A counter (``terms``) holds how many tasks of one kind are in each domain: a node, or all nodes that share a label's
value. A row of ``masks`` may ask several conditions of counters; ``bases`` holds what the nodes alone allow. So a
decision looks at one bit, and a placement costs what its own counters reach: one node for rules per node, the words of
one domain for others, all domains where the fewest in any changed (spread), all nodes where a group begins or ends
(together).
"""

from __future__ import annotations

import numpy as np
from numba import types

from wattflow.engine import groups
from wattflow.engine.parts import RICH
from wattflow.kernel.jit import inner, jit, optional

NOTHING, APART, TOGETHER, SPREAD = 0, 1, 2, 3
"""Kinds of conditions; NOTHING is a row that is out of use."""
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@optional(RICH)
def count(state, shape, node, sign):
    """Count a task of a shape in at a node (sign 1) or out (−1)."""
    link = state.shapes[shape].counted
    while link > 0:
        change(state, state.counted[link].term, node, sign)
        link = state.counted[link].next


@inner
def _domain(state, topology, node):
    return np.int64(node) if topology < 0 else np.int64(state.domains[node, topology])


@inner
def change(state, term, node, more):
    """Change a counter at a node, and with it the masks that name it."""
    row = state.terms[term]
    domain = _domain(state, row.topology, node)
    # A node without the label is in no domain and counts nowhere.
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
    """Carry a counter's change in a domain into a condition."""
    condition = state.conditions[c]
    if condition.kind == SPREAD:
        low = condition.low
        # First the fewest in any domain: whether other domains turn as well depends on it.
        _follow_low(state, c, domain, before, after)
        if condition.low == low:
            _turn(state, c, domain, _within(state, c, before, low), _within(state, c, after, low))
        else:
            _turn_all(state, c, domain, before, low)
    elif condition.kind == APART:
        _turn(state, c, domain, before == 0, after == 0)
    elif condition.kind == TOGETHER and (before == 0 or after == 0):
        if condition.own == 1 and state.terms[condition.term].total == after:
            _rewrite(state, condition.row)  # the group begins or ends
        else:
            _turn(state, c, domain, before > 0, after > 0)


@inner
def _within(state, c, found, low):
    """Tell whether one more task in a domain with so many keeps the counts together."""
    condition = state.conditions[c]
    return found + condition.own - low <= condition.skew


@inner
def _follow_low(state, c, domain, before, after):
    """Keep the fewest in any domain, and in how many domains it is found."""
    condition = state.conditions[c]
    # Neither among the fewest before nor now. A domain whose nodes are all forbidden never counts as the emptiest.
    if (before != condition.low and after > condition.low) or not _is_open(state, c, domain):
        return
    if before == condition.low:
        condition.at_low -= 1
    if after < condition.low:
        condition.low = after
        condition.at_low = 1
    elif after == condition.low:
        condition.at_low += 1
    if condition.at_low == 0:
        _find_fewest(state, c)


@inner
def _is_open(state, c, domain):
    """Tell whether a domain has a node which the row allows by itself."""
    condition = state.conditions[c]
    term = state.terms[condition.term]
    if term.topology < 0:
        return state.nodes[domain].pos >= 0 and _bit(state.bases, condition.row, _place(state, domain))
    bits = state.domain_bits[term.bits + domain]
    base = state.bases[condition.row]
    both = _ZERO
    for w in range(bits.size):
        both |= bits[w] & base[w]
    return both != _ZERO


@optional(RICH)
def _turn(state, c, domain, was, now):
    """Set or clear the bits of a domain's nodes where a condition begins or ceases to hold."""
    if was == now:
        return
    condition = state.conditions[c]
    term = state.terms[condition.term]
    if term.topology < 0:
        _set(state, condition.row, domain)
        return
    bits = state.domain_bits[term.bits + domain]
    mask = state.masks[condition.row]
    # One condition that fails is enough to forbid; before a node is allowed, all of its row's are asked.
    if not now:
        for w in range(bits.size):
            mask[w] &= ~bits[w]
        return
    base = state.bases[condition.row]
    # No other condition to ask: whole words are set at once.
    alone = condition.next_row == 0 and state.mask_rows[condition.row].condition == c
    more = _ZERO
    for w in range(bits.size):
        risen = bits[w] & base[w] & ~mask[w]
        if risen != _ZERO and not alone:
            risen = _permitted(state, condition.row, w, risen)
        mask[w] |= risen
        more |= risen
    if more != _ZERO:
        # Many nodes at once: noting each of them would push all others out of the ring.
        groups.room_grew_widely(state)


@inner
def _permitted(state, row, word, bits):
    """Return those of a word's places whose nodes all conditions of a row allow."""
    # Only the bits that rose are asked about, node by node; most words have none.
    kept = _ZERO
    for at in range(64):
        bit = _ONE << np.uint64(at)
        if bits & bit != _ZERO and permits(state, row, state.class_nodes[(word << 6) + at]):
            kept |= bit
    return kept


@inner
def _turn_all(state, c, changed, before, low):
    """Update all domains after the minimum count moved away from ``low``; one domain held ``before`` until now."""
    condition = state.conditions[c]
    term = state.terms[condition.term]
    if term.topology < 0:
        _rewrite(state, condition.row)
        return
    for domain in range(term.domains):
        found = np.int64(state.tallies[term.first + domain])
        held = before if domain == changed else found
        _turn(state, c, domain, _within(state, c, held, low), _within(state, c, found, condition.low))


@inner
def _place(state, node):
    row = state.nodes[node]
    return np.int64(state.classes[row.cls].first) + row.pos


@inner
def _bit(masks, row, place):
    return (masks[row, place >> 6] >> np.uint64(place & 63)) & _ONE == _ONE


@inner
def _find_fewest(state, c):
    """Find the smallest count of any domain with a node that the row itself allows, and how many domains have it."""
    condition = state.conditions[c]
    term = state.terms[condition.term]
    condition.low = 0
    condition.at_low = 0
    for domain in range(state.nodes.size if term.topology < 0 else np.int64(term.domains)):
        found = np.int64(state.tallies[term.first + domain])
        if condition.at_low > 0 and found > condition.low:
            continue
        if _is_open(state, c, domain):
            condition.at_low = condition.at_low + 1 if condition.at_low > 0 and found == condition.low else 1
            condition.low = found


@inner
def _rewrite(state, row):
    """Recompute a mask's bits for all nodes."""
    for node in range(state.nodes.size):
        _set(state, row, node)


@inner
def _set(state, row, node):
    """Recompute a node's bit in a mask; one that rises counts as new room."""
    if state.nodes[node].pos < 0:
        return
    place = _place(state, node)
    was = _bit(state.masks, row, place)
    now = _bit(state.bases, row, place) and permits(state, row, node)
    # Only a bit that turns is written: a shape that was refused is tried again for what became allowed.
    if now == was:
        return
    state.masks[row, place >> 6] ^= _ONE << np.uint64(place & 63)
    if now:
        groups.room_grew(state, node)


@inner
def permits(state, row, node):
    """Tell whether all conditions of a row that count tasks hold at a node."""
    c = state.mask_rows[row].condition
    while c > 0:
        if not holds(state, c, node):
            return False
        c = state.conditions[c].next_row
    return True


@inner
def holds(state, c, node):
    """Tell whether one condition holds at a node. Without the label, a node is in no domain: only `apart` allows it."""
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
    return _within(state, c, found, condition.low)


@jit
def refresh(state, row):
    """Make a row's mask from its base and its conditions, for all nodes."""
    c = state.mask_rows[row].condition
    # The fewest first: `_rewrite` asks each node by them.
    while c > 0:
        if state.conditions[c].kind == SPREAD:
            _find_fewest(state, c)
        c = state.conditions[c].next_row
    _rewrite(state, row)


@jit
def broken(state, row, node):
    """Return the first condition of a row that keeps a node out; 0 without one."""
    c = state.mask_rows[row].condition
    while c > 0:
        if not holds(state, c, node):
            return c
        c = state.conditions[c].next_row
    return 0


@optional(RICH, types.int64)
def level(state, row, node):
    """Return how much a row's tasks prefer a node: 0 is best; the same for all where nobody has a preference."""
    wishes = state.mask_rows[row]
    place = _place(state, node)
    for at in range(wishes.wish_n):
        if _bit(state.wishes, wishes.wish_first + at, place):
            return at
    return wishes.wish_n
