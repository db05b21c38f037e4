"""Objects that Python keeps beside an engine's tables, copied for a fork and written as plain data for a file.

Books, extents and facts are ordinary objects that point at each other and at the tables. `cloned` copies what can
change and shares what cannot. `encoded` and `decoded` go through JSON and make objects of this package's own classes
alone, without running any code of theirs: no pickle.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import importlib
import math
from typing import Any

import numpy as np

from wattflow.kernel.handle import Tables
from wattflow.model.errors import InvalidInput
from wattflow.policy.base import Committed

_ATOMS = (int, float, str, bool, bytes, type(None), enum.Enum)
_ALLOWED = ("wattflow.model.", "wattflow.live.", "wattflow.engine.", "wattflow.policy.base")
_MOVED = {
    "wattflow.live.places": "wattflow.live.workflow_notes",
    "wattflow.live.matching": "wattflow.live.constraints",
    "wattflow.live.preferences": "wattflow.live.constraints",
    "wattflow.model.device_levels": "wattflow.model.cluster",
}
"""Modules by the name that older files know them by."""
_RENAMED = {"wattflow.live.workflow_notes:Places": "WorkflowNotes"}
"""Classes of today's modules by the name that older files know them by."""
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _is_shared(value: Any) -> bool:
    """Tell whether a value never changes: numbers and words, tuples, frozen dataclasses, foreign objects."""
    if isinstance(value, (*_ATOMS, tuple, frozenset)):
        return True
    if isinstance(value, (dict, list, set, np.ndarray, Tables)):
        return False
    parameters = getattr(type(value), "__dataclass_params__", None)
    if parameters is not None:
        return bool(parameters.frozen)
    return not type(value).__module__.startswith("wattflow.live.")


def _fields(value: Any) -> dict[str, Any]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    found = {name: getattr(value, name) for name in names if hasattr(value, name)} | getattr(value, "__dict__", {})
    if isinstance(value, Committed):
        # Of a planner's notes the numbers count; what it keeps beside them it makes again.
        found["cache"] = {key: note for key, note in value.cache.items() if isinstance(note, (int, float, str, bool))}
    return found


def cloned(value: Any, memo: dict[int, Any]) -> Any:
    """Make a copy that can change without its original; ``memo`` says what stands in the place of what (by `id`)."""
    if id(value) in memo:
        return memo[id(value)]
    if _is_shared(value):
        return value
    made: Any
    if isinstance(value, dict):
        made = memo[id(value)] = dict(value)
        # The values of one of our dicts are all of a kind, so the first one tells.
        if value and not _is_shared(next(iter(value.values()))):
            for key, item in value.items():
                made[key] = cloned(item, memo)
    elif isinstance(value, list):
        made = memo[id(value)] = list(value)
        if value and not _is_shared(value[0]):
            made[:] = [cloned(item, memo) for item in value]
    elif isinstance(value, (set, np.ndarray, Tables)):
        made = memo[id(value)] = value.copy()
    else:
        made = memo[id(value)] = object.__new__(type(value))
        for name, item in _fields(value).items():
            object.__setattr__(made, name, cloned(item, memo))
    return made


class Encoder:
    """From objects to JSON's numbers, words, lists and dicts; what appears twice is written once."""

    def __init__(self, tables: dict[int, str]) -> None:
        self._tables, self._seen, self._kept = tables, dict[int, int](), list[Any]()

    def encode(self, value: Any) -> Any:
        """Turn a value into plain data; TypeError for what is none of ours."""
        if isinstance(value, enum.Enum):
            return {"!": "enum", "of": _name(type(value)), "v": value.name}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"!": "float", "v": str(value)}
        if isinstance(value, np.generic):
            return self.encode(value.item())
        if isinstance(value, (tuple, frozenset, set)):
            named = hasattr(value, "_fields")
            kind = _name(type(value)) if named else type(value).__name__
            items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            return {"!": "named" if named else kind, "of": kind, "v": [self.encode(item) for item in items]}
        if id(value) in self._tables:
            return {"!": "tables", "v": self._tables[id(value)]}
        if id(value) in self._seen:
            return {"!": "again", "v": self._seen[id(value)]}
        self._kept.append(value)  # so that no other object gets its id
        number = self._seen[id(value)] = len(self._seen)
        return self._object(value, number)

    def _object(self, value: Any, number: int) -> Any:
        if isinstance(value, dict):
            return {"!": "dict", "n": number, "v": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if isinstance(value, list):
            return {"!": "list", "n": number, "v": [self.encode(item) for item in value]}
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
            kind = value.dtype.descr if value.dtype.names else value.dtype.str
            return {"!": "array", "n": number, "type": kind, "shape": list(value.shape), "v": data}
        if not _name(type(value)).startswith(_ALLOWED):
            raise TypeError(f"{_name(type(value))} cannot be written as plain data")
        fields = {name: self.encode(item) for name, item in _fields(value).items()}
        return {"!": "object", "n": number, "of": _name(type(value)), "v": fields}


class Decoder:
    """From plain data back to objects; classes of other packages are refused."""

    def __init__(self, tables: dict[str, Tables], source: str) -> None:
        self._tables, self._source = tables, source
        self._made: dict[int, Any] = {}

    def decode(self, data: Any) -> Any:
        """Make the object again; `InvalidInput` for data that `Encoder` did not make."""
        try:
            return self._decode(data)
        except (KeyError, TypeError, ValueError, AttributeError, ImportError) as problem:
            raise InvalidInput(self._source, f"it is damaged: {problem!r}") from None

    def _decode(self, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kind, value = data["!"], data["v"]
        match kind:
            case "float":
                return _ODD[value]
            case "enum":
                return _class(data["of"])[value]
            case "tables":
                return self._tables[value]
            case "again":
                return self._made[value]
            case "tuple":
                return tuple(self._decode(item) for item in value)
            case "named":
                return _class(data["of"])(*(self._decode(item) for item in value))
            case "set":
                return {self._decode(item) for item in value}
            case "frozenset":
                return frozenset(self._decode(item) for item in value)
        return self._object(kind, data)

    def _object(self, kind: str, data: Any) -> Any:
        value = data["v"]
        made: Any
        if kind == "dict":
            made = self._made[data["n"]] = {}
            made.update((self._decode(k), self._decode(v)) for k, v in value)
        elif kind == "list":
            made = self._made[data["n"]] = []
            made.extend(self._decode(item) for item in value)
        elif kind == "array":
            kept = data["type"]
            dtype = np.dtype(kept if isinstance(kept, str) else [tuple(field) for field in kept])
            raw = np.frombuffer(base64.b64decode(value), dtype)
            made = self._made[data["n"]] = raw.reshape(data["shape"]).copy()
        elif kind == "object":
            # Known before its fields are read: they may point back at it. No `__init__` runs.
            made = self._made[data["n"]] = object.__new__(_class(data["of"]))
            for name, item in value.items():
                object.__setattr__(made, name, self._decode(item))
        else:
            raise ValueError(f"{kind!r} is no kind of value")
        return made


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    module, _, kind = name.partition(":")
    module = _MOVED.get(module, module)
    # A file may come from anywhere: no class of another package, no attribute of a class, is ever looked up.
    if not name.startswith(_ALLOWED) or not kind.isidentifier():
        raise ValueError(f"{name!r} is no class that a saved engine may hold")
    found = getattr(importlib.import_module(module), _RENAMED.get(f"{module}:{kind}", kind))
    if not isinstance(found, type) or not (
        dataclasses.is_dataclass(found) or issubclass(found, (tuple, enum.Enum)) or module.startswith("wattflow.live.")
    ):
        raise ValueError(f"{name!r} is no class that a saved engine may hold")
    return found


__all__ = ["Decoder", "Encoder", "cloned"]
