"""Joules of the attempts on a node: the node's meter, split by CPU time over windows of about a second.

The meter is the one that `wattflow machine meters` and the profiler would choose (`wattflow.energy.meters.probe`).
Without any, a virtual one is made from the machine's CPU time and a curve; its joules say *modelled*.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wattflow.energy.attribution import Attributor, MeterSample
from wattflow.energy.meters import powercap
from wattflow.energy.meters.port import Meter, NodeCounter
from wattflow.energy.meters.probe import MeterSources, find_node_meter
from wattflow.energy.virtual import CpuSeconds, VirtualMeter, of_machine
from wattflow.model.profile import PowerProfile, Provenance
from wattflow.runtime.messages import Energy, TaskEnergy, Window

WINDOW_S, IDLE_WINDOW_S = 1.0, 10.0
"""Of a node with attempts, and of one without: nobody's joules wait for that, and a thousand idle nodes cost little."""
STILL_S = 60.0
"""Longest window for which a counter that does not move is waited for: some are renewed every few seconds only."""
MODEL_ERROR = 0.25
"""Half the width of the band of modelled joules, as a share of them: chosen, not measured; a curve of another machine
may be off by more."""
COUNTER_ERROR = 0.02
"""The same for counted joules: what RAPL's counters are usually trusted to."""
SENSOR_ERROR = 0.05
"""The same for joules integrated from sampled watts: chosen, not measured."""


class NodeEnergy:
    """Takes the CPU seconds of attempts a few times a second, gives their joules.

    Args:
        curve: P(k) of this node.
        folder: Where a virtual counter lives when there is no other.
        places: Where meters are looked for; None takes the virtual one.
        machine: CPU seconds of the whole node; this machine's unless told otherwise.
    """

    def __init__(
        self, curve: PowerProfile, folder: Path, places: MeterSources | None = None, machine: CpuSeconds | None = None
    ) -> None:
        self.curve = curve
        self._machine = machine or of_machine()
        self._virtual: VirtualMeter | None = None
        self._counter = NodeCounter(self._open(folder, places))
        modelled = self._counter.meter.name == "virtual"
        self.provenance = Provenance.MODELLED if modelled else Provenance.ATTRIBUTED
        self._error = MODEL_ERROR if modelled else SENSOR_ERROR if self._counter.sampled else COUNTER_ERROR
        self._attributor = Attributor(curve, window_s=float("inf"))
        self._first: MeterSample | None = None
        self._cpu_s: dict[int, float] = {}
        self._joules: dict[int, tuple[float, float]] = {}
        self._over: dict[int, bool] = {}
        self._past_s = 0.0
        self.watts: float | None = None

    def _open(self, folder: Path, places: MeterSources | None) -> Meter:
        found = None if places is None else find_node_meter(places)
        if found is not None:
            return found
        self._virtual = VirtualMeter(folder, self.curve, self._machine)
        return powercap.PowercapMeter(self._virtual.powercap)

    @property
    def meter(self) -> str:
        """Name of the meter that is read; ``virtual`` where none was found."""
        return self._counter.meter.name

    def ended(self, fence: int, cpu_s: float) -> None:
        """An attempt is over; its CPU seconds are final."""
        self._cpu_s[fence] = max(cpu_s, self._cpu_s.get(fence, 0.0))
        self._over[fence] = False

    def sample(self, now_s: float, cpu_s: Mapping[int, float]) -> tuple[list[TaskEnergy], Window | None]:
        """CPU seconds of what runs. Returns what a closed window tells: joules of attempts that are over."""
        for fence, seconds in cpu_s.items():
            # What the kernel said at the end is final; a sample that was taken a moment before may still come in.
            if fence not in self._over:
                self._cpu_s[fence] = max(seconds, self._cpu_s.get(fence, 0.0))
        if self._virtual is not None:
            self._virtual.step()
        node_j = self._counter.read_j(now_s)
        if self._first is None and node_j is None:
            return [], None
        tasks = {str(fence): seconds for fence, seconds in self._cpu_s.items()}
        machine_s = self._machine()["machine"]
        sample = MeterSample(now_s, node_j, tasks, max(0.0, machine_s - self._known_s()))
        self._attributor.add(sample)
        # Told only after a sample that holds its last CPU time, else its final slice would be in no window.
        for fence in self._over:
            self._over[fence] = True
        if self._first is None:
            self._first = sample
        idle = not self._cpu_s and self.watts is not None  # the first window is short: it tells what the node draws
        lasted_s = now_s - self._first.time_s
        if lasted_s < (IDLE_WINDOW_S if idle else WINDOW_S) or node_j is None:
            return [], None
        if node_j == self._first.node_j and lasted_s < STILL_S:
            return [], None  # not renewed yet: its joules come with the next step, which this window must hold
        return self._close(sample)

    def _known_s(self) -> float:
        """CPU seconds of all attempts ever: what is left of the machine's is others'."""
        return self._past_s + sum(self._cpu_s.values())

    def _close(self, sample: MeterSample) -> tuple[list[TaskEnergy], Window | None]:
        assert self._first is not None
        result = self._attributor.result()
        tasks_j = 0.0
        for name, energy in result.tasks.items():
            before_j, marginal_j = self._joules.get(int(name), (0.0, 0.0))
            self._joules[int(name)] = (before_j + energy.total_j, marginal_j + energy.marginal_j)
            tasks_j += energy.total_j
        # Joules that nobody claims widen the band upwards: some of them may be this task's (its kernel threads, its
        # I/O).
        others = result.unattributed_j / tasks_j if tasks_j > 0 else 0.0
        self.watts = result.counted_j / (sample.time_s - self._first.time_s)
        window = Window(self._first.time_s, sample.time_s, result.counted_j, result.idle_j, tasks_j,
        result.unattributed_j,
                        str(self.provenance))  # fmt: skip
        told = [self._tell(fence, others) for fence, sampled in self._over.items() if sampled]
        for joules in told:
            # Moved, not dropped: the machine's CPU time holds it for ever, and it would count as others' from now on.
            self._past_s += self._cpu_s.pop(joules.fence, 0.0)
            del self._over[joules.fence]
        self._attributor = Attributor(self.curve, window_s=float("inf"))
        self._first = sample
        self._attributor.add(sample)
        return told, window

    def _tell(self, fence: int, others: float) -> TaskEnergy:
        """Joules with a band: from what it added to the node's draw, to its share of what nobody claims."""
        energy_j, marginal_j = self._joules.pop(fence, (0.0, 0.0))
        low_j = min(energy_j, marginal_j) * (1 - self._error)
        high_j = energy_j * (1 + self._error + max(0.0, others))
        return TaskEnergy(fence, Energy(energy_j, low_j, high_j, str(self.provenance), marginal_j))

    def close(self) -> None:
        """Let go of the meter."""
        self._counter.close()
