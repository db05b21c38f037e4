"""Budgets, quotas, shares, the books and the audit log."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattflow.live.protocol import Placement, Step
from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import SETTLE_S, Account, Accounts, Limits, Usage, month_of
from wattflow.runtime.gate import Gate
from wattflow.runtime.ledger import Chain, first_fault
from wattflow.runtime.records import AttemptRecord, Nodes, TaskRecord, Trace, WorkflowRecord
from wattflow.runtime.turns import UnderWay
from wattflow.server import energy

NODE = m.Node(name="n", cpus=8.0, memory_bytes=1 << 30, busy=[0.0, 8.0], watts=[10.0, 80.0])


class Empty:
    """An engine that has nothing to place."""

    def put(self, *_: object, **__: object) -> None:
        return None

    def prefer(self, tasks: object) -> None:
        return None

    def step(self, now_s: float) -> Step:
        return Step([], [], now_s + 1.0)


class World:
    """Accounts and a gate under a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1.7e9
        self.alerts: list[tuple[Account, str]] = []
        self.usage = Usage()
        self.accounts = Accounts(
            self.usage, lambda: self.now_s, lambda _, account, said: self.alerts.append((account, said))
        )
        self.nodes = Nodes()
        self.nodes.add(NODE, 0)
        self.gate = Gate(self.accounts, self.nodes, Empty(), lambda _: None)  # type: ignore[arg-type]
        self.fence = 0

    def task(self, owner: str, project: str = "", estimate_s: float = 10.0, function: str = "f") -> TaskRecord:
        flow = WorkflowRecord(f"{owner}-w", "w", owner, 0, {"project": project}, self.now_s)
        self.fence += 1
        spec = m.Task(key=str(self.fence), name="t", function_name=function, command=["x"], estimate_s=estimate_s)
        task = TaskRecord(self.fence, flow, spec, 0, self.now_s, self.now_s)
        self.gate.opened(task)
        return task

    def begin(self, task: TaskRecord) -> AttemptRecord:
        placement = Placement(task.id, 0, 0, task.id, 0, 0, 0, 0, 0, 1.0)
        attempt = AttemptRecord.begun(task, placement, task.id, "n", [], self.now_s)
        self.gate.began(attempt)
        return attempt

    def end(self, attempt: AttemptRecord, joules: float | None) -> None:
        self.gate.ended(attempt)
        self.gate.closed(attempt.task)
        if joules is not None:
            more, attempt.trace.energy_j = joules - attempt.trace.energy_j, joules
            self.accounts.settle(attempt.trace, more)

    def held(self, task: TaskRecord) -> Any:
        return self.gate.holds(task, 0, NODE)


def test_reserve_settle_refund() -> None:
    """10 s on one of 8 processors that draw 80 W are 100 J: three fit into 350 J at a time."""
    world = World()
    world.accounts.set(("user", "alice"), Limits(energy_j=350.0))
    running = []
    for _ in range(3):
        task = world.task("alice")
        assert world.held(task) is None
        running.append(world.begin(task))
    assert world.accounts.reserved_j["user", "alice"] == pytest.approx(300.0)
    fourth = world.task("alice")
    held = world.held(fourth)
    assert not held.for_good and "350 J" in held.reason and "300 J reserved" in held.reason
    world.end(running[0], 20.0)  # 80 J are free again
    assert world.held(fourth) is None
    for attempt in running[1:]:
        world.end(attempt, 150.0)
    stopped = world.held(fourth)  # 320 J used; the function's mean says that more than 30 J follow
    assert stopped.for_good and "320 J used" in stopped.reason
    assert [said for _, said in world.alerts] == ["80% of the energy budget for 2023-11 is used (320 J)"]
    assert world.accounts.reserved_j["user", "alice"] == pytest.approx(0.0)


def test_joules_that_never_come_free_their_reservation() -> None:
    world = World()
    world.accounts.set(("user", "alice"), Limits(energy_j=150.0))
    world.end(world.begin(world.task("alice")), None)
    task = world.task("alice")
    assert world.held(task) is not None
    world.now_s += 31.0
    assert world.held(task) is None


@given(st.lists(st.tuples(st.floats(0.0, 400.0), st.booleans()), max_size=60))
def test_a_hard_budget_is_exceeded_by_no_more_than_attempts_use_above_their_reservation(
    steps: list[tuple[float, bool]],
) -> None:
    world = World()
    world.accounts.set(("project", "p"), Limits(energy_j=1000.0))
    running: list[AttemptRecord] = []
    above = 0.0
    for joules, starts in steps:
        if starts or not running:
            task = world.task("alice", "p")
            if world.held(task) is None:
                running.append(world.begin(task))
        else:
            attempt = running.pop(0)
            above += max(0.0, joules - attempt.trace.reserved_j)
            world.end(attempt, joules)
    used = world.usage.used("project", "p", world.now_s).energy_j
    assert used + world.accounts.reserved_j["project", "p"] <= 1000.0 + above + 1e-6


def test_attempts_leave_memory_where_nobody_has_a_budget() -> None:
    """Joules come within seconds of an end; where none do, what was reserved for them is free again after a while."""
    world = World()
    for told in (True, False):
        for _ in range(200):
            world.now_s += 1.0
            world.end(world.begin(world.task("alice")), 5.0 if told else None)
        assert len(world.accounts._over) <= SETTLE_S + 1
    left_j = world.accounts.reserved_j["user", "alice"]
    assert left_j == pytest.approx(sum(trace.reserved_j for _, trace in world.accounts._over))


def test_the_month_begins_anew_and_soft_budgets_only_go_last() -> None:
    world = World()
    world.accounts.set(("user", "alice"), Limits(energy_j=50.0, mode="soft"))
    world.end(world.begin(world.task("alice", function="g")), 60.0)
    task = world.task("alice")
    assert world.held(task) is None  # nobody else wants the node
    world.task("bob")
    assert "user bob goes first" in world.held(task).reason
    world.accounts.set(("user", "alice"), Limits(energy_j=50.0))
    assert world.held(task).for_good
    with pytest.raises(InvalidInput, match="energy budget of user alice"):
        world.gate.check("alice", "", 1)
    world.now_s += 31 * 86400.0
    world.accounts.set(("user", "alice"), Limits(energy_j=500.0))
    assert world.held(task) is None
    world.gate.check("alice", "", 1)


def test_quotas() -> None:
    world = World()
    world.accounts.set(("user", "alice"), Limits(running=1, waiting=3))
    first = world.begin(world.task("alice"))
    task = world.task("alice")
    assert "may run 1 at a time" in world.held(task).reason
    world.end(first, 1.0)
    assert world.held(task) is None
    with pytest.raises(InvalidInput, match="quota of 3"):
        world.gate.check("alice", "", 3)
    world.gate.check("alice", "", 2)


def test_shares_and_priorities_and_nobody_waits_in_vain() -> None:
    world = World()
    for _ in range(6):
        world.begin(world.task("alice"))
    more = world.task("alice")
    assert world.held(more) is None
    theirs = world.task("bob")
    assert "user bob goes first" in world.held(more).reason and world.held(theirs) is None
    world.accounts.set(("user", "alice"), Limits(share=9.0))
    world.now_s += 0.2
    assert world.held(more) is None
    world.accounts.set(("user", "bob"), Limits(priority=1))
    assert world.held(more) is not None
    turn = UnderWay(Step([], [], math.inf), world.now_s)
    assert world.gate.keeps(more, Placement(0, 0, 0, more.id, 0, 0, 0, 0, 0, 1.0), turn) and turn.wake_at == turn.now_s
    assert not world.gate.goes_on(turn)  # bob's task waits for something else: nothing is placed
    assert world.held(more) is None
    world.now_s += 3.0
    assert world.held(more) is not None
    world.begin(theirs)
    assert world.held(more) is None


def test_carbon_is_joules_of_this_sites_electricity() -> None:
    world = World()
    with pytest.raises(InvalidInput, match="--carbon"):
        world.accounts.set(("user", "alice"), Limits(carbon_g=1.0))
    world.usage.intensity = lambda at_s: 360.0  # 1 g for 10 kJ
    world.accounts.set(("user", "alice"), Limits(carbon_g=1.0))
    world.end(world.begin(world.task("alice")), 9_000.0)
    assert world.usage.used("user", "alice", world.now_s).carbon_g == pytest.approx(0.9)
    assert world.held(world.task("alice")).for_good


def test_carbon_is_the_zones_where_the_zone_says_it(tmp_path: Path) -> None:
    """A series of the hours of a day with the building's own share, as runs count it; two sources are refused."""
    assert energy.intensity(tmp_path, None) is None
    assert energy.intensity(tmp_path, 50.0)(0.0) == 50.0  # type: ignore[misc]
    hours = ", ".join(str(100 + hour) for hour in range(24))
    (tmp_path / "zone.toml").write_text(f'pue = 1.5\ncarbon = {{ step = "1h", values = [{hours}] }}\n')
    found = energy.intensity(tmp_path, None)
    assert found is not None and found(3 * 86400 + 5 * 3600 + 7) == 105 * 1.5
    with pytest.raises(InvalidInput, match=r"zone\.toml"):
        energy.intensity(tmp_path, 50.0)


def test_the_books_are_whole_sums_by_owner_project_and_function() -> None:
    usage = Usage()
    trace = Trace(1, 1, "n", 0.0, "alice", "p", "f")
    usage.ended(trace, 2.0, 1.7e9)
    usage.joules(trace, 5.0, 1.7e9)
    (row,) = usage.rows()
    assert row == {"month": month_of(1.7e9), "owner": "alice", "project": "p", "function": "f", "attempts": 1,
                   "cpu_s": 2.0, "energy_j": 5.0, "carbon_g": None}  # fmt: skip
    assert usage.rows() == []
    again = Usage()
    again.restore([row])
    again.joules(trace, 7.0, 1.7e9)
    assert again.rows()[0]["energy_j"] == 12.0
    assert again.used("user", "alice", 1.7e9).energy_j == again.used("project", "p", 1.7e9).energy_j == 12.0


def test_limits_out_of_range_are_refused() -> None:
    for wrong in ({"energy_j": -1.0}, {"mode": "maybe"}, {"share": 0.0}, {"running": -1}, {"priority": 10**6}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Limits)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda rows: rows[3].update(who="mallory"),
        lambda rows: rows[3].update(about="{}"),
        lambda rows: rows[3].update(at_s=0.0),
        lambda rows: rows.pop(3),
        lambda rows: rows.insert(3, dict(rows[3])),
        lambda rows: rows.reverse(),
    ],
)
def test_a_log_that_was_tampered_with_is_noticed(tamper: Callable[[list[dict[str, object]]], object]) -> None:
    chain = Chain()
    rows = [chain.append(float(n), "al\udce9ce", "submit", {"workflow": f"w{n}", "tasks": n}) for n in range(8)]
    assert first_fault(rows) is None
    assert Chain(8, str(rows[-1]["hash"])).append(9.0, "b", "c", {})["sequence"] == 9
    tamper(rows)
    assert first_fault(rows) is not None
