"""A recorded simulated run, told to a live engine as events, gives the same placements."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from reference.cases import FEATURES, random_case
from reference.engine_side import POLICIES
from wattflow.live import EDGE, FAILED, FINISHED, NODE, SEAL, STARTED, TASK, Act, Engine, Power
from wattflow.model.cluster import Cluster
from wattflow.model.run import OUTCOMES, Run
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import kernel
from wattflow.sim.simulate import SimOptions, Simulation


class Replay:
    """A driver that tells a live engine what the simulator recorded, and compares what it places."""

    def __init__(self, run: Run, policy: str | Policy, options: SimOptions, seed: int) -> None:
        workload, cluster = run.workload, run.cluster
        self.engine = Engine(policy, cluster, seed=seed, max_retries=options.max_retries)
        self.nodes = [self.engine.nodes[node.name] for node in cluster.nodes]
        self.node_index = {identity: i for i, identity in enumerate(self.nodes)}
        self.cluster, self.workload, self.run = cluster, workload, run
        made = {}
        for i, s in sorted(enumerate(workload.shapes), key=lambda one: one[1].function):  # functions in their order
            made[i] = self.engine.shape(s.variants, workload.functions[s.function], parts=s.parts)
        self.shapes = [made[i] for i in range(len(made))]
        self.events: dict[float, list[tuple[int, int, Any]]] = defaultdict(list)
        self.placed: dict[tuple[int, int, int], tuple[int, float]] = {}
        self.attempt: dict[tuple[int, int, int], int] = {}
        self.sequence: dict[tuple[int, int, int], int] = {}
        self.lives = [0] * len(self.nodes)
        self.ids: dict[int, int] = {}
        for flow, submit_s in enumerate(workload.workflow_submit_s.tolist()):
            self.events[max(submit_s, run.start_s)].append((1, flow, flow))
        for row in run.attempts:
            key = (int(row["task"]), int(row["part"]), int(row["attempt"]))
            outcome = OUTCOMES[int(row["outcome"])]
            if not np.isnan(row["start_s"]):
                self.events[float(row["start_s"])].append((3, 0, key))
            order = {"done": 4, "node_lost": 9}.get(outcome, 5)
            self.events[float(row["end_s"])].append((order, 0, (key, outcome)))
        for node, down_s, up_s in options.outages:
            self.events[down_s].append((8, 0, (node, Power.DOWN)))
            self.events[up_s].append((8, 0, (node, Power.ON)))

    def tell_workflow(self, flow: int) -> None:
        """One workflow with all its edges, when it is submitted; each task is released at its time."""
        workload = self.workload
        made = self.engine.workflow(submit_s=float(workload.workflow_submit_s[flow]))
        members = np.flatnonzero(workload.workflow == flow).tolist()
        for t in members:
            estimate = float(workload.estimate_s[t])
            self.ids[t] = self.engine.put(
                TASK, self.shapes[workload.shape[t]], workflow=made, tag=t,
                estimate_s=None if np.isnan(estimate) else estimate, release_s=float(workload.release_s[t]),
                deadline_s=float(workload.deadline_s[t]), input_bytes=float(workload.input_bytes[t]),
            )  # fmt: skip
        for t in members:
            for e in range(workload.parent_start[t], workload.parent_start[t + 1]):
                self.engine.put(EDGE, self.ids[workload.parent[e]], self.ids[t], size_bytes=workload.parent_bytes[e])
        self.engine.put(SEAL, made)

    def go(self) -> None:
        """Instant by instant to the end."""
        self.events[self.run.start_s]  # nodes idle from the start of the run
        last_s = max(self.events)
        while self.events:
            now = min(self.events)
            if now > last_s and not any(self.events.values()):
                return  # all was told, and only the policy's own looks are left: some look for ever
            self.instant(now, self.events.pop(now))

    def instant(self, now: float, rows: list[tuple[int, int, Any]]) -> None:
        """One instant of the run; what is placed in it may start, and even end, at the same time."""
        later = [row for row in rows if row[0] in (3, 4, 5) and self.key(row) not in self.attempt]
        rows = [row for row in rows if row not in later]
        rows.sort(key=lambda row: (row[0], self.order(row)))
        for order, _, what in rows:
            if order == 1:
                self.tell_workflow(what)
            elif order == 3:
                self.engine.put(STARTED, self.attempt[what])
            elif order == 8:
                node, power = what
                self.lives[node] += 1
                self.engine.put(NODE, self.nodes[node], state=power)
            elif order == 10:
                node, power, life = what
                if self.lives[node] == life:  # else it was lost on its way
                    self.engine.put(NODE, self.nodes[node], state=power)
            elif what[1] == "done":
                self.engine.put(FINISHED, self.attempt[what[0]])
            elif what[1] == "node_lost":
                pass
            else:
                self.engine.put(FAILED, self.attempt[what[0]], retry=what[1] != "time_limit")
        step = self.engine.step(now)
        assert not step.rejected
        for placement in step.placements:
            key = (placement.tag, placement.part, placement.attempt_no)
            self.placed[key] = (self.node_index[placement.node], now)
            self.attempt[key] = placement.attempt
            self.sequence[key] = len(self.sequence)
        for action in step.actions:
            self.act(action.kind, action.who, now)
        if step.wake_at < np.inf:
            self.events[step.wake_at]
        if later:
            assert step.placements or rows, f"{later[0]} was not placed by {now}"
            self.events[now] += later

    def act(self, kind: Act, who: int, now: float) -> None:
        """Nodes sleep and wake as the simulator's do."""
        if kind not in (Act.SLEEP, Act.WAKE):
            return
        index = self.node_index[who]
        sleep = self.cluster.nodes[index].sleep
        assert sleep is not None
        seconds, power = (sleep.enter_s, Power.ASLEEP) if kind == Act.SLEEP else (sleep.wake_s, Power.ON)
        if kind == Act.SLEEP and seconds == 0.0:
            return  # the engine has it asleep at once
        self.events[now + seconds].append((10, 0, (index, power, self.lives[index])))

    def key(self, row: tuple[int, int, Any]) -> tuple[int, int, int]:
        """Task, part and try that a row is about."""
        key: tuple[int, int, int] = row[2] if row[0] == 3 else row[2][0]
        return key

    def order(self, row: tuple[int, int, Any]) -> int:
        """Attempts report in the order in which they were placed."""
        return self.sequence[self.key(row)] if row[0] in (3, 4, 5) else row[1]


def differences(
    workload: Workload, cluster: Cluster, policy: str | Policy, options: SimOptions, seed: int = 3
) -> list[str]:
    """Placements of the live engine that are not the simulator's."""
    simulation = Simulation(workload, cluster, policy, seed=seed, options=options)
    instants = set()
    while simulation.advance(max_events=1) != kernel.DONE:
        instants.add(float(simulation.state.clock.now[0]))
    run = simulation.result()
    replay = Replay(run, policy, options, seed)
    for now in instants:
        replay.events[now]  # the simulator also decides when a stage ends, which no driver reports
    replay.go()
    wrong = []
    for row in run.attempts:
        key = (int(row["task"]), int(row["part"]), int(row["attempt"]))
        expected = (int(row["node"]), float(row["placed_s"]))
        if replay.placed.get(key) != expected:
            wrong.append(f"{key}: {replay.placed.get(key)} instead of {expected}")
    if len(replay.placed) != len(run.attempts):
        wrong.append(f"{len(replay.placed)} placements instead of {len(run.attempts)}")
    return wrong


def case(seed: int, features: set[str], name: str) -> list[str]:
    """Differences in a random case of the reference simulator's kind."""
    workload, cluster, options = random_case(seed, features)
    policy = POLICIES[name].with_settings(
        queue=options.queue, guarantees=options.guarantees, frequencies=options.levels, wakes=options.see_sleeping
    )
    given = SimOptions(
        max_retries=options.max_retries, outages=options.node_failures,
        task_faults=tuple((task, attempt, share) for (task, attempt), share in options.task_failures.items()),
    )  # fmt: skip
    return differences(workload, cluster, policy, given)


# A delay between a decision and its node, and decisions in rounds, are the simulator's own.
LIVE_FEATURES = tuple(f for f in FEATURES if f not in ("message", "rounds"))


@pytest.mark.parametrize("feature", LIVE_FEATURES)
def test_one_feature_beside_a_dag(feature: str) -> None:
    names = tuple(POLICIES)
    for seed in range(8):
        assert case(seed, {feature, "dag", "arrivals"}, names[seed % len(names)]) == []


LIVE_POLICIES = [n for n in registry.names() if not registry.load(n).knows_future]


@pytest.mark.parametrize("name", LIVE_POLICIES)
def test_every_live_policy(name: str) -> None:
    """Faults, gangs, devices, sleep and cold starts together."""
    features = {"dag", "arrivals", "gpu", "fpga", "cold", "sleep", "node_failures", "task_failures", "transfers"}
    policy = registry.load(name)
    for seed in range(3):
        parts = {"parts"} if seed == 2 else set()
        workload, cluster, options = random_case(100 + seed, features | parts)
        given = SimOptions(
            max_retries=options.max_retries, outages=options.node_failures,
            task_faults=tuple((task, attempt, share) for (task, attempt), share in options.task_failures.items()),
        )  # fmt: skip
        assert differences(workload, cluster, policy, given) == []
