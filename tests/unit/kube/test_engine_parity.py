"""The engine's masks and counts against the filters, on the generated cases that the filters pass for kube-scheduler's.

`make parity` compares our filters with kube-scheduler's; here what the engine makes of the same pods and nodes is
compared with our filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters.feasible import feasible
from wattflow.kube.filters.snapshot import Snapshot

pytestmark = pytest.mark.slow
CASES = 150


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "cluster"))
    import parity_cases

    return parity_cases.Cases(20261116)


def read(raw: Any, kind: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(raw), type=kind)


def unbound(cases: Any) -> Iterator[tuple[int, Any, list[Any], list[Any], list[Any], set[str]]]:
    """Cases whose pod is on no node yet: number, pod, nodes, pods, namespaces, and the nodes that the filters allow."""
    for number in range(CASES):
        case = cases.case(number)
        pod = read(case["pod"], objects.Pod)
        if pod.spec.node_name:
            continue
        nodes = [read(one, objects.Node) for one in case["nodes"]]
        pods = [read(one, objects.Pod) for one in case["pods"]]
        names = [read(one, objects.Namespace) for one in case["objects"]]
        found = feasible(pod, Snapshot.of(nodes, pods, names))
        yield number, pod, nodes, pods, names, {name for name, why in found.items() if why is None}


def test_the_engine_places_where_the_filters_allow_and_wherever_they_do(cases: Any) -> None:
    wrong, placed = [], 0
    for number, pod, nodes, pods, names, allowed in unbound(cases):
        decider = EngineDecider("fifo")
        book = Book(decider, owns=lambda one: one.metadata.name == "new", power_of=lambda one: None)
        for space in names:
            book.on_namespace("ADDED", space)
        for node in nodes:
            book.on_node("ADDED", node)
        for one in (*pods, pod):
            book.on_pod("ADDED", one)
        book.flush(1.0)
        chosen = [choice.node for choice in decider.step(1.0).choices]
        placed += bool(chosen)
        if (chosen and chosen[0] not in allowed) or (not chosen and allowed):
            wrong.append(f"case {number}: {chosen}, allowed {sorted(allowed)}: {decider.why(pod.metadata.uid)}")
    assert not wrong, "\n".join(wrong)
    assert placed > CASES / 5


def test_rules_between_pods_that_the_engine_counts_itself_allow_what_the_filters_do(cases: Any) -> None:
    """All pods are ours here and held by the engine, so its counters, not lists of nodes, answer where they can."""
    wrong, by_counters = [], 0
    for number, pod, nodes, pods, names, allowed in unbound(cases):
        decider = Recording("fifo")
        book = Book(decider, owns=lambda one: True, power_of=lambda one: None, live=False)
        for space in names:
            book.on_namespace("ADDED", space)
        for node in nodes:
            book.on_node("ADDED", node)
        for one in pods:
            book.on_pod("ADDED", one)
        book.begin(pods, lambda one: None, 0.0)
        book.on_pod("ADDED", pod)
        book.flush(1.0)
        chosen = [choice.node for choice in decider.step(1.0).choices]
        last = decider.wants[-1] if decider.wants else None
        by_counters += last is not None and last.nodes is None and bool(last.rules.apart or last.rules.together)
        if (chosen and chosen[0] not in allowed) or (not chosen and allowed):
            wrong.append(f"case {number}: {chosen}, allowed {sorted(allowed)}: {decider.why(pod.metadata.uid)}")
    assert not wrong, "\n".join(wrong)
    assert by_counters > 5


def test_a_pod_that_was_found_running_and_could_not_be_taken_up_keeps_others_away(cases: Any) -> None:
    """A pod shy of others in its zone, known as unseen, named its groups anew at the start and was forgotten."""
    case = [cases.case(number) for number in range(816)][-1]
    pod, *pods = (read(one, objects.Pod) for one in (case["pod"], *case["pods"]))
    decider = EngineDecider("fifo")
    book = Book(decider, owns=lambda one: True, power_of=lambda one: None, live=False)
    for one in case["nodes"]:
        book.on_node("ADDED", read(one, objects.Node))
    for held in pods:
        book.on_pod("ADDED", held)
    book.begin(pods, lambda one: None, 0.0)
    book.on_pod("ADDED", pod)
    book.flush(1.0)
    assert not decider.step(1.0).choices
    assert pod.metadata.uid in book.waiting


class Recording(EngineDecider):
    """Remembers what was wanted."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy)
        self.wants: list[Wanted] = []

    def want(self, wanted: Wanted) -> None:
        self.wants.append(wanted)
        super().want(wanted)
