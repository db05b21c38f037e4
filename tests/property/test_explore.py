"""Laws of designs and of the division of variance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.lab.explore.design import design_of
from wattflow.lab.explore.point import LEVELS, slower_shares
from wattflow.lab.explore.stats import decompose

NAMES = ("frame", "policy", "workload")


@given(st.tuples(*(st.integers(2, 4) for _ in NAMES), st.integers(1, 3)), st.integers(0, 2**32 - 1))
def test_shares_add_up_and_do_not_depend_on_order(shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cube = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3)
    shares = decompose(cube, NAMES)
    assert math.isclose(sum(share.share for share in shares), 1.0, abs_tol=1e-9)
    assert all(share.share >= 0 for share in shares)
    assert sum(share.freedom for share in shares) == cube.size - 1
    shuffled = cube[rng.permutation(shape[0])][:, rng.permutation(shape[1])]
    for one, other in zip(shares, decompose(shuffled, NAMES)):
        assert math.isclose(one.share, other.share, abs_tol=1e-9)
    turned = {frozenset(s.factors): s.share for s in decompose(cube.transpose(2, 0, 1, 3), ("workload", *NAMES[:2]))}
    assert all(math.isclose(turned[frozenset(s.factors)], s.share, abs_tol=1e-9) for s in shares)


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, 53), min_size=1, max_size=4, unique=True),
    st.integers(1, 3),
)
def test_points_are_the_product_of_the_axes(counts: list[int], hosts: list[int], loads: list[int], seeds: int) -> None:
    facts = {
        "frames": [{"use": "hash", "placers": {"count": counts}, "stealing": {"hosts": hosts}}],
        "workloads": [{"make": "ibm-like", "trace": loads, "tasks": 10}],
        "seeds": seeds,
    }
    points = design_of(facts, "design", Path()).points
    assert len({point.key for point in points}) == len(points) == len(counts) * len(hosts) * len(loads) * seeds


@given(st.lists(st.floats(1.0, 1e7), min_size=1, max_size=60))
def test_shares_of_slower_tasks_are_exact(slow: list[float]) -> None:
    found = slower_shares(np.array(slow))
    for level, share in zip(LEVELS.tolist(), found):
        above = sum(value > level * (1 + 1e-9) for value in slow)
        assert math.isclose(share, above / len(slow), abs_tol=1e-12)
