"""`--twin` in every driver: what chooses is the decider's, which all of them share, and a restart decides alike."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from wattflow.cli import up
from wattflow.live import FINISHED, STARTED, TASK, Placement
from wattflow.live.looking import Rule
from wattflow.live.twin import AtOnce, Twin
from wattflow.runtime import messages as m
from wattflow.runtime import recovery
from wattflow.runtime.decider import Decider
from wattflow.server import __main__ as serving
from wattflow.server.settings import ServerSettings
from wattflow.store.database import open_store
from wattflow.store.writer import Writer

from .test_recovery import Hand

GREEDY = Rule(worth=-1.0, wait=100.0, worse=100.0, learnt=2)
"""Changes to whoever looks best, borne out or not."""


def nodes() -> list[m.Node]:
    return [
        m.Node(name=name, cpus=4.0, memory_bytes=1 << 33, busy=[0.0, 4.0], watts=[20.0, full_w], speed=speed)
        for name, full_w, speed in (("dear", 200.0, 1.0), ("cheap", 40.0, 1.0))
    ]


def play(decider: Decider, rounds: int) -> list[Placement]:
    """A driver with a clock of its own: tasks come in pairs and take ten seconds."""
    seen: list[Placement] = []
    shape = decider.shape([m.Variant(cpus=1.0, memory_bytes=1 << 20)], "f")
    for number in range(rounds):
        now_s = 20.0 * number
        for _ in range(2):
            decider.put(TASK, shape, estimate_s=10.0)
        step = decider.step(now_s)
        placed = list(step.placements)
        if step.wake_at == now_s:  # another policy decides at once
            placed += decider.step(now_s).placements
        seen += placed
        for after_s, kind in ((0.0, STARTED), (10.0, FINISHED)):
            for placement in placed:
                decider.put(kind, placement.attempt)
            decider.step(now_s + after_s)
    return seen


def test_what_the_twin_chose_is_in_the_journal_and_a_restart_decides_alike() -> None:
    members = ("fifo", "least-energy")
    first = Decider("fifo", twin=Twin(members, every_s=0.0, rule=GREEDY, executor=AtOnce()))
    for node in nodes():
        first.node(node)
    placed = play(first, 4)
    assert first.engine.policy.name == "least-energy" and first.policy == "fifo"
    again = Decider("fifo")
    again.replay(first.entries)
    assert again.engine.policy.name == "least-energy"
    ours, theirs = play(first, 0), play(again, 0)
    assert ours == theirs == []
    shapes = [decider.shape([m.Variant(cpus=1.0, memory_bytes=1 << 20)], "f") for decider in (first, again)]
    for decider, shape in zip((first, again), shapes, strict=True):
        decider.put(TASK, shape, estimate_s=10.0)
    assert first.step(500.0).placements == again.step(500.0).placements
    assert len({placement.node for placement in placed}) == 2  # the first by index, then by joules


@pytest.mark.parametrize("driver", up.DRIVERS)
def test_every_driver_of_a_server_takes_the_flag(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From `wattflow up --twin` to the server's settings, and from these to the decider that drivers share."""

    class Started(Exception):
        pass

    commands: list[list[str]] = []

    def spawn(command: list[str], *_: object) -> subprocess.Popen[bytes]:
        commands.append(command)
        raise Started

    monkeypatch.setattr(up, "_spawn", spawn)
    listener = SimpleNamespace(fileno=lambda: 3)
    monkeypatch.setattr("wattflow.server.settings.listen", lambda _: listener)
    with pytest.raises(Started):
        up.up(home=tmp_path, port=0, driver=driver, twin=True)
    (command,) = commands
    told: list[ServerSettings] = []
    monkeypatch.setattr(serving, "_serve", lambda settings, *_: told.append(settings))
    monkeypatch.setattr(serving, "_start_writing", lambda _: None)
    assert serving.main(command[3:]) == 0
    assert told[0].twin and f"--driver {driver}" in " ".join(command)


def test_a_server_that_is_told_so_has_a_twin_beside_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Twin, "warm", lambda _: None)
    database = open_store(tmp_path / "store.db")
    writer = Writer(database)
    service = recovery.restore(database, writer, Hand(), tmp_path, "least-energy", True)
    twin = service.decider.twin
    assert isinstance(twin, Twin) and twin.members[0].name == "least-energy"
    assert len(twin.members) * len(twin.seeds) >= 20
    writer.close()
    database.dispose()
