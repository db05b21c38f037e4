"""The compiled entries of a live engine, made once for the types of State and Desk."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import types
from numba.core.types import FunctionType

from wattflow.engine.tables import State
from wattflow.kernel import jit
from wattflow.live import stepping
from wattflow.live.desk import Desk
from wattflow.policy import bind
from wattflow.policy.base import Policy
from wattflow.sim.kernel import function_types


@dataclass(frozen=True, slots=True)
class Kernels:
    """What Python calls; see `stepping`."""

    fold_events: Any
    decide_all: Any
    enter_task: Any
    open_workflow: Any
    requeue: Any
    add_lane: Any


@functools.cache
def _compiled(state: Any, desk: Any) -> Kernels:
    priority = FunctionType(types.float64(state, types.int64))
    score = FunctionType(types.void(state, types.int64, types.int64, types.float64[::1]))
    act = FunctionType(types.void(state))
    whole, real = types.int64, types.float64
    folder = jit.cache_folder("kernel", "engine", "live")
    return Kernels(
        jit.compiled(whole(state, desk, priority, real), stepping.fold_events, folder=folder),
        jit.compiled(whole(state, desk, priority, score, act), stepping.decide_all, folder=folder),
        jit.compiled(
            whole(state, whole, whole, whole, whole, real, real, real, real), stepping.enter_task, folder=folder
        ),
        jit.compiled(whole(state, real, real, whole), stepping.open_workflow, folder=folder),
        jit.compiled(types.void(state, priority, types.int64[::1]), stepping.requeue, folder=folder),
        jit.compiled(types.boolean(state, whole, whole), stepping.add_lane, folder=folder),
    )


def kernels(state: State, desk: Desk) -> Kernels:
    """The entries for these tables, compiled when they are first asked for."""
    if not jit.COMPILED:
        return Kernels(
            stepping.fold_events, stepping.decide_all, stepping.enter_task, stepping.open_workflow, stepping.requeue,
            stepping.add_lane,
        )  # fmt: skip
    return _compiled(state.kind, desk.kind)


def functions(policy: Policy, state: State) -> tuple[Any, Any, Any]:
    """A policy's priority, score and act for this State; flags in its rules say which are real."""
    return bind.bind(policy, state, function_types(state))
