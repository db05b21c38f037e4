"""Extender mode: kube-scheduler asks us, keeps its own filters, and binds where our policy would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from kuberig import parts
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import CONTROL_PLANE, Rig
from our_scheduler import OurScheduler
from test_scheduler import bound, pod
from under_test import unavailable

from wattflow.clusters import resolve_profile
from wattflow.kube.power import name_as_label

CONFIG = 'mode = "extender"\n[http]\nport = PORT\n[energy]\nprofiles = false\n[workflows]\nargo = false\n'
PROFILE = "wattflow.io/power-profile"


@pytest.fixture
def rig() -> Iterator[Rig]:
    lacking = [part.name for part in parts.missing((*CONTROL_PLANE, "kwok"))]
    if lacking:
        unavailable(f"the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    started = Rig.start(Options(scheduler=False), die_with_parent=True)
    yield started
    started.stop()


def test_kube_scheduler_binds_where_our_policy_would(rig: Rig) -> None:
    profiles = {"one": "ichnos:gpgnode-05/performance", "other": "ccf:epyc-7763-dl325"}
    curves = {name: resolve_profile(profile, 8) for name, profile in profiles.items()}
    cheap = min(curves, key=lambda name: curves[name].at(8) - curves[name].at(0))
    shapes = [Shape(name, cpu="8", labels={PROFILE: name_as_label(profile)}) for name, profile in profiles.items()]
    rig.add_kwok_nodes(4, shapes)
    rig.api.await_one("/api/v1/namespaces/default/serviceaccounts", "default", lambda _: True, 30)
    pods = "/api/v1/namespaces/default/pods"
    with OurScheduler(rig, text=CONFIG) as ours:
        rig.start_scheduler(extender=ours.url)
        rig.api.create_many(pods, [pod(f"p{i}", scheduler="default-scheduler") for i in range(20)])
        rig.api.await_each(pods, bound, 20, 120)
    on = Counter(one["spec"]["nodeName"].rpartition("-")[0] for one in rig.api.items(pods))
    print(f"bound: {dict(on)}")
    assert on[cheap] == 16, "sixteen fit there; kube-scheduler alone would have spread them"
    assert max(Counter(one["spec"]["nodeName"] for one in rig.api.items(pods)).values()) <= 8
