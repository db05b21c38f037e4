"""Three frames once more, in plain Python and without shared code: centralised, delegated, and hashing with stealing.

Tasks need one core each; delays are constants. Written from docs/frames.md, which describes the order of events, the
stream of random numbers and the hash ring.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

MASK = (1 << 64) - 1
STEP, LOW, HIGH = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FINISH, ARRIVAL, MESSAGE, TIMER = 0, 2, 3, 4


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * LOW) & MASK
    x = ((x ^ (x >> 27)) * HIGH) & MASK
    return x ^ (x >> 31)


def hashed(a: int, b: int) -> int:
    return mix(mix((a * STEP + LOW) & MASK) ^ ((b * HIGH + STEP) & MASK))


@dataclass
class Design:
    """What the reference knows of a frame."""

    kind: str  # "centralised", "delegated" or "hash"
    placers: int = 1
    decision_s: float = 0.0
    broker_s: float = 0.0
    latency_s: float = 0.0
    steal: int = 0
    retry_s: float = 0.5
    points: int = 100


@dataclass
class Host:
    cores: int
    running: int = 0
    coming: int = 0
    queue: deque[int] = field(default_factory=deque)
    stealing: bool = False

    def load(self) -> float:
        return (self.running + self.coming + len(self.queue)) / self.cores

    def is_idle(self) -> bool:
        return not self.queue and self.running + self.coming < self.cores


class Reference:
    """One run; `starts`, `ends` and `hosts` of all tasks when it is over."""

    def __init__(self, design: Design, cores: list[int], tasks: list[tuple[float, float, int]], seed: int = 0) -> None:
        self.design, self.tasks = design, tasks
        self.hosts = [Host(count) for count in cores]
        self.events: list[tuple[float, int, int, str, int, int]] = []
        self.soon: deque[tuple[str, int, int]] = deque()
        self.now, self.count, self.order, self.turn, self.free_at = 0.0, 0, 0, 0, 0.0
        self.stream = hashed(seed, 0)
        self.queues: list[deque[int]] = [deque() for _ in range(design.placers)]
        self.busy = [False] * design.placers
        self.dirty = [False] * design.placers
        self.placed: dict[int, int] = {}
        self.start: dict[int, float] = {}
        self.end: dict[int, float] = {}
        ring = [(hashed(h + 7, h * design.points + k), h) for h in range(len(cores)) for k in range(design.points)]
        self.ring = sorted(ring)

    def run(self) -> Reference:
        arrivals = deque(sorted(range(len(self.tasks)), key=lambda t: (self.tasks[t][0], t)))
        self.now = self.tasks[arrivals[0]][0]
        if self.design.steal:
            for h, host in enumerate(self.hosts):
                host.stealing = True
                self.at(self.design.retry_s, TIMER, "steal again", h)
        while len(self.end) < len(self.tasks):
            if self.soon:
                what, who, other = self.soon.popleft()
                self.handle(what, who, other)
                continue
            event = self.events[0][0] if self.events else float("inf")
            arrival = self.tasks[arrivals[0]][0] if arrivals else float("inf")
            if min(event, arrival) > self.now:
                self.end_of_instant()
                if self.soon or (self.events and self.events[0][0] <= self.now):
                    continue
                event = self.events[0][0] if self.events else float("inf")
                self.now = min(event, arrival)
            if event <= self.now and (arrival > self.now or self.events[0][1] < ARRIVAL):
                _, _, _, what, who, other = heapq.heappop(self.events)
                self.handle(what, who, other)
            else:
                self.submit(arrivals.popleft())
        return self

    def at(self, delay: float, order: int, what: str, who: int, other: int = 0) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, order, self.count, what, who, other))

    def send(self, delay: float, what: str, who: int, other: int = 0) -> None:
        if delay > 0:
            self.at(delay, MESSAGE, what, who, other)
        else:
            self.soon.append((what, who, other))

    def below(self, n: int) -> int:
        self.stream = (self.stream + STEP) & MASK
        return ((mix(self.stream) >> 32) * n) >> 32

    def handle(self, what: str, who: int, other: int) -> None:
        getattr(self, what.replace(" ", "_"))(who, other)

    def submit(self, t: int) -> None:
        latency = self.design.latency_s
        if self.design.kind == "delegated":
            self.send(latency, "at broker", t)
        else:
            self.send(latency, "at placer", self.route(t), t)

    def route(self, t: int) -> int:
        return 0 if self.design.placers == 1 else hashed(t, 17) % self.design.placers

    def at_broker(self, t: int, _: int) -> None:
        delay = 0.0
        if self.design.broker_s > 0:
            self.free_at = max(self.now, self.free_at) + self.design.broker_s
            delay = self.free_at - self.now
        self.send(delay, "broker done", t)

    def broker_done(self, t: int, _: int) -> None:
        self.turn += 1
        self.send(self.design.latency_s, "at placer", self.turn % self.design.placers, t)

    def at_placer(self, p: int, t: int) -> None:
        self.queues[p].append(t)
        if self.design.kind == "centralised":
            self.dirty[p] = True
        else:
            self.soon.append(("work", p, 0))

    def work(self, p: int, _: int) -> None:
        while self.queues[p] and not self.busy[p]:
            if self.design.decision_s > 0:
                self.busy[p] = True
                self.at(self.design.decision_s, MESSAGE, "decided", p)
                return
            self.place(p)

    def decided(self, p: int, _: int) -> None:
        self.busy[p] = False
        if self.design.kind == "centralised":
            self.dirty[p] = self.place_late(p, 1) or self.dirty[p]
        elif self.queues[p]:
            self.place(p)
            self.soon.append(("work", p, 0))

    def place(self, p: int) -> None:
        t = self.queues[p].popleft()
        h = self.owner(self.tasks[t][2]) if self.design.kind == "hash" else self.lightest(p)
        self.hosts[h].coming += 1
        self.send(self.design.latency_s, "at host", h, t)

    def owner(self, thing: int) -> int:
        point = hashed(thing, 1000003)
        return next((h for at, h in self.ring if at >= point), self.ring[0][1])

    def lightest(self, p: int) -> int:
        count, placers = len(self.hosts), self.design.placers
        edges = [round(k * count / placers) for k in range(placers + 1)]
        return min(range(edges[p], edges[p + 1]), key=lambda h: (self.hosts[h].load(), h))

    def end_of_instant(self) -> None:
        for p in range(self.design.placers):
            if self.design.kind != "centralised" or not self.dirty[p] or self.busy[p]:
                continue
            self.dirty[p] = False
            if not self.queues[p] or all(host.running == host.cores for host in self.hosts):
                continue
            if self.design.decision_s > 0:
                self.busy[p] = True
                self.at(self.design.decision_s, MESSAGE, "decided", p)
            else:
                self.place_late(p, len(self.tasks))

    def place_late(self, p: int, most: int) -> bool:
        placed = 0
        while placed < most and self.queues[p]:
            open_hosts = [h for h, host in enumerate(self.hosts) if host.running < host.cores]
            if not open_hosts:
                break
            h = min(open_hosts, key=lambda h: (self.hosts[h].running / self.hosts[h].cores, h))
            self.begin(self.queues[p].popleft(), h, self.design.latency_s)
            placed += 1
        return placed > 0

    def begin(self, t: int, h: int, delay: float) -> None:
        self.hosts[h].running += 1
        self.placed[t] = h
        self.order += 1
        order = self.order
        if delay > 0:
            heapq.heappush(self.events, (self.now + delay, FINISH, order, "run task", t, order))
        else:
            self.soon.append(("run task", t, order))

    def run_task(self, t: int, order: int) -> None:
        self.start[t] = self.now
        heapq.heappush(self.events, (self.now + self.tasks[t][1], FINISH, order, "finish", t, 0))

    def finish(self, t: int, _: int) -> None:
        self.end[t] = self.now
        h = self.placed[t]
        host = self.hosts[h]
        host.running -= 1
        if host.queue:
            self.soon.append(("next", h, 0))
        self.dirty = [True] * self.design.placers
        if self.design.steal:
            self.soon.append(("steal", h, 0))

    def at_host(self, h: int, t: int) -> None:
        host = self.hosts[h]
        host.coming -= 1
        if not host.queue and host.running < host.cores:
            self.begin(t, h, 0.0)
            return
        host.queue.append(t)
        if host.running < host.cores:
            self.soon.append(("next", h, 0))

    def next(self, h: int, _: int) -> None:
        host = self.hosts[h]
        while host.queue and host.running < host.cores:
            self.begin(host.queue.popleft(), h, 0.0)

    def steal(self, h: int, _: int) -> None:
        if not self.hosts[h].stealing and self.hosts[h].is_idle():
            self.hosts[h].stealing = True
            self.send(self.design.latency_s, "ask", h)

    def steal_again(self, h: int, _: int) -> None:
        self.hosts[h].stealing = False
        self.steal(h, 0)

    def ask(self, h: int, _: int) -> None:
        thief, found = self.hosts[h], True
        while found and thief.is_idle():
            victim = self.victim(h)
            found = victim is not None
            if victim is not None:
                thief.coming += 1
                self.send(self.design.latency_s, "at host", h, victim.queue.popleft())
        if found:
            thief.stealing = False
        else:
            self.at(self.design.retry_s, TIMER, "steal again", h)

    def victim(self, h: int) -> Host | None:
        if not any(host.queue for host in self.hosts) or len(self.hosts) < 2:
            return None
        best: Host | None = None
        for _ in range(self.design.steal):
            v = self.below(len(self.hosts) - 1)
            other = self.hosts[v + (v >= h)]
            if len(other.queue) > (len(best.queue) if best else 0):
                best = other
        return best
