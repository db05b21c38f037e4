"""Shadow mode: every pod of the other scheduler is compared, however quickly it was bound."""

from __future__ import annotations

import pytest

from wattflow.kube import scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.client import Client
from wattflow.kube.power import LABEL
from wattflow.kube.scheduler import Scheduler

from .making import node, pod

pytestmark = pytest.mark.slow
CONFIG = 'mode = "shadow"\npolicy = "least-energy"\n[energy]\nprofiles = false\n[workflows]\nargo = false\n'
FRUGAL, HUNGRY = "ccf.xeon-e2176g-rx1330", "ccf.xeon-8480-rx2540"


@pytest.fixture
def scheduler() -> Scheduler:
    made = scheduler_process.make(Client(Access("http://127.0.0.1:1")), settings.parse(CONFIG))
    for name, profile in (("frugal", FRUGAL), ("hungry", HUNGRY)):
        made._on_node("ADDED", node(name, {LABEL: profile}))
    made._on_node("ADDED", node("unknown"))
    return made


def test_every_pod_is_compared_also_one_that_was_bound_before_our_step(scheduler: Scheduler) -> None:
    shadow = scheduler.shadow
    assert shadow is not None
    scheduler._on_pod("ADDED", pod("slow", cpu="2"))
    scheduler.decide()
    (ours,) = {record.node for record in scheduler.book.records.values()}
    theirs = "hungry" if ours == "frugal" else "frugal"
    scheduler._on_pod("MODIFIED", pod("slow", theirs, cpu="2"))
    assert shadow.pods == {"other": 1}
    saved_w = shadow.saved_w
    assert saved_w != 0
    scheduler._on_pod("ADDED", pod("quick", cpu="1"))
    scheduler._on_pod("MODIFIED", pod("quick", "unknown", cpu="1"))  # before we have decided
    assert "uid-quick" in scheduler.book.waiting
    scheduler.decide()
    assert shadow.pods == {"other": 1, "unknown": 1} and shadow.saved_w == saved_w
    assert scheduler.book.records["uid-quick"].node == "unknown", "counted where it is"
    scheduler._on_pod("ADDED", pod("huge", cpu="100"))
    scheduler._on_pod("MODIFIED", pod("huge", "hungry", cpu="100"))
    scheduler.decide()
    assert shadow.pods["wait"] == 1
    scheduler._on_pod("DELETED", pod("huge", "hungry", cpu="100"))
    assert not scheduler.book.waiting and "uid-huge" not in scheduler.book.records
