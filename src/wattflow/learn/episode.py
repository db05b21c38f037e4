"""The compiled half of the environment: the simulator's own `run`, with the environment as its hand.

The hand's bodies are here too; the simulator's physics carries out what was chosen, so an episode in which the first
row is always taken is the flagship's run, byte for byte. Rows are described by the learned policy's encoder.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import types

from wattflow.engine import decide
from wattflow.kernel import jit
from wattflow.kernel.jit import inner
from wattflow.kernel.lowering import claim, tables_at
from wattflow.learn import offers, renewing
from wattflow.learn.episode_buffers import EpisodeBuffers
from wattflow.live import candidate_rows
from wattflow.live import hand as by_hand
from wattflow.live.candidate_rows import NONE, PLACE, WAIT
from wattflow.policy import bind, learned, placing, pricing, view, wattflow
from wattflow.sim import kernel

DONE, GROW, BAD, STUCK, END = 0, -2, -3, -4, -5
"""In place of a number of rows."""
SOURCES = tuple(f"learn/{name}.py" for name in ("offers", "renewing", "episode"))
AT_ONCE = 4
"""Episodes that a thread takes at a time: so many share half a line of the cache in the tables of results."""
KINDS = 4
WIDTH = placing.N + KINDS
"""Numbers that describe a row: the policy's features, then what kind of row it is."""


@inner
def step_one(state, world, ask, functions, chosen, joules):
    """Carry out a choice and run on to the next decision: its number of rows, or a status. Adds to ``joules``."""
    asked = ask.ask[0]
    asked.joules = joules[0]
    status = run(state, world, ask, functions, chosen)
    joules[0] = asked.joules
    if status == kernel.ASKED:
        return np.int64(asked.n)
    if status == kernel.DONE:
        return np.int64(DONE)
    if status == kernel.GROW:
        return np.int64(GROW)
    return np.int64(BAD) if status == kernel.BAD_COST else np.int64(STUCK)


@inner
def _least(ask, n, row):
    """Return the least price among rows of the same task and variant."""
    least = math.inf
    for r in range(n):
        other = ask.rows[r]
        if other.kind == PLACE and other.variant == row.variant and other.task_row == row.task_row:
            least = min(least, other.price)
    return least


@inner
def _as_first(state, row):
    """Make a row's place the first candidate: the encoder looks at candidates by their number."""
    candidate = state.candidates[0]
    candidate.node = row.node_row
    candidate.device = row.device


@inner
def _know_parts(state, ask, n, parts, longest):
    """Work out the price of each row before what was learned, and what it is made of.

    Those of a task whose rows were priced here are known, unless the policy did not price them so.
    """
    known = ask.ask[0].slow + ask.ask[0].joint == 0
    for r in range(n):
        row = ask.rows[r]
        if row.kind == PLACE:
            if not known or math.isnan(ask.parts[r, pricing.PRICE]):
                _as_first(state, row)
                wattflow.price_j(state, row.task_row, row.variant, 0, wattflow.due_s(state, row.task_row))
                for i in range(pricing.WIDTH):
                    ask.parts[r, i] = state.memory[parts + i]
            row.price = ask.parts[r, pricing.PRICE]
            if longest > 1.0 and row.price < view.UNKNOWN_COST:  # as the policy's own `usual_time_outs`
                _as_first(state, row)
                over_j = placing.overrated_j(state, 0, longest)
                row.price -= over_j / wattflow.companions(state, row.variant, row.node_row)


@inner
def describe(state, ask, n, out):
    """Write the features of the rows, as the learned policy sees them; nodes and waiting have only what they share."""
    memory = state.memory
    first = view.place_of(state, learned.NOTES.scratch)
    facts = view.place_of(state, learned.NOTES.facts)
    classes = view.place_of(state, learned.NOTES.classes)
    longest = view.recall(state, learned.NOTES.longest, 0)
    parts = view.place_of(state, learned.NOTES.kept)
    _know_parts(state, ask, n, parts, longest)
    due = 0.0
    task = -1
    variant = -1
    least = math.inf
    for r in range(n):
        row = ask.rows[r]
        for i in range(WIDTH):
            out[r, i] = 0.0
        out[r, placing.N + row.kind] = 1.0
        if row.kind != PLACE:
            continue
        if row.task_row != task or row.variant != variant:  # rows of a task and a variant mostly stand together
            task = row.task_row
            variant = row.variant
            due = wattflow.due_s(state, task)
            least = _least(ask, n, row)
            placing.around(state, task, variant, first, facts)
        _as_first(state, row)
        merit = memory[classes + learned.CLASS_N * view.class_of(state, row.node_row)]
        for i in range(pricing.WIDTH):
            memory[parts + i] = ask.parts[r, i]
        placing.candidate(state, task, variant, 0, parts, first, facts, due, row.price, least, merit, longest)
        for i in range(placing.N):
            out[r, i] = memory[first + i]


def step(state, world, ask, functions, chosen, joules, out):
    """Run `step_one` and, where ``out`` has rows, describe them."""
    n = step_one(state, world, ask, functions, chosen, joules)
    if n > 0 and out.shape[0] > 0:
        describe(state, ask, min(n, out.shape[0]), out)
    return n


@inner
def _turn(state, world, ask, functions, course, chosen, joules):
    """Run `step_one`, and note what it brought; an episode that ended begins again, END where Python has to."""
    before = joules[0]
    n = step_one(state, world, ask, functions, chosen, joules)
    reward = (before - joules[0]) / course.standard[renewing.REFERENCE]
    if n != DONE:
        return n, reward, False
    reward += renewing.closing_reward(state, world, course)
    n = np.int64(END)
    if renewing.begin_anew(state, world, ask, course):
        joules[0] = 0.0
        n = step_one(state, world, ask, functions, NONE, joules)
    return n, reward, True


def step_many(
    state, world, ask, functions, course, places, turn, chosen, left, shown, joules, reward, ended, mask, out
):
    """Run `step` for many episodes by the addresses of their tables; the first five say of which types.

    What is beyond an episode's rows waits. ``left`` are the decisions that each is to make, by its first row
    from the second on; some stay where compiled code cannot go on. Afterwards ``reward`` is what they brought,
    ``ended`` how many episodes ended, and ``mask`` tells which rows there are; ``out`` is 0 beyond them.

    Several threads may do this at once: each takes the next few episodes that nobody took, by the counter ``turn``.
    """
    rows = mask.shape[1]
    count = places.shape[1]
    while True:
        # Atomic, so that threads need no lock and share the work by how fast they are.
        begin = claim(turn, AT_ONCE)
        if begin >= count:
            break
        for i in range(begin, min(begin + AT_ONCE, count)):
            own = tables_at(state, places[0, i])
            there = tables_at(world, places[1, i])
            desk = tables_at(ask, places[2, i])
            rules = tables_at(functions, places[3, i])
            aim = tables_at(course, places[4, i])
            n = shown[i]
            was = n
            one = chosen[i]
            # An action beyond the rows is a choice to wait, as masks of a fixed width have it.
            if one >= min(n, rows):  # waiting, unless nothing runs that could end it
                one = np.int64(NONE) if own.counts[0].running > 0 else np.int64(0)
            reward[i] = 0.0
            while left[i] > 0:
                n, more, over = _turn(own, there, desk, rules, aim, one, joules[i : i + 1])
                reward[i] += more
                ended[i] += over
                left[i] -= 1
                one = 0
                if n <= 0:
                    break
            shown[i] = n
            if n > 0 and out.shape[1] > 0:
                describe(own, desk, min(n, out.shape[1]), out[i])
                for r in range(n, min(was, out.shape[1])):
                    for j in range(WIDTH):
                        out[i, r, j] = 0.0
            if n != was:
                for r in range(rows):
                    mask[i, r] = r < n


@functools.cache
def _compiled(state: Any, world: Any, ask: Any, course: Any) -> tuple[Any, Any]:
    whole, functions = types.int64, bind.functions_type(state)
    some = types.int64[::1]
    reals, table, cube = types.float64[::1], types.float32[:, ::1], types.float32[:, :, ::1]
    folder = jit.cache_folder("kernel", "engine", "sim", "policy", "live/hand.py", "live/candidate_rows.py", *SOURCES)
    single = whole(state, world, ask, functions, whole, reals, table)
    many = types.void(
        state, world, ask, functions, course, types.int64[:, ::1], some, some, some, some, reals, reals, some,
        types.boolean[:, ::1], cube,
    )  # fmt: skip
    return (
        jit.direct(jit.compiled(single, step, folder=folder)),
        jit.direct(jit.compiled(many, step_many, folder=folder)),
    )


def kernels(state: Any, world: Any, ask: Any, course: Any) -> tuple[Any, Any]:
    """Compile `step` and `step_many` for these tables when they are first asked for."""
    return _compiled(state.kind, world.kind, ask.kind, course.kind) if jit.COMPILED else (step, None)


__all__ = ["BAD", "DONE", "END", "GROW", "KINDS", "STUCK", "WAIT", "WIDTH", "kernels", "step", "step_many"]


# The environment's hand: as that of `live.hand`, but what is known of waiting tasks is kept between decisions.
#
# The bodies of the hooks of a hand (`engine.decide`) for the environment's EpisodeBuffers. Queues that are not known
# here (``slow``) and the first tasks of all shapes together (``joint``) are left to `live.hand`, but for rows that the
# flagship would not use.

FOREVER = 1 << 60
"""Events."""


@inner
def run(state, world, hand, functions, chosen):
    """Carry out a choice and simulate to the next decision; a status of `sim.kernel.run`."""
    by_hand.answer(state, world, hand, chosen)
    return kernel.run(state, world, hand, functions, math.inf, FOREVER)


@inner
def _is_known(hand):
    return hand.ask[0].slow + hand.ask[0].joint == 0


@decide.open_hand.of(EpisodeBuffers)
@inner
def _open(state, hand):
    by_hand.open_asking(state, hand)
    asked = hand.ask[0]
    asked.apart = 0
    asked.key = -math.inf
    asked.sequence = -1


@decide.look_first.of(EpisodeBuffers)
@inner
def _look_first(state, hand):
    if not _is_known(hand):
        by_hand.look_first(state, hand)


@decide.following.of(EpisodeBuffers)
@inner
def _following(state, hand, priority):
    if not _is_known(hand):
        return np.int64(decide.next_task(state, priority))
    task = np.int64(offers.first_open(state, hand))
    if task >= 0 and state.rules[0].has_score == 1:
        offers.set_apart(state, hand, task)
    return task


@decide.no_place.of(EpisodeBuffers)
@inner
def _no_place(state, hand, shape, taken):
    if _is_known(hand):
        offers.close(state, hand, shape)
    else:
        state.shapes[shape].failed = state.clock[0].epoch
    return taken


@by_hand.offer.of(EpisodeBuffers)
@inner
def _offer(state, hand, task, score):
    if not _is_known(hand):
        n, fits = by_hand.all_rows(state, hand, task, score)
        return _screen(state, hand, n), fits
    # The flagship has set those apart by now, and prices by how many wait; `_answered` counts them in again.
    state.counts[0].waiting -= hand.ask[0].apart
    n, fits = offers.rows_of(state, hand, score, task)
    if n <= 0:
        state.counts[0].waiting += hand.ask[0].apart
    return n, fits


@by_hand.answered.of(EpisodeBuffers)
@inner
def _answered(state, hand):
    state.counts[0].waiting += hand.ask[0].apart


@by_hand.screen.of(EpisodeBuffers)
@inner
def _screen(state, hand, n):
    """Bring the rows that the flagship's rules allow to the front, in their order.

    A cost of inf means "not here": where all are inf the flagship lets the task wait, and so does the environment.
    """
    kept = np.int64(0)
    for r in range(n):
        if hand.rows[r].kind != PLACE or hand.rows[r].cost < math.inf:
            if kept < r:
                candidate_rows.swap(hand, kept, r)
            kept += 1
    return kept if n >= 0 else np.int64(n)


@kernel.passes.of(EpisodeBuffers)
@inner
def _passes(state, hand, joules):
    hand.ask[0].joules += joules
