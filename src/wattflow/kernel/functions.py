"""Compiled functions passed to a kernel behind one pointer.

A first-class function of numba is unboxed by two Python calls, 27 µs each time it is passed. Here the addresses of all
functions stand in one small array that is made once; the kernel reads an address and has the same first-class function.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.types import FunctionType
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

_I64 = ir.IntType(64)


class FunctionsType(types.Type):
    """The compiled type of a set of functions: their names and signatures."""

    def __init__(self, label: str, signatures: tuple[tuple[str, Any], ...]) -> None:
        self.signatures = signatures
        super().__init__(name=f"Functions_{label}")

    def index(self, name: str) -> int:
        """Place of a function; −1 when there is none of that name."""
        return next((i for i, (known, _) in enumerate(self.signatures) if known == name), -1)


class Functions:
    """Functions by name, compiled or not; a kernel calls ``functions.NAME(…)``. It keeps them alive."""

    def __init__(self, kind: FunctionsType | None, **functions: Any) -> None:
        self.kind, self.functions = kind, functions
        self.__dict__.update(functions)
        if kind is None:
            return
        # One array that lives as long as this object: the kernel keeps its address, not the functions.
        self.words = np.zeros(len(functions), np.int64)
        for name, made in kind.signatures:
            self.words[kind.index(name)] = _address(functions[name], made)
        self.address = int(self.words.ctypes.data)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.functions.values())

    def __reduce__(self) -> Any:
        raise TypeError("compiled functions stay in their process; bind the policy anew where it is needed")


def _address(dispatcher: Any, made: Any) -> int:
    # For this very signature: the kernel calls by address and nobody looks at the arguments again.
    result = dispatcher.get_compile_result(made)
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


@typeof_impl.register(Functions)
def _type_of_functions(value: Functions, context: Any) -> Any:
    return value.kind


@register_model(FunctionsType)
class _FunctionsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _I64.as_pointer())


@unbox(FunctionsType)
def _unbox_functions(kind: Any, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    number = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    pointer = c.builder.inttoptr(number, _I64.as_pointer())
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _FunctionsAttribute(AttributeTemplate):
    key = FunctionsType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        at = kind.index(name)
        return FunctionType(kind.signatures[at][1]) if at >= 0 else None


@lower_getattr_generic(FunctionsType)
def _read_function(context: Any, builder: Any, kind: Any, pointer: Any, name: str) -> Any:
    at = kind.index(name)
    # numba calls a first-class function by its `jit_addr`; the other words are for callers that find it null.
    function = cgutils.create_struct_proxy(FunctionType(kind.signatures[at][1]))(context, builder)
    word = builder.load(builder.gep(pointer, [_I64(at)]))
    void = ir.IntType(8).as_pointer()
    function.jit_addr = builder.inttoptr(word, void)
    function.c_addr, function.py_addr = void(None), void(None)
    return function._getvalue()
