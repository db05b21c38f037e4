"""Expected runtimes of pods."""

from __future__ import annotations

import msgspec

from wattflow.kube import objects
from wattflow.kube.estimates import Estimates

from .making import pod


def ended(seconds: int, phase: str = "Succeeded", image: str = "i") -> objects.Pod:
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": f"2026-01-01T00:00:{seconds:02d}Z"}
    status = {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": times}}]}
    return pod("e", "n", containers=[{"name": "main", "image": image}], status=status)


def test_stated_first_then_the_mean_of_those_that_ended_well() -> None:
    estimates = Estimates()
    new = pod("new", containers=[{"name": "main", "image": "i"}])
    assert estimates.of(new) is None, "unknown is not zero"
    for one in (ended(10), ended(20), ended(50, "Failed"), ended(40, image="other")):
        estimates.learn(one)
    assert estimates.of(new) == 15
    notes = {"wattflow.io/runtime-s": "3.5"}
    stated = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, annotations=notes))
    assert estimates.of(stated) == 3.5
    estimates.learn(pod("no-times", "n", status={"phase": "Succeeded"}))
    assert estimates.of(new) == 15
