"""Memory for copies of tables. What a copy leaves is used again: new pages cost more than copying."""

from __future__ import annotations

from typing import Any

import numpy as np

_LEAST, _MOST = 1 << 20, 1 << 29
"""Bytes of a block that is worth keeping, and that is too large to be kept for later."""
_KEPT = 2
_spare: list[Any] = []


class _Block:
    """Owns a block as long as any array lies in it; then the block is spare."""

    __slots__ = ("memory",)

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> Any:
        return self.memory.__array_interface__

    def __del__(self) -> None:
        if _LEAST <= self.memory.nbytes <= _MOST and len(_spare) < _KEPT:
            _spare.append(self.memory)


def block(size: int) -> Any:
    """So many bytes with any content: of a copy that is no more, or new ones."""
    found = None
    if size >= _LEAST and _spare:
        found = _spare.pop()  # one that does not suit is given back to the system
        # More than twice as large would be kept for nothing.
        if not size <= found.nbytes <= 2 * size:
            found = None
    return np.asarray(_Block(np.empty(size, np.uint8) if found is None else found))[:size]
