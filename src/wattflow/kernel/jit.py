"""How compiled code is made: numba with scalar IEEE arithmetic, without the GIL, cached on disk.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and mean the same. ``WATTFLOW_CHECK=1`` compiles
range checks into every access of a table.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba import types

from wattflow.kernel import cache as folders
from wattflow.kernel import linking, starting

_config: Any = numba.config
COMPILED = not _config.DISABLE_JIT
CHECKED = os.environ.get("WATTFLOW_CHECK", "0") not in ("", "0")
"""True when tables are checked: ranges at each access, the whole State after each event."""

# IEEE results for a division by zero instead of an exception; no `fastmath`, which would make sums differ.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": CHECKED, "nogil": True}


def cache_folder(*parts: str) -> str:
    """Name of the folder for compiled code of these packages."""
    return folders.name(*parts, marks="checked" if CHECKED else "")


def has_compiled() -> bool:
    """Tell whether compiled code of the simulator is there already, so that nothing has to be compiled first."""
    base = folders.base()
    there = [place / _usual_folder() for place in (base, folders.CARRIED) if place is not None]
    return not COMPILED or any(folder.is_dir() and any(folder.iterdir()) for folder in there)


def _usual_folder() -> str:
    return cache_folder("kernel", "engine", "sim")


def _wide(kind: Any) -> Any:
    """Widen every integer but uint64 to int64, and drop literal types."""
    # A literal type would be compiled anew for every constant that a function is called with.
    kind = types.unliteral(kind)
    # uint64 stays: hashes and masks count on wrapping around.
    return types.int64 if isinstance(kind, types.Integer) and kind != types.uint64 else kind


def _wide_and_whole(kind: Any) -> Any:
    """The same, and tables as ones that may need every part: such functions are shared by all who call them."""
    return kind.without() if getattr(kind, "lacks", None) else _wide(kind)


def inner(function: Any) -> Any:
    """Like `jit`, for a function that only compiled code calls.

    It has no way in from Python, is not cached by itself, and is optimised and turned into machine code only as part
    of the function that it ends up in: numba would do both at every level of the call tree, for all that lies below.
    """
    if not COMPILED:
        return function
    # `linking` knows a library by this name alone.
    function.__qualname__ = f"{function.__module__}.{function.__name__}"
    linking.INNER.add(function.__qualname__)
    dispatcher = _widening(function, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}, _wide)
    resolve = dispatcher.get_call_template

    def prepared(args: Any, kws: Any) -> Any:
        linking.prepare(inner, OPTIONS)
        return resolve(args, kws)

    def remember(result: Any) -> None:
        dispatcher.overloads[tuple(result.signature.args)] = result

    def refuse(*arguments: Any, **_: Any) -> None:
        raise TypeError(f"{function.__qualname__} is called by compiled code only; wrap it in a function of `jit`")

    # Without this a call from Python would find the overload and jump to no code at all.
    dispatcher.add_overload, dispatcher._compile_for_args = remember, refuse
    dispatcher.get_call_template = prepared
    return dispatcher


def copied(function: Any) -> Any:
    """Like `inner`, for a function of the hottest path that LLVM would leave a call: it is copied into its callers."""
    made = inner(function)
    if COMPILED:
        linking.COPIED.add(made.py_func.__qualname__)
    return made


def jit(function: Any, folder: str | None = None) -> Any:
    """Compile a function when it is first used; the identity when compilation is switched off.

    Tables hold narrow integers, and numba would compile a function anew for each mix of widths it is called with. Here
    arguments are widened at the call, so each function is compiled once.
    """
    if not COMPILED:
        return function
    dispatcher = _widening(function, {}, _wide_and_whole)
    folders.attach(dispatcher, function, folder or _usual_folder())
    return dispatcher


def _widening(function: Any, options: dict[str, Any], wide: Callable[[Any], Any]) -> Any:
    dispatcher = numba.njit(**(OPTIONS | options))(function)
    resolve = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: resolve(tuple(wide(a) for a in args), kws)
    return dispatcher


def optional(part: str, returns: Any = types.none) -> Callable[[Any], Any]:
    """Like `inner`, for a function of a part that some tables lack; ``returns`` is what it returns.

    Compiled for tables that lack the part (`TablesType.without`), a call of it is one that cannot be reached: neither
    it nor what it calls is compiled, and what guards the call costs nothing. Elsewhere it stays a function of its own
    instead of being copied into each place that calls it.
    """

    def decorate(function: Any) -> Any:
        made = inner(function)
        if not COMPILED:
            return made
        # Code that few runs need: copied into each caller it would make the hot loops larger.
        linking.APART.add(made.py_func.__qualname__)
        resolve, overload = made.get_call_template, made.get_overload
        parameters = inspect.signature(made.py_func)

        def template(args: Any, kws: Any) -> Any:
            if lowering().lacks(args, part):
                return lowering().never(returns), parameters, tuple(_wide(a) for a in args), kws
            return resolve(args, kws)

        def found(args: Any) -> Any:
            return lowering().NEVER if lowering().lacks(args, part) else overload(args)

        made.get_call_template, made.get_overload = template, found
        return made

    return decorate


# Imported when it is used: a module-level import would be a cycle.
def lowering() -> Any:
    """Return the module of that name, which imports this one."""
    return importlib.import_module("wattflow.kernel.lowering")


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
def compiled(signature: Any, function: Any, cache: bool = True, folder: str | None = None, nogil: bool = True) -> Any:
    """Compile a function now, for one explicit signature; ``folder`` is where to keep it."""
    if not COMPILED:
        return function
    dispatcher = numba.njit(**(OPTIONS | {"nogil": nogil}))(function)
    if cache:
        folders.attach(dispatcher, function, folder or _usual_folder())
    starting.postpone_linear_algebra()
    dispatcher.compile(signature)
    # A call with other types is an error then, instead of a minute of compilation in the middle of a run.
    dispatcher.disable_compile()
    return dispatcher


def direct(function: Any) -> Any:
    """Return the bare entry of a function that `compiled` made: 1.5 µs a call, where numba's dispatch takes 15.

    The caller answers for the arguments' types: tables of another kind would be read as if they were the right ones.
    """
    return next(iter(function.overloads.values())).entry_point if COMPILED else function
