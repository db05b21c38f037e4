"""Calls as bytes, on the client's side. Futures among the arguments become numbers; the child puts results there.

What a worker cannot import travels by value: everything of ``__main__``, and of modules that lie outside the Python
installation (beside the script, in the project's folder). A `TaskFuture` is the task's end to come, with its joules.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import cloudpickle

from wattflow.model import units
from wattflow.model.errors import WattflowError, is_own_file

WIDEST_BAND = 10.0
"""A band wider than this from end to end is told beside its joules: the task was short for its meter, or idle."""


class TaskFailed(WattflowError):
    """A task ended badly without an exception of its own: a lost process, a limit, a failed parent."""


class RemoteTraceback(WattflowError):
    """The traceback of a task's exception, as text: what the process saw where the task ran."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True, slots=True)
class TaskEnergy:
    """Joules of a task, all its attempts together, with the band they lie in and where they come from."""

    joules: float
    low_j: float
    high_j: float
    provenance: str
    attempts: int

    def __str__(self) -> str:
        band = f"{self.low_j:.3g} to {self.high_j:.3g} J, {self.provenance}"
        return f"{human_joules(self.joules, self.low_j, self.high_j)} ({band})"


def human_joules(joules: float, low_j: float, high_j: float) -> str:
    """Write joules for a person, the same number wherever they are told; and that they are little worth, where so."""
    if high_j < WIDEST_BAND * max(low_j, 0.0):
        return units.human_energy(joules)
    # By its end, not by a cause: the longest sleep has as wide a band as a task of a moment.
    most = f"up to {units.human_energy(high_j)}" if high_j > 0.0 else "seen by no meter"
    return f"{units.human_energy(joules)}, {most}"


class Submitter(Protocol):
    """The calls that a future makes to the client that submitted its task."""

    def _cancel(self, key: str) -> None: ...

    def _is_running(self, key: str) -> bool: ...

    def _attempts(self, key: str) -> list[dict[str, Any]]: ...

    def _energy(self, key: str, timeout: float | None) -> TaskEnergy: ...


class TaskFuture(concurrent.futures.Future[Any]):
    """A task's end to come. As an argument of another task it is an edge."""

    def __init__(self, client: Submitter, key: str) -> None:
        super().__init__()
        self.client, self.key = client, key

    def cancel(self) -> bool:
        """Cancel the task, waiting or running."""
        if not super().cancel():
            return False
        self.client._cancel(self.key)
        return True

    def running(self) -> bool:
        """Ask the server if the task has a node now."""
        return not self.done() and self.client._is_running(self.key)

    def attempts(self, timeout: float | None = None) -> list[dict[str, Any]]:
        """Every attempt of the task: where, when, as which variant, how it ended, joules; waits for the task's end."""
        self.exception(timeout)
        return self.client._attempts(self.key)

    def energy(self, timeout: float | None = 30.0) -> TaskEnergy:
        """Joules of the task; waits for its end, and until its node has told them (a second or two after)."""
        self.exception(timeout)
        return self.client._energy(self.key, timeout)


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
