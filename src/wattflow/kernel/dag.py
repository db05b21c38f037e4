"""Who follows whom in a graph of tasks, as building blocks of compiled code that know no table.

Made like the heaps: from functions that say where a task's edges are and what becomes of a child.
"""

from __future__ import annotations

from typing import Any

from wattflow.kernel.jit import inner


def downstream(edges: Any, takes: Any) -> Any:
    """``walk`` over all that hangs on a task.

    Args:
        edges: ``edges(tables, task)``: (first, behind the last) of its rows in the list of children.
        takes: ``takes(tables, child)``: whether the child goes too; called once for each edge, it may mark the child.
    """

    @inner
    def walk(tables, children, found, task):
        """List a task and all that goes with it in ``found``, each after one of its parents; returns how many."""
        found[0] = task
        n = 1
        at = 0
        while at < n:
            first, behind = edges(tables, found[at])
            at += 1
            for e in range(first, behind):
                child = children[e]
                # Called for every edge: a child with two parents in
                # the walk is marked at the first and passed over then.
                if takes(tables, child):
                    found[n] = child
                    n += 1
        return n

    return walk


def release(edges: Any, one_less: Any) -> Any:
    """``done``: each child of a task waits for one thing less; ``one_less(tables, child)`` sees to it."""

    @inner
    def done(tables, children, task):
        first, behind = edges(tables, task)
        for e in range(first, behind):
            one_less(tables, children[e])

    return done
