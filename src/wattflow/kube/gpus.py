"""Shares of GPUs by annotation, packed by our own ledger: at most 100 % of each GPU, and of its memory.

A pod asks by ``wattflow.io/gpu-share`` (a part of one GPU, above 0 and at most 1) and ``wattflow.io/gpu-memory`` (a
quantity, required: memory is what runs out first, and nothing else limits it). A node offers by its labels
``wattflow.io/shared-gpus`` (how many) and ``wattflow.io/shared-gpu-memory`` (of each); such GPUs are not given out by a
device plugin as well. Which GPU a pod got is the annotation ``wattflow.io/gpu`` that its binding writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from wattflow.kube import objects, quantity, tenant
from wattflow.kube.tenant import PREFIX
from wattflow.model.errors import InvalidInput

SHARE, MEMORY, INDEX = f"{PREFIX}gpu-share", f"{PREFIX}gpu-memory", f"{PREFIX}gpu"
COUNT, EACH = f"{PREFIX}shared-gpus", f"{PREFIX}shared-gpu-memory"
WHOLE = 1000
"""Shares are counted in thousandths."""
MOST = 1024
"""GPUs of one node."""


class GpuShare(NamedTuple):
    """A part of one GPU, in thousandths, and bytes of its memory."""

    share_m: int
    memory_bytes: int


class Held(NamedTuple):
    """A wish that was granted on GPU number ``gpu`` of a node."""

    gpu: int
    wish: GpuShare


def wrong(pod: objects.Pod) -> str | None:
    """Say why a pod's wish cannot be read, or None."""
    notes = pod.metadata.annotations
    if SHARE not in notes:
        return None
    if MEMORY not in notes:
        return f"{SHARE} needs {MEMORY}: how much memory of the GPU the pod may use"
    return None if wish(pod) is not None else f"{SHARE} must be above 0 and at most 1, {MEMORY} a quantity"


def wish(pod: objects.Pod) -> GpuShare | None:
    """Tell what a pod asks for; None where it asks for nothing, or wrongly."""
    notes = pod.metadata.annotations
    if SHARE not in notes or MEMORY not in notes:
        return None
    try:
        share, memory = tenant.number(notes[SHARE]), quantity.whole(notes[MEMORY])
    except InvalidInput:
        return None
    if share is None or not 0 < share <= 1 or memory <= 0:
        return None
    # Rounded up, so that shares never sum to more than a GPU; less a trifle, for binary fractions.
    return GpuShare(math.ceil(share * WHOLE - 1e-9), memory)


def offered(node: objects.Node) -> tuple[int, int]:
    """Return how many GPUs a node shares, and bytes of each; (0, 0) where it shares none."""
    labels = node.metadata.labels
    try:
        shared, each = tenant.count(labels.get(COUNT, "0")) or 0, quantity.whole(labels.get(EACH, "0"))
    except InvalidInput:
        return 0, 0
    return min(shared, MOST), each


def held(pod: objects.Pod) -> Held | None:
    """Tell what a bound pod holds, as its binding wrote."""
    asked, index = wish(pod), tenant.count(pod.metadata.annotations.get(INDEX, ""))
    return Held(index, asked) if asked is not None and index is not None else None


def place(node: objects.Node, taken: Mapping[str, Held], asked: GpuShare) -> int | None:
    """Return the fullest GPU of a node that still has room, the first of equals; None where none has."""
    count, each = offered(node)
    shares, memory = [0] * count, [0] * count
    for one in taken.values():
        # One beyond `count` was bound before the node's label became smaller; that GPU is offered no more.
        if one.gpu < count:
            shares[one.gpu] += one.wish.share_m
            memory[one.gpu] += one.wish.memory_bytes
    fits = [i for i in range(count) if shares[i] + asked.share_m <= WHOLE and memory[i] + asked.memory_bytes <= each]
    # The fullest first keeps whole GPUs free for large shares; of equals the first, for a fixed order.
    return max(fits, key=lambda i: (shares[i], -i), default=None)
