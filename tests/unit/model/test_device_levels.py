"""Levels of a device: what is known of a function counts, a compute-bound share stands in, unknown is None."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from wattflow.clusters import write_cluster
from wattflow.clusters.toml_file import parse_cluster, read_cluster
from wattflow.model.cluster import DeviceLevels, FunctionLevels
from wattflow.model.errors import InvalidInput

COPY = FunctionLevels("copy", (1.0, 1.005, 1.13), (1.0, 0.85, 0.81))
FILE = """
name = "x"
[[nodes]]
name = "n"
cores = 1
memory = 1
devices = [{ kind = "gpu", levels = LEVELS }]
"""


def read(levels: str) -> DeviceLevels | None:
    return parse_cluster(FILE.replace("LEVELS", levels), "x.toml").nodes[0].devices[0].levels


def test_a_known_function_has_its_own_row_and_an_unknown_one_no_cost() -> None:
    levels = DeviceLevels("clock_mhz", (1980.0, 1500.0, 1300.0), (COPY,))
    assert levels.cost("copy", 2) == (1.13, 0.81) and levels.cost("other", 0) == (1.0, 1.0)
    assert levels.cost("other", 2) is None


def test_a_lower_level_makes_nothing_quicker_but_for_noise() -> None:
    FunctionLevels("f", (1.0, 0.99), (1.0, 0.8))
    with pytest.raises(ValueError, match="makes nothing quicker"):
        FunctionLevels("f", (1.0, 1e-308), (1.0, 0.8))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_compute_bound_share_follows_the_clock(share: float) -> None:
    cost = DeviceLevels("clock_mhz", (2000.0, 1000.0), compute_share=share).cost("f", 1, idle_share=0.2)
    assert cost is not None and cost[0] == pytest.approx(1 + share)
    assert cost[1] == pytest.approx(0.2 * (1 + share) + 0.8 * 0.5625)


@pytest.mark.parametrize(
    ("levels", "where", "what"),
    [
        ("3", "nodes[0].devices[0].levels", "must be a table"),
        ("{ values = [1] }", "devices[0].levels", "at least two levels"),
        ("{ values = [1000, 2000] }", "devices[0].levels", "must fall"),
        ("{ values = [2, -1] }", "devices[0].levels", "above 0"),
        ("{ knob = 'volts', values = [2, 1] }", "levels.knob", "allowed: clock_mhz, cap_w"),
        ("{ values = [2, 1], compute_share = 1.5 }", "devices[0].levels", "0 to 1"),
        ("{ knob = 'cap_w', values = [2, 1], compute_share = 1 }", "devices[0].levels", "functions their own rows"),
        ("{ values = [2, 1], functions = { f = { seconds = [1], joules = [1] } } }", "levels", "each of the 2 levels"),
        ("{ values = [2, 1], functions = { f = { seconds = [2, 3], joules = [1, 1] } } }", "functions.f", "must be 1"),
        ("{ values = [2, 1], functions = { f = { seconds = [1, 0], joules = [1, 1] } } }", "functions.f", "above 0"),
        ("{ values = [2, 1], speed = 3 }", "levels.speed", "unknown key"),
    ],
)
def test_every_mistake_is_told_with_its_place(levels: str, where: str, what: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read(levels)
    assert where in str(error.value) and what in str(error.value)


def test_levels_come_back_from_a_written_file(tmp_path: Path) -> None:
    levels = "{ values = [1980, 1500, 1300], compute_share = 0.5, functions = { copy = { seconds = [1, 1.005, 1.13], joules = [1, 0.85, 0.81], provenance = 'guessed' } } }"  # noqa: E501
    cluster = parse_cluster(FILE.replace("LEVELS", levels), "x.toml")
    write_cluster(cluster, tmp_path / "y.toml")
    assert read_cluster(tmp_path / "y.toml") == cluster


def test_nan_never_passes() -> None:
    with pytest.raises(ValueError, match="above 0"):
        DeviceLevels("clock_mhz", (2000.0, math.nan))
    with pytest.raises(ValueError, match="above 0"):
        FunctionLevels("f", (1.0, math.nan), (1.0, 1.0))
