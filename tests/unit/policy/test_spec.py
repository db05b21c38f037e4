"""Policies as they are typed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from reference.hand import node, nodes, tasks
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry, spec
from wattflow.policy.base import Policy
from wattflow.sim import simulate


def test_names_are_separated_by_commas() -> None:
    assert spec.split("fifo") == ["fifo"]
    assert spec.split(" fifo , my.py:frugal,fifo:sleep=3") == ["fifo", "my.py:frugal", "fifo:sleep=3"]
    for text in ("", "  ", ","):
        with pytest.raises(InvalidInput, match="names no policy"):
            spec.split(text)
    for text in ("fifo,", "fifo,,sjf", ",fifo"):
        with pytest.raises(InvalidInput, match="empty name between two commas"):
            spec.split(text)


def test_what_stands_before_the_settings() -> None:
    assert spec.base_of("fifo:sleep=6:queue=strict") == ("fifo", ["sleep=6", "queue=strict"])
    assert spec.base_of("my.py:frugal:late=2") == ("my.py:frugal", ["late=2"])
    assert [spec.is_plain(text) for text in ("fifo", "fifo:sleep=1")] == [True, False]
    for text in ("my.py", "my.py:late=2", "my.py:"):
        with pytest.raises(InvalidInput, match="name the policy in the file"):
            spec.base_of(text)


def typed(text: str) -> Policy:
    name, settings = spec.base_of(text)
    return spec.configured(registry.load(name), text, settings)


@pytest.mark.parametrize(("text", "after_s"), [("fifo:sleep=0", 0.0), ("fifo:sleep=600", 600.0)])
def test_a_time_before_sleep_is_a_number_from_0_on(text: str, after_s: float) -> None:
    policy = typed(text)
    assert (policy.name, policy.sleep_after_s) == (text, after_s)


@pytest.mark.parametrize("text", ["fifo:sleep=-1", "fifo:sleep=inf", "fifo:sleep=nan", "fifo:sleep=", "fifo:sleep=x"])
def test_a_time_before_sleep_is_nothing_else(text: str) -> None:
    with pytest.raises(InvalidInput, match="needs a number of at least 0"):
        typed(text)


def test_numbers_of_the_policy_may_be_any_within_its_limits() -> None:
    policy = spec.configured(registry.load("wattflow"), "w", ["wait=inf", "margin=-1.5"])
    assert (policy.params["wait"], policy.params["margin"]) == (math.inf, -1.5)
    for text in ("carbon-delay:delay_s=nan", "carbon-delay:delay_s=two"):
        with pytest.raises(InvalidInput, match=r"needs a number$"):
            typed(text)


def test_settings_that_do_not_exist_name_those_that_do() -> None:
    assert spec.configured(registry.load("fifo"), "f", ["queue=strict"]).settings.queue == "strict"
    for text, words in (
        ("fifo:queue=lifo", "queue is one of skip, strict, easy-backfill, not 'lifo'"),
        ("fifo:delay_s=3", "fifo has no 'delay_s'; its keys are sleep, queue"),
        ("fifo:slep=30", "fifo has no 'slep'; its keys are sleep, queue, order, levels, shield$"),
        ("heft:slep=30", "heft has no 'slep'; .* order, levels$"),
        ("wattflow:slep=30", "levels, shield$"),
        ("carbon-delay:wait", "'wait' is no setting; write key=value with one of delay_s"),
    ):
        with pytest.raises(InvalidInput, match=words):
            typed(text)


def test_levels_are_off_or_as_the_policy_has_them() -> None:
    assert registry.load("wattflow").settings.frequencies == (0, 1, 2)
    assert registry.load("wattflow:levels=off").settings.frequencies == (0,)
    assert registry.load("wattflow:levels=5").settings.frequencies == (0, 1, 2, 3, 4)
    for many in ("on", "1", "9", "-2", "2.0", ""):
        with pytest.raises(InvalidInput, match=r"levels is off, or how many are looked at \(2 to 8\), not"):
            registry.load(f"wattflow:levels={many}")
    with pytest.raises(InvalidInput, match="fifo uses no levels, so levels can only be off"):
        registry.load("fifo:levels=4")


def test_the_queue_may_go_by_latest_start() -> None:
    # Of one workflow, side by side: the longest has no slack, the shortest has most.
    done = simulate(tasks([10.0, 20.0, 15.0]), nodes(node(1)), registry.load("fifo:order=start"))
    assert done.start_s_by_task().tolist() == [35.0, 0.0, 20.0]


def test_a_shield_takes_levels_off_and_is_never_empty() -> None:
    shielded = registry.load("wattflow:shield=kubernetes:levels=off")
    assert shielded.steer is not None and shielded.settings.frequencies == (0,)
    assert registry.load("wattflow:shield=kubernetes").settings.frequencies == (0, 1, 2)
    with pytest.raises(InvalidInput, match="leave sleep, queue and order out"):
        registry.load("wattflow:queue=strict:shield=kubernetes")
    with pytest.raises(InvalidInput, match="or none"):
        registry.load("wattflow:shield=")


def test_a_policy_of_a_file_goes_by_its_variable_or_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "my.py"
    path.write_text('from wattflow.policy.base import Policy\nFRUGAL = Policy("frugal")\n')
    assert [spec.from_file(f"{path}:{name}").name for name in ("FRUGAL", "frugal")] == ["frugal", "frugal"]
    with pytest.raises(InvalidInput, match="has no policy 'greedy'; it has FRUGAL"):
        spec.from_file(f"{path}:greedy")
    with pytest.raises(InvalidInput, match="no such file"):
        spec.from_file(f"{tmp_path}/none.py:x")


def test_what_a_file_without_a_policy_is_told_to_do_makes_one(tmp_path: Path) -> None:
    empty, follows = tmp_path / "empty.py", tmp_path / "follows.py"
    empty.write_text("")
    with pytest.raises(InvalidInput, match="has no policy 'own'") as told:
        spec.from_file(f"{empty}:own")
    decorator = str(told.value).rpartition(" ")[2].replace("NAME", "'own', compiled=False")
    follows.write_text(f"import wattflow.policy\n\n\n{decorator}\ndef f(state, task, variant, out):\n    pass\n")
    assert spec.from_file(f"{follows}:own").name == "own"


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("wattflow", "wattflow:shield=kubernetes"),
        ("wattflow:late=300", "wattflow:late=300:shield=kubernetes"),
        ("wattflow:shield=none", "wattflow:shield=none"),
        ("wattflow:sleep=60", "wattflow:sleep=60"),
        ("least-energy", "least-energy"),
        ("planned", "wattflow:shield=kubernetes"),
        ("planned:late=300", "wattflow:late=300:shield=kubernetes"),
        ("my.py:frugal", "my.py:frugal"),
    ],
)
def test_a_driver_that_goes_on_for_days_shields_the_flagship(typed: str, means: str) -> None:
    assert registry.served(typed) == means
    if not typed.endswith("frugal"):
        assert (registry.load(means).steer is not None) == means.endswith("shield=kubernetes")
