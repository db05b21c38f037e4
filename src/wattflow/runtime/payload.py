"""Calls as bytes, on the client's side. Futures among the arguments become numbers; the child puts results there.

What a worker cannot import travels by value: everything of ``__main__``, and of modules that lie outside the Python
installation (beside the script, in the project's folder).
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import cloudpickle

from wattflow.model.own_code import is_own_file
from wattflow.runtime.future import RemoteTraceback, TaskFailed

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_PLAIN = (int, float, str, bytes, bool, type(None))
T = TypeVar("T")
_LOCK = threading.Lock()
_SEEN: set[str] = set()
_OWN: dict[str, Any] = {}


def dump_function(function: Callable[..., Any]) -> bytes:
    """A function by value where its module cannot be imported elsewhere, by name otherwise."""
    return bytes(_dumped(lambda: cloudpickle.dumps(function, 5)))


def dump_call(args: tuple[Any, ...], kwargs: dict[str, Any], future: type) -> tuple[bytes, list[Any]]:
    """The arguments, and the futures among them in the order in which the payload counts them."""
    # The common call, without cloudpickle's machinery: half of a submit's time for small arguments.
    if not kwargs and all(type(arg) in _PLAIN for arg in args):
        return pickle.dumps((args, kwargs), 5), []

    def dump() -> tuple[bytes, list[Any]]:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, future)
        pickler.dump((args, kwargs))
        return buffer.getvalue(), list(pickler.found)

    return _dumped(dump)


def load_result(data: bytes) -> Any:
    """A result of the client's own work."""
    return pickle.loads(data)


def load_failure(data: bytes | None, reason: str | None) -> BaseException:
    """The exception of a task with its remote traceback as the cause; `TaskFailed` where it cannot be had here."""
    told = _loaded(data)
    if isinstance(told, BaseException):  # of a store that is older than remote tracebacks
        return told
    about: dict[str, Any] = told if isinstance(told, dict) else {}
    error = _exception(_loaded(about.get("error")))
    error = error if error is not None else TaskFailed(reason or "failed")
    if about.get("trace"):
        error.__cause__ = RemoteTraceback(about["trace"])
    return error


def _loaded(data: bytes | None) -> Any:
    try:
        return pickle.loads(data) if data else None
    except Exception:  # whatever a class does when it is made anew
        return None


def _exception(told: Any) -> BaseException | None:
    """An exception as it was, or made of its parts where its constructor wants other arguments than it kept."""
    if isinstance(told, BaseException) or told is None:
        return told
    try:
        kind, args, state = told
        # Without __init__: an exception that takes two arguments and passes one on could not be made from `args`.
        error: BaseException = kind.__new__(kind, *args)
        error.args = args
        error.__dict__.update(state)
        return error
    except Exception:
        return None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, future: type) -> None:
        super().__init__(file, 5)
        self._future = future
        self.found: dict[Any, int] = {}

    def persistent_id(self, value: object) -> str | None:
        if not isinstance(value, self._future):
            return None
        return str(self.found.setdefault(value, len(self.found)))


def _dumped(dump: Callable[[], T]) -> T:
    """Dump with the user's modules by value; by name where one of them holds what cannot travel, such as a lock."""
    try:
        # By value first: a module beside the script exists on no node under its name.
        with _own_by_value():
            return dump()
    except Exception as error:
        try:
            return dump()
        except Exception:
            raise error from None


@contextlib.contextmanager
def _own_by_value() -> Iterator[None]:
    """Have cloudpickle send the user's own modules by value, only for as long as this lasts: others use it too."""
    with _LOCK:
        for name in [name for name in list(sys.modules) if name not in _SEEN]:
            _SEEN.add(name)
            if _is_own(name, getattr(sys.modules.get(name), "__file__", None)):
                _OWN[name] = sys.modules[name]
        # What the user registered stays registered: only what is added here is taken back.
        registered = cloudpickle.list_registry_pickle_by_value()
        added = [module for name, module in _OWN.items() if name not in registered and sys.modules.get(name) is module]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _is_own(name: str, file: str | None) -> bool:
    """True for a module of the user's."""
    return bool(file) and name not in ("__main__", "__mp_main__") and is_own_file(str(file))
