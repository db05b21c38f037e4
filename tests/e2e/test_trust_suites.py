"""A slice of `make bench-trust`: poison, drawn requests, and one sequence of faults, in seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("schemathesis")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import trust_api
import trust_poison
import trust_rig
import trust_stateful

from wattflow.runtime.home import Home

pytestmark = pytest.mark.xdist_group("runtime")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with trust_rig.house(tmp_path_factory.mktemp("trust") / "home", "--cpus", "4") as home:
        yield home


def test_poison_ends_no_process_and_disturbs_no_neighbour(house: Home, tmp_path: Path) -> None:
    found = trust_poison.attack(house, tmp_path, seed=7, count=40)
    assert found.counts["cases"] == 40 and found.counts["neighbours"] > 3
    assert not found.failures


def test_no_request_of_any_role_makes_the_server_stumble_or_hang(house: Home) -> None:
    found = trust_api.requests_of(house, number=7, each=2)
    assert found.counts["requests"] >= 100
    assert not found.failures


def test_after_a_sequence_of_faults_everything_ended_once_and_nothing_is_left() -> None:
    found = trust_stateful.portion(first_seed=3, count=1)
    assert found.counts["sequences"] >= 1 and not found.failures
