"""Frame files: what is read, what is refused and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattflow.frames import frame as frames
from wattflow.frames import frame_rules, library
from wattflow.frames.frame import Frame
from wattflow.frames.frame_rules import check, problems_of
from wattflow.frames.library import parse_frame
from wattflow.model.errors import InvalidInput, UnknownName

PUSH = Frame("push", placers=frames.Placers(binding="early"), hosts=frames.Hosts(queue=True))


def why(frame: Frame) -> str:
    return "; ".join(str(problem) for problem in problems_of(frame))


@pytest.mark.parametrize("name", library.frame_names())
def test_shipped_frames_can_work_and_say_what_they_are(name: str) -> None:
    frame = library.load_frame(name)
    assert frame.name == name
    assert frame.about


def test_known_systems_name_their_source() -> None:
    known = {"kubernetes", "slurm", "borg-cells", "mesos", "sparrow", "hawk", "mercury", "ray", "openwhisk"}
    assert known <= set(library.frame_names())
    assert all(library.load_frame(name).source for name in known)


def test_stealing_without_host_queues_says_why() -> None:
    frame = Frame("x", stealing=frames.Stealing(hosts=2))
    assert "work stealing by hosts needs queues at the hosts" in why(frame)


def test_stealing_with_host_queues_can_work() -> None:
    check(replace(PUSH, stealing=frames.Stealing(hosts=2)))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (replace(PUSH, stealing=frames.Stealing(placers=1)), "there is only one"),
        (replace(PUSH, hosts=frames.Hosts(queue=False)), "set hosts.queue = true"),
        (replace(PUSH, elasticity=frames.Elasticity()), "needs a broker"),
        (replace(PUSH, hints=frames.Hints()), "needs the metadata service"),
        (replace(PUSH, data=frames.DataManager(cache_objects=5)), "needs the metadata service"),
        (replace(PUSH, barriers=frames.Barriers(gangs=True)), "gangs needs a placer that holds all parts back"),
        (replace(PUSH, faults=frames.FaultTolerance(checkpoint_s=1.0)), "checkpoint needs a data manager"),
        (Frame("x", "delegated"), "needs a broker"),
        (Frame("x", "hybrid"), "tell long tasks from short ones"),
        (Frame("x", "centralised", placers=frames.Placers(count=2)), "has one placer, not 2"),
        (Frame("x", placers=frames.Placers(rule="hash")), "late binding needs 'policy'"),
        (Frame("x", placers=frames.Placers(flow="offers")), "offers needs a broker"),
    ],
)
def test_frames_that_cannot_work_say_why(frame: Frame, reason: str) -> None:
    assert reason in why(frame)
    with pytest.raises(InvalidInput):
        check(frame)


def test_all_problems_of_a_file_at_once_with_suggestions() -> None:
    text = """
name = "x"
architectur = "hybrid"
[placers]
counts = 3
binding = "lates"
refresh_s = "soon"
[hosts]
queue = 1
[messages]
latency = { distribution = "exponetial", mean_s = "1ms" }
"""
    with pytest.raises(InvalidInput) as error:
        parse_frame(text, "x.toml")
    shown = str(error.value)
    for part in ("did you mean 'architecture'?", "did you mean 'count'?", "did you mean 'late'?", "placers.refresh_s",
                 "must be true or false", "did you mean 'exponential'?"):  # fmt: skip
        assert part in shown


def test_delays_are_read_in_every_form() -> None:
    frame = parse_frame(
        """
name = "x"
[messages]
latency = "0.5ms"
[client]
service = 0.25
[placers]
service = { distribution = "lognormal", median_s = "2ms", sigma = 0.5 }
[metadata]
[data]
cache_objects = 10
fetch = { distribution = "choice", values_s = [0.013, 2.28], weights = [99, 1] }
""",
        "x.toml",
    )
    assert frame.messages.latency.mean_s == 0.0005
    assert frame.client.service.mean_s == 0.25
    assert frame.placers.service.sigma == 0.5
    assert frame.data is not None
    assert frame.data.fetch.expected_s == pytest.approx(0.013 * 0.99 + 2.28 * 0.01)


@pytest.mark.parametrize(
    "text", ["name = 3", "name = 'x'\n[placers]\ncount = 0", "name = 'x'\n[client]\ntimeout_s = 0", "="]
)
def test_wrong_values_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_frame(text, "x.toml")


def test_unknown_frame_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'sparrow'"):
        library.load_frame("sparow")


def test_the_table_names_every_mechanism_of_the_study() -> None:
    names = [mechanism.name for mechanism in frame_rules.MECHANISMS]
    assert names == [
        "preemption",
        "control flow",
        "data placement",
        "fault tolerance",
        "networking",
        "barriers",
        "elasticity",
    ]
    for mechanism in frame_rules.MECHANISMS:
        assert set(mechanism.components) <= set(frame_rules.COMPONENTS)


def test_components_are_those_that_a_frame_has() -> None:
    assert "broker" in frame_rules.components_of(library.load_frame("mesos"))
