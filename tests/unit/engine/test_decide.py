"""Decisions: which task holds others of its shape back, and how equal costs are settled."""

from __future__ import annotations

import numpy as np

from reference.hand import node, nodes, tasks
from wattflow.engine import decide
from wattflow.engine.build import build_state
from wattflow.kernel import jit


@jit.jit
def misfit_of_its_own(state, task):  # type: ignore[no-untyped-def]
    return decide.misfit_of_its_own(state, task)


def test_others_of_a_shape_may_fit_where_a_pinned_task_or_a_long_one_does_not() -> None:
    state = build_state(tasks([1.0] * 4), nodes(node(), node()))
    state.tasks.pinned[1] = 0
    state.tasks.pinned_variant[2] = 0
    assert [bool(misfit_of_its_own(state.handle(), t)) for t in range(4)] == [False, True, True, False]
    state.rules["limits"] = 1
    assert [bool(misfit_of_its_own(state.handle(), t)) for t in range(4)] == [True] * 4
    assert np.all(state.tasks.state == 0)
