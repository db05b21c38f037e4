"""Patch numba while it compiles our functions; the patch is tried first and taken back on any error.

Inner functions (`jit.inner`) are linked into their callers and optimised there alone; numba would optimise and emit
them at every level of the call tree (16 s of compilation instead of 44). And LLVM inlines more of our functions
(a fifth faster), by an attribute of each function, not by an option of the whole process.

Both rest on names that numba does not promise to keep. So nothing is changed at import: before the first inner
function is compiled the change is made, a two-line function and its caller are compiled with it, and on any error it
is undone; all then works, slower. ``WATTFLOW_PATCH=0`` leaves numba alone. Functions of other modules pass through
unchanged either way.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any

import numba

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


def prepare(inner: Callable[[Any], Any], options: dict[str, Any]) -> None:
    """Make the change, once; called before an inner function is compiled. ``inner`` is `jit.inner`, for the trial."""
    if _state["tried"]:
        return
    _state["tried"] = True
    if os.environ.get("WATTFLOW_PATCH") == "0":
        return
    undo = contextlib.ExitStack()
    try:
        _install(undo)
        _try_it(inner, options)
        _state["installed"] = True
    except Exception as error:
        # Whatever went wrong, numba as it was can compile all this.
        undo.close()
        _log.info("numba %s is left as it is, which compiles slower: %s", numba.__version__, error)


def installed() -> bool:
    """Tell whether the change was made and holds."""
    return _state["installed"]


def _install(undo: contextlib.ExitStack) -> None:
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
