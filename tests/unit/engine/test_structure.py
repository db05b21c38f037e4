"""Placeholders: sealed once, whoever says it how often; only what stands for unknown work can be sealed."""

from __future__ import annotations

from reference.hand import node, nodes, tasks
from wattflow.engine import structure
from wattflow.engine.build import build_state
from wattflow.engine.tables import UNKNOWN, State
from wattflow.kernel import jit


@jit.jit
def seal(state, task):  # type: ignore[no-untyped-def]
    structure.seal_placeholder(state, task)


def sealed(state: State) -> list[int]:
    found, task = [], int(state.counts.sealed_first[0])
    while task >= 0:
        assert task not in found, "a ring"
        found.append(task)
        task = int(state.tasks.next[task])
    return found


def test_a_placeholder_is_sealed_once_and_other_tasks_never() -> None:
    state = build_state(tasks([1.0] * 4), nodes(node()))
    state.counts["sealed_first"] = -1
    state.tasks.state[1:3] = UNKNOWN
    for task in (1, 0, 2, 1, 2, 3):
        seal(state.handle(), task)
    assert sealed(state) == [2, 1]
    assert state.tasks.parts_left.tolist() == [0, 1, 1, 0]
