"""From a Policy's Python functions to what the kernel takes."""

from __future__ import annotations

import functools
from typing import Any

import numba

from wattflow.engine.tables import State
from wattflow.kernel import jit
from wattflow.policy import jit as policy_jit
from wattflow.policy.base import Policy


def no_priority(state, task):  # type: ignore[no-untyped-def]
    """First in, first out."""
    return 0.0


def by_rank(state, task):  # type: ignore[no-untyped-def]
    """The order that a plan or a rank function gave."""
    return state.extra[task].rank


def no_score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Every candidate costs the same: the lowest index wins."""
    for c in range(out.size):
        out[c] = 0.0


def no_act(state):  # type: ignore[no-untyped-def]
    """Nothing to do."""
    return


@functools.lru_cache(maxsize=256)
def _compile(signature: Any, function: Any) -> Any:
    # Functions typed at a prompt or made by exec have no file, so they cannot be cached on disk.
    from_file = not function.__code__.co_filename.startswith("<")
    return jit.compiled(signature, function, cache=from_file, folder=policy_jit.folder())


def _through_python(signature: Any, function: Any, state: State, arguments: int) -> Any:
    """A compiled function that calls plain Python with the State object (about a microsecond a call)."""
    if arguments == 4:

        def call_score(task: int, variant: int, out: Any) -> None:
            function(state, task, variant, out)

        def score(handle, task, variant, out):  # type: ignore[no-untyped-def]
            with numba.objmode():
                call_score(task, variant, out)

        return jit.compiled(signature, score, cache=False)
    if arguments == 2:

        def call_priority(task: int) -> float:
            return float(function(state, task))

        def priority(handle, task):  # type: ignore[no-untyped-def]
            with numba.objmode(key="float64"):
                key = call_priority(task)
            return key

        return jit.compiled(signature, priority, cache=False)

    def call_act() -> None:
        function(state)

    def act(handle):  # type: ignore[no-untyped-def]
        with numba.objmode():
            call_act()

    return jit.compiled(signature, act, cache=False)


def bind(policy: Policy, state: State, signatures: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """(priority, score, act) for the kernel; flags in the State's clock say which are real."""
    ordered = policy.rank is not None or policy.plan is not None
    priority = policy.priority or (by_rank if ordered else no_priority)
    state.rules["has_priority"] = int(policy.priority is not None or ordered)
    state.rules["has_score"] = int(policy.score is not None)
    state.rules["has_act"] = int(policy.act is not None)
    chosen = (priority, policy.score or no_score, policy.act or no_act)
    own = (policy.priority, policy.score, policy.act)
    bound = []
    for function, mine, signature, arguments in zip(chosen, own, signatures, (2, 4, 1), strict=True):
        if not policy.compiled and mine is not None and jit.COMPILED:
            bound.append(_through_python(signature, function, state, arguments))
        else:
            bound.append(_compile(signature, function))
    return bound[0], bound[1], bound[2]
