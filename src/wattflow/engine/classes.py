"""Find out which classes of nodes could ever run a variant, by rows: asked for each new shape or class."""

from __future__ import annotations

import numpy as np

from wattflow.engine.devices import device_suits
from wattflow.engine.tables import NO_DEVICE
from wattflow.kernel.jit import inner, jit


@inner
def _devices_that_suit(state, variant, node):
    row = state.nodes[node]
    found = 0
    for d in range(row.device_first, row.device_first + row.device_n):
        if device_suits(state, variant, d):
            found += 1
    return found


@jit
def fill_class_ok(state, variant_first, variant_end, class_first, class_end, examples):
    """Write ``class_ok`` for some variants and classes; ``examples`` names a node of each class, −1 without one.

    A class's ``request_u`` and ``memory`` are the most that one of its nodes has had.
    """
    for v in range(variant_first, variant_end):
        needs = state.variants[v]
        for c in range(class_first, class_end):
            kind = state.classes[c]
            strange = needs.architecture >= 0 and needs.architecture != kind.architecture
            lacking = needs.frequency >= kind.frequency_n or (needs.features & ~kind.features) != np.uint64(0)
            # Against the most that a node of the class has had; `fit` compares with what each node has now.
            small = needs.need_u > kind.request_u or needs.memory > kind.memory
            # A class without a node has no devices to look at; `live.nodebook` asks again when its first node joins.
            ok = examples[c] >= 0 and not strange and not lacking and not small
            if ok and needs.device != NO_DEVICE:
                ok = _devices_that_suit(state, v, examples[c]) >= needs.devices
            state.class_ok[v, c] = 1 if ok else 0
