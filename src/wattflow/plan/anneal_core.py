"""The compiled half of annealing: one schedule from (order, node, option), and the walk over such choices.

Tasks are placed in the order given, each on the earliest cores of its node that are free, the data fetched with the
cores held (as the simulator does, links not shared). A node sleeps where that is worth it: before its first task,
after its last, and in gaps if asked for. About 0.1 µs a task and evaluation.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import math

import numpy as np

from wattflow.kernel import jit as engine_jit
from wattflow.kernel.random import STEP, mix, unit


def jit(function):
    """Compile as the engine does, in a cache folder of its own."""
    # By this file alone: a change elsewhere in `plan` does not compile the walk anew.
    return engine_jit.jit(function, engine_jit.cache_folder("kernel", "plan/anneal_core.py"))


@jit
def evaluate(game, tables, choice, slots):
    """Fill start and end; returns (joules, last end)."""
    estimate, ready, _, input_bytes, parent_start, parent, parent_bytes = game
    seconds, cores, joules, device, cls, size, slices, _, _, _, _, per_byte, latency, _ = tables
    order, node_of, option_of = choice
    start, end, _, _, _, _, _, free, stamp, _, _, turn = slots
    # A new turn instead of clearing every node: a node's row is reset when its stamp is an old one.
    turn[0] += 1.0
    total = 0.0
    finish = 0.0
    for i in range(order.size):
        t = order[i]
        n = node_of[t]
        o = option_of[t]
        c = cls[n]
        if stamp[n] != turn[0]:
            _clear(slots, n, size[c], slices[c])
        begin = ready[t]
        fetched = input_bytes[t]
        for e in range(parent_start[t], parent_start[t + 1]):
            p = parent[e]
            begin = max(begin, end[p])
            if node_of[p] != n:
                fetched += parent_bytes[e]
        wide = min(cores[o], size[c])
        begin = _take_cores(slots, n, wide, begin)
        if device[o] == 1:
            begin = max(begin, free[n, 0])
        stop = begin + estimate[t] * seconds[o, c]
        if fetched > 0.0:
            stop += latency[c] + fetched * per_byte[c]
        start[t] = begin
        end[t] = stop
        _give_cores(slots, n, wide, stop)
        if device[o] == 1:
            _give_slice(free, n, slices[c], stop)
        total += estimate[t] * joules[o, c]
        _count_joules(tables, slots, n, begin, stop)
        finish = max(finish, stop)
    return _with_rests(tables, slots, total, finish), finish


@jit
def _clear(slots, n, size, slices):
    """Begin a node's row: nothing ran on it in this turn."""
    _, _, _, _, head, count, spare, free, stamp, last, used, turn = slots
    stamp[n] = turn[0]
    last[n] = used[n] = 0.0
    head[n] = count[n] = 0
    spare[n] = size
    for k in range(slices):
        free[n, k] = 0.0


@jit
def _take_cores(slots, n, wide, begin):
    """Take cores never used first, then those that are free soonest; returns when all of them are free.

    Lanes are (time, cores) in a ring, by time.
    """
    _, _, lane_s, lane_n, head, count, spare, _, _, _, _, _ = slots
    lacking = wide - spare[n]
    spare[n] = max(0, -lacking)
    # Cores that are taken are given up in the order in which they come free; those left over stay in their lane.
    while lacking > 0:
        h = head[n]
        begin = max(begin, lane_s[n, h])
        if lane_n[n, h] > lacking:
            lane_n[n, h] -= lacking
            lacking = 0
        else:
            lacking -= lane_n[n, h]
            head[n] = h + 1 if h + 1 < lane_s.shape[1] else 0
            count[n] -= 1
    return begin


@jit
def _give_cores(slots, n, wide, stop):
    """Put cores back as a lane that is free from ``stop`` on."""
    _, _, lane_s, lane_n, head, count, _, _, _, _, _, _ = slots
    room = lane_s.shape[1]
    at = head[n] + count[n]
    at = at - room if at >= room else at
    # Insertion from the end: most ends are the latest so far.
    for _ in range(count[n]):
        before = at - 1 if at > 0 else room - 1
        if lane_s[n, before] <= stop:
            break
        lane_s[n, at] = lane_s[n, before]
        lane_n[n, at] = lane_n[n, before]
        at = before
    if wide > 0:
        lane_s[n, at] = stop
        lane_n[n, at] = wide
        count[n] += 1


@jit
def _give_slice(free, n, slices, stop):
    """Keep the slices of a device by the time at which they are free, as the lanes are."""
    k = 1
    while k < slices and free[n, k] < stop:
        free[n, k - 1] = free[n, k]
        k += 1
    free[n, k - 1] = stop


@jit
def _count_joules(tables, slots, n, begin, stop):
    """Count a node's joules up to the last task placed so far.

    A gap that a later task fills is seen only in order of start, which is why `Game.schedule` evaluates once more.
    """
    _, _, _, _, cls, _, _, above_w, _, busy_w, sleep_j, _, _, gaps = tables
    _, _, _, _, _, _, _, _, _, last, used, _ = slots
    c = cls[n]
    if begin > last[n]:
        used[n] += gap_j(above_w[c], sleep_j, c, gaps[0], begin - last[n])
        last[n] = begin
    if stop > last[n]:
        used[n] += (above_w[c] + busy_w[c]) * (stop - last[n])
        last[n] = stop


@jit
def _with_rests(tables, slots, total, finish):
    """Add what every node draws beside its tasks until the end."""
    _, _, _, _, cls, _, _, above_w, still_w, _, sleep_j, _, _, _ = tables
    _, _, _, _, _, _, _, _, stamp, last, used, turn = slots
    for n in range(cls.size):
        c = cls[n]
        total += still_w[c] * finish
        rest = finish
        if stamp[n] == turn[0]:
            total += used[n]
            rest = finish - last[n]
        # After its last task a node idles to the end, or falls asleep once: whichever is less.
        total += min(above_w[c] * rest, sleep_j[c, 0])
    return total


@jit
def gap_j(above_w, sleep_j, c, gaps, idle_s):
    """Return joules above stillness of a node that has nothing to do for a while."""
    joules = above_w * idle_s
    if gaps == 1 and sleep_j[c, 1] < joules and sleep_j[c, 2] < idle_s:
        return sleep_j[c, 1]
    return joules


@jit
def _draw(state):
    """Draw a number in (0, 1]."""
    state[0] = state[0] + STEP
    return unit(mix(state[0]))


@jit
def _below(state, count):
    # The draw may be 1 itself.
    return min(count - 1, int(_draw(state) * count))


@jit
def _move_order(game, children, choice, place, state):
    """Shift a task to another place between its last parent and its first child."""
    child_start, child = children
    parent_start, parent = game[4], game[5]
    order = choice[0]
    t = _below(state, order.size)
    low = 0
    high = order.size - 1
    for e in range(parent_start[t], parent_start[t + 1]):
        low = max(low, place[parent[e]] + 1)
    for e in range(child_start[t], child_start[t + 1]):
        high = min(high, place[child[e]] - 1)
    to = low + _below(state, high - low + 1)
    _shift(order, place, place[t], to)


@jit
def _shift(order, place, at, to):
    t = order[at]
    step = 1 if to > at else -1
    while at != to:
        order[at] = order[at + step]
        place[order[at]] = at
        at += step
    order[to] = t
    place[t] = to


@jit
def _pick(able, shape, node_of, cls, state):
    """Pick a row of (option, class) that the shape can take, and a node of the class: often one in use already."""
    first, count, option, kind, node_first, node_n, nodes = able
    row = first[shape] + _below(state, count[shape])
    c = kind[row]
    n = nodes[node_first[c] + _below(state, node_n[c])]
    # Seventy per cent of moves go to a node in use, by four tries: plans that save joules use few nodes.
    if _draw(state) < 0.7:
        for _ in range(4):
            other = node_of[_below(state, node_of.size)]
            if cls[other] == c:
                n = other
                break
    return option[row], n


@jit
def _change(game, able, cls, choice, state):
    """Another node and option for a task, or another option where it is."""
    _, node_of, option_of = choice
    t = _below(state, node_of.size)
    shape = game[2][t]
    if able[1][shape] == 0:
        return
    o, n = _pick(able, shape, node_of, cls, state)
    if _draw(state) < 0.3:
        first, count, option, kind = able[0][shape], able[1][shape], able[2], able[3]
        # Four tries to find an option of the same class; without luck the node changes, too.
        for _ in range(4):
            row = first + _below(state, count)
            if kind[row] == cls[node_of[t]]:
                option_of[t] = option[row]
                return
    node_of[t] = n
    option_of[t] = o


@jit
def _empty(game, able, cls, choice, state):
    """Move all tasks of one node to another (or a random part of them)."""
    _, node_of, option_of = choice
    source = node_of[_below(state, node_of.size)]
    _, target = _pick(able, game[2][_below(state, node_of.size)], node_of, cls, state)
    share = 1.0 if _draw(state) < 0.5 else _draw(state)
    first, count, option, kind = able[0], able[1], able[2], able[3]
    for t in range(node_of.size):
        if node_of[t] != source or _draw(state) > share:
            continue
        shape = game[2][t]
        for r in range(first[shape], first[shape] + count[shape]):
            if kind[r] == cls[target]:
                node_of[t] = target
                option_of[t] = option[r]
                break


@jit
def walk(game, children, tables, able, choice, slots, best, goal, state):
    """Anneal ``choice`` in place; the best within the makespan goes to ``best``. Returns (joules, seconds) of it.

    ``goal`` is (makespan, evaluations, first and last temperature, price of a second too late); the cost is joules
    over those of the start, so a temperature of 0.01 takes a per cent more about once in three tries.
    """
    limit, evaluations, hot, cold, price = goal[0], int(goal[1]), goal[2], goal[3], goal[4]
    order, node_of, option_of = choice
    old_order, old_node, old_option = order.copy(), node_of.copy(), option_of.copy()
    place = np.empty(order.size, np.int64)
    for i in range(order.size):
        place[order[i]] = i
    old_place = place.copy()
    joules, last = evaluate(game, tables, choice, slots)
    # Relative costs: temperatures mean the same for a stream of a kilojoule and one of a gigajoule.
    scale = joules if joules > 0.0 else 1.0
    cost = joules / scale + price * max(0.0, last / limit - 1.0)
    best_j, best_s = math.inf, math.inf
    # Sums of floats: a makespan that is the limit itself is in time.
    if last - limit <= limit * 1e-9:
        best_j, best_s = joules, last
        best[0][:], best[1][:], best[2][:] = order, node_of, option_of
    cls = tables[4]
    cooling = math.log(cold / hot) / max(1, evaluations)
    for turn in range(evaluations):
        # Three in ten moves change the order, one in 25 empties a node, the others change one task.
        drawn = _draw(state)
        if drawn < 0.3:
            _move_order(game, children, choice, place, state)
        elif drawn < 0.96:
            _change(game, able, cls, choice, state)
        else:
            _empty(game, able, cls, choice, state)
        joules, last = evaluate(game, tables, choice, slots)
        tried = joules / scale + price * max(0.0, last / limit - 1.0)
        # Metropolis: always when better, else with the chance that the
        # temperature gives. It falls geometrically from hot to cold.
        if tried <= cost or _draw(state) < math.exp((cost - tried) / (hot * math.exp(cooling * turn))):
            cost = tried
            old_order[:], old_node[:], old_option[:], old_place[:] = order, node_of, option_of, place
            if joules < best_j and last - limit <= limit * 1e-9:
                best_j, best_s = joules, last
                best[0][:], best[1][:], best[2][:] = order, node_of, option_of
        else:
            # Taken back whole: a move may have changed many tasks.
            order[:], node_of[:], option_of[:], place[:] = old_order, old_node, old_option, old_place
    return best_j, best_s
