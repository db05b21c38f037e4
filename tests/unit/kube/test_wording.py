"""What operators read: why a pod waits, what it asks for, who leads, and what is wrong with a label."""

from __future__ import annotations

import asyncio

import pytest

from wattflow.kube import explaining, power, telling
from wattflow.kube.client import Client
from wattflow.live.protocol import Why

from .making import node
from .small_api import small_api


def test_why_a_pod_waits_reads_like_kube_schedulers_own_message() -> None:
    why = Why("waiting", 20, {"cores": 12, "node-role/taint": 5, "asleep": 3})
    said = "0/20 nodes are available: 12 lack cores, 5 (node-role/taint), 3 are asleep"
    assert telling.waiting(why) == said
    assert telling.waiting(Why("held")) == "held"


def test_amounts_are_told_in_units() -> None:
    assert telling.asked({"cpu": 1500, "memory": 2**30, "example.com/gpu": 2, "pods": 1}) == (
        "1.5 cores, 1,024 MiB of memory, 2 example.com/gpu"
    )
    assert telling.asked({"pods": 1}) == "nothing"


def test_an_unknown_profile_of_a_label_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    labelled = node("a", {power.LABEL: "ccf.epyc-7763-dl32"})
    assert power.Watts().profile_of(labelled) is None
    assert "did you mean 'ccf.epyc-7763-dl325'" in caplog.text and len(caplog.text) < 400


def test_the_lease_is_looked_for_where_it_usually_is() -> None:
    async def run() -> None:
        async with small_api() as (api, where), Client(where) as client:
            usual = ["wattflow/ours", "kube-system/ours"]
            assert "there is no lease wattflow/ours or kube-system/ours" in await explaining._holder(client, usual)
            lease = {"metadata": {"name": "ours", "namespace": "kube-system"}, "spec": {"holderIdentity": "me"}}
            api.put("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease)
            assert await explaining._holder(client, usual) == "led by me"

    asyncio.run(run())
