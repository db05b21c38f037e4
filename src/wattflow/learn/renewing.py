"""How an episode ends and begins anew without Python: its closing reward, and its tables as they were. Compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.kernel.handle import Tables
from wattflow.kernel.jit import inner
from wattflow.learn.trial import Judge
from wattflow.sim import kernel

MEAN, TAIL, MAKESPAN, BOUND, NAMED, REFERENCE, READY = range(7)
"""Places in ``standard``: seconds of the baseline, the ratio to them from which on seconds are fined, how many
workflows there are, the flagship's joules, and whether the tables are still where they were."""
_STEP, _WIDTH, _PRICE = Judge.STEP, Judge.WIDTH, Judge.PRICE


FIXED = frozenset({
    "variants", "extra", "links", "child", "parent", "parent_bytes", "class_ok", "class_nodes", "speed", "grid",
    "device_grid", "device_classes", "frequency_speed", "frequency_power", "masks", "variant_counts", "params",
})  # fmt: skip
UNREAD = frozenset({"records"})
"""Tables of a simulation that no event changes, and such as are written before they are read: a new beginning need not
bring them back."""


class Course(Tables):
    """Measure and beginning of an episode.

    ``due`` and ``excused``: when each workflow should have ended, and 1 where it counts for nothing if it did not;
    ``end``: room for when it did. ``state_now`` … are the memory of State and World, now and before the first event,
    ``state_parts`` and ``world_parts`` (from, to) the words of it that may have changed.
    """

    __slots__ = (
        "due", "end", "excused", "standard", "state_now", "state_parts", "state_then", "world_now", "world_parts",
        "world_then",
    )  # fmt: skip
    NAMES = (
        "standard", "due", "excused", "end", "state_now", "state_then", "state_parts", "world_now", "world_then",
        "world_parts",
    )  # fmt: skip


def course(judge: Judge) -> Course:
    """Return the course of a judge's scenario, with its trial's tables where they are now."""
    trial = judge.trial
    count = len(trial._due_s)
    standard = np.zeros(READY + 1)
    standard[[MEAN, TAIL, MAKESPAN]] = [
        max(1e-9, getattr(judge.baseline, name)) for name in ("mean_s", "tail_s", "makespan_s")
    ]
    standard[BOUND] = judge.BOUND + judge.wish.wait
    standard[NAMED], standard[REFERENCE] = max(1, len(trial.workload.workflow_names)), judge.reference.energy_j
    excused = np.zeros(count, np.int8)
    excused[sorted(judge.punctual.missed)] = 1
    tables = (trial.simulation.state, trial.beginning[0], trial.simulation.world, trial.beginning[1])
    pieces = [one.one_piece() for one in tables]
    standard[READY] = float(all(len(piece) for piece in pieces))
    return Course(
        standard=standard, due=trial._due_s.copy(), excused=excused, end=np.zeros(count), state_now=pieces[0],
        state_then=pieces[1], state_parts=_parts(tables[1]), world_now=pieces[2], world_then=pieces[3],
        world_parts=_parts(tables[3]),
    )  # fmt: skip


def _parts(tables: Tables) -> Any:
    """List (from, to) in words: tables that a new beginning has to bring back, those side by side as one."""
    start = tables.one_piece().ctypes.data
    found: list[list[int]] = []
    for name in tables.NAMES:
        table = getattr(tables, name)
        if name in FIXED or name in UNREAD or table.nbytes == 0:
            continue
        first = (table.ctypes.data - start) // 8
        if found and found[-1][1] >= first - 8:  # tables begin at lines of the cache
            found[-1][1] = first + -(-table.nbytes // 8)
        else:
            found.append([first, first + -(-table.nbytes // 8)])
    return np.array(found, np.int64).reshape(-1, 2)


@inner
def _bring_back(now, then, parts):
    for k in range(parts.shape[0]):
        for word in range(parts[k, 0], parts[k, 1]):
            now[word] = then[word]


@inner
def _mean(state, world, course):
    """Return mean seconds that workflows took; their ends are left in ``end``."""
    end = course.end
    count = end.size
    for w in range(count):
        end[w] = 0.0
    for k in range(world.pulse[0].record_n):
        record = world.records[k]
        w = state.tasks[record.task].workflow
        end[w] = max(end[w], record.end_s)
    total = 0.0
    for w in range(count):
        total += end[w] - state.workflows[w].submit
    return total / max(1, count)


@inner
def _newly_missed(course):
    """Return workflows that ended after their time and would not have under the punctual policy."""
    missed = 0
    for w in range(course.end.size):
        if course.end[w] > course.due[w] + 1e-6 and course.excused[w] == 0:
            missed += 1
    return missed


@inner
def _tail(state, course):
    """Return mean seconds of the slowest quarter of the workflows; ``end`` is used up."""
    end = course.end
    count = end.size
    for w in range(count):
        end[w] -= state.workflows[w].submit
    most = max(1, count // 4)
    total = 0.0
    for turn in range(min(most, count)):
        slowest = turn
        for w in range(turn + 1, count):
            if end[w] > end[slowest]:
                slowest = w
        end[turn], end[slowest] = end[slowest], end[turn]
        total += end[turn]
    return total / most


@inner
def closing_reward(state, world, course):
    """Return, at the end, 1 less the price of late seconds, as `Judge.penalty` has it."""
    kernel.settle_all(state, world)
    standard = course.standard
    slower = _mean(state, world, course) / standard[MEAN]
    missed = _newly_missed(course)
    slower = max(slower, _tail(state, course) / standard[TAIL])
    slower = max(slower, (world.pulse[0].last_end - state.clock[0].start) / standard[MAKESPAN])
    beyond = max(0.0, math.log(slower / standard[BOUND]))
    late = -_STEP * math.expm1(-beyond / _WIDTH) + _PRICE * beyond
    if missed > 0:
        late += _STEP
    return 1.0 - late - missed / standard[NAMED]


@inner
def begin_anew(state, world, ask, course):
    """Go back before the first event; False where the tables have grown since and Python has to do it."""
    if course.standard[READY] == 0.0:
        return False
    _bring_back(course.state_now, course.state_then, course.state_parts)
    _bring_back(course.world_now, course.world_then, course.world_parts)
    kernel.begin_all(state, world)
    asked = ask.ask[0]
    asked.open = 0
    asked.task = -1
    asked.shown = 0
    ask.closed[:] = 0
    ask.opening[:] = -1
    return True
