"""Two peers on SimPy, callbacks only (no generator processes): as most people write it, and as fast as it can be.

Same rule as ours: first in, first out, strict queue, least loaded node, lowest index on ties; records; energy by P(k).
"""

from __future__ import annotations

import time
from collections import deque

import simpy

from wattflow.model.workload import Workload


class PlainPeer:
    """64 nodes × 4 slots; loads are a list, and `min` looks for the least."""

    def __init__(self, workload: Workload, nodes: int, watts: list[float]) -> None:
        self.env = simpy.Environment()
        self.runtime = workload.runtime_s.tolist()
        self.release = workload.release_s.tolist()
        self.watts, self.slots = watts, len(watts) - 1
        self.load, self.since, self.joules = [0] * nodes, [0.0] * nodes, [0.0] * nodes
        self.queue: deque[int] = deque()
        count = len(self.runtime)
        self.start, self.end, self.node = [0.0] * count, [0.0] * count, [0] * count
        start, child, _ = workload.children()
        self.pending = [int(n) for n in workload.parent_start[1:] - workload.parent_start[:-1]]
        self.children = (start.tolist(), child.tolist())
        self.has_edges = workload.edge_count > 0

    def run(self) -> float:
        """Seconds of wall time."""
        began = time.perf_counter()
        if self.has_edges:
            self.queue.extend(t for t, n in enumerate(self.pending) if n == 0)
            self._place()
        else:
            self._await_arrival(0)
        self.env.run()
        return time.perf_counter() - began

    def _await_arrival(self, task: int) -> None:
        event = simpy.Timeout(self.env, self.release[task] - self.env.now, task)
        event.callbacks.append(self._arrived)

    def _arrived(self, event: simpy.Event) -> None:
        task = event.value
        self.queue.append(task)
        if task + 1 < len(self.release):
            self._await_arrival(task + 1)
        self._place()

    def _move(self, node: int, load: int, to: int) -> None:
        """Account for the time since the last change, and change the load."""
        now = self.env.now
        self.joules[node] += self.watts[load] * (now - self.since[node])
        self.since[node] = now
        self.load[node] = to

    def _place(self) -> None:
        load, env = self.load, self.env
        while self.queue:
            least = min(load)
            if least == self.slots:
                return
            node = load.index(least)
            self._move(node, least, least + 1)
            task = self.queue.popleft()
            self.start[task], self.node[task] = env.now, node
            simpy.Timeout(env, self.runtime[task], task).callbacks.append(self._finished)

    def _finished(self, event: simpy.Event) -> None:
        task = event.value
        node = self.node[task]
        load = self.load[node]
        self._move(node, load, load - 1)
        self.end[task] = self.env.now
        if self.has_edges:
            start, child = self.children
            for at in range(start[task], start[task + 1]):
                next_task = child[at]
                self.pending[next_task] -= 1
                if self.pending[next_task] == 0:
                    self.queue.append(next_task)
        self._place()


class MaskPeer(PlainPeer):
    """Nodes of equal load are the set bits of one integer, so the lowest index is one operation; few calls."""

    def __init__(self, workload: Workload, nodes: int, watts: list[float]) -> None:
        super().__init__(workload, nodes, watts)
        self.levels = [(1 << nodes) - 1, *([0] * self.slots)]

    def _move(self, node: int, load: int, to: int) -> None:
        now = self.env.now
        self.joules[node] += self.watts[load] * (now - self.since[node])
        self.since[node] = now
        self.load[node] = to
        bit = 1 << node
        self.levels[load] ^= bit
        self.levels[to] |= bit

    def _place(self) -> None:
        levels = self.levels
        while self.queue:
            for load in range(self.slots):
                if levels[load]:
                    break
            else:
                return
            bit = levels[load] & -levels[load]
            node = bit.bit_length() - 1
            levels[load] ^= bit
            levels[load + 1] |= bit
            now = self.env.now
            self.joules[node] += self.watts[load] * (now - self.since[node])
            self.since[node] = now
            self.load[node] = load + 1
            task = self.queue.popleft()
            self.start[task], self.node[task] = now, node
            simpy.Timeout(self.env, self.runtime[task], task).callbacks.append(self._finished)
