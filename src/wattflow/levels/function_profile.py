"""Profiles a function: runs it at a few levels, chooses the next one by what it learned, keeps the response.

Full clock comes first, then two thirds of it. From then on the next level is the best one, by the curve so far, for one
of three slacks (none, 1.3 ×, any) that was not run yet; then the one whose interval is the widest. Six runs at most.
A document holds the runs, not the curve.
"""

from __future__ import annotations

import ast
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wattflow.energy.meters.port import Energy, Meter, difference, node_j
from wattflow.files.whole import small_text, write_text
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob
from wattflow.levels.response import LevelRun, Response
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


CALL = (
    "import os, runpy, sys; sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1]))); "
    "runpy.run_path(sys.argv[1], run_name=sys.argv[2])[sys.argv[2]]()"
)
"""Loads a script as its own tests would, not as the main program, and calls one of its functions."""


def command_of(word: str) -> tuple[str, list[str]]:
    """Return the name of a function that is written ``FILE.py:FUNCTION``, and a command that calls it.

    Raises:
        InvalidInput: Where it cannot be called: it is not there, or needs arguments.
    """
    file, _, name = word.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise InvalidInput(word, "is no FILE.py:FUNCTION; with --function NAME it would be a command")
    try:
        body = ast.parse(small_text(Path(file), "script")).body
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(file, f"is no script of Python: {error}") from error
    # Looked for and not loaded: what a script does when it is loaded belongs to the runs.
    there = {one.name: one.args for one in body if isinstance(one, ast.FunctionDef)}
    if name not in there:
        raise InvalidInput(word, f"{file} defines no function {name!r}; it has: {', '.join(there) or 'none'}")
    takes = there[name]
    if len(takes.posonlyargs) + len(takes.args) > len(takes.defaults) or None in takes.kw_defaults:
        raise InvalidInput(word, f"{name} needs arguments; give them defaults, or write a function that calls it")
    return name, [sys.executable, "-c", CALL, file, name]


VERSION = 1
MOST_RUNS = 6
# 1.02 and not 1: a level whose seconds differ by noise counts as no slower.
SLACKS = (1.02, 1.3, float("inf"))
SETTLED = 0.03
"""Half width of the widest interval, as a part of the value, at which no more runs are needed."""
SECOND = 0.66
Measure = Callable[[float], LevelRun]


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """The runs of one function on one model of device, and where they come from.

    Attributes:
        model: Of the device; a profile is worth nothing on another.
        knob: Kind of level: ``clock_mhz``.
        meter: What counted the joules.
        measured_at: Day, ISO 8601, UTC.
    """

    function: str
    model: str
    knob: str
    idle_w: float
    runs: tuple[LevelRun, ...]
    meter: str
    measured_at: str
    driver: str = ""
    provenance: str = "measured"

    @property
    def response(self) -> Response:
        """Return the curve through the runs."""
        return Response(self.runs, self.idle_w)

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        write_text(path, json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n")


def choose_runs(measure: Measure, levels: Sequence[float], idle_w: float, most: int = MOST_RUNS) -> Response:
    """Run at few levels, each chosen by what the earlier ones tell.

    Args:
        levels: What may be run; the highest is full clock.
    """
    full = max(levels)
    runs = [measure(full)]
    # Ties go to the higher level, which is the safer run.
    second = min(levels, key=lambda level: (abs(level - SECOND * full), -level))
    # A device with one level has nothing else to run.
    if second != full:
        runs.append(measure(second))
    response = Response(runs, idle_w)
    while len(runs) < most and (level := next_level(response, levels)) is not None:
        runs.append(measure(level))
        response = Response(runs, idle_w)
    return response


def next_level(response: Response, levels: Sequence[float]) -> float | None:
    """Choose the level that is worth a run; None when nothing is left to learn."""
    ran = {run.level for run in response.runs}
    # For each slack that a scheduler may have: those are the levels that it will ask for.
    best = [response.best(levels, slack) for slack in SLACKS]
    for level in best:
        if level not in ran:
            return level
    # Below the cheapest level of all nothing is ever chosen; one step beyond it is looked at, in case it is cheaper.
    beyond = max((level for level in levels if level < min(best)), default=min(best))
    left = [level for level in levels if level not in ran and level >= beyond]
    widest = max(left, key=lambda level: (_half_width(response, level), level), default=None)
    return widest if widest is not None and _half_width(response, widest) > SETTLED else None


def _half_width(response: Response, level: float) -> float:
    estimate = response.joules(level)
    return (estimate.high - estimate.low) / (2 * estimate.value)
