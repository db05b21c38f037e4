"""From a Policy's Python functions to what the kernel takes."""

from __future__ import annotations

import functools
from typing import Any

import numba
from numba import types

from wattflow.engine.tables import State
from wattflow.kernel import handle, jit
from wattflow.kernel.functions import Functions, FunctionsType
from wattflow.kernel.lowering import address_of
from wattflow.policy import jit as policy_jit
from wattflow.policy.base import Policy


# Defaults of a kernel's calls: `bind` puts one in the place of each function that a policy does not have.
def no_priority(state, task):
    """Order first in, first out."""
    return 0.0


def by_rank(state, task):
    """Return the order that a plan or a rank function gave."""
    return state.extra[task].rank


def no_score(state, task, variant, out):
    """Cost every candidate the same: the lowest index wins."""
    for c in range(out.size):
        out[c] = 0.0


def no_act(state):
    """Do nothing."""
    return


@functools.lru_cache(maxsize=256)
def _compile(signature: Any, function: Any) -> Any:
    # Functions typed at a prompt or made by exec have no file, so they cannot be cached on disk.
    from_file = not function.__code__.co_filename.startswith("<")
    return jit.compiled(signature, function, cache=from_file, folder=policy_jit.folder())


@functools.lru_cache(maxsize=256)
def _through_python(signature: Any, function: Any) -> Any:
    """Compile a call of plain Python with the State whose kernel asks (about a microsecond a call)."""
    if len(signature.args) == 4:

        def call_score(address: int, task: int, variant: int, out: Any) -> None:
            function(handle.owner(address), task, variant, out)

        def score(state, task, variant, out):
            address = address_of(state)
            with numba.objmode():
                call_score(address, task, variant, out)

        return jit.compiled(signature, score, cache=False, nogil=False)
    if len(signature.args) == 2:

        def call_priority(address: int, task: int) -> float:
            return float(function(handle.owner(address), task))

        def priority(state, task):
            address = address_of(state)
            with numba.objmode(key="float64"):
                key = call_priority(address, task)
            return key

        return jit.compiled(signature, priority, cache=False, nogil=False)

    def call_act(address: int) -> None:
        function(handle.owner(address))

    def act(state):
        address = address_of(state)
        with numba.objmode():
            call_act(address)

    return jit.compiled(signature, act, cache=False, nogil=False)


@functools.lru_cache(maxsize=64)
def functions_type(state_kind: Any) -> FunctionsType:
    """Return the compiled type of a policy's functions, for the compiled type of a State."""
    signatures = (
        ("priority", types.float64(state_kind, types.int64)),
        ("score", types.void(state_kind, types.int64, types.int64, types.float64[::1])),
        ("act", types.void(state_kind)),
    )
    return FunctionsType(state_kind.name, signatures)


def compiled(policy: Policy, state: State, part: str) -> Any:
    """Bind one of a policy's functions (``priority``, ``score``, ``act``) as a kernel calls it."""
    # A plan or a rank is an order by itself; a policy's own priority goes before it.
    ordered = policy.rank is not None or policy.plan is not None
    absent = {"priority": by_rank if ordered else no_priority, "score": no_score, "act": no_act}
    function = getattr(policy, part)
    if not jit.COMPILED:
        return function or absent[part]
    signature = dict(functions_type(state.kind).signatures)[part]
    if function is None:
        return _compile(signature, absent[part])
    return _compile(signature, function) if policy.compiled else _through_python(signature, function)


def terms(policy: Policy, state: State) -> dict[str, Any]:
    """Return the named parts of a policy's cost, each called like a score; compiled when they are first asked for."""
    if not jit.COMPILED:
        return dict(policy.terms)
    signature = dict(functions_type(state.kind).signatures)["score"]
    make = _compile if policy.compiled else _through_python
    return {name: make(signature, function) for name, function in policy.terms.items()}


def facts(policy: Policy, state: State) -> Any:
    """Compile what writes the facts that a policy's score looks at; None where it names none."""
    if policy.facts is None or not jit.COMPILED:
        return policy.facts and policy.facts.write
    signature = dict(functions_type(state.kind).signatures)["score"]
    return (_compile if policy.compiled else _through_python)(signature, policy.facts.write)


def bind(policy: Policy, state: State) -> Functions:
    """Priority, score and act for a kernel; flags in the State's rules say which are real."""
    ordered = policy.rank is not None or policy.plan is not None
    # The flags let the kernel leave out calls that would say nothing.
    state.rules["has_priority"] = int(policy.priority is not None or ordered)
    state.rules["has_score"] = int(policy.score is not None)
    state.rules["has_act"] = int(policy.act is not None)
    parts = {part: compiled(policy, state, part) for part in ("priority", "score", "act")}
    return Functions(functions_type(state.kind) if jit.COMPILED else None, **parts)
