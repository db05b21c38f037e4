"""The compiled entries of a live engine, made once for the types of State and Desk."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import types

from wattflow.engine.tables import State
from wattflow.kernel import jit
from wattflow.live import stepping
from wattflow.live.step_buffers import Desk
from wattflow.policy import bind


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled functions that Python calls; see `stepping`."""

    fold_events: Any
    decide_all: Any
    run_step: Any
    enter_task: Any
    open_workflow: Any
    requeue: Any
    add_lane: Any
    recheck: Any


SOURCES = (
    "kernel", "engine", "live/folding.py", "live/stepping.py", "live/hand.py", "live/candidate_rows.py",
)  # fmt: skip


def cache_folder() -> str:
    """Tell where the compiled code of a live engine belongs."""
    return jit.cache_folder(*SOURCES)


@functools.cache
def _compiled(state: Any, desk: Any) -> Kernels:
    functions = bind.functions_type(state)
    whole, real = types.int64, types.float64
    folder = cache_folder()

    def entry(signature: Any, function: Any) -> Any:
        return jit.direct(jit.compiled(signature, function, folder=folder))

    return Kernels(
        entry(whole(state, desk, functions, real), stepping.fold_events),
        entry(whole(state, desk, functions), stepping.decide_all),
        entry(whole(state, desk, functions, real, whole), stepping.run_step),
        entry(whole(state, whole, whole, whole, whole, real, real, real, real), stepping.enter_task),
        entry(whole(state, real, real, whole), stepping.open_workflow),
        entry(types.void(state, functions, types.int64[::1]), stepping.requeue),
        entry(types.boolean(state, whole, whole), stepping.add_lane),
        entry(types.void(state), stepping.recheck),
    )


def kernels(state: State, desk: Desk) -> Kernels:
    """Return the entries for these tables, compiled when they are first asked for."""
    if not jit.COMPILED:
        return Kernels(
            stepping.fold_events, stepping.decide_all, stepping.run_step, stepping.enter_task, stepping.open_workflow,
            stepping.requeue, stepping.add_lane, stepping.recheck,
        )  # fmt: skip
    return _compiled(state.kind, desk.kind)
