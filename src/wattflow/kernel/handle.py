"""Tables as compiled code sees them: one pointer to a directory of base addresses and lengths.

A StructRef of arrays was tried first. Each access then took and dropped reference counts, atomically, for the array
and for the structure, and every store made the compiler load the base addresses anew: two fifths of the run time.
Here a table has no owner to count for (the Python object that holds it outlives the call) and its address is known
not to change.
"""

from __future__ import annotations

import hashlib
import operator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np import arrayobj
from numba.np.numpy_support import from_dtype

from wattflow.kernel import jit

_WORDS = 3
"""Words of the directory per table: address, rows, columns."""


class TablesType(types.Type):
    """The compiled type of a set of tables."""

    def __init__(self, label: str, fields: tuple[tuple[str, Any, int], ...]) -> None:
        self.fields = fields
        digest = hashlib.sha256(repr(fields).encode()).hexdigest()[:12]
        # A name that listed every field would stand in each symbol that the compiler makes.
        super().__init__(name=f"{label}_{digest}")

    def index(self, name: str) -> int:
        """Place of a table in the directory; −1 when there is none of that name."""
        return next((i for i, field in enumerate(self.fields) if field[0] == name), -1)


class Handle:
    """What is passed to compiled functions: the directory, and the tables it points to."""

    __slots__ = ("address", "directory", "kind", "tables")

    def __init__(self, kind: TablesType, tables: tuple[Any, ...]) -> None:
        self.kind, self.tables = kind, tables
        self.directory = np.zeros(_WORDS * len(tables), np.int64)
        for i, table in enumerate(tables):
            rows, columns = (*table.shape, 1)[:2]
            self.directory[_WORDS * i : _WORDS * (i + 1)] = table.ctypes.data, rows, columns
        self.address = int(self.directory.ctypes.data)


class Tables:
    """Tables as plain attributes: what Python code reads, and what uncompiled kernels run on."""

    __slots__ = ("_handle",)
    NAMES: ClassVar[tuple[str, ...]] = ()
    _kinds: ClassVar[dict[Any, TablesType]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **tables: Any) -> None:
        for name in self.NAMES:
            setattr(self, name, tables[name])
        self._handle: Any = None

    def handle(self) -> Any:
        """What compiled functions take: a Handle over the same memory, or this object when uncompiled."""
        if not jit.COMPILED:
            return self
        if self._handle is None:
            tables = tuple(getattr(self, name) for name in self.NAMES)
            self._handle = Handle(self._kind(tables), tables)
        return self._handle

    @property
    def kind(self) -> Any:
        """The compiled type."""
        return self.handle().kind

    @property
    def address(self) -> int:
        """Where the directory lies."""
        return int(self.handle().address)

    def _kind(self, tables: tuple[Any, ...]) -> TablesType:
        key = (type(self), tuple((table.dtype, table.ndim) for table in tables))
        if key not in self._kinds:
            for name, table in zip(self.NAMES, tables, strict=True):
                if not table.flags.c_contiguous or not table.flags.writeable:
                    raise ValueError(f"table {name} must be contiguous and writeable")
            fields = tuple(
                (name, from_dtype(_plain(table.dtype)), table.ndim)
                for name, table in zip(self.NAMES, tables, strict=True)
            )
            self._kinds[key] = TablesType(type(self).__name__, fields)
        return self._kinds[key]

    def replace(self, **tables: Any) -> None:
        """Put larger tables in the place of full ones."""
        for name, table in tables.items():
            setattr(self, name, table)
        self._handle = None

    def copy(self) -> Any:
        """Independent tables with the same content."""
        return type(self)(**{name: getattr(self, name).copy() for name in self.NAMES})


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same record type without a Python class for its rows."""
    return np.dtype(dtype.descr) if dtype.names else dtype


@typeof_impl.register(Handle)
@typeof_impl.register(Tables)
def _type_of_handle(value: Handle | Tables, context: Any) -> Any:
    return value.kind


@register_model(TablesType)
class _TablesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


@unbox(TablesType)
def _unbox_tables(kind: Any, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    number = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    pointer = c.builder.inttoptr(number, ir.IntType(64).as_pointer())
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


class RowsType(types.Type):
    """A table of records inside compiled code: `rows[i]` is a reference to row i, without a check of its sign."""

    def __init__(self, record: Any) -> None:
        self.record = record
        digest = hashlib.sha256(repr(record).encode()).hexdigest()[:12]
        super().__init__(name=f"Rows_{digest}")


@register_model(RowsType)
class _RowsModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("data", types.voidptr), ("size", types.intp)])


@infer_getattr
class _TablesAttribute(AttributeTemplate):  # type: ignore[misc]
    key = TablesType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        at = kind.index(name)
        if at < 0:
            return None
        _, item, dimensions = kind.fields[at]
        return RowsType(item) if isinstance(item, types.Record) else types.Array(item, dimensions, "C")


@lower_getattr_generic(TablesType)
def _read_table(context: Any, builder: Any, kind: Any, pointer: Any, name: str) -> Any:
    at = kind.index(name)
    _, item, dimensions = kind.fields[at]
    constant = builder.module.add_metadata([])

    def word(offset: int) -> Any:
        load = builder.load(builder.gep(pointer, [ir.IntType(64)(_WORDS * at + offset)]))
        load.set_metadata("invariant.load", constant)
        return load

    if isinstance(item, types.Record):
        rows = cgutils.create_struct_proxy(RowsType(item))(context, builder)
        rows.data = builder.inttoptr(word(0), ir.IntType(8).as_pointer())
        rows.size = word(1)
        return rows._getvalue()
    shape = tuple(word(1 + axis) for axis in range(dimensions))
    return _array(context, builder, types.Array(item, dimensions, "C"), word(0), shape)


def _array(context: Any, builder: Any, kind: Any, address: Any, shape: tuple[Any, ...]) -> Any:
    """A contiguous array over memory that it does not own."""
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides: tuple[Any, ...] = (ir.IntType(64)(size),)
    if len(shape) == 2:
        strides = (builder.mul(shape[1], ir.IntType(64)(size)), *strides)
    array = context.make_array(kind)(context, builder)
    data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
    arrayobj.populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


@infer_global(operator.getitem)
class _RowsItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        rows, index = args
        if isinstance(rows, RowsType) and isinstance(index, types.Integer):
            return signature(rows.record, rows, types.int64)
        return None


@lower_builtin(operator.getitem, RowsType, types.int64)
def _row(context: Any, builder: Any, called: Any, values: Any) -> Any:
    kind = called.args[0]
    rows = cgutils.create_struct_proxy(kind)(context, builder, value=values[0])
    size = context.get_abi_sizeof(context.get_data_type(kind.record))
    place = builder.gep(rows.data, [builder.mul(values[1], ir.IntType(64)(size))])
    return builder.bitcast(place, context.get_value_type(kind.record))


@infer_getattr
class _RowsAttribute(AttributeTemplate):  # type: ignore[misc]
    key = RowsType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        if name in kind.record.fields:
            return types.Array(kind.record.typeof(name), 1, "A")
        return types.intp if name == "size" else None


@lower_getattr_generic(RowsType)
def _read_column(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    rows = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    if name not in kind.record.fields:
        return rows.size
    table = types.Array(kind.record, 1, "C")
    address = builder.ptrtoint(rows.data, ir.IntType(64))
    array = _array(context, builder, table, address, (rows.size,))
    return arrayobj.array_record_getattr(context, builder, table, array, name)
