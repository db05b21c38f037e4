"""The scheduler's configuration and the power side."""

from __future__ import annotations

import pytest

from wattflow.kube import settings
from wattflow.kube.filters.snapshot import NodeView, Snapshot
from wattflow.kube.power import LABEL, NodePowerProfile, NodePowerSpec, Watts, cores_below_m, name_as_label
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

from .making import node, pod


def test_every_key_is_read() -> None:
    text = """
name = "ours"
mode = "shadow"
policy = "least-energy"
[limits]
per_s = 100
concurrency = 8
[lease]
leader_elect = false
[energy]
node_cap_w = 200
[workflows]
argo = false
finish_first = true
[shared]
claim = true
"""
    found = settings.parse(text)
    assert (found.name, found.mode, found.per_s, found.concurrency) == ("ours", "shadow", 100, 8)
    assert (found.leader_elect, found.node_cap_w, found.argo, found.finish_first, found.claim) == (
        False, 200, False, True, True,
    )  # fmt: skip


def test_all_mistakes_are_told_at_once() -> None:
    text = """
polcy = "x"
mode = "dream"
policy = "nobody"
[lease]
renew_s = 20
leader_elect = "yes"
[shared]
release_s = 1
"""
    with pytest.raises(InvalidInput) as caught:
        settings.parse(text)
    told = str(caught.value)
    for part in ("polcy", "mode", "nobody", "renew_s < lease_s", "leader_elect", "release_s must be more"):
        assert part in told, told


def profile(name: str, **spec: object) -> NodePowerProfile:
    one = NodePowerProfile(spec=NodePowerSpec(**spec))  # type: ignore[arg-type]
    one.metadata.name = name
    return one


def test_the_most_special_profile_counts_and_unknown_is_not_zero() -> None:
    watts = Watts()
    assert watts.profile_of(node("n")) is None
    assert watts.node_w(NodeView.of(node("n"))) is None
    watts.on_profile("ADDED", profile("wide", node_selector={"rack": "a"}, busy=[0, 4], watts=[10, 20]))
    watts.on_profile("ADDED", profile("named", nodes=["n"], busy=[0, 4], watts=[30, 70]))
    found = watts.profile_of(node("n", {"rack": "a"}))
    assert found is not None and found.idle_w == 30
    other = watts.profile_of(node("m", {"rack": "a"}))
    assert other is not None and other.idle_w == 10
    view = NodeView.of(node("n", {"rack": "a"}), [pod("p", "n", cpu="2")])
    assert watts.node_w(view) == 50 and watts.added_w(view, 1000) == 10
    watts.integrate(Snapshot({"n": view}), 3.0)
    assert watts.joules == {"n": 150.0}


def test_a_label_names_a_known_profile_and_a_wrong_one_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    from wattflow.clusters import profiles

    name = profiles.list_profiles()[0].name
    watts = Watts()
    assert watts.profile_of(node("n", {LABEL: name_as_label(name)})) is not None
    for _ in range(3):
        assert watts.profile_of(node("n", {LABEL: "nothing"})) is None
    assert caplog.text.count("no power profile named") == 1


def test_a_cap_leaves_as_many_cores_as_stay_below_it() -> None:
    curve = PowerProfile((0, 2, 4), (100, 140, 160))
    assert cores_below_m(curve, 150) == 3000
    assert cores_below_m(curve, 99) == 0
    assert cores_below_m(curve, 160) >= 4000
    watts = Watts()
    watts.on_profile("ADDED", profile("p", nodes=["n"], busy=[0, 2, 4], watts=[100, 140, 160], cap_w=150))
    watts.profile_of(node("n"))
    assert watts.capped("n", {"cpu": 4000, "pods": 5}) == {"cpu": 3000, "pods": 5}


def test_a_power_profile_that_does_not_exist_is_told_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"default_profile.*no-such-machine"):
        settings.parse('[energy]\ndefault_profile = "no-such-machine"\n')
    assert settings.parse('[energy]\ndefault_profile = "ccf:xeon-6338n-xr11"\n').default_profile
