"""Likeness of task names and command lines: cosine of hashed character n-grams.

Antici et al. (2025, doi 10.1016/j.future.2025.108064) predict jobs from their text. Here it finds the known tasks
that a never-profiled task resembles.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from wattflow.predict.observations import Floats

_BUCKETS, _LENGTHS = 1024, (3, 4)


def vector(text: str) -> Floats:
    """Return the unit vector of hashed n-grams of the lower-cased text with its ends marked."""
    counts = np.zeros(_BUCKETS)
    # Marked ends: a common beginning or ending of names counts.
    marked = f"^{text.lower()}$"
    for length in _LENGTHS:
        for i in range(len(marked) - length + 1):
            # CRC, not `hash`: the same in every process, and so in every model file.
            counts[zlib.crc32(marked[i : i + length].encode()) % _BUCKETS] += 1.0
    norm = float(np.linalg.norm(counts))
    return counts / norm if norm > 0 else counts


def likeness(one: Sequence[str], other: Sequence[str]) -> Floats:
    """Return the cosine similarity, [one, other], of the parts after the workflow's name."""
    # The workflow's name is left out: what a task does is in its own.
    left = np.array([vector(text.rsplit("/", 1)[-1]) for text in one]).reshape(len(one), _BUCKETS)
    right = np.array([vector(text.rsplit("/", 1)[-1]) for text in other]).reshape(len(other), _BUCKETS)
    return np.asarray(left @ right.T)
