"""Shares of GPUs: never more than a whole GPU or its memory, fullest first, remembered over restarts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattflow.kube import accounting, gpus, objects
from wattflow.kube.book import Book
from wattflow.kube.gpus import COUNT, EACH, INDEX, MEMORY, SHARE, GpuShare, Held

from .making import node, pod


class Nobody:
    """A decider that takes everything and decides nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **more: None


def wants(name: str, share: str = "0.5", memory: str | None = "10Gi", where: str = "", **more: str) -> objects.Pod:
    one = pod(name, where, cpu="1")
    notes = {SHARE: share} | ({MEMORY: memory} if memory else {}) | more
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=notes))


def sharing(name: str = "n", count: str = "2", each: str = "40Gi") -> objects.Node:
    return node(name, {COUNT: count, EACH: each}, allocatable={"cpu": "64"})


def book(*nodes: objects.Node) -> Book:
    made = Book(Nobody(), owns=lambda one: True, power_of=lambda one: None)
    for one in nodes:
        made.on_node("ADDED", one)
    return made


@pytest.mark.parametrize(
    ("share", "memory"), [("0", "1Gi"), ("1.1", "1Gi"), ("half", "1Gi"), ("0.5", "much"), ("0.5", "0"), ("nan", "1Gi")]
)
def test_a_wish_that_cannot_be_read_is_refused_with_a_reason(share: str, memory: str) -> None:
    one = wants("p", share, memory)
    assert gpus.wish(one) is None and "must be above 0" in str(gpus.wrong(one))


def test_memory_is_required() -> None:
    made = book(sharing())
    made.on_pod("ADDED", wants("p", memory=None))
    assert MEMORY in made.refused["uid-p"]
    assert gpus.wrong(pod("plain")) is None and gpus.wish(pod("plain")) is None


def test_the_fullest_gpu_that_has_room_and_no_more_than_a_whole_one() -> None:
    made = book(sharing())
    places = []
    for i, (share, memory) in enumerate([("0.5", "10Gi"), ("0.25", "10Gi"), ("0.5", "10Gi"), ("0.25", "30Gi")]):
        made.on_pod("ADDED", wants(f"p{i}", share, memory))
        assert made.assume(f"uid-p{i}", "n") is None
        places.append(made.records[f"uid-p{i}"].pod.metadata.annotations[INDEX])
    # the last has share enough on GPU 0, but not memory
    assert places == ["0", "0", "1", "1"]
    made.on_pod("ADDED", wants("big", "0.5", "1Gi"))
    assert made.assume("uid-big", "n") == "GPU shares", "half a GPU is free in all, but on no single one"
    made.forget("uid-p0", 1.0)
    assert INDEX not in made.waiting["uid-p0"].metadata.annotations
    assert made.assume("uid-big", "n") is None
    assert made.records["uid-big"].pod.metadata.annotations[INDEX] == "0"


def test_a_restart_finds_who_holds_what() -> None:
    made = book(sharing(count="1"))
    made.on_pod("ADDED", wants("old", "0.7", "10Gi", "n", **{INDEX: "0"}))
    made.on_pod("ADDED", wants("new", "0.4", "10Gi"))
    assert made.assume("uid-new", "n") is not None
    made.on_pod("DELETED", wants("old", "0.7", "10Gi", "n", **{INDEX: "0"}))
    assert made.assume("uid-new", "n") is None


def test_a_change_while_the_binding_is_on_its_way_loses_nothing() -> None:
    made = book(sharing())
    made.on_pod("ADDED", wants("p"))
    assert made.assume("uid-p", "n") is None
    made.on_pod("MODIFIED", wants("p", other="label"))
    assert made.records["uid-p"].pod.metadata.annotations[INDEX] == "0"


def test_nodes_that_share_none_do_not_fit() -> None:
    made = book(node("plain"))
    made.on_pod("ADDED", wants("p"))
    assert made.assume("uid-p", "plain") is not None
    assert accounting.node_allocatable(sharing())[SHARE] == 2000
    assert SHARE not in accounting.node_allocatable(node("plain"))


@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.integers(1, 60)), max_size=40), st.integers(1, 4))
def test_no_gpu_ever_holds_more_than_it_has(asked: list[tuple[float, int]], count: int) -> None:
    machine, taken = sharing(count=str(count)), dict[str, Held]()
    for i, (share, memory) in enumerate(asked):
        found = gpus.wish(wants("p", f"{share:.4f}", f"{memory}Gi"))
        assert found is not None
        index = gpus.place(machine, taken, found)
        if index is not None:
            taken[str(i)] = Held(index, found)
        else:
            full = [GpuShare(0, 0)] * count
            for one in taken.values():
                full[one.gpu] = GpuShare(*(a + b for a, b in zip(full[one.gpu], one.wish, strict=True)))
            assert all(
                one.share_m + found.share_m > 1000 or one.memory_bytes + found.memory_bytes > 40 << 30 for one in full
            ), "it is refused only where no GPU has room"
    for index in range(count):
        mine = [one.wish for one in taken.values() if one.gpu == index]
        assert sum(one.share_m for one in mine) <= 1000 and sum(one.memory_bytes for one in mine) <= 40 << 30
