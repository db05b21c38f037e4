"""Forks go their own way; snapshots and journals give the same engine back, whenever it was killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import weakref
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wattflow.engine.validate import validate_state
from wattflow.live import FINISHED, GONE, STARTED, TASK, Engine, Placement, fork, journal
from wattflow.live.journal import Journal
from wattflow.model.cluster import Node
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.workflow import Function, Variant
from wattflow.policy import registry
from wattflow.testing.sample_states import sample_states


def begun(policy: str = "least-energy", seed: int = 4) -> Engine:
    engine = Engine(policy, sample_states()[1].cluster, seed=seed)
    play(engine, 0, 4)
    return engine


def play(engine: Engine, first: int, last: int) -> list[tuple[float, list[Placement]]]:
    """Tasks come, half of what was placed ends, once a node leaves; the same for every engine in the same state."""
    told = []
    for now in range(first, last):
        rng = np.random.default_rng(now)
        gpu = Variant("gpu", 1, 2**30, "gpu", 1, 0.5, 2**32, runtime_factor=0.3)
        shapes = [
            engine.shape((Variant(cores=1),), Function("f", 0.5)),
            engine.shape((Variant(cores=float(1 + now % 2)), gpu), "g"),
        ]
        flow = engine.workflow(deadline_s=50.0)
        for tag in range(8):
            engine.put(TASK, shapes[int(rng.integers(2))], workflow=flow, estimate_s=float(rng.uniform(1, 5)), tag=tag)
        placements = list(engine.step(float(now)).placements)
        for placement in placements[::2]:
            engine.put(STARTED, placement.attempt)
            engine.put(FINISHED, placement.attempt)
        if now == 5:
            engine.put(GONE, placements[0].node)
        told.append((float(now), placements))
    return told


def test_a_fork_goes_on_as_the_original_would_and_leaves_it_alone() -> None:
    engine = begun()
    copy = fork.fork(engine)
    before = {name: getattr(engine.state, name).tobytes() for name in engine.state.NAMES}
    ahead = play(copy, 4, 9)
    assert {name: getattr(engine.state, name).tobytes() for name in engine.state.NAMES} == before
    assert play(engine, 4, 9) == ahead


def test_a_fork_has_few_spare_rows_and_takes_more_when_it_needs_them() -> None:
    engine = begun()
    engine.room(4_000, 3_000)
    copy = fork.fork(engine)
    assert len(copy.state.tasks) < 1_500
    assert len(copy.state.attempts) < 500
    validate_state(copy.state)
    told = []
    for one in (engine, copy):
        one.node(Node("large", 64, 1 << 40, allocatable_cores=1e6))
        shape = one.shape((Variant(cores=1.0),))
        tasks = {one.put(TASK, shape, estimate_s=1.0, tag=tag) for tag in range(2_000)}
        assert len(tasks) == 2_000
        told.append([(placement.tag, placement.node) for placement in one.step(4.0).placements])
        validate_state(one.state)
    assert len(told[0]) >= 2_000
    assert told[0] == told[1]
    assert len(copy.state.tasks) >= 2_000


def test_a_fork_that_is_dropped_is_free_at_once() -> None:
    engine = Engine("least-energy")
    gc.disable()
    try:
        gone = weakref.ref(fork.fork(engine).state)
        assert gone() is None, "something in it holds itself"
    finally:
        gc.enable()


def test_a_fork_may_use_another_policy_and_grow() -> None:
    engine = begun()
    copy = fork.fork(engine)
    copy.use("sjf")
    for i in range(70):
        copy.node(sample_states()[0].cluster.nodes[i % 5])
    play(copy, 4, 8)
    assert len(engine._nodes.facts) == 5
    assert play(engine, 4, 6) == play(begun(), 4, 6)


@pytest.mark.parametrize(("policy", "last"), [("least-energy", 9), ("sjf", 9), ("heft", 9)])
def test_saved_and_loaded_is_the_same(policy: str, last: int, tmp_path: Path) -> None:
    engine = begun(policy)
    fork.save(engine, tmp_path / "engine", {"seen": 7})
    loaded, notes = fork.load(tmp_path / "engine")
    assert notes == {"seen": 7}
    for name in engine.state.NAMES:
        assert getattr(loaded.state, name).tobytes() == getattr(engine.state, name).tobytes(), name
    assert play(loaded, 4, last) == play(engine, 4, last)


def test_no_pickle_and_no_foreign_class_in_a_saved_engine(tmp_path: Path) -> None:
    fork.save(begun(), tmp_path / "engine")
    with zipfile.ZipFile(tmp_path / "engine") as archive:
        head = json.loads(archive.read("engine.json"))
        others = {name: archive.read(name) for name in ("state.npz", "desk.npz")}
    head["kept"]["_gone"] = {"!": "object", "n": 9999, "of": "subprocess:Popen", "v": {}}
    with zipfile.ZipFile(tmp_path / "other", "w") as archive:
        archive.writestr("engine.json", json.dumps(head))
        for name, data in others.items():
            archive.writestr(name, data)
    with pytest.raises(InvalidInput, match="subprocess:Popen"):
        fork.load(tmp_path / "other")
    (tmp_path / "none").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="holds no engine"):
        fork.load(tmp_path / "none")


def test_snapshot_and_journal_give_the_same_placements(tmp_path: Path) -> None:
    engine, plain = (
        Engine("least-energy", sample_states()[1].cluster),
        Engine("least-energy", sample_states()[1].cluster),
    )
    kept = Journal(engine, tmp_path)
    play(engine, 0, 3)
    kept.checkpoint()
    play(engine, 3, 5)
    engine.use("sjf")
    play(plain, 0, 5)
    plain.use("sjf")
    kept.close()
    with journal.recover(tmp_path) as again:
        assert play(again.engine, 5, 9) == play(plain, 5, 9)
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["journal-3", "snapshot-3"]


def test_a_torn_line_is_the_call_that_never_was(tmp_path: Path) -> None:
    engine = Engine("least-energy", sample_states()[1].cluster)
    with Journal(engine, tmp_path):
        play(engine, 0, 3)
    file = tmp_path / "journal-1"
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    steps = [i for i, line in enumerate(lines) if b'"step"' in line]
    file.write_bytes(b"".join(lines[: steps[1] + 1]) + lines[steps[1] + 1][:20])
    plain = Engine("least-energy", sample_states()[1].cluster)
    play(plain, 0, 2)
    with journal.recover(tmp_path) as again:
        recovered = again.engine
    # The end of the last step was told after it, and torn off; nothing else is missing.
    assert recovered.state.tasks.tobytes() == plain.state.tasks.tobytes()
    assert recovered.counts == plain.counts


def test_a_journalled_engine_is_not_decided_by_hand_and_a_folder_not_used_twice(tmp_path: Path) -> None:
    engine = begun()
    kept = Journal(engine, tmp_path)
    with pytest.raises(WattflowError, match="by hand"):
        engine.by_hand()
    with pytest.raises(InvalidInput, match="recover"):
        Journal(begun(), tmp_path)
    kept.close()
    engine.by_hand()


_KILLED = """
import sys
import weakref
sys.path.insert(0, sys.argv[2])
from unit.live.test_fork_journal import play
from wattflow.live import Engine, fork
from wattflow.live.journal import Journal
from wattflow.policy import registry
from wattflow.testing.sample_states import sample_states
engine = Engine("least-energy", sample_states()[1].cluster)
kept = Journal(engine, sys.argv[1])
play(engine, 0, 3)
usual = fork.os.fsync
def stop(descriptor):
    print("saving", flush=True)
    sys.stdin.read()
fork.os.fsync = stop
kept.checkpoint()
"""


def test_a_kill_during_save_loses_nothing(tmp_path: Path) -> None:
    tests = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _KILLED, str(tmp_path), str(tests)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "saving\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert any(entry.name.startswith(".") for entry in tmp_path.iterdir())  # the half-written one
    plain = Engine("least-energy", sample_states()[1].cluster)
    play(plain, 0, 3)
    with journal.recover(tmp_path) as again:
        assert play(again.engine, 3, 6) == play(plain, 3, 6)


def test_room_that_was_taken_is_in_the_journal_since_later_ids_depend_on_it(tmp_path: Path) -> None:
    engine = Engine("fifo")
    engine.node(Node("large", 64, 1 << 40))
    with Journal(engine, tmp_path):
        engine.room(4_000, 3_000)
        shape = engine.shape((Variant(cores=1.0),))
        for tag in range(3):
            engine.put(TASK, shape, estimate_s=1.0, tag=tag)
        placements = engine.step(0.0).placements
    with journal.recover(tmp_path) as resumed:
        for placement in placements:
            resumed.engine.put(FINISHED, placement.attempt)
        assert len(resumed.engine.step(1.0).ended) == 3


def test_a_policy_that_nobody_knows_is_an_error_of_the_journal_not_a_call_that_was_refused(tmp_path: Path) -> None:
    own = replace(registry.load("fifo"), name="own-rules")
    with Journal(begun(), tmp_path) as written:
        written.engine.use(own)
    with pytest.raises(InvalidInput, match=r"its policy 'own-rules' is in no registry; pass it as policies="):
        journal.recover(tmp_path)
    with journal.recover(tmp_path, {"own-rules": own}) as resumed:
        assert resumed.engine.policy.name == "own-rules"
