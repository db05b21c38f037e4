"""Random frames on random workloads: nothing is lost, nothing is done twice, joules close; with faults too."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reference_frames.cases import random_cluster, random_frame, random_workload
from reference_frames.laws import check_laws
from wattflow.frames import frame as frames
from wattflow.frames import frame_rules
from wattflow.frames.frame_run import run_frame
from wattflow.model.errors import InfeasibleTask, InvalidInput


def _run(seed: int, faults: bool, check_again: bool = False) -> None:
    rng = random.Random(seed)
    frame = random_frame(rng, faults)
    cluster = random_cluster(rng)
    gangs = frame.barriers is not None and frame.barriers.gangs
    workload = random_workload(rng, cluster, gangs, faults)
    policy = rng.choice(frame_rules.names())
    try:
        run = run_frame(frame, workload, cluster, policy, seed=seed)
    except InvalidInput as refusal:
        # More placers than hosts, parts that no placer's hosts can hold, or slots with an order that is not theirs.
        known = isinstance(refusal, InfeasibleTask) or any(
            text in str(refusal) for text in ("without overlap", "the order must be fifo")
        )
        assert known, refusal
        event("refused")
        return
    event("ran")
    check_laws(run, frame)
    if check_again:
        again = run_frame(frame, workload, cluster, policy, seed=seed)
        assert again.attempts.tobytes() == run.attempts.tobytes()
        assert np.array_equal(again.energy_j, run.energy_j)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**9))
def test_every_frame_completes(seed: int) -> None:
    _run(seed, faults=False)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**9))
def test_every_frame_completes_with_faults(seed: int) -> None:
    _run(seed, faults=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_slots_that_look_leave_no_task_behind(seed: int) -> None:
    """Owners and slots on hosts of all sizes, with tasks that do not fit everywhere."""
    rng = random.Random(seed)
    owner, count = rng.random() < 0.7, rng.choice([1, 1, 3])
    placers = frames.Placers(
        count=count if owner else 1, rule="owner" if owner else "hash", binding="early", both=owner and seed % 2 == 0,
        forget_s=rng.choice([0.0, 2.0]) if owner else 0.0,
    )  # fmt: skip
    frame = frames.Frame(
        "slots",
        "delegated" if placers.count > 1 else "decentralised",
        broker=frames.Broker(split="object") if placers.count > 1 else None,
        placers=placers,
        hosts=frames.Hosts(queue=True),
        stealing=frames.Stealing(slots=rng.choice([1, 2])) if not owner or rng.random() < 0.5 else None,
    )
    cluster = random_cluster(rng)
    check_laws(run_frame(frame, random_workload(rng, cluster, False), cluster, seed=seed), frame)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_same_seed_same_bytes(seed: int) -> None:
    _run(seed, faults=seed % 2 == 0, check_again=True)
