"""How frame code is compiled: as the engine's, with a cache folder that also hashes the sources of this package.

Only the outermost function is kept on disk; what it calls is compiled into it.
"""

from __future__ import annotations

import functools
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from wattflow.engine import jit as engine_jit

COMPILED = engine_jit.COMPILED
_OPTIONS: dict[str, Any] = {"cache": False, "error_model": "numpy", "boundscheck": False}


@functools.cache
def folder() -> str:
    """Where compiled frame code belongs."""
    return engine_jit.cache_folder("frames/kernel")


def _wide(kind: Any) -> Any:
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) and kind != types.uint64 else kind


def jit(function: Any) -> Any:
    """Compile a function when it is first used, once for all widths of integers; plain Python when switched off."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    if COMPILED:
        resolve = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: resolve(tuple(_wide(a) for a in args), kws)
    return dispatcher


@intrinsic
def bare(typing_context, array):  # type: ignore[no-untyped-def]
    """The same array without a reference count, which would cost more than the access. Its owner must outlive it."""

    def code(context, builder, signature, values):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, values[0])
        view.meminfo = view.meminfo.type(None)
        view.parent = view.parent.type(None)
        return view._getvalue()

    return array(array), code


def compiled(signature: Any, function: Any) -> Any:
    """Compile a function now and keep it on disk."""
    return engine_jit.compiled(signature, function, folder=folder())
