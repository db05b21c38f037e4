"""The designs that the benchmarks of frames compare."""

from __future__ import annotations

from dataclasses import replace

from wattflow.frames import frame as frames
from wattflow.frames import library
from wattflow.frames.frame import Delay, Frame

FETCH = Delay(kind="choice", values_s=(0.013, 0.021, 0.045, 1.256, 2.280), weights=(50, 40, 5, 4, 1))
CACHES = frames.DataManager(cache_objects=1000, fetch=FETCH, object_bytes=10e6)
HOST_STEALING = frames.Stealing(hosts=4)
MESSAGES = frames.Messages(energy_j=1e-4)
"""A kilobyte at the 0.1 µJ a byte that the cluster assumes."""


def bases() -> dict[str, Frame]:
    """Four architectures, all with queues at the hosts so that stealing is the only difference."""
    names = {"centralised": "centralised-push", "delegated": "delegated", "hash": "hash", "hybrid": "hybrid"}
    return {name: library.load_frame(shipped) for name, shipped in names.items()}


def twelve() -> dict[str, Frame]:
    """Each architecture without stealing, with host stealing, with placer stealing.

    A single central placer has nobody to steal from: that design gets two placers that share its exact view.
    """
    found: dict[str, Frame] = {}
    for name, base in bases().items():
        found[name] = base
        found[f"{name} + host stealing"] = replace(base, stealing=HOST_STEALING)
        stolen = replace(base, stealing=frames.Stealing(placers=2))
        if base.placers.count == 1:
            stolen = replace(stolen, architecture="decentralised", placers=replace(base.placers, count=2))
        found[f"{name} + placer stealing"] = stolen
    return found


def with_caches(frame: Frame) -> Frame:
    """The frame with object caches, remote storage and messages that cost joules."""
    return replace(frame, data=CACHES, metadata=frames.MetadataService(), messages=MESSAGES)
