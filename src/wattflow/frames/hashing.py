"""Points of hosts on the ring of consistent hashing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel import random

_HOST_SALT = 7


def ring(hosts: int, points: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return points of all hosts on the hash ring, in order, and whose they are."""
    host = np.repeat(np.arange(hosts, dtype=np.int64), max(1, points))
    salted = host.astype(np.uint64) + np.uint64(_HOST_SALT)
    point = random.hashed_each(salted, np.arange(len(host), dtype=np.uint64))
    order = np.argsort(point, kind="stable")
    return point[order], host[order].astype(np.int32)
