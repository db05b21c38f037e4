"""Set attention: counts for nothing until it is trained, sees candidates as a set, and has a file of its own layout."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from wattflow.generate import Arrivals, Recipe
from wattflow.learn import evolve
from wattflow.policy import attending, learned, placing, weights
from wattflow.sim import simulate
from wattflow.testing import check_policy

STREAM = Recipe("montage", 40, 12, arrivals=Arrivals("poisson", 0.05))


class Memory(NamedTuple):
    """As much of a State as attention looks at."""

    memory: np.ndarray


def drawn() -> np.ndarray:
    return np.random.default_rng(3).normal(0.0, 0.5, weights.LARGE_SIZE)


def test_without_weights_it_is_the_flagship_and_without_an_output_the_small_network() -> None:
    workload = STREAM.draw(5)
    flagship = simulate(workload, "mixed", "wattflow", seed=2)
    zero = simulate(workload, "mixed", learned.with_weights(np.zeros(weights.LARGE_SIZE)), seed=2)
    start = simulate(workload, "mixed", learned.with_weights(evolve.start(1, "attention").theta), seed=2)
    assert zero.attempts.tobytes() == start.attempts.tobytes() == flagship.attempts.tobytes()
    silent = drawn()
    silent[weights.ATTEND + attending.OUT :] = 0.0
    small = simulate(workload, "mixed", learned.with_weights(silent[: weights.SIZE]), seed=2)
    large = simulate(workload, "mixed", learned.with_weights(silent), seed=2)
    heard = simulate(workload, "mixed", learned.with_weights(drawn()), seed=2)
    assert large.attempts.tobytes() == small.attempts.tobytes() != heard.attempts.tobytes()


@pytest.mark.slow
def test_any_weights_keep_the_contract() -> None:
    check_policy(learned.with_weights(drawn()))


def test_it_is_softmax_attention() -> None:
    rng = np.random.default_rng(7)
    theta, rows = rng.normal(0.0, 0.5, attending.SIZE), rng.normal(0.0, 1.0, (9, placing.N))
    state = Memory(np.concatenate([theta, np.zeros(placing.N + 9 * attending.SLOT)]))
    first, slots = attending.SIZE, attending.SIZE + placing.N
    for r, row in enumerate(rows):
        state.memory[first : first + placing.N] = row
        attending.keep(state, first, 0, slots + r * attending.SLOT, float(r))
    found = [attending.seen(state, slots, len(rows), r, 0) for r in range(len(rows))]
    layer = theta[: attending.OUT].reshape(attending.IN + 1, 3, attending.SIZE_OF)
    three = np.einsum("rj,jki->kri", rows[:, placing.AROUND_N :], layer[:-1]) + layer[-1][:, None, :]
    match = np.exp(three[0] @ three[1].T / 2.0)
    context = match / match.sum(1, keepdims=True) @ three[2]
    expected = np.arange(9) + (context / (1.0 + np.abs(context))) @ theta[attending.OUT :]
    assert found == pytest.approx(expected.tolist())


def test_files_tell_both_networks_apart(tmp_path: Path) -> None:
    weights.save(tmp_path / "large.npz", drawn(), {"net": "attention"})
    weights.save(tmp_path / "small.npz", drawn()[: weights.SIZE], {})
    assert (weights.load(tmp_path / "large.npz")[0] == drawn()).all()
    assert len(weights.load(tmp_path / "small.npz")[0]) == weights.SIZE
