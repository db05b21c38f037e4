"""The label that says how fast a node is."""

from __future__ import annotations

import logging

import pytest

from wattflow.kube import accounting, power
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider

from .making import node, pod


def test_the_label_is_read_and_one_is_the_default() -> None:
    assert power.speed_of(node("a", {power.SPEED: "1.5"})) == 1.5
    assert power.speed_of(node("a")) == 1.0


@pytest.mark.parametrize("text", ["fast", "0", "-1", "inf", "nan", ""])
def test_a_value_that_is_no_positive_number_is_told_and_counts_as_one(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert power.speed_of(node("a", {power.SPEED: text})) == 1.0
    assert "positive number" in caplog.text


@pytest.mark.slow
def test_the_faster_node_ends_a_pod_earlier() -> None:
    decider = EngineDecider("min-min")
    for name, speed in (("slow", "1"), ("fast", "3")):
        one = node(name, {power.SPEED: speed})
        decider.set_node(one, accounting.node_allocatable(one), None)
    wanted = pod("p", cpu="2")
    decider.want(Wanted(wanted, accounting.pod_requests(wanted), estimate_s=30.0))
    assert [choice.node for choice in decider.step(1.0).choices] == ["fast"]
