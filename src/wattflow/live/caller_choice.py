"""`wanted`: an engine that stops at each decision, shows what it could do, and takes the caller's choice.

For learners. Rows show candidates with the costs of the policy in use; row 0 is what `Engine.step` would take, so the
first least cost (`argmin`) decides as the policy does.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np
from numba import types
from numpy.typing import NDArray

from wattflow.engine.tables import State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.live import hand, kernels, stepping
from wattflow.live import protocol as p
from wattflow.live.candidate_rows import ASK, BAD, NONE, PLACE, ROW, SLEEP, WAIT, WAKE, Ask
from wattflow.live.step_buffers import Desk
from wattflow.model.errors import BrokenPolicy
from wattflow.policy import bind
from wattflow.policy.base import Policy


class Steps(Protocol):
    """The part of an `Engine` that is used here: its step in two halves."""

    state: State
    policy: Policy
    _desk: Desk
    _functions: Any

    def _begin(self, now_s: float) -> None: ...
    def _results(self) -> p.Step: ...
    def _grow_attempts(self) -> None: ...


@functools.cache
def _compiled(state: Any, desk: Any, ask: Any) -> tuple[Any, Any, Any]:
    functions, whole = bind.functions_type(state), types.int64
    folder = kernels.cache_folder()
    pair = types.UniTuple(whole, 2)  # type: ignore[no-untyped-call]

    def entry(signature: Any, function: Any) -> Any:
        return jit.direct(jit.compiled(signature, function, folder=folder))

    return (
        entry(whole(state, desk, ask, functions, whole), hand.open_instant),
        entry(pair(state, ask, functions, whole), hand.want),
        entry(whole(state, desk, ask, functions), hand.close_instant),
    )


def _kernels(engine: Steps, ask: Ask) -> tuple[Any, Any, Any]:
    if not jit.COMPILED:
        quiet = np.errstate(over="ignore")  # the hashes of groups overflow as they should
        return quiet(hand.open_instant), quiet(hand.want), quiet(hand.close_instant)
    return _compiled(engine.state.kind, engine._desk.kind, ask.kind)


class CallerChoice:
    """One engine, decided by hand: `open` an instant, `wanted` until there is no task, `close` it.

    Args:
        rows: At most so many rows are shown; what does not fit is counted in ``lost``.
        joint: Show the first tasks of all waiting shapes together, with waiting, sleeping and waking as rows.
    """

    def __init__(self, engine: Steps, rows: int = 256, joint: bool = False) -> None:
        self.engine, self.joint = engine, joint
        table = record_table(ROW, rows)
        self.ask = Ask(ask=record_table(ASK, 1), rows=table)
        self._rows = np.asarray(table)
        with jit.compiling():
            self._open, self._want, self._close = _kernels(engine, self.ask)

    def open(self, now_s: float) -> None:
        """Fold all events, as the first half of `Engine.step`."""
        engine = self.engine
        engine._begin(now_s)
        self._open(engine.state.handle(), engine._desk.handle(), self.ask.handle(), engine._functions, int(self.joint))

    def wanted(self, choice: int = NONE) -> tuple[int, NDArray[np.void]]:
        """Carry out the choice (a row's number; NONE waits) and show the next decision: (task, rows), or (−1, none).

        The first call after `open` chooses nothing. The rows are overwritten by the next call.
        """
        while True:
            task, n = self._want(self.engine.state.handle(), self.ask.handle(), self.engine._functions, choice)
            if task >= 0 or task == hand.NOTHING:
                return task, self._rows[:n]
            if task == BAD:
                raise BrokenPolicy(f"policy {self.engine.policy.name!r} returned NaN")
            self.engine._grow_attempts()

    def close(self) -> p.Step:
        """Finish the step, its second half: what was chosen, the policy's actions, when to come back."""
        engine = self.engine
        while True:
            status = self._close(engine.state.handle(), engine._desk.handle(), self.ask.handle(), engine._functions)
            if status == stepping.OK:
                return engine._results()
            engine._grow_attempts()

    @property
    def lost(self) -> int:
        """Return rows that did not fit, in this instant."""
        return int(self.ask.ask["lost"][0])


__all__ = ["ASK", "NONE", "PLACE", "ROW", "SLEEP", "WAIT", "WAKE", "Ask", "CallerChoice"]
