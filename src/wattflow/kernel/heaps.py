"""Heaps as building blocks of compiled code. They know no table: who uses one says who comes before whom.

Each function here makes the functions of one heap from those that compare and move its items; numba takes them for
constants, so they end up inside the heap's loops. (Passed as arguments they would too, but numba then keeps nothing on
disk.) Their first argument, ``tables``, is handed through: whatever they need, several things as a tuple. Three kinds:

- a *binary heap of numbers*: an array whose rows name something else (domains, attempts, tasks);
- a *binary heap of rows*: the rows themselves are moved (events, timers);
- a *skew heap*: nodes linked by two columns, −1 for none. Many of them share one table, and two are merged in
  O(log n) amortised (Sleator and Tarjan, 1986, https://doi.org/10.1137/0215004).
"""

from __future__ import annotations

from typing import Any

from wattflow.kernel.jit import inner


@inner
def put(tables, heap, at, item):
    """Write an item into a heap of numbers where nobody needs to know its place."""
    heap[at] = item


def of_numbers(before: Any, put: Any = put) -> tuple[Any, Any]:
    """``rise`` and ``sink`` of a binary heap of numbers.

    Args:
        before: ``before(tables, a, b)``: whether item a stands before item b.
        put: ``put(tables, heap, at, item)``: writes an item to its place.
    """

    @inner
    def rise(tables, heap, at):
        """Move the item at a place towards the root as far as it belongs; returns its new place."""
        item = heap[at]
        while at > 0:
            parent = (at - 1) >> 1
            if not before(tables, item, heap[parent]):
                break
            put(tables, heap, at, heap[parent])
            at = parent
        put(tables, heap, at, item)
        return at

    @inner
    def sink(tables, heap, n, at):
        """Move the item at a place away from the root as far as it belongs; the heap has n items."""
        item = heap[at]
        while True:
            child = 2 * at + 1
            if child >= n:
                break
            if child + 1 < n and before(tables, heap[child + 1], heap[child]):
                child += 1
            if not before(tables, heap[child], item):
                break
            put(tables, heap, at, heap[child])
            at = child
        put(tables, heap, at, item)

    return rise, sink


def of_rows(before: Any, move: Any) -> tuple[Any, Any]:
    """``enter`` and ``drop_first`` of a binary heap of rows.

    Args:
        before: ``before(tables, a, b)``: whether row a stands before row b.
        move: ``move(tables, to, source)``: copies a row.
    """

    @inner
    def enter(tables, at, hole):
        """Put the row that stands in ``hole``, outside the heap, where it belongs: from the free place ``at`` up."""
        while at > 0:
            parent = (at - 1) >> 1
            if not before(tables, hole, parent):
                break
            move(tables, at, parent)
            at = parent
        move(tables, at, hole)

    @inner
    def drop_first(tables, n):
        """Take the root out: the last row, now row n and outside the heap, finds its place from the root down."""
        at = 0
        while True:
            child = 2 * at + 1
            if child >= n:
                break
            if child + 1 < n and before(tables, child + 1, child):
                child += 1
            # Row n is read while others move: nothing is written there until the loop is over.
            if not before(tables, child, n):
                break
            move(tables, at, child)
            at = child
        if at != n:
            move(tables, at, n)

    return enter, drop_first


def skew(before: Any) -> Any:
    """``merge`` of skew heaps; ``before(tables, a, b)`` says whether node a stands before node b."""

    @inner
    def merge(tables, left, right, a, b):
        """Merge two heaps with these roots; returns the root."""
        if a < 0:
            return b
        if b < 0:
            return a
        if before(tables, b, a):
            a, b = b, a
        root = a
        while b >= 0:
            r = right[a]
            # The children are swapped at every step: that is what keeps
            # a skew heap balanced, amortised, without a column for it.
            right[a] = left[a]
            if r < 0:
                left[a] = b
                break
            if before(tables, b, r):
                left[a] = b
                a = b
                b = r
            else:
                left[a] = r
                a = r
        return root

    return merge
