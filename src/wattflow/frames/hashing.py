"""Find the host that consistent hashing gives each of many objects; `kernel.host_choice` finds the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel import random

# `kernel.host_choice.find_owner` has the same number.
_OBJECT_SALT = 1_000_003
_HOST_SALT = 7


def ring(hosts: int, points: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return points of all hosts on the hash ring, in order, and whose they are."""
    host = np.repeat(np.arange(hosts, dtype=np.int64), max(1, points))
    salted = host.astype(np.uint64) + np.uint64(_HOST_SALT)
    point = random.hashed_each(salted, np.arange(len(host), dtype=np.uint64))
    order = np.argsort(point, kind="stable")
    return point[order], host[order].astype(np.int32)


def ring_owners(objects: int, hosts: int, points: int = 100) -> NDArray[np.int32]:
    """Return the host of each object on a ring: the first point at or after the object's own."""
    at, whose = ring(hosts, points)
    salt = np.full(objects, _OBJECT_SALT, np.uint64)
    # "left": a point that is exactly the object's is the first at or after it.
    place = np.searchsorted(at, random.hashed_each(np.arange(objects, dtype=np.uint64), salt), side="left")
    return whose[place % len(at)]


def rendezvous_owners(objects: int, hosts: int) -> NDArray[np.int32]:
    """Return the host of each object by rendezvous: the one whose hash with the object is the largest."""
    thing = np.arange(objects, dtype=np.uint64)
    # + 1, as in the kernel: host 0 has a salt of its own, too.
    weights = [random.hashed_each(thing, np.full(objects, h + 1, np.uint64)) for h in range(hosts)]
    return np.argmax(np.stack(weights), axis=0).astype(np.int32)
