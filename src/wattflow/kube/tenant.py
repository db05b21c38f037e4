"""What tenants write into annotations and labels: read within bounds, told by name where it cannot be.

Whatever somebody writes into an object costs that object its wish and nothing else. So every number of theirs is read
here, and a receiver that fails all the same is asked again with the object's ``wattflow.io/`` notes left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from wattflow.kube import objects

PREFIX = "wattflow.io/"
_COUNT = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[0-9]{0,30}\.?[0-9]{1,30}(?:[eE][+-]?[0-9]{1,3})?")
MOST_NUMBER = 1e18
"""More than any seconds or bytes that somebody can mean."""
T = TypeVar("T", objects.Pod, objects.Node)


def count(text: str) -> int | None:
    """Read a whole number from 0 up; None where it is none. Only the digits 0 to 9 count: "²" is a digit too."""
    return int(text) if _COUNT.fullmatch(text) else None


def number(text: str) -> float | None:
    """Read a number from 0 up; None where it is none, or beyond what anybody can mean."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if value <= MOST_NUMBER else None


def unread(notes: Mapping[str, str]) -> Iterator[str]:
    """Name the annotations of a pod or workflow that cannot be read, each with what it may be."""
    from wattflow.kube import carbon, estimates, gangs, gpus
    from wattflow.kube.argo import watching

    seconds, size = "a number of seconds from 0 up", "a number of bytes from 0 up"
    readers: dict[str, tuple[Callable[[str], object], str]] = {
        gangs.SIZE: (lambda text: 1 <= (count(text) or 0) <= gangs.MOST, f"a number of pods, 1 to {gangs.MOST}"),
        gpus.INDEX: (lambda text: count(text) is not None, "the number of a GPU"),
        estimates.RUNTIME: (lambda text: number(text) is not None, seconds),
        watching.DEADLINE: (lambda text: number(text) is not None, seconds),
        carbon.WAIT: (lambda text: number(text) is not None, seconds),
        estimates.INPUT: (lambda text: number(text) is not None, size),
        estimates.OUTPUT: (lambda text: number(text) is not None, size),
    }  # fmt: skip
    for key, (reads, what) in readers.items():
        if key in notes and not reads(notes[key]):
            yield f"{key} is {notes[key][:60]!r}, not {what}: it is left out"


def without_notes(item: T) -> T:
    """Return an object without what it tells us: its labels and annotations of ours."""
    metadata = item.metadata
    kept = {
        name: {key: value for key, value in getattr(metadata, name).items() if not key.startswith(PREFIX)}
        for name in ("labels", "annotations")
    }
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(metadata, **kept))
