"""A placer that decides with one of the engine's policies asks Python, which asks the policy (`frames.deciding`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from wattflow.frames.kernel.frame_tables import ASKED
from wattflow.frames.kernel.jit import COMPILED, jit

PLAIN: dict[int, Callable[[int, int, int], int]] = {}
"""Uncompiled: who answers, by the number that stands in the state."""

_I64 = ir.IntType(64)


def _call_at(typing_context, address, placer, task, room):
    def code(context, builder, signature, values):
        # Keep in step with `frames.deciding`, which makes the function that stands at this address.
        kind = ir.FunctionType(_I64, [_I64, _I64, _I64])
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), code


call_at: Any = intrinsic(_call_at)
"""Call a C function of three whole numbers at an address."""


@jit
def _ask_compiled(s, p, t, room):
    return call_at(s.i[ASKED], np.int64(p), np.int64(t), np.int64(room))


def _ask_plain(s, p, t, room):
    return PLAIN[int(s.i[ASKED])](int(p), int(t), int(room))


host: Any = _ask_compiled if COMPILED else _ask_plain
"""The host that the policy gives a task on this placer's view; −1 when there is none."""
