"""How engine code is compiled: numba with scalar IEEE arithmetic, cached in a folder keyed by all compiled sources.

numba's own cache does not notice a change in a function of another file, so the folder's name carries a hash of every
source that can take part. With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and mean the same.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba import types

_config: Any = numba.config
COMPILED = not _config.DISABLE_JIT
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
    _config.CACHE_DIR = cache_folder("kernel", "engine", "sim")

OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "boundscheck": False}


def _wide(kind: Any) -> Any:
    """Every integer but uint64 as int64, and no literal types."""
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) and kind != types.uint64 else kind


_INNER: set[str] = set()
"""Full names of the functions that only compiled code calls."""


def inner(function: Any) -> Any:
    """Like `jit`, for a function that only compiled code calls.

    It has no way in from Python, is not cached by itself, and is optimised and turned into machine code only as part
    of the function that it ends up in: numba would do both at every level of the call tree, for all that lies below.
    """
    if not COMPILED:
        return function
    function.__qualname__ = f"{function.__module__}.{function.__name__}"
    _INNER.add(function.__qualname__)
    dispatcher = jit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, cache=False)

    def remember(result: Any) -> None:
        dispatcher.overloads[tuple(result.signature.args)] = result

    def refuse(*arguments: Any, **_: Any) -> None:
        raise TypeError(f"{function.__qualname__} is called by compiled code only; wrap it in a function of `jit`")

    # Without this a call from Python would find the overload and jump to no code at all.
    dispatcher.add_overload, dispatcher._compile_for_args = remember, refuse
    return dispatcher


def _finalize_inner(library: Any) -> None:
    """Link what an inner function calls into its module, and leave it at that."""
    seen = set()
    for other in library._linking_libraries:
        if other not in seen:
            seen.add(other)
            library._reload_init.update(other._reload_init)
            library._final_module.link_in(other._get_module_for_linking(), preserve=True)
    library._finalized = True


def _patch_numba() -> None:
    """Put `_finalize_inner` in place, for inner functions alone. Where numba has changed, all stays as it was."""
    from numba.core import codegen as numba_codegen

    libraries: Any = numba_codegen.CPUCodeLibrary
    generators: Any = numba_codegen.JITCPUCodegen
    finalize, set_environment = libraries.finalize, getattr(generators, "set_env", None)
    parts = ("_get_module_for_linking", "_raise_if_finalized", "_optimize_final_module")
    if set_environment is None or not all(hasattr(libraries, part) for part in parts):
        return

    def set_if_there(codegen: Any, name: str, environment: Any) -> None:
        # An inner function has no machine code of its own, and so no environment that something could read.
        if codegen._engine.is_symbol_defined(name):
            set_environment(codegen, name, environment)

    def quick(library: Any) -> None:
        if library.name in _INNER and hasattr(library, "_linking_libraries"):
            _finalize_inner(library)
        else:
            finalize(library)

    libraries.finalize = quick
    generators.set_env = set_if_there


if COMPILED:
    _patch_numba()
    # The kernel is many small functions; putting more of them in the place of their calls makes it a quarter faster.
    binding.set_option("wattflow", "-inline-threshold=2000")


def jit(function: Any, **options: Any) -> Any:
    """Compile an engine function when it is first used; the identity when compilation is switched off.

    Tables hold narrow integers, and numba would compile a function anew for each mix of widths it is called with. Here
    arguments are widened at the call, so each function is compiled once.
    """
    dispatcher = numba.njit(**(OPTIONS | options))(function)
    if COMPILED:
        resolve = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: resolve(tuple(_wide(a) for a in args), kws)
    return dispatcher


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Hold the garbage collector back: the compiler makes millions of objects that all stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@compiling()
def compiled(signature: Any, function: Any, cache: bool = True, folder: str | None = None) -> Any:
    """Compile a function now, for one explicit signature; ``folder`` is where to keep it."""
    if not COMPILED:
        return function
    usual = _config.CACHE_DIR
    try:
        if folder is not None and "NUMBA_CACHE_DIR" not in os.environ:
            _config.CACHE_DIR = folder
        return numba.njit(signature, **(OPTIONS | {"cache": cache}))(function)
    finally:
        _config.CACHE_DIR = usual
