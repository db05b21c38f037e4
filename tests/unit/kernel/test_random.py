"""splitmix64 gives the published numbers, compiled, uncompiled and for arrays."""

from __future__ import annotations

import numpy as np

from wattflow.kernel import random
from wattflow.kernel.jit import jit


@jit
def _draws(state, count):
    out = np.zeros(count, np.uint64)
    for i in range(count):
        state[0] += random.STEP
        out[i] = random.mix(state[0])
    return out


@jit
def _unit(bits):
    return random.unit(bits)


@jit
def _hashed(a, b):
    return random.hashed(a, b)


def test_the_stream_is_splitmix64() -> None:
    # The first numbers of the reference implementation (Vigna, splitmix64.c) for seed 1234567.
    with np.errstate(over="ignore"):
        drawn = _draws(np.array([1234567], np.uint64), 5)
    assert drawn.tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


def test_a_unit_is_never_0_and_at_most_1() -> None:
    assert 0.0 < _unit(np.uint64(0)) < 1e-15
    assert _unit(np.uint64(2**64 - 1)) == 1.0


def test_arrays_hash_as_scalars_do() -> None:
    a, b = np.arange(5, dtype=np.uint64), np.arange(7, 12, dtype=np.uint64)
    with np.errstate(over="ignore"):
        assert random.hashed_each(a, b).tolist() == [int(_hashed(x, y)) for x, y in zip(a, b, strict=True)]


def test_streams_of_neighbouring_seeds_have_nothing_in_common() -> None:
    words = [random.stream(seed) for seed in range(1000)]
    assert len(set(words)) == 1000
    assert abs(np.mean([word / 2**64 for word in words]) - 0.5) < 0.03
