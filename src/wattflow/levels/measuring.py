"""One run of a command at a level: the level is held while it runs, seconds by the clock, joules by the counter."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from wattflow.energy.meters.port import Energy, Meter, difference, node_j
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob
from wattflow.levels.response import LevelRun
from wattflow.model.errors import InvalidInput, MissingMeter

LOOK_S, IDLE_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class CommandRuns:
    """Runs a command at levels of some knobs of one kind, all at the same level.

    Attributes:
        meter: Counts joules; all its domains together.
    """

    holder: Holder
    knobs: Sequence[Knob]
    meter: Meter
    command: Sequence[str]

    def __post_init__(self) -> None:
        sampled = [domain.name for domain in self.meter.domains if not domain.counter]
        # Sampled watts are too coarse to compare two levels of a short run.
        if sampled:
            raise MissingMeter(f"{', '.join(sampled)} of {self.meter.name} only shows watts; a profile needs a counter")

    def __call__(self, level: float) -> LevelRun:
        """Run once; the highest level is what the device does by itself."""
        try:
            for knob in self.knobs:
                # At the highest level nothing is set: a ceiling at full clock is not the same as none.
                if level < knob.high:
                    self.holder.set(knob.id, level)
            return self._run(level)
        finally:
            # Also where the command failed or was interrupted.
            for knob in self.knobs:
                self.holder.give_back(knob.id)

    def idle_w(self) -> float:
        """Measure the watts of the device while it does nothing for us."""
        before = self.meter.read()
        time.sleep(IDLE_S)
        spent = difference(before, self.meter.read())
        return self._joules(spent) / spent.seconds

    def _run(self, level: float) -> LevelRun:
        clocks: list[float] = []
        before = self.meter.read()
        process = subprocess.Popen(list(self.command), stdin=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                clocks += [] if (seen := self._clock()) is None else [seen]
                time.sleep(LOOK_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        spent = difference(before, self.meter.read())
        if process.returncode != 0:
            raise InvalidInput("COMMAND", f"ended with exit code {process.returncode} at level {level:g}")
        # The last half: a command begins with loading, at whatever clock the device idles.
        late = clocks[len(clocks) // 2 :]
        return LevelRun(level, spent.seconds, self._joules(spent), statistics.median(late) if late else None)

    def _clock(self) -> float | None:
        """Read the clock where the knob shows that; where it shows the setting, nobody tells."""
        knob = self.knobs[0]
        return None if knob.readable else self.holder.read(knob.id)

    def _joules(self, spent: Energy) -> float:
        """Add up the device's own domains, or those that make up the node."""
        # A GPU's level is judged by the GPU's joules; where there is none, by the node's.
        gpus = [spent.joules.get(domain.name) for domain in self.meter.domains if domain.kind == "gpu"]
        known = [joules for joules in gpus if joules is not None]
        total = sum(known) if gpus and len(known) == len(gpus) else None if gpus else self._node(spent)
        if total is None:
            raise MissingMeter(f"the counter of {self.meter.name} cannot be read any more")
        return total

    def _node(self, spent: Energy) -> float | None:
        return node_j(spent.joules, self.meter.domains)
