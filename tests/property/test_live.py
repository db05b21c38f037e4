"""Random sequences of all kinds of events against a plain ledger: no overcommit, nothing lost, no stale effect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from wattflow.engine.validate import validate_state
from wattflow.live import (
    CANCEL,
    EDGE,
    ESTIMATE,
    FAILED,
    FINISHED,
    GONE,
    LOAD,
    LOOSE,
    NODE,
    PLACEHOLDER,
    PREEMPT,
    REFUSED,
    RESIZE,
    SEAL,
    STARTED,
    TASK,
    Act,
    Constraint,
    Engine,
    Power,
)
from wattflow.live.protocol import ATTEMPT_ID, Apart, make_id, row_of
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant

STEPS = 10_000
GIB = 1 << 30
CURVE = PowerProfile((0.0, 2.0, 8.0), (40.0, 70.0, 120.0))
CARD = Device("gpu", "card", 16 * GIB, "mps", power=DeviceProfile((0.0, 1.0), (20.0, 200.0)))
SHAPES = (
    {"variants": [Variant(cores=1, memory_bytes=GIB)]},
    {"variants": [Variant(cores=0.5)], "counts": {"pods": 1}},
    {"variants": [Variant(cores=2, memory_bytes=2 * GIB)], "parts": 2},
    {"variants": [Variant(cores=1, device="gpu", devices=1, device_share=0.5), Variant(cores=4)]},
    {"variants": [Variant(cores=1)], "function": Function("cold", cold_start_s=2.0), "level": 1},
)


class Ledger:
    """What must be true, kept in dictionaries."""

    def __init__(self, seed: int, policy: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.engine = Engine(policy, seed=seed, max_retries=2)
        self.now = 0.0
        self.nodes: dict[int, dict[str, float]] = {}
        self.attempts: dict[int, dict[str, float]] = {}
        self.tasks: dict[int, int] = {}  # open task: tag
        self.flows: list[int] = []
        self.placeholders: list[int] = []
        self.members: dict[int, list[int]] = {}
        self.old: list[int] = []
        self.names = 0
        self.expected_stale = 0
        self.shapes = [self.engine.shape(**dict(shape)) for shape in SHAPES]  # type: ignore[arg-type]
        alone = self.engine.constraint(Constraint(apart=(Apart("web"),)))
        self.web = self.engine.shape([Variant(cores=0.25)], constraint=alone, groups=("web",))
        self.shapes.append(self.web)
        for _ in range(4):
            self.add_node()

    def pick(self, things: object) -> int:
        values = list(things)  # type: ignore[call-overload]
        return int(values[int(self.rng.integers(len(values)))])

    def add_node(self) -> None:
        self.names += 1
        cores = int(self.rng.integers(2, 9))
        node = Node(
            f"n{self.names}", cores, 16 * GIB, power=CURVE, devices=(CARD,) if self.names % 3 == 0 else (),
            sleep=Sleep(2.0, wake_s=3.0, enter_s=1.0, after_s=20.0) if self.names % 2 else None,
        )  # fmt: skip
        pods = int(self.rng.integers(1, 6))
        identity = self.engine.node(node, counts={"pods": pods})
        self.nodes[identity] = {"cores": cores, "memory": 16 * GIB, "pods": pods, "load": 0.0}

    def add_task(self) -> None:
        flow = self.pick(self.flows) if self.flows and self.rng.random() < 0.6 else LOOSE
        unknown = flow != LOOSE and self.rng.random() < 0.1
        shape = PLACEHOLDER if unknown else self.pick(self.shapes)
        release = self.now + float(self.rng.exponential(3.0)) if self.rng.random() < 0.2 else None
        task = self.engine.put(
            TASK, shape, workflow=flow, estimate_s=float(self.rng.exponential(5.0)), release_s=release, tag=self.names
        )
        self.tasks[task] = flow
        if flow:
            self.members[flow].append(task)
        if unknown:
            self.placeholders.append(task)

    def event(self) -> None:
        """One random event, of any kind."""
        kind = int(self.rng.integers(16))
        attempts, engine = self.attempts, self.engine
        if kind <= 2:
            self.add_task()
        elif kind == 3 and self.members and (long := [m for m in self.members.values() if len(m) > 1]):
            members = long[int(self.rng.integers(len(long)))]
            engine.put(EDGE, self.pick(members), self.pick(members), size_bytes=float(self.rng.integers(0, 2)) * 1e6)
        elif kind == 4 and len(self.flows) < 6:
            flow = engine.workflow()
            self.flows.append(flow)
            self.members[flow] = []
        elif kind == 5 and self.flows and self.rng.random() < 0.3:
            flow = self.pick(self.flows)
            self.flows.remove(flow)
            for task in [t for t in self.placeholders if self.tasks.get(t) == flow]:
                engine.put(SEAL, task)
                self.placeholders.remove(task)
            engine.put(SEAL if self.rng.random() < 0.8 else CANCEL, flow)
            del self.members[flow]
        elif kind == 6 and attempts:
            engine.put(STARTED, self.pick(attempts))
        elif kind in (7, 8) and attempts:
            engine.put(FINISHED, self.end(self.pick(attempts)))
        elif kind == 9 and attempts:
            engine.put(FAILED, self.end(self.pick(attempts)), retry=bool(self.rng.random() < 0.8))
        elif kind == 10 and attempts:
            until = self.now + 2.0 if self.rng.random() < 0.3 else 0.0
            engine.put(REFUSED, self.end(self.pick(attempts)), until_s=until)
        elif kind == 11 and attempts:
            engine.put(PREEMPT, self.pick(attempts))
        elif kind == 12 and self.tasks and self.rng.random() < 0.3:
            engine.put(CANCEL, self.pick(self.tasks))
        elif kind == 13:
            self.node_event()
        elif kind == 14 and self.tasks:
            engine.put(ESTIMATE, self.pick(self.tasks), float(self.rng.exponential(4.0)))
        elif kind == 15 and self.old:
            engine.put(FINISHED, self.pick(self.old))  # long over: must change nothing
            self.expected_stale += 1

    def end(self, attempt: int) -> int:
        """An attempt is over for the ledger."""
        del self.attempts[attempt]
        self.old = [*self.old[-20:], attempt]
        return attempt

    def node_event(self) -> None:
        engine, draw = self.engine, self.rng.random()
        node = self.pick(self.nodes)
        facts = self.nodes[node]
        if draw < 0.3:
            facts["load"] = float(self.rng.integers(0, 3))
            engine.put(LOAD, node, cores=facts["load"], counts={"pods": int(self.rng.integers(0, 2))})
        elif draw < 0.45 and self.attempts:
            attempt = self.pick(self.attempts)
            cores = float(self.rng.integers(0, 2))
            engine.put(RESIZE, attempt, cores=cores)
            self.attempts[attempt]["cores"] = cores
        elif draw < 0.7:
            engine.put(NODE, node, state=self.pick((Power.ON, Power.DRAINING, Power.DOWN, Power.ASLEEP)))
            self.lose_if_down(node)
        elif draw < 0.8 and len(self.nodes) > 2:
            engine.put(GONE, node)
            self.lose(node)
            del self.nodes[node]
        elif draw < 0.9 and len(self.nodes) < 8:
            self.add_node()

    def lose_if_down(self, node: int) -> None:
        """Whether the last state put was DOWN is seen in the step's outcome; attempts there become stale then."""
        self.maybe_lost = node

    def lose(self, node: int) -> None:
        for attempt in [a for a, facts in self.attempts.items() if facts["node"] == node]:
            self.end(attempt)

    def step(self) -> None:
        """A step, and everything that must hold after it."""
        self.now += float(self.rng.exponential(0.5))
        step = self.engine.step(self.now)
        state = self.engine.state
        rows = np.flatnonzero(state.attempts.task >= 0).tolist()
        live = {make_id(ATTEMPT_ID, row, int(state.attempts.generation[row])) for row in rows}
        for attempt in [a for a in self.attempts if a not in live]:
            self.end(attempt)  # its node was lost
        for ended in step.ended:
            assert ended.task in self.tasks, "a task ended that was not open"
            flow = self.tasks.pop(ended.task)
            if ended.task in self.placeholders:
                self.placeholders.remove(ended.task)
            if flow in self.members and ended.task in self.members[flow]:
                self.members[flow].remove(ended.task)
        for placement in step.placements:
            assert placement.task in self.tasks and placement.node in self.nodes
            row = placement.attempt & 0xFFFFFFFF
            facts = state.attempts[row]
            self.attempts[placement.attempt] = {
                "node": placement.node, "cores": float(facts.need_u) / 1e6, "memory": float(facts.memory),
            }  # fmt: skip
            node = self.nodes[placement.node]
            mine = [a for a in self.attempts.values() if a["node"] == placement.node]
            assert sum(a["cores"] for a in mine) + node["load"] <= node["cores"] + 1e-9, "cores overcommitted"
            assert sum(a["memory"] for a in mine) <= node["memory"], "memory overcommitted"
        forms = np.asarray(state.tasks.form)[np.asarray(state.attempts.task)[rows]]
        webs = [
            int(state.attempts.node[row]) for row, form in zip(rows, forms, strict=True) if form == row_of(self.web)
        ]
        assert len(webs) == len(set(webs)), "two that must be apart share a node"
        for action in step.actions:
            if action.kind == Act.SLEEP:
                self.engine.put(NODE, action.who, state=Power.ASLEEP)
            elif action.kind == Act.WAKE:
                self.engine.put(NODE, action.who, state=Power.ON)
            else:
                assert action.who in self.attempts
        counts = self.engine.counts
        assert counts["running"] == len(self.attempts), "attempts run that nobody was told of"
        assert counts["open"] == len(self.tasks), "open tasks were lost"


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.integers(0, 2**31), st.sampled_from(["least-energy", "sjf", "wfp3", "kubernetes", "wattflow", "min-min"]))
def test_any_sequence_of_events_agrees_with_a_plain_ledger(seed: int, policy: str) -> None:
    ledger = Ledger(seed, policy)
    ledger.engine.step(0.0)
    for turn in range(STEPS):
        for _ in range(int(ledger.rng.integers(0, 4))):
            ledger.event()
        ledger.step()
        if turn % 100 == 0:
            validate_state(ledger.engine.state)
    assert ledger.engine.counts["stale"] >= ledger.expected_stale > 0


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.integers(0, 2**31), st.sampled_from(["least-energy", "sjf", "kubernetes"]))
def test_short_sequences(seed: int, policy: str) -> None:
    ledger = Ledger(seed, policy)
    ledger.engine.step(0.0)
    for _ in range(150):
        for _ in range(int(ledger.rng.integers(0, 4))):
            ledger.event()
        ledger.step()
        validate_state(ledger.engine.state)
