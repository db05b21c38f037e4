"""``@task``: what a function needs, said where it is defined; further ways to run it as variants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from wattflow.model import units
from wattflow.model.errors import InvalidInput
from wattflow.runtime.messages import MOST_RETRIES, Variant

OPTIONS = ("timeout", "retries", "isolate", "estimate")
"""Of a task whichever way it runs."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a function: its needs, and the implementation where it is another one."""

    name: str
    cpus: float = 1.0
    memory: str | int = 0
    gpu: float = 0.0
    gpu_memory: str | int = 0
    fpga: str | None = None
    runtime_factor: float = 1.0
    function: Callable[..., Any] | None = None

    def variant(self, function: str | None) -> Variant:
        """As it is submitted."""
        return Variant(
            name=self.name, cpus=self.cpus, memory_bytes=units.size_bytes(self.memory), gpu=self.gpu,
            gpu_memory_bytes=units.size_bytes(self.gpu_memory), fpga=self.fpga, runtime_factor=self.runtime_factor,
            function=function,
        )  # fmt: skip


@dataclass(slots=True)
class TaskFunction:
    """A function with what it needs. Calling it calls the function, here and now."""

    function: Callable[..., Any]
    ways: list[Way]
    timeout_s: float | None = None
    retries: int = 0
    isolate: bool = True
    estimate_s: float | None = None
    name: str = field(default="")

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"a task is a function, not {self.function!r}")
        check_retries(self.retries)
        self.name = self.name or getattr(self.function, "__qualname__", type(self.function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def variant(self, **needs: Any) -> Callable[[Callable[..., Any]], TaskFunction]:
        """Another implementation with needs of its own: ``@f.variant(gpu=0.25)`` above it."""

        def add(function: Callable[..., Any]) -> TaskFunction:
            self.ways.append(_way(needs, function))
            return self

        return add

    def on_fpga(self, kernel: str, **needs: Any) -> TaskFunction:
        """The same as a kernel of the registry, on an FPGA."""
        self.ways.append(_way({**needs, "fpga": kernel}, None))
        return self


class _Task:
    """``@task(...)`` and ``@task.variant(...)``."""

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        timeout: str | float | None = None,
        retries: int = 0,
        isolate: bool = True,
        estimate: str | float | None = None,
        **needs: Any,
    ) -> Any:
        """Say what a function needs: ``cpus``, ``memory``, ``gpu``, ``gpu_memory``, ``fpga``, time limit, retries."""
        way = _way(needs, None, OPTIONS)
        check_retries(retries)

        def wrap(wrapped: Callable[..., Any]) -> TaskFunction:
            made = TaskFunction(
                wrapped, [way], units.duration_s(timeout) if timeout is not None else None, retries, isolate,
                units.duration_s(estimate) if estimate is not None else None,
            )  # fmt: skip
            return made

        return wrap if function is None else wrap(function)

    def variant(self, **needs: Any) -> Callable[[Callable[..., Any] | TaskFunction], TaskFunction]:
        """One more way to run the function below: the same code where ``gpu`` is asked for, a kernel for ``fpga``."""

        def add(function: Callable[..., Any] | TaskFunction) -> TaskFunction:
            made = function if isinstance(function, TaskFunction) else self(function)
            made.ways.append(_way(needs, None))
            return made

        return add


task = _Task()


def check_retries(retries: object) -> None:
    """Refuse what a server would not take, where it is written."""
    if not isinstance(retries, int) or not 0 <= retries <= MOST_RETRIES:
        raise InvalidInput("retries", f"{retries!r} is not a whole number of 0 to {MOST_RETRIES}")


def _way(needs: dict[str, Any], function: Callable[..., Any] | None, options: tuple[str, ...] = ()) -> Way:
    unknown = set(needs) - set(Way.__dataclass_fields__)
    if unknown:
        known = [*Way.__dataclass_fields__, *options]
        raise TypeError(f"a task has no {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    kind = "fpga" if needs.get("fpga") else "gpu" if needs.get("gpu") else "cpu"
    way = Way(**{"name": kind, **needs})
    return replace(way, function=function) if function is not None else way
