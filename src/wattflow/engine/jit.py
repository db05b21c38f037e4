"""How engine code is compiled: numba with scalar IEEE arithmetic, cached in a folder keyed by all compiled sources.

numba's own cache does not notice a change in a function of another file, so the folder's name carries a hash of every
source that can take part. With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and mean the same.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

COMPILED = not numba.config.DISABLE_JIT
_PACKAGE = Path(__file__).parents[1]


def cache_folder(*parts: str) -> str:
    """Where compiled code of these packages belongs: a folder named by a hash of all their sources."""
    digest = hashlib.sha256(numba.__version__.encode())
    for part in parts:
        for source in sorted((_PACKAGE / part).glob("**/*.py")):
            digest.update(source.read_bytes())
    base = Path(os.environ.get("WATTFLOW_CACHE", Path.home() / ".cache" / "wattflow"))
    return str(base / digest.hexdigest()[:16])


if COMPILED and "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = cache_folder("engine", "sim")

OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "boundscheck": False}


def _wide(kind: Any) -> Any:
    """Every integer but uint64 as int64, and no literal types."""
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) and kind != types.uint64 else kind


def jit(function: Any) -> Any:
    """Compile an engine function when it is first used; the identity when compilation is switched off.

    Tables hold narrow integers, and numba would compile a function anew for each mix of widths it is called with. Here
    arguments are widened at the call, so each function is compiled once.
    """
    dispatcher = numba.njit(**OPTIONS)(function)
    if COMPILED:
        resolve = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: resolve(tuple(_wide(a) for a in args), kws)
    return dispatcher


@intrinsic
def bare(typing_context, array):  # type: ignore[no-untyped-def]
    """The same array without a reference count. Its owner must outlive every use.

    Compiled code takes and drops a reference at each access to a table, atomically, which costs more than the access itself.
    Arrays without an owner to count for have nothing to do there.
    """

    def code(context, builder, signature, values):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, values[0])
        view.meminfo = view.meminfo.type(None)
        view.parent = view.parent.type(None)
        return view._getvalue()

    return array(array), code


def compiled(signature: Any, function: Any, cache: bool = True, folder: str | None = None) -> Any:
    """Compile a function now, for one explicit signature; ``folder`` is where to keep it."""
    if not COMPILED:
        return function
    usual = numba.config.CACHE_DIR
    try:
        if folder is not None and "NUMBA_CACHE_DIR" not in os.environ:
            numba.config.CACHE_DIR = folder
        return numba.njit(signature, **(OPTIONS | {"cache": cache}))(function)
    finally:
        numba.config.CACHE_DIR = usual
