"""A node's counted joules, split over the tasks that ran on it.

Samples come often (CPU time of every task); the counter closes over windows of about a second, long against its own
update period. In a window the counter rose by E. Idle takes P(0)·Δt, never more than E; the rest, A, is laid over the
samples of the window as the node's concave curve says, P(k) − P(0) at each, and within a sample shared by CPU time:
P(k) − P(0) belongs equally to the busy threads of the moment. What no task used (other processes, watts above idle with
nobody busy) is *unattributed*. Idle, tasks and unattributed sum to E always: the counter is the truth, the curve only
divides it.

The *marginal* energy of a task is what the node would not have drawn without it, P(k) − P(k − k_task), scaled as the
counter stands to the curve; a concave curve makes the marginals sum to less than the attributed shares.

Kepler instead takes the busy share u of the node's threads as the active part, u·E: on a concave curve
that calls most of the watts above idle *idle*, and charges tasks too little at low load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattflow.model.profile import DeviceProfile, PowerProfile, Provenance

# Below this a sum of seconds or joules is rounding.
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A task's use of a device so far: its share of it and the seconds it was active there."""

    share: float
    active_s: float


@dataclass(frozen=True, slots=True)
class MeterSample:
    """One moment: the node's counter, every task's CPU seconds so far, and the devices.

    Attributes:
        node_j: The counter (unwrapped); None when it could not be read.
        task_cpu_s: CPU seconds of each task since it began; a task that ended keeps its last value.
        other_cpu_s: CPU seconds of everything else on the node, where known.
        device_j: Counter of each device.
        task_device: By device, each task's use of it.
    """

    time_s: float
    node_j: float | None
    task_cpu_s: Mapping[str, float]
    other_cpu_s: float = 0.0
    device_j: Mapping[str, float | None] = field(default_factory=dict)
    task_device: Mapping[str, Mapping[str, DeviceUse]] = field(default_factory=dict)


@dataclass(slots=True)
class TaskCharge:
    """Sum what one task is charged: attributed and marginal joules, CPU and device apart."""

    cpu_s: float = 0.0
    attributed_j: float = 0.0
    marginal_j: float = 0.0
    device_j: float = 0.0
    device_marginal_j: float = 0.0

    @property
    def total_j(self) -> float:
        """Return the attributed joules, node and devices."""
        return self.attributed_j + self.device_j

    def charge(self, attributed_j: float, marginal_j: float, *, device: bool) -> None:
        """Add joules to the node's or the devices' side."""
        if device:
            self.device_j += attributed_j
            self.device_marginal_j += marginal_j
        else:
            self.attributed_j += attributed_j
            self.marginal_j += marginal_j


@dataclass(slots=True)
class Attribution:
    """Joules by account. ``counted_j`` is what the counters rose by; the accounts sum to it.

    Attributes:
        unread_s: Seconds at the end whose counter could not be read: their joules are in no account.
    """

    tasks: dict[str, TaskCharge] = field(default_factory=dict)
    idle_j: float = 0.0
    unattributed_j: float = 0.0
    counted_j: float = 0.0
    unread_s: float = 0.0
    provenance: Provenance = Provenance.ATTRIBUTED

    @property
    def accounted_j(self) -> float:
        """Return all accounts together."""
        return self.idle_j + self.unattributed_j + sum(task.total_j for task in self.tasks.values())


@dataclass(frozen=True, slots=True)
class _Step:
    """Time between two samples: busy threads by task and of others (or busy shares of a device)."""

    seconds: float
    busy: Mapping[str, float]
    other: float

    @property
    def total(self) -> float:
        return sum(self.busy.values()) + self.other


class Attributor:
    """Takes samples in order of time and splits what was counted over each window.

    Args:
        curve: P(k) of the node, in the scope of the counter.
        devices: Watts by share of each device.
        window_s: Shortest time over which the counters close; at least ten of their update periods.
    """

    def __init__(
        self, curve: PowerProfile, devices: Mapping[str, DeviceProfile] | None = None, window_s: float = 1.0
    ) -> None:
        self.curve, self.devices, self.window_s = curve, dict(devices or {}), window_s
        self._result = Attribution()
        self._first: MeterSample | None = None
        self._last: MeterSample | None = None
        self._steps: list[_Step] = []
        self._device_steps: dict[str, list[_Step]] = {name: [] for name in self.devices}

    def add(self, sample: MeterSample) -> None:
        """Account for the time since the last sample."""
        last = self._last
        if last is not None and sample.time_s <= last.time_s:
            # Samples of threads may overtake each other; time never goes back here.
            return
        self._last = sample
        if last is None or self._first is None:
            self._first = sample
            return
        step_s = sample.time_s - last.time_s
        # A task that is new in this sample began at 0; a counter that falls (a group made anew) counts as
        # none.
        used = {name: max(0.0, cpu_s - last.task_cpu_s.get(name, 0.0)) for name, cpu_s in sample.task_cpu_s.items()}
        for name, cpu_s in used.items():
            self._task(name).cpu_s += cpu_s
        other_s = max(0.0, sample.other_cpu_s - last.other_cpu_s)
        self._steps.append(_Step(step_s, {name: cpu_s / step_s for name, cpu_s in used.items()}, other_s / step_s))
        for device, steps in self._device_steps.items():
            uses = last.task_device.get(device, {}), sample.task_device.get(device, {})
            steps.append(_Step(step_s, _device_busy(*uses, step_s), 0.0))
        if sample.time_s - self._first.time_s >= self.window_s:
            self._close_window()

    def result(self) -> Attribution:
        """Return everything so far, the window under way included."""
        self._close_window()
        # What is left in `_steps` after closing belongs to a window whose counter could not be read.
        self._result.unread_s = sum(step.seconds for step in self._steps)
        return self._result

    def _close_window(self) -> None:
        """Split the window where every counter can be read; a counter that cannot keeps the window open."""
        first, last = self._first, self._last
        if first is None or last is None or not self._steps:
            return
        pairs = [(first.node_j, last.node_j)]
        pairs += [(first.device_j.get(name), last.device_j.get(name)) for name in self.devices]
        # All or none: a window split for some counters and open for others could not be closed later.
        if any(before is None or after is None for before, after in pairs):
            return
        counted = [after - before for before, after in pairs if before is not None and after is not None]
        self._split(counted[0], self._steps, self.curve, device=False)
        for joules, (name, steps) in zip(counted[1:], self._device_steps.items(), strict=True):
            self._split(joules, steps, self.devices[name], device=True)
            steps.clear()
        self._steps.clear()
        # The next window begins with the reading that closed this one: nothing between is lost.
        self._first = last

    def _split(
        self, counted_j: float, steps: list[_Step], curve: PowerProfile | DeviceProfile, *, device: bool
    ) -> None:
        result = self._result
        idle_w = curve.idle_w
        # The counter is the truth: a node that drew less than its idle watts was not idle at more.
        idle_j = min(counted_j, idle_w * sum(step.seconds for step in steps))
        active_j = counted_j - idle_j
        result.counted_j += counted_j
        result.idle_j += idle_j
        # Above-idle joules that the curve expects of each step; a curve that is flat there counts busy time instead.
        expected = [max(0.0, curve.at(step.total) - idle_w) * step.seconds for step in steps]
        if sum(expected) <= _NOTHING:
            # Joules above idle with a flat curve still go to whoever was busy.
            expected = [step.total * step.seconds for step in steps]
        whole = sum(expected)
        if whole <= _NOTHING:
            result.unattributed_j += active_j
            return
        for step, part in zip(steps, expected, strict=True):
            total = step.total
            # A step of no busy time expects no joules above idle, so nothing is lost by leaving it out.
            if total <= _NOTHING:
                continue
            step_j = active_j * part / whole
            result.unattributed_j += step_j * step.other / total
            watts = curve.at(total)
            for name, busy in step.busy.items():
                # Marginals are scaled by the same factor as the shares (counted over expected); they sum to less,
                # since P is concave.
                marginal_j = (watts - curve.at(total - busy)) * step.seconds * active_j / whole
                self._task(name).charge(step_j * busy / total, marginal_j, device=device)

    def _task(self, name: str) -> TaskCharge:
        return self._result.tasks.setdefault(name, TaskCharge())


def _device_busy(before: Mapping[str, DeviceUse], after: Mapping[str, DeviceUse], step_s: float) -> dict[str, float]:
    """Return the mean share of the device that each task kept busy over the step: its share by its active time."""
    busy: dict[str, float] = {}
    for name, use in after.items():
        active_s = max(0.0, use.active_s - (before[name].active_s if name in before else 0.0))
        busy[name] = use.share * min(1.0, active_s / step_s)
    return busy
