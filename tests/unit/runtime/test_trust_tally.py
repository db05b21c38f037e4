"""Portions of `make bench-trust` add up, failures and all; its grammars draw the same from the same seed."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import trust
import trust_poison
from trust_tally import Portion, read, recorded, summed


def portion(seed: int, **about: float) -> Portion:
    return Portion(part="poison", seed=seed, took_s=1.0, counts={"cases": 100, **about}, sources="s", commit="c")


def test_portions_keep_their_seeds_and_failures(tmp_path: Path) -> None:
    file = tmp_path / "out" / "trust.json"
    recorded(file, Portion(part="api", seed=9, took_s=1.0, sources="s"))
    recorded(file, portion(1, ended=1))
    found = recorded(
        file, Portion(part="poison", seed=2, took_s=2.0, counts={"cases": 50}, failures=["bad"], sources="s")
    )
    assert [one.seed for one in found] == [1, 2] and len(read(file)) == 3
    every = summed(found)
    assert (every.counts, every.failures, every.took_s) == ({"cases": 150, "ended": 1}, ["bad"], 3.0)


def test_a_figure_is_the_sum_or_the_least_good_and_nothing_is_nan(capsys: pytest.CaptureFixture[str]) -> None:
    at_least = trust.Figure("f", "p", "ratio", "x", ">=2", least=2)
    both = [Portion(part="p", seed=n, took_s=0.0, worst={"ratio": value}) for n, value in enumerate((3.0, 1.0))]
    assert trust.measured(at_least, both) == 1.0
    assert trust.measured(at_least._replace(most=5, least=-math.inf), both) == 3.0
    assert math.isnan(trust.measured(at_least, []))
    assert trust.tell([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len({line.split()[1] for line in lines}) == len(lines) == len(trust.FIGURES)
    assert all(line.endswith("short") and " nan " in line for line in lines)


def test_the_grammar_draws_the_same_from_the_same_seed_and_every_family(tmp_path: Path) -> None:
    def drawn(seed: int) -> list[tuple[str, str]]:
        source = trust_poison.cases(random.Random(seed), tmp_path)
        return [(case.family, case.shown) for case, _ in zip(source, range(300), strict=False)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {family for family, _ in drawn(1)} == {"task", "payload", "name", "document"}
    assert len({shown for _, shown in drawn(1)}) > 200
