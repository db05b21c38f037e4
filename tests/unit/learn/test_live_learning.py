"""Going on learning beside a server: what its store tells, promotion, rollback, and what a restart finds."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa

from wattflow.cli import up
from wattflow.learn import evolve
from wattflow.learn.evolve import Verdict
from wattflow.learn.scenarios import Scenario
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry, weights
from wattflow.runtime import messages as m
from wattflow.runtime import processes
from wattflow.runtime.home import Home
from wattflow.server import learning
from wattflow.server.history import History, finished, read_history
from wattflow.server.learning import Learner, LearnSettings, Standing
from wattflow.sim.simulate import Simulation
from wattflow.store import reads
from wattflow.store.schema import open_store, read_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer

WON, LOST, EVEN = Verdict(0.05, 0.01, 0.0, 0, 6), Verdict(-0.05, 0.01, 0.0, 0, 6), Verdict(0.0, 0.01, 0.0, 0, 6)


@pytest.fixture
def history(small: Scenario) -> History:
    workload = replace(small, stream=replace(small.stream, workflows=16)).draw(3)
    return History(workload, small.cluster, 1000.0 + workload.workflow_submit_s)


def learner(tmp_path: Path, told: list[str], policy: str = "learned") -> Learner:
    settings = LearnSettings(seconds=0.0)
    return Learner(Home(tmp_path), policy, told.append, lambda: 1000.0, settings)


def judged_as(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> None:
    found = iter(verdicts)
    monkeypatch.setattr(evolve, "shadow", lambda *_: next(found))


def moved(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """Training that takes no time and finds other weights."""
    monkeypatch.setattr(evolve.FineTuner, "run", lambda self, *_: self.progress.best + by)


def test_a_candidate_that_wins_is_told_to_the_server_and_survives_a_restart(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    one = learner(tmp_path, told, "learned:wait=0.1")
    moved(monkeypatch, 0.25)
    judged_as(monkeypatch, WON)
    assert one.round(history, 16).startswith("promoted")
    (policy,) = told
    file = Path(policy.removeprefix("learned:wait=0.1:weights="))
    assert np.array_equal(weights.load(file)[0], weights.current() + 0.25)
    assert weights.load(file)[1]["shadow"]["promoted"] is True
    assert registry.load(policy).params["wait"] == 0.1
    # the next server starts with them, the next learner knows what was before
    assert learning.present_policy(Home(tmp_path), "learned:wait=0.1") == policy
    assert Standing.read(Home(tmp_path)).present == str(file)
    assert Standing.read(Home(tmp_path)).seen == 16


def test_an_alarm_brings_the_weights_of_before_back(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    moved(monkeypatch, 0.25)
    judged_as(monkeypatch, WON, EVEN, WON, LOST)
    one = learner(tmp_path, told)
    one.round(history, 16)
    first = told[-1]
    # the same work again, as if it had come since: no alarm, and a second promotion on top of the first
    later = replace(history, submitted_s=history.submitted_s + 5000.0)
    assert one.round(later, 32).startswith("promoted")
    second = told[-1]
    again = learner(tmp_path, told)  # whoever started it last
    assert again.round(later, 48).startswith("alarm")
    assert told == [first, second, first] and first != second
    assert again.standing.since_s == 0.0
    assert learning.present_policy(Home(tmp_path), "learned") == first


@pytest.mark.slow
def test_alarm_and_promotion_do_not_alternate(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record after an alarm is much the same: what won once would win again, and be taken back again."""
    told: list[str] = []
    moved(monkeypatch, 0.25)
    monkeypatch.setattr(evolve, "shadow", lambda before, after, _: WON if fresh(told) else LOST)
    later, said = replace(history, submitted_s=history.submitted_s + 5000.0), []
    for number in range(12):
        one = learner(tmp_path, told)  # whoever started it last
        said.append(one.round(later, 16 * (number + 1)).split()[0])
    assert said == ["promoted", "alarm,", "nothing", "promoted", "alarm,", "nothing", "nothing", "promoted",
                    "alarm,", "nothing", "nothing", "nothing"]  # fmt: skip
    # A promotion that holds ends the row of alarms.
    one.stand(replace(one.standing, rest=0))
    judged_as(monkeypatch, WON, EVEN, EVEN)
    assert one.round(later, 300).startswith("promoted") and one.standing.alarms == 3
    assert one.round(later, 316).startswith("not promoted") and one.standing.alarms == 0


def fresh(told: list[str]) -> bool:
    """Whether the weights in use are those from the beginning."""
    return not told or "weights" not in told[-1]


def test_what_does_not_win_changes_nothing(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    moved(monkeypatch, 0.25)
    judged_as(monkeypatch, EVEN)
    one = learner(tmp_path, told)
    assert one.round(history, 16).startswith("not promoted")
    assert not told and one.standing.present == "" and "not promoted" in one.standing.rounds[-1]
    few = replace(history, submitted_s=np.arange(len(history.submitted_s), dtype=float))
    one.settings = LearnSettings(recent=6, seconds=0.0)
    assert "too few" in one.round(few, 20)


def test_a_server_that_refuses_leaves_the_standing_as_it_was(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(policy: str) -> None:
        raise InvalidInput("policy", "somebody chose another one")

    moved(monkeypatch, 0.25)
    judged_as(monkeypatch, WON)
    one = Learner(Home(tmp_path), "learned", refuse, lambda: 0.0, LearnSettings(seconds=0.0))
    with pytest.raises(InvalidInput):
        one.round(history, 16)
    assert Standing.read(Home(tmp_path)) == Standing()


def test_only_the_learned_policy_learns(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not 'wattflow'"):
        learner(tmp_path, [], "wattflow")


def test_weights_of_a_file_are_part_of_the_policys_name(small: Scenario, tmp_path: Path) -> None:
    weights.save(tmp_path / "mine.npz", np.zeros(weights.SIZE), {})
    typed = f"learned:weights={tmp_path / 'mine.npz'}"
    plain, ours = (Simulation(small.draw(3), small.cluster, name, seed=3).run() for name in ("wattflow", typed))
    assert ours.total_j == plain.total_j and ours.attempts.tobytes() == plain.attempts.tobytes()
    with pytest.raises(InvalidInput, match=r"none\.npz"):
        registry.load(f"learned:weights={tmp_path / 'none.npz'}")
    with pytest.raises(InvalidInput, match="has no 'weights'"):
        registry.load("wattflow:weights=mine.npz")


def store_of(path: Path, drift: float = 1.0) -> None:
    """Six workflows of two tasks; node b takes twice as long as it says and draws more than it says by a factor."""
    database = open_store(path)
    writer = Writer(database)
    for number, name in enumerate("ab"):
        node = m.Node(name=name, cpus=4.0, memory_bytes=1 << 33, busy=[0.0, 4.0], watts=[20.0, 60.0])
        writer.put((Write.NODE, {"name": name, "spec": m.pack((number, node)), "state": "on", "seen_s": 0.0}))
        for window in range(8):
            writer.put((Write.ENERGY, {
                "node": name, "began_s": 100.0 + 10 * window, "ended_s": 110.0 + 10 * window,
                "counted_j": 10.0 * (30.0 if name == "a" else 30.0 * drift), "idle_j": 0.0, "tasks_j": 0.0,
                "unattributed_j": 0.0, "provenance": "modelled",
            }))  # fmt: skip
    task = 0
    for flow in range(6):
        about = msgspec.msgpack.encode({"engine": flow, "sealed": True, "deadline_s": 400.0 if flow == 0 else None})
        came_s = 100.0 + 10 * flow
        writer.put((Write.WORKFLOW, {"id": f"w{flow}", "name": "w", "owner": "me", "about": about,
                                      "submitted_s": came_s, "state": "done", "ended_s": came_s + 30}))  # fmt: skip
        for key, parents in (("first", []), ("then", ["first"])):
            task += 1
            spec = m.Task(key=key, name=key, function_name=key, command=["true"], parents=parents)
            where, seconds = ("a", 10.0) if flow % 2 == 0 else ("b", 20.0)
            writer.put((Write.TASK, {
                "id": task, "workflow": f"w{flow}", "key": key, "name": key, "spec": m.pack((task, spec)),
                "submitted_s": came_s, "state": "done", "attempts": 1,
            }))  # fmt: skip
            began_s = came_s if key == "first" else came_s + seconds
            writer.put((Write.ATTEMPT, {
                "task": task, "number": 1, "fence": task, "node": where, "device": -1, "variant": 0, "ready_s": began_s,
                "placed_s": began_s, "outcome": "done", "started_s": began_s, "ended_s": began_s + seconds,
            }))  # fmt: skip
    writer.close()
    database.dispose()


def test_the_store_tells_finished_workflows_and_how_fast_nodes_are(tmp_path: Path) -> None:
    store_of(tmp_path / "store.db")
    found = read_history(read_store(tmp_path / "store.db"))
    speed = {node.name: node.speed for node in found.cluster.nodes}
    assert speed["a"] / speed["b"] == pytest.approx(2.0, rel=0.15)
    runtime = found.workload.runtime_s
    assert runtime.max() / runtime.min() < 1.2  # the same work wherever it ran
    assert len(found.workload.workflow_names) == 6 and found.workload.parent.tolist() == [0, 2, 4, 6, 8, 10]
    assert found.workload.deadline_s[:3].tolist() == [300.0, 300.0, np.inf]
    assert [len(block.workload.workflow_names) for block in found.blocks("x")] == [6]
    assert found.blocks("x", since_s=125.0) == []


def test_curves_are_scaled_to_what_the_counters_counted(tmp_path: Path) -> None:
    watts = []
    for drift in (1.0, 1.5):
        store_of(tmp_path / f"{drift}.db", drift)
        nodes = read_history(read_store(tmp_path / f"{drift}.db")).cluster.nodes
        watts.append([node.power.watts[-1] for node in nodes if node.power])
    assert watts[1][0] == watts[0][0]
    assert watts[1][1] / watts[0][1] == pytest.approx(1.5, rel=0.06)  # in steps of 5 %


def test_reading_a_store_makes_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no store is there"):
        read_store(tmp_path / "none.db")
    assert not list(tmp_path.iterdir())
    store_of(tmp_path / "store.db")
    database = read_store(tmp_path / "store.db")
    with pytest.raises(Exception, match="readonly"), database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM workflows")


def looks(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """What happens after each look of a learner; after the last its server is gone."""
    left = iter(steps)

    def after(_: float) -> None:
        step = next(left, None)
        if step is None:
            monkeypatch.setattr(Home, "server", lambda _: None)
        else:
            step()

    monkeypatch.setattr(learning, "time", SimpleNamespace(sleep=after))


def serving(home: Home, pid: int) -> None:
    processes.mark(home.server_file, pid, url="http://127.0.0.1:1")


def ending(path: Path, flow: str, ended_s: float) -> None:
    database = open_store(path)
    writer = Writer(database)
    writer.put((Write.WORKFLOW, {"id": flow, "name": "w", "owner": "me", "about": msgspec.msgpack.encode({}),
                                  "submitted_s": ended_s - 1, "state": "done", "ended_s": ended_s}))  # fmt: skip
    writer.close()
    database.dispose()


def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Learner, list[int]]:
    """A learner with a server and a store of six workflows whose rounds only note what they were told."""
    store_of(tmp_path / "store.db")
    serving(Home(tmp_path), os.getpid())
    one, rounds = learner(tmp_path, []), list[int]()
    one.settings = LearnSettings(every=4)
    monkeypatch.setattr(one, "_alarm", lambda _: "looked")
    stand = one.stand

    def noted(standing: Standing) -> None:
        rounds.append(standing.seen)
        stand(standing)

    monkeypatch.setattr(one, "stand", noted)
    return one, rounds


def test_learning_goes_on_where_old_workflows_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store.db"
    one, rounds = counting(tmp_path, monkeypatch)

    def as_many_come_as_go() -> None:
        for number in range(4):
            ending(store, f"late{number}", 1000.0 + number)
        database = open_store(store)
        list(reads.expire(database, 165.0))  # the first four
        database.dispose()

    looks(monkeypatch, lambda: None, as_many_come_as_go, lambda: None)
    learning.run(one, read_store(store))
    assert rounds == [6, 10]
    assert Standing.read(Home(tmp_path)).seen_s == 1003.0
    assert finished(read_store(store), 1001.0) == (2, 1003.0) and finished(read_store(store), 2000.0) == (0, 2000.0)


def test_a_standing_of_an_older_learner_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, rounds = counting(tmp_path, monkeypatch)
    learning.folder_of(one.home).mkdir()
    old = {"seen": 50, "present": "p.npz", "before": "", "since_s": 5.0, "rounds": ["a"]}
    (learning.folder_of(one.home) / "standing.json").write_text(json.dumps(old))
    one.standing = Standing.read(one.home)
    assert one.standing == Standing(50, "p.npz", "", 5.0, ("a",))
    looks(monkeypatch, lambda: None)
    learning.run(one, read_store(tmp_path / "store.db"))
    assert rounds == [6] and one.standing.present == "p.npz"


def test_a_store_that_is_restarted_does_not_end_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, rounds = counting(tmp_path, monkeypatch)

    def away(*_: object) -> tuple[int, float]:
        raise sa.exc.OperationalError("SELECT", {}, Exception("the server closed the connection"))

    monkeypatch.setattr(learning, "finished", away)
    looks(monkeypatch, lambda: None, lambda: monkeypatch.setattr(learning, "finished", finished), lambda: None)
    with caplog.at_level(logging.WARNING, learning.__name__):
        learning.run(one, read_store(tmp_path / "store.db"))
    assert rounds == [6]
    assert [("closed the connection" in line, "is back" in line) for line in caplog.messages] == [
        (True, False), (False, True)
    ]  # fmt: skip


def test_a_learner_ends_with_its_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = counting(tmp_path, monkeypatch)
    after: list[str] = []
    looks(monkeypatch, lambda: serving(one.home, os.getppid()), lambda: after.append("looked at the next server's"))
    learning.run(one, read_store(tmp_path / "store.db"))
    assert not after


def test_up_ends_the_learner_of_a_server_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else that has its number by now."""

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr("wattflow.server.settings.listen", stop)
    command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen([*command, up._LEARNER], stdin=subprocess.PIPE) as old,
        subprocess.Popen([*command, "wattflow.server"], stdin=subprocess.PIPE) as other,
    ):
        for process in (old, other):
            (tmp_path / up.LEARNER).write_text(str(process.pid))
            with pytest.raises(Stopped):
                up.up(home=tmp_path)
            assert not (tmp_path / up.LEARNER).exists()
        assert old.wait(30) == -15 and other.poll() is None
        other.kill()
