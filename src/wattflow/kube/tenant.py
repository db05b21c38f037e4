"""Read what tenants write into annotations and labels, within bounds; name what cannot be read.

Whatever somebody writes into an object costs that object its wish and nothing else. So every number of theirs is read
here, and a receiver that fails all the same is asked again with the object's ``wattflow.io/`` notes left out.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from wattflow.kube import objects

PREFIX = "wattflow.io/"
# Nine digits fit into 32 bits.
_COUNT = re.compile(r"[0-9]{1,9}")
# Bounded lengths: `float` of a megabyte of digits takes long.
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


def without_notes(item: T) -> T:
    """Return an object without what it tells us: its labels and annotations of ours."""
    metadata = item.metadata
    kept = {
        name: {key: value for key, value in getattr(metadata, name).items() if not key.startswith(PREFIX)}
        for name in ("labels", "annotations")
    }
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(metadata, **kept))
