"""How compiled code is made: numba with scalar IEEE arithmetic, without the GIL, cached on disk.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python and mean the same. ``WATTFLOW_CHECK=1`` compiles
range checks into every access of a table.

Numba is patched while it compiles our functions. Inner functions (`jit.inner`) are linked into their callers and
optimised there alone; numba would optimise and emit them at every level of the call tree (16 s of compilation instead
of 44). And LLVM inlines more of our functions (a fifth faster), by an attribute of each function, not by an option of
the whole process.

Both rest on names that numba does not promise to keep. So nothing is changed at import: before the first inner function
is compiled the change is made, a two-line function and its caller are compiled with it, and on any error it is undone;
all then works, slower. ``WATTFLOW_PATCH=0`` leaves numba alone. Functions of other modules pass through unchanged
either way.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba import types

from wattflow.kernel import cache as folders

_log = logging.getLogger(__name__)
_OURS = "_ZN8wattflow"
"""How the symbols of this package's functions begin."""
_BONUS = '"call-threshold-bonus"="1775"'
"""Added to LLVM's usual 225 for every call of such a function. (The attribute that sets the threshold itself comes too
late: the cost of a callee is no longer counted beyond the usual threshold.)"""

INNER: set[str] = set()
"""Full names of the functions that only compiled code calls."""
APART: set[str] = set()
"""Those of them that stay functions of their own: code for what not everybody needs, which many places call."""
COPIED: set[str] = set()
"""Those that are copied into every caller, even where LLVM would count that as too dear."""
_state = {"tried": False, "installed": False}


def patch_numba(inner: Callable[[Any], Any], options: dict[str, Any]) -> None:
    """Make the change, once; called before an inner function is compiled. ``inner`` is `jit.inner`, for the trial."""
    if _state["tried"]:
        return
    _state["tried"] = True
    if os.environ.get("WATTFLOW_PATCH") == "0":
        return
    undo = contextlib.ExitStack()
    try:
        _patch(undo)
        _try_it(inner, options)
        _state["installed"] = True
    except Exception as error:
        # Whatever went wrong, numba as it was can compile all this.
        undo.close()
        _log.info("numba %s is left as it is, which compiles slower: %s", numba.__version__, error)


def is_patched() -> bool:
    """Tell whether the change was made and holds."""
    return _state["installed"]


def _patch(undo: contextlib.ExitStack) -> None:
    from numba.core import codegen

    libraries: Any = codegen.CPUCodeLibrary
    generators: Any = codegen.JITCPUCodegen
    _replace(undo, libraries, "finalize", _finalize)
    _replace(undo, libraries, "add_ir_module", _add_ir_module)
    _replace(undo, generators, "set_env", _set_env)


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    usual = getattr(owner, name)
    # An inherited method is not the class's own: undone, it must be gone, not written down there.
    own = name in vars(owner)
    setattr(owner, name, make(usual))
    if own:
        undo.callback(setattr, owner, name, usual)
    else:
        undo.callback(delattr, owner, name)


def _finalize(usual: Any) -> Any:
    def finalize(library: Any) -> None:
        # No machine code of its own: it is optimised where it ends up.
        if library.name in INNER and hasattr(library, "_linking_libraries"):
            library._finalized = True
        else:
            library._linking_libraries = _all_called(library)
            usual(library)

    return finalize


def _all_called(library: Any) -> list[Any]:
    """List the libraries that a function is linked with: what it calls, and what inner ones among these call.

    An inner function's module holds that function alone: linked at every level of the call tree, it would be copied as
    many times as there are ways to it.
    """
    found: dict[Any, None] = {}
    waiting = list(getattr(library, "_linking_libraries", ()))
    while waiting:
        other = waiting.pop(0)
        if other not in found:
            found[other] = None
            if other.name in INNER:
                waiting.extend(other._linking_libraries)
    return list(found)


def _add_ir_module(usual: Any) -> Any:
    def add_ir_module(library: Any, module: Any) -> None:
        for function in module.functions:
            if function.name.startswith(_OURS) and not function.is_declaration:
                # The set's own `add` knows only the attributes that are words.
                set.add(function.attributes, _BONUS)
                if library.name in APART:
                    function.attributes.add("noinline")
                elif library.name in COPIED:
                    function.attributes.add("alwaysinline")
        usual(library, module)

    return add_ir_module


def _set_env(usual: Any) -> Any:
    def set_env(codegen: Any, name: str, environment: Any) -> None:
        # An inner function has no machine code of its own, and so no environment that something could read.
        if codegen._engine.is_symbol_defined(name):
            usual(codegen, name, environment)

    return set_env


def _try_it(inner: Callable[[Any], Any], options: dict[str, Any]) -> None:
    """Compile an inner function and its caller; raises unless the answer is right."""

    def doubled(x):
        return 2 * x

    called = inner(doubled)

    def caller(x):
        return called(x) + called(x + 1)

    answer = numba.njit(**(options | {"cache": False}))(caller)(5)
    if answer != 22:
        raise RuntimeError(f"a trial compilation answered {answer} instead of 22")


def postpone_linear_algebra() -> None:
    """Have numba look for scipy instead of importing it; called before the first function is compiled or loaded.

    To know whether there is a BLAS numba imports ``scipy.linalg``, a quarter of a second. None of our functions calls
    it. Here numba is told that it is there where scipy is installed, and imports it itself when it compiles a function
    that uses it.
    """
    if "numba.np.arraymath" in sys.modules or "scipy.linalg" in sys.modules:
        return
    if importlib.util.find_spec("scipy") is None:
        return
    linalg: Any = importlib.import_module("numba.np.linalg")
    usual = getattr(linalg, "ensure_blas", None)
    if usual is None:  # another numba: it loads what it likes
        return
    linalg.ensure_blas = lambda: None
    try:
        arrays: Any = importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = usual
    # The module has bound the stand-in by name: functions that do need it must find the true one.
    if hasattr(arrays, "ensure_blas"):
        arrays.ensure_blas = usual


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
    # The linker knows a library by this name alone.
    function.__qualname__ = f"{function.__module__}.{function.__name__}"
    INNER.add(function.__qualname__)
    dispatcher = _widening(function, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}, _wide)
    resolve = dispatcher.get_call_template

    def prepared(args: Any, kws: Any) -> Any:
        patch_numba(inner, OPTIONS)
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
        COPIED.add(made.py_func.__qualname__)
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
        APART.add(made.py_func.__qualname__)
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
    postpone_linear_algebra()
    dispatcher.compile(signature)
    # A call with other types is an error then, instead of a minute of compilation in the middle of a run.
    dispatcher.disable_compile()
    return dispatcher


def direct(function: Any) -> Any:
    """Return the bare entry of a function that `compiled` made: 1.5 µs a call, where numba's dispatch takes 15.

    The caller answers for the arguments' types: tables of another kind would be read as if they were the right ones.
    """
    return next(iter(function.overloads.values())).entry_point if COMPILED else function
