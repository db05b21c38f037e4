"""`validate_state`: does everything in a State agree with everything else? Plain Python, for checks, not for speed.

With ``WATTFLOW_CHECK=1`` it runs after every event of a simulation and every step of a live engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine import devices
from wattflow.engine.agenda import WARM
from wattflow.engine.tables import ASLEEP, FALLING, FREE, GHOST, HOT, LEFT, PLACED, READY, State
from wattflow.model.errors import WattflowError

_SHOWN = 8
Longs = NDArray[np.int64]


class CorruptState(WattflowError):
    """A State contradicts itself: a bug of the engine, or of code that wrote into its tables."""


def validate_state(state: State) -> None:
    """Raise `CorruptState` with what contradicts what; to be called between two events."""
    problems = list(find_problems(state))
    if problems:
        more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
        now = float(state.clock.now[0])
        raise CorruptState(f"at {now:g} s: {'; '.join(problems[:_SHOWN])}{more}")


def find_problems(state: State) -> Iterator[str]:
    """Every contradiction, in words."""
    running = np.flatnonzero(np.asarray(state.attempts["task"]) >= 0)
    yield from _attempts(state, running)
    yield from _ledger(state, running)
    yield from _devices(state, running)
    yield from _groups(state)
    yield from _queue(state)
    yield from _tasks(state, running)
    yield from _containers(state)
    yield from _counters(state, running)


def _sum_by(key: Any, value: Any, size: int) -> Longs:
    """Exact sums of whole numbers by row."""
    total = np.zeros(size, np.int64)
    np.add.at(total, np.asarray(key, np.int64), np.asarray(value, np.int64))
    return total


def _differ(what: str, kept: Any, true: Any) -> Iterator[str]:
    for row in np.flatnonzero(np.asarray(kept) != np.asarray(true))[:3].tolist():
        yield f"{what} of row {row} is {np.asarray(kept)[row]}, not {np.asarray(true)[row]}"


def _walk(first: int, after: Any, limit: int) -> list[int] | None:
    """Return rows of a linked list; None when it does not end."""
    rows: list[int] = []
    while first >= 0:
        # Longer than it can be: the list is a ring.
        if len(rows) > limit or first >= len(after):
            return None
        rows.append(first)
        first = int(after[first])
    return rows


def _attempts(state: State, running: Any) -> Iterator[str]:
    """Lists of nodes and the free list hold each attempt row exactly once."""
    counts, table = state.counts[0], state.attempts
    if counts.running != len(running):
        yield f"running is {counts.running}, but {len(running)} attempts are"
    if counts.held_first != -1 or counts.placed_n != 0:
        yield "tasks are held or placements unread between two events"
    after, before = np.asarray(table["next"]), np.asarray(table["previous"])
    # Rows are never lost: what does not run is free.
    free = _walk(int(counts.free_attempt), after, len(table))
    if free is None or len(free) != len(table) - len(running):
        yield "the free list of attempts has no end or the wrong length"
    elif np.any(table["task"][free] >= 0):
        yield "an attempt that runs is in the free list"
    seen = 0
    for node in np.flatnonzero(np.asarray(state.nodes["first_attempt"]) >= 0).tolist():
        rows = _walk(int(state.nodes["first_attempt"][node]), after, len(running))
        if rows is None:
            yield f"the attempts of node {node} are a ring"
            continue
        seen += len(rows)
        if np.any(table["node"][rows] != node) or [int(before[a]) for a in rows] != [-1, *rows[:-1]]:
            yield f"the attempts of node {node} are not linked both ways, or are not its own"
    if seen != len(running):
        yield f"{seen} attempts are listed with their nodes, but {len(running)} run"


def _ledger(state: State, running: Any) -> Iterator[str]:
    """Check that nodes have given away what their attempts hold and others use; nothing is given twice."""
    nodes, table = state.nodes, state.attempts[running]
    count, at = len(nodes), table["node"]
    other_u = other_mem = np.zeros(count, np.int64)
    if len(state.node_marks) == count:
        other_u, other_mem = np.asarray(state.node_marks["other_u"]), np.asarray(state.node_marks["other_mem"])
        timers = state.timers[: int(state.counts["timer_n"][0])]
        warm = np.asarray(timers["who"])[np.asarray(timers["what"]) == WARM]
        yield from _differ("warming", state.node_marks["warming"], np.bincount(warm, minlength=count))
    yield from _differ("used_u", nodes["used_u"], _sum_by(at, table["need_u"], count) + other_u)
    yield from _differ("alloc_u", nodes["alloc_u"], _sum_by(at, table["cores_u"], count) + other_u)
    yield from _differ("used_mem", nodes["used_mem"], _sum_by(at, table["memory"], count) + other_mem)
    yield from _differ("running", nodes["running"], np.bincount(at, minlength=count))
    functions = state.shapes["function"][state.tasks["form"][table["task"]]]
    by_function = np.bincount(functions, minlength=len(state.functions))
    # As `fold.set_power` counts: a node that falls asleep is no longer on.
    yield from _differ("running attempts of functions", state.functions["running"], by_function)
    asleep = int(np.count_nonzero(_in(nodes["power_state"], ASLEEP, FALLING) & (np.asarray(nodes["pos"]) >= 0)))
    if int(state.counts.asleep_n[0]) != asleep:
        yield f"asleep_n is {state.counts.asleep_n[0]}, but {asleep} nodes sleep or fall asleep"


def _in(values: Any, *wanted: int) -> Any:
    return np.isin(np.asarray(values), wanted)


def _devices(state: State, running: Any) -> Iterator[str]:
    """Check that devices have given away what attempts hold."""
    size = len(state.devices)
    share, memory, turns = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    for a in running[np.asarray(state.attempts["device"])[running] >= 0].tolist():
        attempt = state.attempts[a]
        first, variant, taken = (
            int(state.nodes["device_first"][attempt.node]),
            int(attempt.variant),
            int(attempt.devices),
        )
        for d in range(first, first + int(state.nodes["device_n"][attempt.node])):
            if taken >> (d - first) & 1:
                kind = int(state.devices["cls"][d])
                share[d] += devices.share_on(state, variant, kind)
                turns[d] += devices.turns(state, variant, kind)
                memory[d] += int(state.variants["device_memory"][variant])
    yield from _differ("share_u of devices", state.devices["share_u"], share)
    yield from _differ("memory of devices", state.devices["memory"], memory)
    yield from _differ("tasks of devices", state.devices["tasks"], turns)


def _groups(state: State) -> Iterator[str]:
    """Each node is in the one group that says what the node is; the list of active groups is complete."""
    nodes, groups, counts = state.nodes, state.groups, state.counts[0]
    standing = np.flatnonzero(np.asarray(nodes["pos"]) >= 0)
    g, pos = np.asarray(nodes["group"])[standing], np.asarray(nodes["pos"])[standing]
    members = np.bincount(g, minlength=len(groups))
    active = np.flatnonzero(members)
    listed = np.asarray(state.active_groups[: counts.active_n])
    if sorted(listed.tolist()) != active.tolist():
        yield "the list of active groups is not the groups that have nodes"
        # Empty groups stay for reuse and may say anything.
        return
    yield from _differ("count of groups", np.where(members > 0, groups["count"], 0), members)
    if np.any(groups["place"][listed] != np.arange(len(listed))):
        yield "a group does not stand where it says in the list of active groups"
    bits = np.unpackbits(np.asarray(state.group_bits).view(np.uint8), axis=1, bitorder="little")
    if not np.all(bits[g, pos]) or np.any(bits[active].sum(axis=1) != members[active]):
        yield "the bits of a group are not its nodes"
    elif np.any(bits[active].argmax(axis=1) != groups["low"][active]):
        yield "a group's lowest node is not its lowest bit"
    elif np.any(np.asarray(state.class_nodes)[_places(state, groups[active])] != groups["node"][active]):
        yield "a group names another node than its lowest"
    here, row = nodes[standing], groups[g]
    same = np.asarray(row["free_u"]) == here["capacity_u"] - here["used_u"]
    same &= np.asarray(row["free_mem"]) == here["capacity_mem"] - here["used_mem"]
    same &= (np.asarray(row["cls"]) == here["cls"]) & (row["power_state"] == here["power_state"])
    if not np.all(same):
        yield f"node {int(standing[~same][0])} is in a group that says otherwise of it"
    place = np.asarray(state.classes["first"])[here["cls"]] + pos
    if np.any(np.asarray(state.class_nodes)[place] != standing):
        yield "a node does not stand at its place in its class"


def _places(state: State, groups: Any) -> Any:
    """Return where the lowest nodes of groups stand among all."""
    return np.asarray(state.classes["first"])[groups["cls"]] + groups["low"]


def _queue(state: State) -> Iterator[str]:
    """Every waiting task can be reached from its shape, once, in order."""
    counts, rules, shapes = state.counts[0], state.rules[0], state.shapes
    listed = np.asarray(state.active_shapes[: counts.shapes_n])
    waiting = np.flatnonzero(np.asarray(shapes["waiting"]) > 0)
    if sorted(listed.tolist()) != waiting.tolist() or np.any(shapes["place"][listed] != np.arange(len(listed))):
        yield "the list of shapes that wait is not the shapes that wait"
        return
    if int(shapes["waiting"].sum()) != counts.waiting:
        yield f"waiting is {counts.waiting}, but the shapes' queues hold {int(shapes['waiting'].sum())}"
    by_function = _sum_by(shapes["function"], shapes["waiting"], len(state.functions))
    yield from _differ("waiting tasks of functions", state.functions["waiting"], by_function)
    heap = rules.has_priority == 1 and rules.dynamic == 0
    for shape in listed.tolist():
        rows = _heap_rows(state, shape) if heap else _list_rows(state, shape)
        if rows is None:
            yield f"the queue of shape {shape} is not in order, or has no end"
            continue
        states = np.asarray(state.tasks["state"])[rows]
        ready, ghosts = int(np.count_nonzero(states == READY)), int(np.count_nonzero(_in(states, GHOST, LEFT)))
        if ready != shapes["waiting"][shape] or ghosts != shapes["ghosts"][shape] or ready + ghosts != len(rows):
            yield f"shape {shape} has {ready} ready tasks and {ghosts} ghosts in its queue, and says otherwise"
        if np.any(state.tasks["form"][rows] != shape):
            yield f"the queue of shape {shape} holds a task of another shape"


def _list_rows(state: State, shape: int) -> list[int] | None:
    row, tasks = state.shapes[shape], state.tasks
    rows = _walk(int(row.head), tasks["next"], int(row.waiting))
    if rows is None or int(row.tail) != rows[-1] or [int(tasks["previous"][t]) for t in rows] != [-1, *rows[:-1]]:
        return None
    return rows


def _heap_rows(state: State, shape: int) -> list[int] | None:
    row, tasks = state.shapes[shape], state.tasks
    found, limit = [int(row.head)], int(row.waiting) + int(row.ghosts)
    for task in found:
        if len(found) > limit:
            return None
        for child in (int(tasks["next"][task]), int(tasks["previous"][task])):
            # The heap's order, ghosts included: `queue` merges by it.
            if child >= 0:
                here, below = tasks[task], tasks[child]
                if (below.key, below.sequence) < (here.key, here.sequence):
                    return None
                found.append(child)
    return found


def _tasks(state: State, running: Any) -> Iterator[str]:
    """Tasks' states agree with the queue, the attempts, the edges and the tallies."""
    counts, tasks = state.counts[0], state.tasks
    states = np.asarray(tasks["state"])
    if int(np.count_nonzero(states == READY)) != counts.waiting:
        yield f"{int(np.count_nonzero(states == READY))} tasks are ready, {counts.waiting} wait"
    attempts = np.bincount(state.attempts["task"][running], minlength=len(tasks))
    placed = states == PLACED
    if np.any(placed & (attempts == 0)):
        yield f"task {int(np.flatnonzero(placed & (attempts == 0))[0])} is placed but has no attempt"
    if np.any(~placed & (attempts > 0)):
        yield f"task {int(np.flatnonzero(~placed & (attempts > 0))[0])} has an attempt but is not placed"
    in_use = states != FREE
    if int(np.asarray(state.workflows["open"])[_workflows_in_use(state, in_use)].sum()) != counts.open:
        yield f"open is {counts.open}, but the workflows say otherwise"
    if np.any(np.asarray(tasks["pending"])[in_use] < 0):
        yield "a task waits for less than no parent"
    if np.any(in_use & (states == READY) & (np.asarray(tasks["pending"]) > 0)):
        yield "a task is ready although a parent is open"


def _workflows_in_use(state: State, in_use: Any) -> Any:
    used = np.zeros(len(state.workflows), bool)
    used[np.asarray(state.tasks["workflow"])[in_use]] = True
    return used


def _containers(state: State) -> Iterator[str]:
    """Each idle container is in its node's list and its function's."""
    table = state.containers
    if len(table) <= 1:
        return
    free = _walk(int(state.counts.free_container[0]), table["next_node"], len(table))
    if free is None:
        yield "the free list of containers has no end"
        return
    hot = _walk(int(state.counts.hot_container[0]), table["next_function"], len(table))
    if hot is None or np.any(table["function"][hot] != HOT):
        yield "the hot containers have no end or belong to a function"
        return
    for heads, link, owner, apart in (
        (state.nodes["first_container"], "next_node", "node", 0),
        (state.functions["first_container"], "next_function", "function", len(hot)),
    ):
        seen = apart
        for row in np.flatnonzero(np.asarray(heads) >= 0).tolist():
            found = _walk(int(heads[row]), table[link], len(table))
            if found is None or np.any(table[owner][found] != row):
                yield f"the containers of {owner} {row} have no end or are not its own"
                return
            if table[link.replace("next", "previous")][found].tolist() != [-1, *found[:-1]]:
                yield f"the containers of {owner} {row} are not linked both ways"
            seen += len(found)
        if seen + len(free) != len(table):
            yield f"{len(table) - len(free)} containers are in use, but {seen} are listed by {owner}"


def _counters(state: State, running: Any) -> Iterator[str]:
    """Counters of tasks hold what runs."""
    if not np.any(np.asarray(state.shapes["counted"])):
        return
    true: Counter[tuple[int, int]] = Counter()
    total: Counter[int] = Counter()
    for a in running.tolist():
        node = int(state.attempts["node"][a])
        link = int(state.shapes["counted"][state.tasks["form"][state.attempts["task"][a]]])
        while link > 0:
            term = int(state.counted["term"][link])
            topology = int(state.terms["topology"][term])
            domain = node if topology < 0 else int(state.domains[node, topology])
            if domain >= 0:
                true[term, domain] += 1
                total[term] += 1
            link = int(state.counted["next"][link])
    for (term, domain), count in true.items():
        kept = int(state.tallies[int(state.terms["first"][term]) + domain])
        if kept != count or int(state.terms["total"][term]) != total[term]:
            yield f"counter {term} says {kept} of domain {domain}, where {count} tasks are"


__all__ = ["CorruptState", "find_problems", "validate_state"]
