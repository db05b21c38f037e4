"""The heaps of compiled code beside Python's own `heapq`: whatever goes in comes out in order, ties by number."""

from __future__ import annotations

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattflow.kernel import heaps
from wattflow.kernel.jit import inner, jit

Keys = NDArray[np.float64]
Numbers = NDArray[np.int64]

TAKE = 1000
"""In a list of steps: take the first out; any other number is a key that goes in."""
STEPS = st.lists(st.one_of(st.integers(0, 9), st.just(TAKE)), max_size=60).map(lambda steps: np.array(steps, float))


@inner
def before(keys, a, b):
    return keys[a] < keys[b] or (keys[a] == keys[b] and a < b)


@inner
def put_known(both, heap, at, item):
    heap[at] = item
    both[1][item] = at


@inner
def before_known(both, a, b):
    return both[0][a] < both[0][b] or (both[0][a] == both[0][b] and a < b)


rise, sink = heaps.of_numbers(before_known, put_known)


@jit
def by_numbers(steps, out):
    """A heap of numbers that knows where each item stands."""
    heap = np.zeros(steps.size + 1, np.int64)
    place = np.full(steps.size, -1, np.int64)
    both = (steps, place)
    n = 0
    taken = 0
    for step in range(steps.size):
        if steps[step] < TAKE:
            heap[n] = step
            rise(both, heap, n)
            n += 1
        elif n > 0:
            out[taken] = heap[0]
            taken += 1
            n -= 1
            heap[0] = heap[n]
            sink(both, heap, n, 0)
    for at in range(n):
        if place[heap[at]] != at:
            return -1
    return taken


@inner
def row_before(rows, a, b):
    return rows[a, 0] < rows[b, 0] or (rows[a, 0] == rows[b, 0] and rows[a, 1] < rows[b, 1])


@inner
def move(rows, to, source):
    rows[to, 0] = rows[source, 0]
    rows[to, 1] = rows[source, 1]


enter, drop_first = heaps.of_rows(row_before, move)


@jit
def by_rows(steps, out):
    """A heap of whole rows."""
    rows = np.zeros((steps.size + 2, 2))
    n = 0
    taken = 0
    for step in range(steps.size):
        if steps[step] < TAKE:
            rows[n + 1, 0] = steps[step]
            rows[n + 1, 1] = step
            enter(rows, n, n + 1)
            n += 1
        elif n > 0:
            out[taken] = int(rows[0, 1])
            taken += 1
            n -= 1
            drop_first(rows, n)
    return taken


merge = heaps.skew(before)


@jit
def by_links(steps, out):
    """A skew heap."""
    left = np.full(steps.size, -1, np.int64)
    right = np.full(steps.size, -1, np.int64)
    root = -1
    taken = 0
    for step in range(steps.size):
        if steps[step] < TAKE:
            root = merge(steps, left, right, root, step)
        elif root >= 0:
            out[taken] = root
            taken += 1
            root = merge(steps, left, right, left[root], right[root])
    return taken


def expected(steps: Keys) -> list[int]:
    heap: list[tuple[float, int]] = []
    found = []
    for number, key in enumerate(steps.tolist()):
        if key < TAKE:
            heapq.heappush(heap, (key, number))
        elif heap:
            found.append(heapq.heappop(heap)[1])
    return found


@given(STEPS)
def test_every_heap_gives_what_heapq_gives(steps: Keys) -> None:
    for heap in (by_numbers, by_rows, by_links):
        out: Numbers = np.zeros(len(steps) + 1, np.int64)
        taken = heap(steps, out)
        assert out[:taken].tolist() == expected(steps) and taken >= 0, heap
