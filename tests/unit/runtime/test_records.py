"""Words about tasks that wait."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from wattflow.runtime.records import waits_for


@dataclass
class Parent:
    state: str
    spec: Any


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["done", "failed"], None),
        (["done", "running"], "it waits for k1 (running)"),
        (["waiting"] * 3, "it waits for k0 (waiting), k1 (waiting), k2 (waiting)"),
        (["running", "done", *["waiting"] * 3], "it waits for k0 (running), k2 (waiting), k3 (waiting) and 1 other"),
        (["waiting"] * 9, "it waits for k0 (waiting), k1 (waiting), k2 (waiting) and 6 others"),
    ],
)
def test_what_a_task_waits_for_is_named_and_counted(states: list[str], words: str | None) -> None:
    parents: list[Any] = [Parent(state, SimpleNamespace(key=f"k{n}")) for n, state in enumerate(states)]
    assert waits_for(parents) == words
