"""Names of policies: groups that hold each once, names of 0.1 that still work, settings in their place."""

from __future__ import annotations

import logging

import pytest

from wattflow.generate import Recipe
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry, spec
from wattflow.sim import simulate

STREAM = Recipe("montage", 20, 3)


def test_every_policy_is_in_one_group_and_the_first_five_are_among_them() -> None:
    grouped = [name for some in registry.GROUPS.values() for name in some]
    assert sorted(grouped) == sorted(registry.names()) and len(set(registry.START)) == 5
    assert set(registry.START) <= set(grouped) and not set(registry.ALIASES) & set(grouped)


@pytest.mark.parametrize(("old", "new"), registry.ALIASES.items())
def test_a_name_of_before_is_the_setting_it_stands_for(old: str, new: str, caplog: pytest.LogCaptureFixture) -> None:
    spec.told_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        policy = registry.load(old)
        registry.load(old)
    assert caplog.messages == [f"policy {old} is {new} now; the old name goes with the next release"]
    same = registry.load(new)
    assert policy.name == old and registry.is_known(old)
    for part in ("score", "priority", "rank", "sleep_after_s", "settings", "params"):
        assert getattr(policy, part) == getattr(same, part)


def test_settings_after_a_name_of_before_win() -> None:
    assert registry.load("eft-sleep:sleep=7").sleep_after_s == 7.0
    assert registry.load("scp-wattflow:wait=0.5").params["wait"] == 0.5


def test_sleep_is_seconds_for_every_policy_and_idle_the_flagships_dial(caplog: pytest.LogCaptureFixture) -> None:
    spec.told_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for name in ("wattflow", "learned", "fifo"):
            policy = registry.load(f"{name}:sleep=120")
            assert policy.sleep_after_s == 120.0 and policy.params.get("idle", 2.0) == 2.0
    assert len(caplog.messages) == 2 and "break-even times are idle= now" in caplog.messages[0]
    assert registry.load("wattflow:idle=4").params["idle"] == 4.0


def test_an_order_that_a_policy_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="one of work, path, start, not 'size'"):
        registry.load("fifo:order=size")
    with pytest.raises(InvalidInput, match="its queue follows the plan"):
        registry.load("heft:order=path")
    with pytest.raises(InvalidInput, match="takes order=path"):
        registry.load("wattflow:order=work")


def test_an_order_changes_the_run() -> None:
    workload = STREAM.draw(1)
    plain, by_path = (simulate(workload, "mixed", name, seed=1) for name in ("sjf", "sjf:order=path"))
    assert plain.attempts.tobytes() != by_path.attempts.tobytes()
