"""ExDe's three designs once more, in plain Python and without shared code: central, delegated, rendezvous hashing.

A task is an object with a mark "taken"; queues are lists in which taken tasks stay until somebody looks. Written from
docs/frames.md, which describes the order of events, the stream of random numbers and rendezvous hashing.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field

from reference_frames.simulator import MASK, STEP, hashed, mix


@dataclass
class Plan:
    """What the reference knows of a design."""

    kind: str  # "owner" or "hash"
    placers: int = 1
    both: bool = False
    slots: int = 0
    forget_s: float = 0.0
    cache: int = 2
    values_s: tuple[float, ...] = (0.5, 2.0)
    weights: tuple[float, ...] = (3.0, 1.0)


@dataclass
class Task:
    number: int
    release: float
    runtime: float
    thing: int
    taken: bool = False
    known: bool = False
    host: int = -1
    start: float = -1.0
    end: float = -1.0


@dataclass
class Host:
    cores: int
    busy: int = 0
    waits_at: int | None = None  # a placer, or −1 for its own queue only
    waits_since: int = 0
    queue: list[Task] = field(default_factory=list)
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)


def waiting(queue: list[Task]) -> list[Task]:
    return [task for task in queue if not task.taken]


class ExDe:
    """One run; every task has its host, start and end when it is over."""

    def __init__(self, plan: Plan, cores: list[int], tasks: list[tuple[float, float, int]], seed: int) -> None:
        self.plan = plan
        self.hosts = [Host(count) for count in cores]
        self.tasks = [Task(k, *row) for k, row in enumerate(tasks)]
        self.shared: list[list[Task]] = [[] for _ in range(plan.placers)]
        self.owners: dict[int, tuple[int, float]] = {}
        self.stream, self.now, self.turn, self.order = hashed(seed, 0), 0.0, 0, 0
        self.stolen = self.misses = 0
        self.events: list[tuple[float, int, str, Task]] = []
        self.starts: list[tuple[int, Task]] = []

    def run(self) -> ExDe:
        arrivals = sorted(self.tasks, key=lambda task: (task.release, task.number))
        self.now = arrivals[0].release
        for h in range(len(self.hosts)):
            self.look(h)
        while not all(task.end >= 0.0 for task in self.tasks):
            if not arrivals and not self.events:
                self.rescue()
            elif self.events and (not arrivals or self.events[0][0] <= arrivals[0].release):
                self.now, order, what, task = heapq.heappop(self.events)
                if what == "fetched":
                    self.compute(task, order)
                else:
                    self.finish(task)
            else:
                task = arrivals.pop(0)
                self.now = task.release
                self.arrive(task)
            for order, started in self.starts:
                self.begin(started, order)
            self.starts = []
        return self

    def bits(self) -> int:
        self.stream = (self.stream + STEP) & MASK
        return mix(self.stream)

    def below(self, n: int) -> int:
        return ((self.bits() >> 32) * n) >> 32

    def two(self, n: int, wanted: int) -> list[int]:
        """One or two different whole numbers below n."""
        first = self.below(n)
        if wanted < 2 or n < 2:
            return [first]
        second = self.below(n - 1)
        return [first, second + (second >= first)]

    def arrive(self, task: Task) -> None:
        if self.plan.kind == "hash":
            home = max(range(len(self.hosts)), key=lambda h: hashed(task.thing, h + 1))
            self.hosts[home].queue.append(task)
            if self.hosts[home].waits_at is not None:
                self.look(home)
            return
        p = task.thing % self.plan.placers
        owner = self.owners.get(task.thing)
        if owner is not None and self.plan.forget_s and self.now - owner[1] > self.plan.forget_s:
            del self.owners[task.thing]
            owner = None
        if owner is not None:
            self.hosts[owner[0]].queue.append(task)
        if owner is None or self.plan.both:
            self.shared[p].append(task)
        if owner is not None and self.hosts[owner[0]].waits_at is not None:
            self.look(owner[0])
        elif owner is None or self.plan.both:
            self.serve(p)

    def rescue(self) -> None:
        for p in range(self.plan.placers):
            while waiting(self.shared[p]) and any(host.waits_at is not None for host in self.hosts):
                self.serve(p, anywhere=True)

    def serve(self, p: int, anywhere: bool = False) -> None:
        there = [h for h, host in enumerate(self.hosts) if host.waits_at == p]
        if anywhere:
            there = [h for h, host in enumerate(self.hosts) if host.waits_at is not None]
        if there:
            h = min(there, key=lambda h: self.hosts[h].waits_since)
            self.take_shared(p, h)
            self.look(h)

    def take_shared(self, p: int, h: int) -> None:
        task = waiting(self.shared[p])[0]
        owner = self.owners.setdefault(task.thing, (h, self.now))
        self.stolen += owner[0] != h
        self.take(task, h)

    def take(self, task: Task, h: int) -> None:
        self.order += 1
        task.taken, task.host = True, h
        self.hosts[h].busy += 1
        self.starts.append((self.order, task))

    def look(self, h: int) -> None:
        host = self.hosts[h]
        host.waits_at = None
        while host.busy < host.cores:
            own = waiting(host.queue)
            if own:
                self.take(own[0], h)
                continue
            longer = self.longer_host(h)
            if longer is not None:
                self.stolen += 1
                self.take(waiting(self.hosts[longer].queue)[0], h)
                continue
            p = -1
            if self.plan.kind == "owner":
                p = self.placer()
                if waiting(self.shared[p]):
                    self.take_shared(p, h)
                    continue
            self.turn += 1
            host.waits_at, host.waits_since = p, self.turn
            return

    def placer(self) -> int:
        if self.plan.placers == 1:
            return 0
        return max(self.two(self.plan.placers, 2), key=lambda p: len(waiting(self.shared[p])))

    def longer_host(self, h: int) -> int | None:
        others = [k for k in range(len(self.hosts)) if k != h]
        if not self.plan.slots or not others or not any(waiting(host.queue) for host in self.hosts):
            return None
        seen = [others[k] for k in self.two(len(others), self.plan.slots)]
        best = max(seen, key=lambda k: len(waiting(self.hosts[k].queue)))
        return best if waiting(self.hosts[best].queue) else None

    def begin(self, task: Task, order: int) -> None:
        cache = self.hosts[task.host].cache
        if task.thing in cache:
            cache.move_to_end(task.thing)
            self.compute(task, order)
            return
        self.misses += 1
        cache[task.thing] = None
        if len(cache) > self.plan.cache:
            cache.popitem(last=False)
        u = ((self.bits() >> 11) + 0.5) / 2.0**53
        sums = [sum(self.plan.weights[: k + 1]) / sum(self.plan.weights) for k in range(len(self.plan.weights))]
        at = next((k for k, until in enumerate(sums) if u < until), len(sums) - 1)
        heapq.heappush(self.events, (self.now + self.plan.values_s[at], order, "fetched", task))

    def compute(self, task: Task, order: int) -> None:
        task.start = self.now
        heapq.heappush(self.events, (self.now + task.runtime, order, "finished", task))

    def finish(self, task: Task) -> None:
        task.end = self.now
        self.hosts[task.host].busy -= 1
        if self.hosts[task.host].waits_at is None:
            self.look(task.host)
