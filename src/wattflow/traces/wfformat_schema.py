"""Structural checks of workflow documents: typed access that notes every problem with its place, and graph laws.

This is our own statement of what a readable WfFormat document is, versions 1.0 to 1.6; no schema file is fetched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wattflow.model.errors import Problem
from wattflow.model.workflow import Task

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
_MANY = 10_000
"""Problems kept of one document; beyond that a file is nonsense and a longer list helps nobody."""


_LARGEST = 2**63 - 1


class Check:
    """Collects the problems of one document while its fields are read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def problem(self, where: str, what: str) -> None:
        if len(self.problems) < _MANY:
            self.problems.append(Problem(where, what))

    def as_number(self, raw: object, where: str, minimum: float | None = None) -> float | None:
        """Read a finite number, or None after noting why not."""
        # `true` is an int in Python.
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            self.problem(where, f"must be a number, not {_shown(raw)}")
            return None
        try:
            value = float(raw)
        # An integer of a thousand digits.
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.problem(where, f"must be a finite number, not {value}")
        elif minimum is not None and value < minimum:
            self.problem(where, f"must be at least {minimum:g}, not {_shown(raw)}")
        else:
            return value
        return None

    def number(
        self, holder: Mapping[str, object], keys: Mapping[str, float], where: str, minimum: float | None = 0.0
    ) -> float | None:
        """Read the first present key's number times its unit factor; None where all are absent."""
        for key, factor in keys.items():
            raw = holder.get(key)
            if raw is None:
                continue
            value = self.as_number(raw, f"{where}.{key}", minimum)
            # Whole bytes must not pass through a factor: 1.0 keeps them exact.
            return None if value is None else value if factor == 1.0 else value * factor
        return None

    def whole(self, holder: Mapping[str, object], keys: Mapping[str, float], where: str) -> int | None:
        """Read as `number` does, rounded to a whole number and exact for large integers."""
        for key, factor in keys.items():
            raw = holder.get(key)
            if raw is None:
                continue
            if self.as_number(raw, f"{where}.{key}", 0.0) is None:
                return None
            # Integers are multiplied as integers; through text, since `raw` may be any number type.
            value = raw * int(factor) if isinstance(raw, int) else round(float(str(raw)) * factor)
            if value > _LARGEST:
                self.problem(f"{where}.{key}", f"must be below 2^63, not {_shown(raw)}")
                return None
            return value
        return None

    def text(self, holder: Mapping[str, object], key: str, where: str) -> str | None:
        raw = holder.get(key)
        if raw is None or isinstance(raw, str):
            return raw
        self.problem(f"{where}.{key}", f"must be text, not {_shown(raw)}")
        return None

    def texts(self, holder: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
        raw = holder.get(key)
        if raw is None:
            return ()
        if not isinstance(raw, list):
            self.problem(f"{where}.{key}", f"must be a list, not {_shown(raw)}")
            return ()
        # Each wrong item is told, the others are used.
        for i, item in enumerate(raw):
            if not isinstance(item, str):
                self.problem(f"{where}.{key}[{i}]", f"must be text, not {_shown(item)}")
        return tuple(item for item in raw if isinstance(item, str))

    def inner(self, holder: Mapping[str, object], key: str, where: str) -> dict[str, object] | None:
        raw = holder.get(key)
        if raw is None or isinstance(raw, dict):
            return raw
        self.problem(f"{where}.{key}", f"must be an object, not {_shown(raw)}")
        return None

    def objects(self, holder: Mapping[str, object], key: str, where: str) -> list[tuple[str, dict[str, object]]]:
        """Return the objects of a list, each with its place."""
        raw = holder.get(key)
        if raw is None:
            return []
        if not isinstance(raw, list):
            self.problem(f"{where}.{key}", f"must be a list, not {_shown(raw)}")
            return []
        found = []
        for i, item in enumerate(raw):
            if isinstance(item, dict):
                found.append((f"{where}.{key}[{i}]", item))
            else:
                self.problem(f"{where}.{key}[{i}]", f"must be an object, not {_shown(item)}")
        return found


def _shown(raw: object) -> str:
    text = repr(raw) if not isinstance(raw, list | dict) else f"a {type(raw).__name__} of {len(raw)}"
    return text if len(text) <= 60 else text[:57] + "…"


def check_graph(check: Check, places: Sequence[str], ids: Sequence[str], parents: Sequence[Sequence[str]]) -> None:
    """Check that ids are unique, parents exist and nothing waits for itself; of cycles, one is named."""
    index: dict[str, int] = {}
    for i, id in enumerate(ids):
        if id in index:
            check.problem(places[i], f"the id {id!r} is already used by {places[index[id]]}")
        else:
            index[id] = i
    known: list[list[int]] = []
    for i, names in enumerate(parents):
        for name in names:
            if name not in index:
                check.problem(places[i], f"its parent {name!r} is not in the workflow")
        known.append([index[name] for name in names if name in index])
    cycle = find_cycle(known)
    if cycle:
        path = " → ".join(ids[i] for i in cycle[:8]) + (" → …" if len(cycle) > 8 else "")
        check.problem(places[cycle[0]], f"is in a cycle of {len(cycle)} tasks: {path} → {ids[cycle[0]]}")


def check_task(check: Check, where: str, task: Task) -> None:
    """Tell what the types alone do not say of a task's needs."""
    if not task.variants:
        check.problem(f"{where}.variants", "must not be empty")
    if task.parts < 1:
        check.problem(f"{where}.parts", f"must be at least 1, not {task.parts}")
    for i, variant in enumerate(task.variants):
        at = f"{where}.variants[{i}]"
        if variant.device not in (None, "gpu", "fpga"):
            check.problem(f"{at}.device", f"must be gpu or fpga, not {variant.device!r}")
        if not 0 < variant.device_share <= 1:
            check.problem(f"{at}.device_share", f"must be above 0 and at most 1, not {variant.device_share}")
        if not 0 < variant.device_duty <= 1:
            check.problem(f"{at}.device_duty", f"must be above 0 and at most 1, not {variant.device_duty}")
        if variant.device_duty_from not in ("measured", "assumed"):
            found = variant.device_duty_from
            check.problem(f"{at}.device_duty_from", f"must be measured or assumed, not {found!r}")
        if variant.device is not None and variant.devices < 1:
            check.problem(f"{at}.devices", "must be at least 1 with a device")


def find_cycle(parents: Sequence[Sequence[int]]) -> list[int]:
    """Find one cycle, each task before the one that waits for it; empty where there is none. O(tasks + edges)."""
    children: list[list[int]] = [[] for _ in parents]
    waiting = [0] * len(parents)
    for task, above in enumerate(parents):
        # A set: an edge that is listed twice counts once, or the child would never become ready.
        for parent in set(above):
            children[parent].append(task)
            waiting[task] += 1
    ready = [task for task, count in enumerate(waiting) if count == 0]
    while ready:
        for child in children[ready.pop()]:
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    start = next((task for task, count in enumerate(waiting) if count > 0), None)
    if start is None:
        return []
    seen: dict[int, int] = {}
    walk: list[int] = []
    while start not in seen:
        seen[start] = len(walk)
        walk.append(start)
        # Every task left over has a parent that is left over too, so the walk upwards must meet itself.
        start = next(parent for parent in parents[start] if waiting[parent] > 0)
    return walk[seen[start] :][::-1]
