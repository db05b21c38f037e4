"""Calls as bytes, on the client's side. Futures among the arguments become numbers; the child puts results there."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_PLAIN = (int, float, str, bytes, bool, type(None))


def dump_function(function: Callable[..., Any]) -> bytes:
    """A function by value where its module cannot be imported elsewhere, by name otherwise."""
    data: bytes = cloudpickle.dumps(function, 5)
    return data


def dump_call(args: tuple[Any, ...], kwargs: dict[str, Any], future: type) -> tuple[bytes, list[Any]]:
    """The arguments, and the futures among them in the order in which the payload counts them."""
    if not kwargs and all(isinstance(arg, _PLAIN) for arg in args):
        return pickle.dumps((args, kwargs), 5), []
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, future)
    pickler.dump((args, kwargs))
    return buffer.getvalue(), list(pickler.found)


def load_result(data: bytes) -> Any:
    """A result of the client's own work."""
    return pickle.loads(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, future: type) -> None:
        super().__init__(file, 5)
        self._future = future
        self.found: dict[Any, int] = {}

    def persistent_id(self, value: object) -> str | None:
        if not isinstance(value, self._future):
            return None
        return str(self.found.setdefault(value, len(self.found)))
