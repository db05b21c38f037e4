"""What the shield costs a live engine, and how soon it answers a doubled load (`make bench-promise PROMISE=--live`).

    python benchmarks/promise_live.py [--seeds 5] [--pace 60] [--out FOLDER]

A live engine under `wattflow:shield=kubernetes` serves fork-joins on twelve equal nodes whose load doubles half-way,
then single pods, three in a second, on a clock that goes ``pace`` times as fast as a real one (a twentieth of that for
pods); rehearsal and shield have their own process, as on a server. A twin without them is told the same events and put
the same choices, so both decide alike, step by step; the first and the second to step take turns. A *decision* lasts
from when its events are due until its placements can be read: what the shield still does after the one before, where
that is not over, taking the events, and the step. What the shield does afterwards is no part of it, as on a server,
unless the next event comes before it is done; the step alone is shown beside it. Both are seconds of processor of the
thread that decides, for by the wall the slowest hundredth is what others on the machine did. *CPU* is what the other
process took and what this one did for it, over seconds of the played clock, where it is most. *Answered* are the
arrivals from the doubling on until what a race at the new load says is in use, the worst of all seeds. A faster clock
makes each of the three worse. Figures are left in OUT/other.json for `promise.py`.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from promise import OTHER, OURS, line

from wattflow.generate import Recipe
from wattflow.live import Act, Engine, Kind, Power
from wattflow.live.shielding import Shielding
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload

KINDS = 8
"""Workflows of an application that a stream draws from."""
ERROR = 0.2
"""σ of the logarithm of an estimate over the truth."""
WAKE_S = 60.0
SEED = 5000


@dataclass(frozen=True, slots=True)
class Ground:
    """Workflows of an application; their load doubles after ``before`` of them."""

    application: str
    load: float
    before: int
    after: int
    slower: float = 1.0


FLOWS = Ground("fork-join:tasks=24,mean=90s", 0.25, 40, 40)
PODS = Ground("bag:tasks=1,mean=60s", 0.5, 600, 0, slower=20.0)


def cluster() -> Cluster:
    """Twelve equal servers of 32 cores, without a second thread, so that what runs here takes what was drawn."""
    power = PowerProfile((0.0, 32.0), (120.0, 400.0))
    sleep = Sleep(5.0, WAKE_S)
    return Cluster("live", tuple(Node(f"n{i}", 32, 1 << 38, power=power, sleep=sleep) for i in range(12)))


@dataclass(slots=True)
class Served:
    """An engine, and what it took; seconds since the stream began.

    Attributes:
        step_s, decided_s: Of each step, and from when its events were due.
        told_s: Taking the events since the last step.
        free_s: When it could begin with what comes next.
        aside_s: What the shield took beside its decisions.
    """

    engine: Engine
    step_s: list[float] = field(default_factory=list)
    decided_s: list[float] = field(default_factory=list)
    told_s: float = 0.0
    free_s: float = 0.0
    aside_s: float = 0.0

    def tell(self, call: str, *arguments: Any, **fields: Any) -> Any:
        """Make a call."""
        took_s, found = _timed(lambda: getattr(self.engine, call)(*arguments, **fields))
        self.told_s += took_s
        return found

    def step(self, now_s: float, due_s: float, shield: Shielding | None = None) -> Any:
        """Decide what was due then; the shield notes the step within it."""

        def made() -> Any:
            step = self.engine.step(now_s)
            if shield is not None:
                shield.note(self.engine, now_s, step)
            return step

        took_s, found = _timed(made)
        self.step_s.append(took_s)
        self.free_s = max(due_s, self.free_s) + self.told_s + took_s
        self.decided_s.append(self.free_s - due_s)
        self.told_s = 0.0
        return found

    def spend(self, work: Callable[[], Any]) -> Any:
        """Do something for the shield when decisions have been handed out."""
        took_s, found = _timed(work)
        self.free_s += took_s
        self.aside_s += took_s
        return found


@dataclass(slots=True)
class Twins:
    """Two engines that are told the same; the first is shielded.

    Attributes:
        answered: Arrivals at the first answer that rests on a race after ``since`` of them.
    """

    shield: Shielding
    ours: Served
    twin: Served
    answered: dict[int, int] = field(default_factory=dict)

    def tell(self, call: str, *arguments: Any, **fields: Any) -> Any:
        """Make a call of both, which answer alike."""
        first, second = (one.tell(call, *arguments, **fields) for one in self._in_turns())
        assert first == second, (call, first, second)
        return first

    def _in_turns(self) -> tuple[Served, Served]:
        """Who goes first finds the processor's caches cold."""
        return (self.ours, self.twin) if len(self.ours.step_s) % 2 else (self.twin, self.ours)

    def step(self, now_s: float, due_s: float) -> Any:
        """Let both decide, in turns."""
        steps = {id(one): one.step(now_s, due_s, self._seen_by(one)) for one in self._in_turns()}
        return steps[id(self.ours)]

    def _seen_by(self, one: Served) -> Shielding | None:
        return self.shield if one is self.ours else None

    def look(self, now_s: float, arrived: int) -> None:
        """Let the shield look when decisions have been handed out; what it chooses is put into both."""
        ours = self.ours
        chosen = ours.spend(lambda: self.shield.consider(ours.engine, now_s))
        if chosen is not None:
            ours.spend(lambda: ours.engine.use(chosen))
            self.twin.engine.use(chosen)
        if self.shield.news() is not None:
            self.answered.setdefault(int(self.shield.remembered.summary["raced"]), arrived)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    # Seconds of this thread's processor: by the wall, the slowest hundredth is what others on the machine did.
    began = time.thread_time()
    found = work()
    return time.thread_time() - began, found


@dataclass(frozen=True, slots=True)
class Played:
    """One seed: seconds of decisions and of steps alone, with and without; share of a core; arrivals until the doubled
    load is answered, and until the race was asked for that answers it."""

    with_s: list[float]
    without_s: list[float]
    cpu: float
    answered: float
    steps_s: tuple[list[float], list[float]] = ([], [])
    asked: float = math.inf


class Player:
    """A driver that plays machines: tasks take their true runtimes, nodes sleep and wake in their time."""

    def __init__(self, seed: int, pace: float, ground: Ground = FLOWS) -> None:
        self._pace, self._ground = pace / ground.slower, ground
        self._rng = np.random.default_rng([seed, 0x11FE])
        self._parts = [Recipe.parse(ground.application).draw(SEED + number) for number in range(KINDS)]
        self._twins = Twins(Shielding(OURS), Served(Engine(OURS, cluster())), Served(Engine(OURS, cluster())))
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._on_s: dict[int, float] = {}
        self._runtime_s: dict[int, float] = {}
        self._count = self.arrived = 0

    def play(self) -> Played:
        """Play the stream to its last end."""
        work_s = float(np.mean([part.runtime_s.sum() for part in self._parts]))
        ground, twins = self._ground, self._twins
        gap_s, at_s = work_s / (ground.load * sum(node.cores for node in cluster().nodes)), 0.0
        for number in range(ground.before + ground.after):
            self._at(at_s, self._arrive)
            at_s += float(self._rng.exponential(gap_s if number < ground.before else gap_s / 2.0))
        began, now_s, beside_s = time.monotonic(), 0.0, time.process_time() - time.thread_time()
        while self.arrived < ground.before + ground.after or twins.ours.engine.counts["open"]:
            now_s = self._due[0][0]
            time.sleep(max(0.0, began + now_s / self._pace - time.monotonic()))
            while self._due and self._due[0][0] <= now_s:
                heapq.heappop(self._due)[2](now_s)
            self._step(now_s)
            if not self._due or self._due[0][0] > now_s:  # as a driver does, when nothing is there to be decided
                twins.look(now_s, self.arrived)
        twins.shield.close()
        # Other threads of this process hand over what is told and take what is answered.
        more_s = twins.ours.aside_s + time.process_time() - time.thread_time() - beside_s
        more_s += sum(twins.ours.step_s) - sum(twins.twin.step_s)
        # Races are held by arrivals: the first that was held after the doubling, and how many had come when it counted.
        after = ((at, arrived) for at, arrived in sorted(twins.answered.items()) if at > ground.before)
        asked, answered = (count - ground.before for count in next(after, (math.inf, math.inf)))
        cpu = (twins.shield.remembered.processor_s + more_s) / now_s
        steps = twins.ours.step_s, twins.twin.step_s
        return Played(twins.ours.decided_s, twins.twin.decided_s, cpu, answered, steps, asked)

    def _at(self, at_s: float, what: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (at_s, self._count, what))

    def _arrive(self, now_s: float) -> None:
        part: Workload = self._parts[int(self._rng.integers(len(self._parts)))]
        tell = self._twins.tell
        # A workflow counts from the last step before it.
        self._twins.step(now_s, now_s / self._pace)
        flow, shape = tell("workflow"), tell("shape", (Variant(cores=1.0),))
        tasks = []
        for runtime_s in part.runtime_s.tolist():
            estimate_s = runtime_s * math.exp(float(self._rng.normal(0.0, ERROR)))
            tasks.append(tell("put", Kind.TASK, shape, workflow=flow, estimate_s=estimate_s))
            self._runtime_s[tasks[-1]] = runtime_s
        for child, task in enumerate(tasks):
            for parent in part.parents_of(child).tolist():
                tell("put", Kind.EDGE, tasks[parent], task)
        tell("put", Kind.SEAL, flow)
        self.arrived += 1

    def _step(self, now_s: float) -> None:
        step = self._twins.step(now_s, now_s / self._pace)
        for action in step.actions:
            wakes, node = action.kind == Act.WAKE, action.who
            if action.kind in (Act.WAKE, Act.SLEEP):
                self._on_s[node] = now_s + WAKE_S if wakes else math.inf
                state = Power.ON if wakes else Power.ASLEEP
                self._at(now_s + (WAKE_S if wakes else 5.0), self._told(Kind.NODE, node, state=state))
        for placement in step.placements:
            begin_s = max(now_s, self._on_s.get(placement.node, 0.0))
            self._at(begin_s, self._told(Kind.STARTED, placement.attempt))
            self._at(begin_s + self._runtime_s[placement.task], self._told(Kind.FINISHED, placement.attempt))
        if math.isfinite(step.wake_at):
            self._at(max(now_s, step.wake_at), lambda _: None)

    def _told(self, kind: Kind, who: int, **fields: Any) -> Callable[[float], None]:
        return lambda _: self._twins.tell("put", kind, who, **fields)


def p99_of_steps(runs: list[Played]) -> float:
    """The 99th percentile of steps alone, with over without."""
    ours, twin = (np.concatenate([run.steps_s[which] for run in runs]) for which in range(2))
    return float(np.quantile(ours, 0.99) / np.quantile(twin, 0.99))


def figures(runs: list[Played]) -> dict[str, float]:
    """The figures that `promise.OTHER` names."""
    ours, twin = (np.concatenate([getattr(run, name) for run in runs]) for name in ("with_s", "without_s"))
    return {
        "live_cpu_of_a_core": 100.0 * max(run.cpu for run in runs),
        "live_p99_of_a_decision": float(np.quantile(ours, 0.99) / np.quantile(twin, 0.99)),
        "live_doubled_load_answered": max(run.answered for run in runs),
    }


def measure(out: Path, seeds: int = 5, pace: float = 60.0) -> None:
    """Play all seeds, print the figures, and leave them in OUT/other.json."""
    Player(0, 1e9).play()  # compiles
    gc.collect()
    gc.disable()  # the collector's pauses fall on either engine by chance
    runs = []
    for seed in range(seeds):
        runs.append(Player(seed, pace).play())
        one = figures(runs[-1:])
        told = ", ".join(f"{name} {value:.3g}" for name, value in one.items())
        told += f", p99 of a step alone {p99_of_steps(runs[-1:]):.3g}, the race asked for after {runs[-1].asked:g}"
        print(f"seed {seed}: {len(runs[-1].with_s)} steps, {told}", flush=True)
        gc.collect()
    found = figures(runs)
    busy = Player(0, pace, PODS).play()
    shown = figures([busy])
    print(f"pods: {len(busy.with_s)} steps, {', '.join(f'{name} {value:.3g}' for name, value in shown.items())}")
    print(f"p99 of a step alone: {p99_of_steps(runs):.3f}; pods {p99_of_steps([busy]):.3f}")
    for name in ("live_cpu_of_a_core", "live_p99_of_a_decision"):
        found[name] = max(found[name], shown[name])
    path = out / "other.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(known | found), encoding="utf-8")
    print("\n".join(line(name, value, *OTHER[name]) for name, value in found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pace", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("out/promise"))
    given = parser.parse_args()
    measure(given.out, given.seeds, given.pace)


if __name__ == "__main__":
    main()
