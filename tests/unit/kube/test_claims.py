"""Claims on nodes that are shared with another scheduler: when the room on them is ours."""

from __future__ import annotations

import msgspec

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.claims import CLAIM, Claims
from wattflow.kube.client import Client

from .making import node, pod


def claimed() -> objects.Node:
    one = node("n")
    taint = objects.Taint(key=CLAIM, value="wattflow", effect="NoSchedule")
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, taints=[taint]))


def test_a_claim_waits_for_what_the_other_scheduler_may_have_under_way() -> None:
    now = [100.0]
    claims = Claims(Client(Access("http://127.0.0.1:1")), "wattflow", lambda: now[0], settle_s=2.0, patience_s=600.0)
    first, second, late = pod("first"), pod("second"), pod("late")
    claims.pod_seen("ADDED", first)
    claims.pod_seen("ADDED", second)
    assert not claims.seen("ADDED", claimed()).spec.taints
    assert claims.wait_until_s("n") == 102.0
    now[0] = 103.0
    assert claims.wait_until_s("n") > 103.0, "decided before the claim perhaps, bound only later"
    claims.pod_seen("ADDED", late)  # its scheduler has seen the taint
    claims.pod_seen("MODIFIED", pod("first", "n"))
    assert claims.wait_until_s("n") > 103.0
    nowhere = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    claims.pod_seen("MODIFIED", pod("second", status={"conditions": nowhere}))
    assert claims.wait_until_s("n") == 0.0
    claims.seen("MODIFIED", node("n"))  # given back, and claimed anew: now the late one counts
    claims.seen("MODIFIED", claimed())
    now[0] = 110.0
    assert claims.wait_until_s("n") > 110.0
    now[0] = 103.0 + 600.0
    assert claims.wait_until_s("n") == 0.0, "nobody decides about it"
