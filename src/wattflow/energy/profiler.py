"""Measures P(k) of this node: k = 0 … n threads loaded, watts by counter, until every interval is narrow.

As in the HPE paper, cores are filled before their siblings and threads are pinned. Rounds visit all k in random order,
so that warming up and other drifts fall on all of them alike; the first seconds of each visit are discarded; a k whose
95 % interval is within ±2 % is left out of further rounds. The file is written after every window, and a profile that
was broken off goes on from there. Without a meter there is no profile.
"""

from __future__ import annotations

import logging
import platform
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from wattflow.energy import machine_facts
from wattflow.energy.cpu_profile import CpuLoad, CpuProfile, MeasuredStretch
from wattflow.energy.meters.port import Meter, NoReading, Tally, node_domains, node_j
from wattflow.model.profile import Scope

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProfilerSettings:
    """How long and how exactly.

    Attributes:
        levels: Numbers of loaded threads; None is every one from 0 to all.
        tolerance: Half width of the 95 % interval, relative, at which a point is settled.
        most_windows: A point that will not settle is left as it is after so many.
    """

    warm_s: float = 3.0
    window_s: float = 10.0
    sample_s: float = 0.5
    tolerance: float = 0.02
    most_windows: int = 12
    levels: tuple[int, ...] | None = None
    seed: int = 1


@dataclass(slots=True)
class Profiler:
    """One node's profile under way. ``progress`` is told (settled points, points, what is measured now)."""

    meter: Meter
    load: CpuLoad
    topology: machine_facts.Topology
    path: Path
    settings: ProfilerSettings = field(default_factory=ProfilerSettings)
    progress: Callable[[int, int, str], None] = lambda done, of, what: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    machine_time: Callable[[], machine_facts.MachineTime] = machine_facts.machine_time

    def run(self) -> CpuProfile:
        """Measure until every level is settled; resumes the file at ``path`` if it is of this machine and meter."""
        profile = self._begin()
        levels = self.settings.levels or tuple(range(self.topology.threads + 1))
        order = random.Random(self.settings.seed)
        try:
            # Asked anew each round: levels that have settled are left out, the others measured again.
            while left := [k for k in levels if self._open(profile, k)]:
                for k in order.sample(left, len(left)):
                    self.progress(len(levels) - len(left), len(levels), f"{k} threads")
                    profile.windows.setdefault(k, []).append(self._window(k))
                    # After every window, so that a run that is broken off goes on from there.
                    profile.save(self.path)
        finally:
            self.load.stop()
        for k in levels:
            if not profile.settled(k, self.settings.tolerance):
                _log.warning("P(%s) did not settle within ±%.0f %%", k, 100 * self.settings.tolerance)
        profile.finished = _now()
        profile.save(self.path)
        self.progress(len(levels), len(levels), "done")
        return profile

    def interference(self, profile: CpuProfile, bench_s: float = 5.0, repeats: int = 3) -> CpuProfile:
        """Tell what sharing costs a job: a benchmark of fixed work on the first CPU beside a rising load on the others.

        The work is chosen to take about ``bench_s`` alone.
        """
        first, *others = self.topology.order
        trial = 100
        # A short trial tells how many operations fill `bench_s`.
        operations = max(1, round(trial * bench_s / self.load.bench_s(first, trial)))
        for beside in range(len(others) + 1):
            self.load.start(others[:beside])
            try:
                self.sleep(self.settings.warm_s)
                for repeat in range(repeats):
                    self.progress(beside, len(others) + 1, f"benchmark beside {beside} threads")
                    seconds = self.load.bench_s(first, operations)
                    profile.interference.append({"beside": beside, "repeat": repeat, "runtime_s": seconds})
                    profile.save(self.path)
            finally:
                self.load.stop()
        return profile

    def _open(self, profile: CpuProfile, k: int) -> bool:
        enough = len(profile.windows.get(k, [])) >= self.settings.most_windows
        return not enough and not profile.settled(k, self.settings.tolerance)

    def _begin(self) -> CpuProfile:
        node, name = platform.node(), self.meter.name
        if self.path.exists():
            profile = CpuProfile.load(self.path)
            # A file of another machine or meter must not be mixed with this one's windows.
            if (profile.node, profile.meter, profile.threads) == (node, name, self.topology.threads):
                return profile
            _log.warning("%s is of another machine or meter: begun anew", self.path)
        counted, scope = _scope(self.meter)
        return CpuProfile(
            node,
            name,
            self.topology.threads,
            self.topology.cores,
            scope,
            not counted,
            _now(),
            conditions=dict(machine_facts.conditions()),
        )

    def _window(self, k: int) -> MeasuredStretch:
        self.load.start(self.topology.order[:k])
        self.sleep(self.settings.warm_s)
        before_cpu, before = self.load.cpu_s(), self.machine_time()
        tally = Tally(self.meter)
        end_s = self.clock() + self.settings.window_s
        # `sleep` may return a little early or late; what is left decides.
        while (left_s := end_s - self.clock()) > 1e-6:
            self.sleep(min(left_s, self.settings.sample_s))
            tally.update()
        load_cpu_s, after = self.load.cpu_s() - before_cpu, self.machine_time()
        energy = tally.energy()
        # Memory is another domain.
        joules = node_j(energy.joules, self.meter.domains, dram=False)
        if joules is None:
            raise NoReading(f"{self.meter.name} lost its reading while {k} threads were loaded; run again to resume")
        # The virtual node has nothing on it but the load.
        virtual = self.meter.name == "virtual"
        # Not below zero: ticks of /proc/stat are coarser than the load's own clock.
        other_s = 0.0 if virtual else max(0.0, after.busy_s - before.busy_s - load_cpu_s)
        steal_s = after.steal_s - before.steal_s
        return MeasuredStretch(
            energy.seconds, joules / energy.seconds, load_cpu_s, other_s, steal_s, machine_facts.temperature_c()
        )


def _scope(meter: Meter) -> tuple[bool, Scope]:
    """Tell whether the node's energy is counted (not sampled), and its scope."""
    chosen = node_domains(meter.domains, dram=False)
    packages = any(domain.kind == "package" for domain in chosen)
    return all(domain.counter for domain in chosen), Scope.PACKAGE if packages else Scope.WALL


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
