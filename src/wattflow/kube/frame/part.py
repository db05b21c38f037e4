"""The part that one process has in a frame: a placer, the broker, or the one who starts them all."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattflow.frames.frame import Frame
from wattflow.kube import scheduler_process
from wattflow.kube.access import Access
from wattflow.kube.frame import fleet, role
from wattflow.kube.settings import SchedulerSettings
from wattflow.model.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Part:
    """A process of a frame; ``placer`` is its number, None for the broker."""

    frame: Frame
    settings: SchedulerSettings
    placer: int | None

    @classmethod
    def of(cls, frame: Frame, chosen: SchedulerSettings, placer: int, broker: bool) -> Part:
        """Check the frame and the number; a negative one that is not the broker's stands for the first."""
        role.check(frame, chosen)
        if placer >= frame.placers.count:
            raise InvalidInput("--placer", f"the frame has {frame.placers.count}, counted from 0")
        if not broker:
            return cls(frame, fleet.placer_settings(chosen, max(0, placer)), max(0, placer))
        if frame.broker is None:
            raise InvalidInput("--broker", f"the frame {frame.name!r} has no broker")
        return cls(frame, fleet.broker_settings(chosen), None)

    def start_all(self, words: Sequence[str]) -> None:
        """Start every part as a process of its own and wait."""
        fleet.run(self.frame, words, self.settings.port)

    def job(self, where: Access, config: Path | None, check: bool) -> Coroutine[None, None, None]:
        """Say what this process does."""
        # A broker places nothing; role 0 only lets the checks run.
        part = role.Role(self.frame, self.placer or 0)
        if check:
            return scheduler_process.check(where, self.settings, part)
        if self.placer is None:
            return scheduler_process.run_broker(where, self.settings, self.frame)
        return scheduler_process.run(where, self.settings, config, part)
