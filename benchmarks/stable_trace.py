"""A trace of frames on which no queue grows with its length, whatever hashes: the skew is found by bisection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.frames import frame_rules
from wattflow.frames.workloads import OBJECTS, skewed
from wattflow.kernel import random
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload

# `wattflow.frames.kernel.host_choice.find_owner` has the same number.
_OBJECT_SALT = 1_000_003


def stable(tasks: int = 500_000, hash: str = "ring", hottest: float = 0.9) -> tuple[Workload, Cluster, float]:
    """As `skewed`, with the Zipf exponent at which hashing offers its hottest host ``hottest`` of what it can run."""
    hosts = 20
    owners = ring_owners(OBJECTS, hosts) if hash == "ring" else rendezvous_owners(OBJECTS, hosts)
    low, high = 0.0, 2.0
    if _offered(*skewed(tasks, 0, hosts, low), owners) > hottest:
        raise InvalidInput("stable trace", f"{hash} hashing offers its hottest host more than {hottest:g} without skew")
    # Twelve halvings of 2: the exponent to half a thousandth.
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if _offered(*skewed(tasks, 0, hosts, middle), owners) < hottest else (low, middle)
    return *skewed(tasks, 0, hosts, low), low


def _offered(workload: Workload, cluster: Cluster, owners: NDArray[np.int32]) -> float:
    """Work of the hottest host over what it can do until the last arrival."""
    work = np.bincount(owners[workload.columns["object"]], workload.runtime_s, minlength=len(cluster.nodes))
    return float(work.max() / (workload.release_s[-1] * cluster.nodes[0].cores))


def ring_owners(objects: int, hosts: int) -> NDArray[np.int32]:
    """Return the host of each object on a ring: the first point at or after the object's own."""
    at, whose = frame_rules.ring(hosts, 100)
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
