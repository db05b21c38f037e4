"""A task's end to come, its joules, and how it may end badly."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import Any, Protocol

from wattflow.model import units
from wattflow.model.errors import WattflowError

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
