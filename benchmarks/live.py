"""The figures of the live engine (`make bench-live`): processor time of the calling thread, wall time beside it.

5,000 nodes at a load of 0.7. *Grouped* nodes differ by what the engine placed alone (12 shapes); *all different* ones
also carry others' load, each another (200 shapes). A batch of b is b arrivals and b ends in one step. What a driver
does around a step (`put`, reading placements) is part of a step's figures only where said. `--quick` is smaller.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time

import live_fence
import numpy as np
import sim_before
from live_figures import LINES, at_least, at_most

from wattflow.live import FINISHED, LOAD, TASK, Constraint, Engine, Match, Placement
from wattflow.live.protocol import Apart, Spread
from wattflow.model.cluster import Cluster, Node, Series, Zone
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import registry

GIB = 1 << 30
CORES, MEMORY = 32, 128 * GIB
KINDS = [PowerProfile((0.0, 8.0, 32.0), (60.0 + k, 110.0 + 2 * k, 190.0 + 3 * k)) for k in range(20)]


class Load:
    """An engine filled to a share of its cores, and batches of arrivals and ends."""

    def __init__(self, policy: str, nodes: int, different: bool, seed: int = 1, **options: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.engine = Engine(policy, **options)
        self.now = 1.0
        self.ids = [
            self.engine.node(Node(f"n{i}", CORES, MEMORY, power=KINDS[i % 20]), labels={"pool": str(i % 10)})
            for i in range(nodes)
        ]
        self.variants = self.shapes_of(different)
        self.shapes = [self.engine.shape([variant]) for variant in self.variants]
        self.running: list[int] = []
        if different:
            for node in self.ids:
                cores, memory = int(self.rng.integers(1, 2000)) / 1000, int(self.rng.integers(1, 4096)) << 20
                self.engine.put(LOAD, node, cores=cores, memory_bytes=memory)
        self.engine.step(0.5)

    def shapes_of(self, different: bool) -> list[Variant]:
        if not different:
            return [Variant(cores=float(c), memory_bytes=m * GIB) for c in (1, 2, 3, 4) for m in (1, 2, 4)]
        cores, memory = self.rng.integers(1, 41, 200) * 100, self.rng.integers(1, 129, 200) * 64
        return [Variant(cores=int(c) / 1000, memory_bytes=int(m) << 20) for c, m in zip(cores, memory, strict=True)]

    def arrive(self, count: int) -> None:
        for shape in self.rng.integers(0, len(self.shapes), count).tolist():
            self.engine.put(TASK, self.shapes[shape], estimate_s=float(self.rng.lognormal(3, 1)))

    def finish(self, count: int) -> None:
        for _ in range(min(count, len(self.running))):
            at = int(self.rng.integers(0, len(self.running)))
            self.running[at], self.running[-1] = self.running[-1], self.running[at]
            self.engine.put(FINISHED, self.running.pop())

    def note(self, placements: object) -> int:
        found: list[Placement] = list(placements)  # type: ignore[call-overload]
        self.running += [placement.attempt for placement in found]
        return len(found)

    def fill(self, share: float) -> None:
        state = self.engine.state
        while float(state.nodes.used_u.sum()) < share * float(state.nodes.capacity_u.sum()):
            self.arrive(1000)
            self.now += 0.01
            self.note(self.engine.step(self.now).placements)

    def batches(self, size: int, steps: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Processor and wall seconds of each step, and placements in all."""
        cpu, wall, placed = np.zeros(steps), np.zeros(steps), 0
        gc.disable()
        for k in range(steps):
            self.arrive(size)
            self.finish(size)
            self.now += 0.001
            began, clock = time.thread_time_ns(), time.perf_counter()
            step = self.engine.step(self.now)
            cpu[k], wall[k] = (time.thread_time_ns() - began) / 1e9, time.perf_counter() - clock
            placed += self.note(step.placements)
        gc.enable()
        return cpu, wall, placed


def empty_step(nodes: int) -> None:
    engine = Load("least-energy", nodes, False).engine
    taken = np.zeros(4000)
    for k in range(len(taken)):
        began = time.thread_time_ns()
        engine.step(2.0)
        taken[k] = (time.thread_time_ns() - began) / 1e3
    at_most("empty_step", float(np.median(taken)), "µs", 5)


def grouped(nodes: int, scale: float) -> None:
    load = Load("least-energy", nodes, False)
    load.fill(0.7)
    for size, steps, goal in ((1, 3000, 45), (10, 1000, 200), (100, 300, 1300)):
        cpu, wall, _ = load.batches(size, max(50, int(steps * scale)))
        print(f"  wall p50 {np.median(wall) * 1e6:.0f} p99 {np.quantile(wall, 0.99) * 1e6:.0f} µs", flush=True)
        at_most(f"grouped_p99_batch_{size}", float(np.quantile(cpu, 0.99)) * 1e6, "µs", goal)


def different(nodes: int, scale: float) -> None:
    load = Load("kubernetes", nodes, True)
    load.fill(0.7)
    base: dict[int, float] = {}
    for size, steps, goal in ((1, 3000, 10_000), (10, 300, 14_000), (100, 40, 14_000)):
        cpu, wall, placed = load.batches(size, max(20, int(steps * scale)))
        base[size] = placed / cpu.sum()
        print(f"  wall {placed / wall.sum():.0f} placements/s", flush=True)
        at_least(f"different_placements_batch_{size}", base[size], "1/s", goal)
    rules = [
        None,
        *(load.engine.constraint(Constraint(any_of=((Match("pool", "not-in", (str(k),)),),))) for k in range(8)),
    ]
    load.shapes = [load.engine.shape([v], constraint=rules[i % len(rules)]) for i, v in enumerate(load.variants)]
    load.batches(10, max(20, int(100 * scale)))
    for size, steps in ((1, 3000), (10, 300), (100, 40)):
        cpu, _, placed = load.batches(size, max(20, int(steps * scale)))
        at_least(f"constrained_ratio_batch_{size}", placed / cpu.sum() / base[size], "ratio", 0.9)
    capped = Load("kubernetes", nodes, True, score_limit=512)
    capped.fill(0.7)
    cpu, _, placed = capped.batches(100, max(20, int(100 * scale)))
    at_least("capped_512_placements", placed / cpu.sum(), "1/s", 80_000)


def waiting_shapes(nodes: int) -> None:
    load = Load("kubernetes", nodes, True)
    load.fill(0.85)
    for i in range(5000):
        load.engine.put(TASK, load.engine.shape([Variant(cores=31 + i * 1e-4, memory_bytes=8 * GIB)]), estimate_s=9.0)
    load.engine.step(load.now)
    taken = np.zeros(300)
    for k in range(300):
        load.finish(1)
        load.now += 0.001
        began = time.thread_time_ns()
        load.engine.step(load.now)
        taken[k] = (time.thread_time_ns() - began) / 1e3
    at_most("finish_while_5000_shapes_wait", float(np.median(taken)), "µs", 100)


def held_tasks() -> None:
    """Held by carbon-delay until the clean hours: 10,000 tasks, then ends and arrivals of others."""
    zone = Zone("z", Series(3600.0, (500.0, 500.0, 500.0, 10.0)), carbon_known=True)
    nodes = tuple(Node(f"n{i}", CORES, MEMORY, power=KINDS[0], zone="z") for i in range(50))
    policy = registry.load("carbon-delay")
    engine = Engine(policy, Cluster("held", nodes, (zone,)))
    shape = engine.shape([Variant(cores=1)])
    for _ in range(10_000):
        engine.put(TASK, shape, estimate_s=60.0, deadline_s=1e6)
    step = engine.step(0.0)
    others = engine.shape([Variant(cores=2)])
    taken, running = np.zeros(100), list[int]()
    for k in range(100):
        engine.put(TASK, others, estimate_s=1.0, deadline_s=1.0 + k)  # it is placed at once
        for attempt in running:
            engine.put(FINISHED, attempt)
        began = time.thread_time_ns()
        found = engine.step(1.0 + k)
        taken[k] = (time.thread_time_ns() - began) / 1e6
        running = [placement.attempt for placement in found.placements]
        assert len(running) == 1
    held = 10_000 - len(step.placements)
    print(f"  {held} held, {engine.counts['waiting']} of them in the queue")
    at_most("event_while_10000_held", float(np.median(taken)), "ms", 0.2)


def held_by_a_cap() -> None:
    """Held by power-cap, which names no time that would count: 10,000 tasks above the cap, and more arrive."""
    nodes = tuple(Node(f"n{i}", CORES, MEMORY, power=KINDS[0]) for i in range(50))
    engine = Engine(registry.load("power-cap", share=0.01), Cluster("held", nodes))
    shapes = [engine.shape([Variant(cores=1 + k)]) for k in range(4)]
    for k in range(10_001):
        engine.put(TASK, shapes[k % 4], estimate_s=60.0)
    assert len(engine.step(0.0).placements) == 1  # where nothing runs, one task may exceed the cap
    taken = np.zeros(100)
    for k in range(100):
        engine.put(TASK, shapes[k % 4], estimate_s=60.0)
        began = time.thread_time_ns()
        assert not engine.step(1.0 + k).placements
        taken[k] = (time.thread_time_ns() - began) / 1e6
    at_most("event_while_10000_held_by_a_cap", float(np.median(taken)), "ms", 0.2)


def memory_flat(tasks: int, batch: int) -> None:
    """Tasks through a fixed number of rows: RSS after the first tenth and at the end."""
    engine = Engine("least-loaded")
    for i in range(100):
        engine.node(Node(f"n{i}", 1024, 1 << 40))
    shape = engine.shape([Variant(cores=1)])
    done, now, running, first = 0, 0.0, [], 0
    while done < tasks:
        for _ in range(batch):
            engine.put(TASK, shape)
        for attempt in running:
            engine.put(FINISHED, attempt)
        now += 1.0
        running = [placement.attempt for placement in engine.step(now).placements]
        done += len(running)
        if not first and done > tasks // 10:
            first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) / 1024
    print(f"  {done} tasks through {len(engine.state.tasks)} rows")
    at_most("growth_of_rss", grown, "MB", 5)


def counted_rules(nodes: int, scale: float) -> None:
    """Placements with rules that count tasks, beside the same without: a port per node, spread over ten pools."""
    load = Load("kubernetes", nodes, True)
    load.fill(0.5)
    cpu, _, placed = load.batches(10, max(20, int(200 * scale)))
    base = placed / cpu.sum()
    for name, rule in (
        ("port", Constraint(apart=(Apart("port/tcp/80"),))), ("spread", Constraint(spread=(Spread("app", "pool"),))),
    ):  # fmt: skip
        made = load.engine.constraint(rule)
        groups = ("port/tcp/80",) if name == "port" else ("app",)
        load.shapes = [load.engine.shape([v], constraint=made, groups=groups) for v in load.variants[:40]]
        cpu, _, placed = load.batches(10, max(20, int(100 * scale)))
        at_least(f"{name}_rule_ratio", placed / cpu.sum() / base, "ratio", 0.9)


def new_shape(nodes: int) -> None:
    engine = Engine("kubernetes")
    for i in range(nodes):
        engine.node(Node(f"n{i}", CORES, MEMORY, speed=1.0 + i / 1e5, power=KINDS[i % 20]))
    engine.step(0.0)
    taken = np.zeros(200)
    for k in range(200):
        began = time.thread_time_ns()
        engine.shape([Variant(cores=1 + k / 1000, memory_bytes=GIB)])
        taken[k] = (time.thread_time_ns() - began) / 1e6
    at_most("new_shape_on_different_nodes", float(np.median(taken)), "ms", 0.5)


def simulator(scale: float) -> None:
    """Not slower than before there was a live engine."""
    found = sim_before.differences(scale)
    if not found:
        print("  the history of the repository is not at hand: nothing to compare with")
    for name, percent in (found or dict.fromkeys(("independent", "dag", "5000_nodes", "overload"), -100.0)).items():
        at_least(f"simulator_against_before_{name}", percent, "%", -3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 nodes and fewer steps: to try it, not to publish")
    quick = parser.parse_args().quick
    nodes, scale = (500, 0.1) if quick else (5000, 1.0)
    memory_flat(200_000 if quick else 10_000_000, 10_000 if quick else 60_000)  # first: what others grew is not counted
    empty_step(nodes)
    new_shape(nodes)
    grouped(nodes, scale)
    held_tasks()
    held_by_a_cap()
    waiting_shapes(nodes)
    different(nodes, scale)
    counted_rules(nodes, scale)
    live_fence.figures(3_300 if quick else 33_000)
    simulator(0.2 if quick else 1.0)
    print("\n".join(LINES))


if __name__ == "__main__":
    main()
