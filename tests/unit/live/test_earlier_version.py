"""What version 0.1.0 wrote (snapshot and journal of an engine, those of the server's decider) starts and goes on here.

``engine-0.1.0.tar.xz`` was made by that version's sources, with this module on their path: ``make(folder)`` runs the
first half of the story, then leaves what was written and, in ``expected.json``, the placements of the second half.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from wattflow.engine.validate import validate_state
from wattflow.live import FAILED, FINISHED, GONE, NODE, STARTED, TASK, Engine, Power, journal
from wattflow.live.journal import Journal
from wattflow.live.protocol import Act, Step
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.runtime import messages as m
from wattflow.runtime.decider import JournaledEngine

WRITTEN = Path(__file__).parent / "engine-0.1.0.tar.xz"
HALF, END = 6, 14
CURVE = PowerProfile((0.0, 4.0), (40.0, 90.0))


def cluster() -> Cluster:
    sleepy = [Node(f"s{i}", 4, 8 << 30, power=CURVE, sleep=Sleep(3.0, 2.0, after_s=2.5)) for i in range(3)]
    return Cluster("earlier", (*sleepy, Node("always", 4, 8 << 30, power=CURVE)))


def tell(engine: Any, now: int, step: Step, put: Any) -> None:
    """What a driver reports of a step: it starts all, ends two of three, and carries sleep and waking out."""
    for number, placement in enumerate(step.placements):
        put(STARTED, placement.attempt)
        if number % 3 < 2:
            put(FAILED if (now + number) % 7 == 0 else FINISHED, placement.attempt)
    for action in step.actions:
        if action.kind in (Act.SLEEP, Act.WAKE):
            put(NODE, action.who, state=Power.ASLEEP if action.kind == Act.SLEEP else Power.ON)


def story(engine: Engine, first: int, last: int) -> list[list[int]]:
    """Workflows with edges of time come, nodes sleep and wake, one leaves; the placements as plain numbers."""
    placed = []
    for now in range(first, last):
        rng = np.random.default_rng(now)
        wide = engine.shape((Variant(cores=2.0),), Function("f", 0.5))
        gang = engine.shape((Variant(cores=1.0),), "g", parts=2)
        flow = engine.workflow(deadline_s=now + 50.0)
        for tag in range(3 if now % 4 < 2 else 0):
            estimate_s, release_s = float(rng.uniform(1, 5)), float(now + rng.integers(0, 3))
            engine.put(TASK, gang if tag == 2 else wide, workflow=flow, estimate_s=estimate_s, release_s=release_s)
        if now == 9:
            engine.put(GONE, engine.nodes["always"])
        step = engine.step(float(now))
        tell(engine, now, step, engine.put)
        placed += [[now, *map(int, (p.attempt, p.task, p.node, p.part))] for p in step.placements]
    return placed


def served(decider: JournaledEngine, first: int, last: int) -> list[list[int]]:
    """The same through the server's decider."""
    placed = []
    for now in range(first, last):
        variants = [m.Variant(name="cpu", cpus=1.0 + now % 2, memory_bytes=1 << 28)]
        shape, flow = decider.shape(variants, "f"), decider.workflow(now, None)
        for tag in range(4):
            decider.put(TASK, shape, workflow=flow, estimate_s=2.0 + tag, tag=tag)
        step = decider.step(float(now))
        tell(decider, now, step, decider.put)
        placed += [[now, *map(int, (p.attempt, p.task, p.node, p.part))] for p in step.placements]
    return placed


def make(folder: Path) -> None:
    """Write the first half, and what the second half places. Run by the sources of 0.1.0."""
    with np.errstate(over="ignore"):
        written = Journal(Engine("least-energy", cluster(), seed=3), folder / "journal")
        story(written.engine, 0, HALF // 2)
        written.checkpoint()
        story(written.engine, HALF // 2, HALF)
        written.close()
        decider = JournaledEngine("sjf")
        for name in ("a", "b"):
            decider.node(m.Node(name=name, cpus=4.0, memory_bytes=8 << 30))
        served(decider, 0, HALF // 2)
        decider.save(folder / "decider")
        decider.entries.clear()
        served(decider, HALF // 2, HALF)
        (folder / "entries").write_bytes(msgspec.msgpack.encode(decider.entries))
        expected = {"engine": story(written.engine, HALF, END), "decider": served(decider, HALF, END)}
    (folder / "expected.json").write_text(json.dumps(expected))


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_a_journal_of_0_1_0_is_recovered_and_goes_on_as_it_would_have(earlier: Path) -> None:
    expected = json.loads((earlier / "expected.json").read_text())["engine"]
    assert {row[0] for row in expected} > {9}
    with np.errstate(over="ignore"), journal.recover(earlier / "journal") as resumed:
        assert int(resumed.engine.state.counts.timer_n[0]) > 0
        assert story(resumed.engine, HALF, END) == expected
    validate_state(resumed.engine.state)


def test_a_decider_of_0_1_0_loads_its_snapshot_and_replays_its_entries(earlier: Path) -> None:
    expected = json.loads((earlier / "expected.json").read_text())["decider"]
    decider = JournaledEngine("sjf")
    with np.errstate(over="ignore"):
        decider.load(earlier / "decider")
        last_s = decider.replay(msgspec.msgpack.decode((earlier / "entries").read_bytes()))
        assert last_s == HALF - 1
        assert served(decider, HALF, END) == expected


def test_a_cold_start_of_0_1_0_keeps_what_else_is_known_of_its_function() -> None:
    """An entry says one fact of a function, by name; another one's would be taken, or all others lost."""
    decider = JournaledEngine("fifo")
    decider.engine.function(Function("known", compute_bound=0.5))
    decider.replay(msgspec.msgpack.encode(["cold start", *fact]) for fact in (("known", 3.0), ("new", 2.0)))
    known, new = Function("known", cold_start_s=3.0, compute_bound=0.5), Function("new", cold_start_s=2.0)
    assert decider.engine.functions == {"known": known, "new": new}
