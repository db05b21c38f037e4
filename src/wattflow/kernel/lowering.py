"""Tables as compiled code sees them: one pointer to a directory of base addresses and lengths.

A StructRef of arrays was tried first. Each access then took and dropped reference counts, atomically, for the array
and for the structure, and every store made the compiler load the base addresses anew: two fifths of the run time.
Here a table has no owner to count for (the Python object that holds it outlives the call) and its address is known
not to change.

The directory's first word says whether compiled code runs on these tables. A handle's address is odd: whoever comes in
with it sets that word and clears it on leaving, and a second one is refused. What a plain-Python policy holds while
the kernel waits for it are the tables themselves, whose address is even: it may look, by compiled functions too.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_setattr_generic
from numba.core.typeconv.castgraph import Conversion
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_cast,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)
from numba.np import arrayobj

from wattflow.kernel import jit

WORDS = 3
"""Words of the directory per table: address, rows, columns."""
BUSY = 0
"""The word that is 1 while compiled code runs on the tables."""
FIRST = 1
"""Where the first table's words are."""
GUARDED = 1
"""Bit of an address that sets the busy word."""

_I64 = ir.IntType(64)


class TablesType(types.Type):
    """The compiled type of a set of tables; ``lacks`` names the parts of the code that they never need.

    ``ancestry`` names their class and its bases, nearest first: by it a hook finds its body (`hooks`).

    Code compiled for tables that lack a part does not hold it (`jit.optional`). Whoever passes such tables answers for
    their content; as tables of the whole type they may be passed anywhere.
    """

    def __init__(
        self, ancestry: tuple[str, ...], fields: tuple[tuple[str, Any, int], ...], lacks: frozenset[str] = frozenset()
    ) -> None:
        self.ancestry, self.fields, self.lacks = ancestry, fields, lacks
        self.label = ancestry[0].rpartition(".")[2]
        # Of class and columns: two classes with the same columns are two types, for hooks go by class.
        digest = hashlib.sha256(repr((ancestry[0], fields)).encode()).hexdigest()[:12]
        # A name that listed every field would stand in each symbol that the compiler makes.
        super().__init__(name="_".join([self.label, digest, *sorted(f"no{part}" for part in lacks)]))

    def without(self, *parts: str) -> TablesType:
        """Return the same tables, known to lack these parts."""
        return TablesType(self.ancestry, self.fields, frozenset(parts))

    def can_convert_to(self, typing_context: Any, other: Any) -> Any:
        """Let tables that lack something serve where tables that may have it are asked for."""
        if isinstance(other, TablesType) and (other.ancestry, other.fields) == (self.ancestry, self.fields):
            # One way only: what is compiled without a part must never meet tables that need it.
            return Conversion.safe if other.lacks <= self.lacks else None
        return None

    def index(self, name: str) -> int:
        """Place of a table in the directory; −1 when there is none of that name."""
        return next((i for i, field in enumerate(self.fields) if field[0] == name), -1)


class RowsType(types.Type):
    """A table of records inside compiled code: `rows[i]` is a reference to row i, without a check of its sign.

    With ``WATTFLOW_CHECK=1`` the row is checked, and the type knows the table's name for the message.
    """

    def __init__(self, record: Any, table: str = "") -> None:
        self.record, self.table = record, table
        digest = hashlib.sha256(repr(record).encode()).hexdigest()[:12]
        super().__init__(name=f"Rows_{table}{digest}")


class FlatType(types.Array):
    """A plain table, or a column, inside compiled code: an index counts from the start, without a look at its sign.

    With ``WATTFLOW_CHECK=1`` an index below 0 or beyond the end is an error.
    """

    def __init__(self, dtype: Any, ndim: int, layout: Any) -> None:
        super().__init__(dtype, ndim, layout, name=f"Flat({dtype}, {ndim}d, {layout})")


register_model(FlatType)(models.ArrayModel)


class RowType(types.Record):
    """A row of a table, whose fields compiled code knows to be apart from those of every other table.

    Each load and store says which field of which record it is of (LLVM's type-based alias metadata), so a store to one
    field does not make the compiler load all others anew.
    """

    def __init__(self, record: types.Record) -> None:
        fields: list[Any] = [
            (name, {"type": field.type, "offset": field.offset, "alignment": field.alignment, "title": field.title})
            for name, field in record.fields.items()
        ]
        super().__init__(fields, record.size, record.aligned)
        self.name = f"Row_{hashlib.sha256(repr(record).encode()).hexdigest()[:12]}"


register_model(RowType)(models.RecordModel)


def _field_tag(builder: Any, kind: RowType, name: str) -> Any:
    """Return the alias metadata of one field of a record."""
    module = builder.module
    root = module.add_metadata(["wattflow tables"])
    # Fields of one root that are no ancestors of each other cannot alias, says LLVM.
    field = module.add_metadata([f"{kind.name}.{name}", root, _I64(0)])
    return module.add_metadata([field, field, _I64(0)])


@lower_getattr_generic(RowType)
def _read_field(context: Any, builder: Any, kind: Any, row: Any, name: str) -> Any:
    item = kind.typeof(name)
    place = cgutils.get_record_member(builder, row, kind.offset(name), context.get_data_type(item))
    load = builder.load(place, align=None if kind.aligned else 1)
    load.set_metadata("tbaa", _field_tag(builder, kind, name))
    return context.data_model_manager[item].from_data(builder, load)


@lower_setattr_generic(RowType)
def _write_field(context: Any, builder: Any, called: Any, values: Any, name: str) -> None:
    kind, given = called.args
    item = kind.typeof(name)
    place = cgutils.get_record_member(builder, values[0], kind.offset(name), context.get_data_type(item))
    value = context.cast(builder, values[1], given, item)
    data = context.data_model_manager[item].as_data(builder, value)
    store = builder.store(data, place, align=None if kind.aligned else 1)
    store.set_metadata("tbaa", _field_tag(builder, kind, name))


@register_model(TablesType)
class _TablesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _I64.as_pointer())


@lower_cast(TablesType, TablesType)
def _same_tables(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    return value


@register_model(RowsType)
class _RowsModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("data", types.voidptr), ("size", types.intp)])


@unbox(TablesType)
def _unbox_tables(kind: Any, value: Any, c: Any) -> NativeValue:
    builder = c.builder
    address = c.pyapi.object_getattr_string(value, "address")
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    guarded = cgutils.alloca_once_value(builder, cgutils.false_bit)
    place = cgutils.alloca_once_value(builder, _I64(0))
    with builder.if_then(cgutils.is_not_null(builder, address), likely=True):
        number = c.pyapi.long_as_longlong(address)
        c.pyapi.decref(address)
        builder.store(builder.and_(number, _I64(~GUARDED)), place)
        is_guarded = builder.icmp_unsigned("!=", builder.and_(number, _I64(GUARDED)), _I64(0))
        builder.store(is_guarded, guarded)
        builder.store(cgutils.is_not_null(builder, c.pyapi.err_occurred()), failed)
        with builder.if_then(is_guarded):
            word = builder.inttoptr(builder.load(place), _I64.as_pointer())
            # Two threads may come at once: neither holds the GIL for long.
            # Compare and swap: of two threads one gets in and the other is told.
            taken = builder.cmpxchg(word, _I64(0), _I64(1), "acq_rel", "monotonic")
            with builder.if_then(builder.not_(builder.extract_value(taken, 1)), likely=False):
                message = f"these tables are in use: compiled code runs on them ({kind.name.split('_')[0]})"
                c.pyapi.err_set_string("PyExc_RuntimeError", message)
                builder.store(cgutils.true_bit, failed)
    pointer = builder.inttoptr(builder.load(place), _I64.as_pointer())

    def leave() -> None:
        with builder.if_then(builder.load(guarded)):
            # After all of the kernel's stores, which the next to come in must see.
            builder.store_atomic(_I64(0), builder.gep(pointer, [_I64(BUSY)]), "release", 8)

    return NativeValue(pointer, is_error=builder.load(failed), cleanup=leave)


def _address_of(typing_context, tables):
    def code(context, builder, called, values):
        return builder.ptrtoint(values[0], _I64)

    return types.int64(tables), code


address_of: Any = intrinsic(_address_of)
"""Address of the directory, for compiled code that has to find the Python object again."""


def _tables_at(typing_context, like, address):
    def code(context, builder, called, values):
        return builder.inttoptr(values[1], _I64.as_pointer())

    return like(like, types.int64), code


tables_at: Any = intrinsic(_tables_at)
"""Tables (or functions) of the same type as the first argument, at an address; nothing guards them."""


def _claim(typing_context, counter, many):
    def code(context, builder, called, values):
        array = context.make_array(called.args[0])(context, builder, values[0])
        return builder.atomic_rmw("add", array.data, values[1], "monotonic")

    return types.int64(counter, types.int64), code


claim: Any = intrinsic(_claim)
"""Add so many to the first number of a table of int64 and return what it was, at once for all threads."""


@infer_getattr
class _TablesAttribute(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        at = kind.index(name)
        if at < 0:
            return None
        _, item, dimensions = kind.fields[at]
        return _rows(item, name) if isinstance(item, types.Record) else FlatType(item, dimensions, "C")


def _item_pointer(context: Any, builder: Any, kind: Any, value: Any, indices: tuple[Any, ...]) -> Any:
    array = context.make_array(kind)(context, builder, value)
    shape = cgutils.unpack_tuple(builder, array.shape, count=kind.ndim)
    strides = cgutils.unpack_tuple(builder, array.strides, count=kind.ndim)
    if jit.CHECKED:
        for index, size in zip(indices, shape, strict=True):
            with builder.if_then(builder.icmp_unsigned(">=", index, size), likely=False):
                context.call_conv.return_user_exc(builder, IndexError, (f"index out of range in {kind.name}",))
    return cgutils.get_item_pointer2(
        context,
        builder,
        data=array.data,
        shape=shape,
        strides=strides,
        layout=kind.layout,
        inds=indices,
        wraparound=False,
        boundscheck=False,
    )


def _indices(context: Any, builder: Any, kind: Any, index: Any, value: Any) -> tuple[Any, ...] | None:
    """Return the whole numbers that name one item; None when something else is asked for."""
    kinds: tuple[Any, ...]
    if isinstance(index, types.Integer):
        kinds, values = (index,), (value,)
    elif isinstance(index, types.UniTuple | types.Tuple):
        kinds, values = tuple(index.types), cgutils.unpack_tuple(builder, value, count=len(index))
    else:
        return None
    if len(kinds) != kind.ndim or not all(isinstance(one, types.Integer) for one in kinds):
        return None
    pairs = zip(values, kinds, strict=True)
    return tuple(context.cast(builder, one, of, types.intp) for one, of in pairs)


@lower_builtin(operator.getitem, FlatType, types.Integer)
@lower_builtin(operator.getitem, FlatType, types.BaseTuple)
def _flat_item(context: Any, builder: Any, called: Any, values: Any) -> Any:
    kind, index = called.args
    indices = _indices(context, builder, kind, index, values[1])
    if indices is None:
        usual = arrayobj.getitem_arraynd_intp if isinstance(index, types.Integer) else arrayobj.getitem_array_tuple
        return usual(context, builder, called, values)
    return arrayobj.load_item(context, builder, kind, _item_pointer(context, builder, kind, values[0], indices))


@lower_builtin(operator.setitem, FlatType, types.Any, types.Any)
def _set_flat_item(context: Any, builder: Any, called: Any, values: Any) -> Any:
    kind, index, given = called.args
    indices = _indices(context, builder, kind, index, values[1])
    if indices is None:
        return arrayobj.setitem_array(context, builder, called, values)
    item = context.cast(builder, values[2], given, kind.dtype)
    place = _item_pointer(context, builder, kind, values[0], indices)
    arrayobj.store_item(context, builder, kind, item, place)
    return context.get_dummy_value()


def _rows(record: Any, name: str) -> RowsType:
    return RowsType(record, f"{name}_" if jit.CHECKED else "")


@lower_getattr_generic(TablesType)
def _read_table(context: Any, builder: Any, kind: Any, pointer: Any, name: str) -> Any:
    at = kind.index(name)
    _, item, dimensions = kind.fields[at]
    constant = builder.module.add_metadata([])

    def word(offset: int) -> Any:
        load = builder.load(builder.gep(pointer, [_I64(FIRST + WORDS * at + offset)]))
        # The directory does not change while compiled code runs (`Tables.replace` refuses): its words are loaded once.
        load.set_metadata("invariant.load", constant)
        return load

    if isinstance(item, types.Record):
        rows = cgutils.create_struct_proxy(_rows(item, name))(context, builder)
        rows.data = builder.inttoptr(word(0), ir.IntType(8).as_pointer())
        rows.size = word(1)
        return rows._getvalue()
    shape = tuple(word(1 + axis) for axis in range(dimensions))
    return _array(context, builder, FlatType(item, dimensions, "C"), word(0), shape)


def _array(context: Any, builder: Any, kind: Any, address: Any, shape: tuple[Any, ...]) -> Any:
    """Return a contiguous array over memory that it does not own."""
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides: tuple[Any, ...] = (_I64(size),)
    if len(shape) == 2:
        strides = (builder.mul(shape[1], _I64(size)), *strides)
    array = context.make_array(kind)(context, builder)
    data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
    arrayobj.populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


@infer_global(operator.getitem)
class _RowsItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        rows, index = args
        if isinstance(rows, RowsType) and isinstance(index, types.Integer):
            return signature(rows.record, rows, types.int64)
        return None


@lower_builtin(operator.getitem, RowsType, types.int64)
def _row(context: Any, builder: Any, called: Any, values: Any) -> Any:
    kind = called.args[0]
    rows = cgutils.create_struct_proxy(kind)(context, builder, value=values[0])
    if jit.CHECKED:
        # As an unsigned number a negative index is beyond every size.
        with builder.if_then(builder.icmp_unsigned(">=", values[1], rows.size), likely=False):
            message = f"row out of range in table {kind.table.removesuffix('_')}"
            context.call_conv.return_user_exc(builder, IndexError, (message,))
    size = context.get_abi_sizeof(context.get_data_type(kind.record))
    place = builder.gep(rows.data, [builder.mul(values[1], _I64(size))])
    return builder.bitcast(place, context.get_value_type(kind.record))


@infer_getattr
class _RowsAttribute(AttributeTemplate):
    key = RowsType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        if name in kind.record.fields:
            return FlatType(kind.record.typeof(name), 1, "A")
        return types.intp if name == "size" else None


@lower_getattr_generic(RowsType)
def _read_column(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    rows = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    if name not in kind.record.fields:
        return rows.size
    table = types.Array(kind.record, 1, "C")
    address = builder.ptrtoint(rows.data, _I64)
    array = _array(context, builder, table, address, (rows.size,))
    return arrayobj.array_record_getattr(context, builder, table, array, name)


NEVER = "wattflow.never"
"""In the place of a function that tables lack: a call that cannot be reached."""


@lower_builtin(NEVER, types.VarArg(types.Any))
def _never(context: Any, builder: Any, called: Any, values: Any) -> Any:
    if jit.CHECKED:
        with builder.if_then(cgutils.true_bit):
            message = "a part of the code was called that these tables were said to lack"
            context.call_conv.return_user_exc(builder, RuntimeError, (message,))
    else:
        # LLVM takes this for a promise and drops the call, with the test that leads to it.
        builder.assume(cgutils.false_bit)
    return context.get_constant_null(called.return_type)


def never(returns: Any) -> Any:
    """Return the typing of a call that cannot be reached."""

    class Never(AbstractTemplate):
        key = NEVER

        def generic(self, args: Any, kws: Any) -> Any:
            return signature(returns, *args)

    return Never


def lacks(kinds: Any, part: str) -> bool:
    """Tell whether tables among these types lack a part."""
    return any(isinstance(kind, TablesType) and part in kind.lacks for kind in kinds)
