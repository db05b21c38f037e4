"""Expected runtimes of pods."""

from __future__ import annotations

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.estimates import Estimates, Predicted

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


def test_a_mean_is_of_seconds_on_a_node_of_speed_one() -> None:
    estimates = Estimates(speed_of=lambda node: {"n": 2.0}[node])
    estimates.learn(ended(10))
    assert estimates.of(pod("new", containers=[{"name": "main", "image": "i"}])) == 20
    running = ended(10, phase="Running")
    running.status.start_time = "2026-01-01T00:00:00Z"
    assert estimates.left(running, 1767225600.0 + 4) == 20 - 4 * 2


def sized(gigabytes: float, seconds: int = 0) -> objects.Pod:
    one = ended(seconds) if seconds else pod("new", containers=[{"name": "main", "image": "i"}])
    one.metadata.annotations["wattflow.io/input-bytes"] = str(gigabytes * 1e9)
    return one


def test_predictions_know_the_size_of_the_input_and_are_refitted_as_tasks_end() -> None:
    predicted = Predicted(first=24, every=24)
    estimates = Estimates(predicted=predicted)
    for i in range(24):
        estimates.learn(sized(1 + i % 8, 5 + 5 * (i % 8)))
    assert predicted._fitting is not None
    predicted._fitting.result(timeout=300)
    for gigabytes in (2, 7):
        assert estimates.of(sized(gigabytes)) == pytest.approx(5 * gigabytes, rel=0.2)
    other = pod("new", containers=[{"name": "main", "image": "other"}])
    assert estimates.of(other) is None, "a kind that never ended"
    for i in range(24):  # the same work is slower now
        estimates.learn(sized(1 + i % 4, 2 * (5 + 5 * (i % 4))))
    found = estimates.of(sized(3))
    assert found is not None and found > 1.5 * 15


def test_rows_that_no_model_can_be_made_of_leave_the_mean() -> None:
    predicted = Predicted(first=2, every=5)
    predicted.learn("k", 1.0, float("nan"))
    predicted.learn("k", 1.0, 0.0)
    assert predicted.ended == 0 and predicted.of("k", 1.0) is None
