"""Attempts that are placed and not over."""

from __future__ import annotations

from wattflow.runtime.records import AttemptRecord


class Attempts(dict[int, AttemptRecord]):
    """Attempts that are open, by fence; the engine's ids lead there, too."""

    def __init__(self) -> None:
        super().__init__()
        self._of_engine: dict[int, int] = {}

    def add(self, attempt: AttemptRecord) -> None:
        """An attempt is placed."""
        self[attempt.fence] = attempt
        self._of_engine[attempt.engine] = attempt.fence

    def remove(self, attempt: AttemptRecord) -> None:
        """An attempt is over."""
        del self[attempt.fence]
        del self._of_engine[attempt.engine]

    def of_engine(self, engine: int) -> AttemptRecord | None:
        """The attempt that the engine knows by this id."""
        return self.get(self._of_engine.get(engine, -1))
