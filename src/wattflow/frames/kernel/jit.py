"""How frame code is compiled: as the engine's, with a cache folder that also hashes the sources of this package.

Only the outermost functions are kept on disk; what they call is compiled into them.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.extending import intrinsic

from wattflow.kernel import jit as engine_jit

COMPILED = engine_jit.COMPILED


@functools.cache
def folder() -> str:
    """Where compiled frame code belongs."""
    return engine_jit.cache_folder("kernel", "frames/kernel")


jit = engine_jit.inner
"""For every function of this package that only compiled code calls."""


def _bare(typing_context, array):  # type: ignore[no-untyped-def]
    """The same array without a reference count, which would cost more than the access. Its owner must outlive it."""

    def code(context, builder, signature, values):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, values[0])
        view.meminfo = view.meminfo.type(None)
        view.parent = view.parent.type(None)
        return view._getvalue()

    return array(array), code


bare: Any = intrinsic(_bare)


def compiled(signature: Any, function: Any) -> Any:
    """Compile a function now and keep it on disk."""
    return engine_jit.compiled(signature, function, folder=folder())
