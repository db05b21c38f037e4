"""Conditions that count tasks, one at a time, on three nodes in two racks and one in none."""

from __future__ import annotations

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import tallies
from wattflow.engine.build import build_state
from wattflow.engine.tables import CONDITIONS, TERMS, TOPOLOGIES, State
from wattflow.engine.tallies import APART, NOTHING, SPREAD, TOGETHER
from wattflow.kernel.records import record_table

NODE, RACK = -1, 0


def counting(kind: int, topology: int, found: list[int], *, own: int = 0, skew: int = 1, low: int = 0) -> State:
    """One condition, behind one that is out of use, on a counter with these numbers of tasks by domain."""
    state = build_state(tasks([1.0]), nodes(*[node()] * 4))
    conditions, terms = record_table(CONDITIONS, 3), record_table(TERMS, 2)
    domains = np.full((4, TOPOLOGIES), -1, np.int32)
    domains[:3, RACK] = [0, 0, 1]
    conditions.kind[1], conditions.next_row[1] = NOTHING, 2
    conditions.kind[2], conditions.term[2] = kind, 1
    conditions.own[2], conditions.skew[2], conditions.low[2] = own, skew, low
    terms.topology[1], terms.total[1] = topology, sum(found)
    state.mask_rows["condition"] = 1
    state.replace(conditions=conditions, terms=terms, tallies=np.array(found, np.int32), domains=domains)
    return state


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (counting(APART, NODE, [0, 1, 0, 2]), [True, False, True, False]),
        (counting(APART, RACK, [1, 0]), [False, False, True, True]),
        (counting(TOGETHER, NODE, [0, 1, 0, 2]), [False, True, False, True]),
        (counting(TOGETHER, RACK, [1, 0]), [True, True, False, False]),
        (counting(TOGETHER, RACK, [0, 0]), [False] * 4),
        (counting(TOGETHER, RACK, [0, 0], own=1), [True, True, True, False]),
        (counting(SPREAD, RACK, [2, 1], own=1, skew=1, low=1), [False, False, True, False]),
        (counting(SPREAD, RACK, [2, 1], own=1, skew=2, low=1), [True, True, True, False]),
        (counting(SPREAD, RACK, [2, 1], own=0, skew=1, low=1), [True, True, True, False]),
    ],
)
def test_which_nodes_a_condition_allows(state: State, allowed: list[bool]) -> None:
    """`broken` names the condition that keeps a node out; one out of use keeps nobody out."""
    assert [int(tallies.broken(state.handle(), 0, n)) for n in range(4)] == [0 if yes else 2 for yes in allowed]
