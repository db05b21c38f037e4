"""`wanted`: an engine that stops at each decision, shows what it could do, and takes the caller's choice.

For learners. Rows show candidates with the costs of the policy in use; row 0 is what `Engine.step` would take, so the
first least cost (`argmin`) decides as the policy does. `Wanted` is one engine, `WantedMany` n of them in one call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    def _refresh(self) -> None: ...


@functools.cache
def _compiled(state: Any, desk: Any, ask: Any) -> tuple[Any, Any, Any, Any]:
    functions, whole = bind.functions_type(state), types.int64
    folder = kernels.cache_folder()
    pair, many = types.UniTuple(whole, 2), types.int64[::1]  # type: ignore[no-untyped-call]

    def entry(signature: Any, function: Any) -> Any:
        return jit.direct(jit.compiled(signature, function, folder=folder))

    return (
        entry(whole(state, desk, ask, functions, whole), hand.open_instant),
        entry(pair(state, ask, functions, whole), hand.want),
        entry(whole(state, desk, ask, functions), hand.close_instant),
        entry(types.void(state, ask, functions, many, many, many, many, many, many), hand.want_many),
    )


def _kernels(engine: Steps, ask: Ask) -> tuple[Any, Any, Any, Any]:
    if not jit.COMPILED:
        quiet = np.errstate(over="ignore")  # the hashes of groups overflow as they should
        return quiet(hand.open_instant), quiet(hand.want), quiet(hand.close_instant), None
    return _compiled(engine.state.kind, engine._desk.kind, ask.kind)


class Wanted:
    """One engine, decided by hand: `open` an instant, `wanted` until there is no task, `close` it.

    Args:
        rows: At most so many rows are shown; what does not fit is counted in ``lost``.
        joint: Show the first tasks of all waiting shapes together, with waiting, sleeping and waking as rows.
    """

    def __init__(self, engine: Steps, rows: int = 256, joint: bool = False, memory: Any = None) -> None:
        self.engine, self.joint = engine, joint
        table = record_table(ROW, rows) if memory is None else memory
        self.ask = Ask(ask=record_table(ASK, 1), rows=table)
        self._rows = np.asarray(table)
        with jit.compiling():
            self._open, self._want, self._close, _ = _kernels(engine, self.ask)

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
            self.make_room(task)

    def make_room(self, status: int) -> None:
        """Make more attempt rows, where there are too few; a cost that is no number is an error."""
        if status == BAD:
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


class WantedMany:
    """Many engines, one decision of each per call. All have the same kinds of tables, not the same policy.

    Args:
        rows: Rows shown of each decision at most.
        threads: Over how many threads a call is spread; compiled code needs no lock of the interpreter's.
    """

    def __init__(self, engines: Sequence[Steps], rows: int = 32, joint: bool = False, threads: int = 1) -> None:
        count = len(engines)
        self.rows = record_table(ROW, count * rows).reshape(count, rows)
        for engine in engines:
            # One piece of memory each: going round many engines the compiled loop waits for memory most of all.
            engine.state.pack()
            engine._refresh()
        self.each = [Wanted(e, joint=joint, memory=self.rows[i]) for i, e in enumerate(engines)]
        self.rows = np.asarray(self.rows)
        self.tasks, self.shown = np.full(count, -1, np.int64), np.zeros(count, np.int64)
        self._many = _kernels(engines[0], self.each[0].ask)[3]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        edges = np.linspace(0, count, threads + 1).astype(int)
        self._parts = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self._addresses()

    def _addresses(self) -> None:
        """Tell where the tables are now: they move when they grow."""
        self._held = [(each.engine.state.handle(), each.ask.handle(), each.engine._functions) for each in self.each]
        if jit.COMPILED:
            kinds = {(state.kind, ask.kind) for state, ask, _ in self._held}
            if len(kinds) > 1:
                raise ValueError("these engines have tables of different kinds")
            at = [(each.engine.state.address, each.ask.address, each.engine._functions.address) for each in self.each]
            self._at = np.ascontiguousarray(np.array(at, np.int64).T)

    def open(self, now_s: float) -> None:
        """Fold the events of all engines."""
        for each in self.each:
            each.open(now_s)
        self._addresses()

    def wanted(self, choices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Carry out one choice of each; (tasks, numbers of rows) of the next decisions; ``rows[i]`` shows them."""
        if not jit.COMPILED:
            for i, each in enumerate(self.each):
                self.tasks[i], rows = each.wanted(int(choices[i]))
                self.shown[i] = len(rows)
            return self.tasks, self.shown
        choices = np.ascontiguousarray(choices, np.int64)
        if self._pool is None:
            self._part(self._parts[0], choices)
        else:
            first, *others = self._parts
            waiting = [self._pool.submit(self._part, part, choices) for part in others]
            self._part(first, choices)
            for one in waiting:
                one.result()
        if self.tasks.min() < hand.NOTHING:
            self._mend()
        return self.tasks, self.shown

    def _part(self, part: slice, choices: NDArray[np.int64]) -> None:
        # The first of the part goes by its handle, so that a second entry of the same part is noticed.
        state, ask, functions = self._held[part.start]
        states, asks, rules = self._at[0, part], self._at[1, part], self._at[2, part]
        self._many(state, ask, functions, states, asks, rules, choices[part], self.tasks[part], self.shown[part])

    def _mend(self) -> None:
        """Give engines that ran out of rows more, and go on."""
        for i in np.flatnonzero(self.tasks < hand.NOTHING).tolist():
            self.each[i].make_room(int(self.tasks[i]))
            self.tasks[i], rows = self.each[i].wanted(NONE)
            self.shown[i] = len(rows)
        self._addresses()

    def close(self) -> list[p.Step]:
        """Finish the steps of all engines."""
        return [each.close() for each in self.each]


__all__ = ["ASK", "NONE", "PLACE", "ROW", "SLEEP", "WAIT", "WAKE", "Ask", "Wanted", "WantedMany"]
