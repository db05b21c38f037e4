"""Tables that compiled code works on, and the handle by which it gets hold of them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numba.extending import typeof_impl
from numba.np.numpy_support import from_dtype

from wattflow.kernel import jit
from wattflow.kernel.hooks import ancestry
from wattflow.kernel.lowering import BUSY, FIRST, GUARDED, RowType, TablesType

_LEAST, _MOST = 1 << 20, 1 << 29
"""Bytes of a block that is worth keeping, and that is too large to be kept for later."""
_KEPT = 2
_spare: list[Any] = []


class _Block:
    """Owns a block as long as any array lies in it; then the block is spare."""

    __slots__ = ("memory",)

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> Any:
        return self.memory.__array_interface__

    def __del__(self) -> None:
        if _LEAST <= self.memory.nbytes <= _MOST and len(_spare) < _KEPT:
            _spare.append(self.memory)


def block(size: int) -> Any:
    """So many bytes with any content: of a copy that is no more, or new ones."""
    found = None
    if size >= _LEAST and _spare:
        found = _spare.pop()  # one that does not suit is given back to the system
        # More than twice as large would be kept for nothing.
        if not size <= found.nbytes <= 2 * size:
            found = None
    return np.asarray(_Block(np.empty(size, np.uint8) if found is None else found))[:size]


_OWNERS: weakref.WeakValueDictionary[int, Tables] = weakref.WeakValueDictionary()
"""Tables by the address of their directory: how a plain-Python policy finds the State that it is asked about."""


_LINE = 64
"""Bytes of a cache line."""


class Handle:
    """An argument of compiled functions: the directory, and the tables it points to."""

    __slots__ = ("address", "directory", "kind", "tables")

    def __init__(self, kind: TablesType, tables: tuple[Any, ...], piece: Any = None) -> None:
        self.kind, self.tables = kind, tables
        if piece is None:
            addresses = [table.ctypes.data for table in tables]
        else:  # one question instead of sixty
            first = int(piece.ctypes.data)
            addresses = [first + at for at in _places(tables)[0]]
        # A flat table has one column, so that every entry of the directory has the same three words.
        words = [(at, *(*table.shape, 1)[:2]) for at, table in zip(addresses, tables, strict=True)]
        self.directory = np.concatenate([np.zeros(FIRST, np.int64), np.array(words, np.int64).reshape(-1)])
        # Directories lie on multiples of eight bytes, so the lowest bit is free to carry the guard.
        self.address = int(self.directory.ctypes.data) | GUARDED

    def __reduce__(self) -> Any:
        raise TypeError("a handle holds addresses of this process; copy or pickle the tables it belongs to")


@dataclass(frozen=True, slots=True)
class Kept:
    """Tables in one piece of memory, and the bytes that were in it."""

    tables: dict[str, Any]
    piece: Any
    content: Any


class Tables:
    """Tables as plain attributes: what Python code reads, and what uncompiled kernels run on.

    An attribute cannot be assigned, since compiled code would go on with the old table: `replace` puts another one in
    its place. While compiled code runs on them, tables can be neither replaced nor copied nor entered a second time.
    """

    __slots__ = ("__weakref__", "_handle", "_piece")
    NAMES: ClassVar[tuple[str, ...]] = ()
    UNSAVED: ClassVar[tuple[str, ...]] = ()
    """Tables that a file need not hold, since they are made again from the others; it has them without rows."""
    DEFAULTS: ClassVar[dict[str, float]] = {}
    """Values of columns ("table.column") that an older file lacks, where that is not 0."""
    _kinds: ClassVar[dict[Any, TablesType]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **tables: Any) -> None:
        self._handle: Any
        self._piece: Any
        for name in self.NAMES:
            object.__setattr__(self, name, tables[name])
        self._moved(None)

    def _moved(self, piece: Any) -> None:
        """Tables lie elsewhere: in one piece of memory (its layout and its bytes), or each for itself."""
        object.__setattr__(self, "_handle", None)
        object.__setattr__(self, "_piece", piece)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only; use replace({name}=…)")

    def handle(self) -> Any:
        """Return the argument for compiled functions: a Handle over the same memory, or this object when uncompiled."""
        if not jit.COMPILED:
            return self
        if self._handle is None:
            self._make_handle()
        return self._handle

    def _make_handle(self) -> None:
        # As plain arrays: a table of records looks for each attribute among its columns first.
        tables = tuple(getattr(self, name).view(np.ndarray) for name in self.NAMES)
        for name, table in zip(self.NAMES, tables, strict=True):
            _check(name, table)
        piece = None if self._piece is None else self._piece[1]
        object.__setattr__(self, "_handle", Handle(self._kind(tables), tables, piece))
        # Weakly: a State that nobody holds any more goes, and its address with it.
        _OWNERS[self.address] = self

    @property
    def kind(self) -> Any:
        """The compiled type."""
        return self.handle().kind

    @property
    def address(self) -> int:
        """Where the directory lies."""
        return int(self.handle().address) & ~GUARDED

    @property
    def busy(self) -> bool:
        """Tell whether compiled code runs on these tables now."""
        return isinstance(self._handle, Handle) and bool(self._handle.directory[BUSY])

    def _refuse_if_busy(self, what: str) -> None:
        if self.busy:
            raise RuntimeError(
                f"{type(self).__name__} cannot be {what} while compiled code runs on it; do it between two calls"
            )

    def _kind(self, tables: tuple[Any, ...]) -> TablesType:
        # By class, too: a hook chooses its body by it (`hooks.ancestry`).
        key = (type(self), tuple((table.dtype, table.ndim) for table in tables))
        if key not in self._kinds:
            fields = tuple(
                (name, _item(table.dtype), table.ndim) for name, table in zip(self.NAMES, tables, strict=True)
            )
            self._kinds[key] = TablesType(ancestry(type(self)), fields)
        return self._kinds[key]

    def replace(self, **tables: Any) -> None:
        """Put larger tables in the place of full ones."""
        self._refuse_if_busy("changed")
        for name, table in tables.items():
            old = getattr(self, name)
            # Kernels were compiled for this type: they would read another one's bytes as if they were the old columns.
            if table.dtype != old.dtype or table.ndim != old.ndim:
                raise ValueError(f"table {name} must stay {old.dtype} in {old.ndim} dimensions")
            _check(name, table)
        # All checked before the first is put in: an error leaves the tables as they were.
        for name, table in tables.items():
            object.__setattr__(self, name, table)
        self._moved(None)

    def copy(self) -> Any:
        """Independent tables with the same content, in one piece of memory, copied as bytes at the speed of memory."""
        self._refuse_if_busy("copied")
        made, piece = _in_one_piece({name: getattr(self, name) for name in self.NAMES})
        copy = type(self)(**made)
        copy._moved(piece)
        return copy

    def one_piece(self) -> Any:
        """Return all memory of tables that lie in one piece, as whole numbers; none where they do not."""
        return np.zeros(0, np.int64) if self._piece is None else self._piece[1].view(np.int64)

    def copy_from(self, other: Tables) -> None:
        """Take over another's content without new memory; their sizes are the same (a fork of a fork)."""
        self._refuse_if_busy("changed")
        other._refuse_if_busy("copied")
        # The layout has the shapes in it: equal layouts have every table at the same place.
        if self._piece is not None and other._piece is not None and self._piece[0] == other._piece[0]:
            self._piece[1][...] = other._piece[1]  # both in one piece, laid out alike
            return
        for name in self.NAMES:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
                raise ValueError(f"table {name} has another size or type; make a new copy")
        for name in self.NAMES:
            as_bytes(getattr(self, name))[...] = as_bytes(getattr(other, name))

    def keep(self) -> Kept:
        """Note the content of tables that lie in one piece, for `take_back`."""
        self._refuse_if_busy("copied")
        return Kept({name: getattr(self, name) for name in self.NAMES}, self._piece, self._piece[1].copy())

    def take_back(self, kept: Kept) -> None:
        """Be again what was kept, also where tables have been replaced since: one copy of bytes."""
        self._refuse_if_busy("changed")
        if self._piece is not kept.piece:
            for name, table in kept.tables.items():
                object.__setattr__(self, name, table)
            self._moved(kept.piece)
        kept.piece[1][...] = kept.content

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        self._refuse_if_busy("pickled")
        return _rebuilt, (type(self), {name: getattr(self, name) for name in self.NAMES})


def _rebuilt(kind: type[Tables], tables: dict[str, Any]) -> Tables:
    return kind(**tables)


def owner(address: int) -> Tables:
    """Return the tables whose directory is at an address."""
    return _OWNERS[address]


def as_bytes(table: Any) -> Any:
    """Return a table's memory as a flat array of bytes."""
    return np.asarray(table).reshape(-1).view(np.uint8)


def _in_one_piece(tables: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """Copies that lie behind each other, each at the start of a cache line; their layout and all their bytes."""
    places, size = _places(tuple(tables.values()))
    memory = block(size + _LINE)
    # numpy aligns to sixteen bytes only; a line's room was set aside for this shift.
    memory = memory[-memory.ctypes.data % _LINE :][:size]
    made = {}
    for (name, table), at in zip(tables.items(), places, strict=True):
        piece = memory[at : at + table.nbytes]
        piece[...] = as_bytes(table)
        made[name] = piece.view(table.dtype).reshape(table.shape).view(type(table))
    layout = tuple((table.shape, table.dtype) for table in tables.values())
    return made, (layout, memory)


def _places(tables: tuple[Any, ...]) -> tuple[list[int], int]:
    """Return where each table begins in one piece of memory, and how large that is."""
    places, size = [], 0
    for table in tables:
        places.append(size)
        # Rounded up to whole cache lines: the next table begins a line of its own.
        size += -(-table.nbytes // _LINE) * _LINE
    return places, size


def _check(name: str, table: Any) -> None:
    """Compiled code counts rows from the table's address on, and writes."""
    if not table.flags.carray:
        raise ValueError(f"table {name} must be contiguous, aligned and writeable; pass a copy of it")


def _item(dtype: np.dtype[Any]) -> Any:
    """Return the compiled type of a table's items."""
    kind = from_dtype(plain(dtype))
    return RowType(kind) if dtype.names else kind


def plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the same record type without a Python class for its rows."""
    return np.dtype(dtype.descr) if dtype.names else dtype


@typeof_impl.register(Handle)
@typeof_impl.register(Tables)
def _type_of_handle(value: Handle | Tables, context: Any) -> Any:
    return value.kind
