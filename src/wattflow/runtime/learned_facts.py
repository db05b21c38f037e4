"""Lessons of starts, ends, wakes and meters: cold starts, runtimes, short calls, speeds of nodes, wake times, curves.

The mean runtime of a function is in logarithms and of a node of speed 1. What is left over is split by recursive least
squares into what the function and what the node has to do with it; a node that turns out slower or faster than it said
is told to the engine with the speed it has.

Short calls are leased ahead of need, several to a processor: a call of a millisecond holds its processors in the engine
for ten, from its placement until its end is told. So the engine counts a function whose calls were all short lately by
a part of the processors it asks for; its node has the next call at hand when one ends, and holds it back until then
(`executors.limits.ProcessorDemand`). What is known of one function is never believed of another: it is the code, by its
hash.

Of GPUs: duties, how much tasks on one GPU slow each other down, what a lower clock costs a function. *Duty* is the part
of its run for which a task keeps its share busy (`Variant.device_duty`). *Interference* is a device's: beside others
that keep a share b of it busy, a task under MPS takes 1 + interference · b times as long as alone
(`Device.interference`). So an attempt that had company, of a function that also ran alone on that node, is one reading
of it: (stretch − 1) / b.

The part of a function's time that follows the clock is known when it has run a few times at full clock and a few times
below it; until then it runs at full clock. One repeat in twenty is tried below it, on a device of its own and never
with a deadline. Joules are not measured here: they follow from the clock and the seconds.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from wattflow.levels.unseen import clock_share
from wattflow.live.protocol import Placement
from wattflow.predict.online import Corrector, CurveCorrector
from wattflow.runtime import messages as m
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.messages import Ended
from wattflow.runtime.records import AttemptRecord, NodeRecord

SAMPLES = 5
"""Readings below which a run was too short to say anything: a second, five times a second."""
ALONE, COMPANY = 0.05, 0.1
"""Busy share of others up to which a task counts as alone, and from which on as in company."""
STEP = 0.05
"""Duties are told in such steps, so that a function has few shapes."""
GPU_WEIGHT, WEIGHT_IN_COMPANY = 0.2, 0.05
"""How far one run moves a mean; in company the device's busy time was split by assumption."""
GPU_ENOUGH = 5
"""Readings of a node's interference before it is told."""
LARGEST = 10.0


class GpuLearning:
    """Duties by function and variant, interference by node."""

    def __init__(self) -> None:
        self._duty: dict[tuple[str, str], float] = {}
        self._alone_log_s: dict[tuple[str, str, str], float] = {}
        self._interference: dict[str, tuple[int, float]] = {}
        self._told: dict[str, float] = {}

    def ended(
        self, function: str, variant: m.Variant, node: m.Node, device: int, runtime_s: float, use: m.GpuUse
    ) -> None:
        """A task ended well after so long on a GPU of a node, of which it made this use."""
        if use.samples < SAMPLES or not 0 <= device < len(node.devices) or runtime_s <= 0:
            return
        alone = use.beside < ALONE
        key = (function, variant.name)
        known = self._duty.get(key, use.duty)
        self._duty[key] = known + (GPU_WEIGHT if alone else WEIGHT_IN_COMPANY) * (use.duty - known)
        place = (*key, node.name)
        if alone:
            log_s = self._alone_log_s.get(place, math.log(runtime_s))
            self._alone_log_s[place] = log_s + GPU_WEIGHT * (math.log(runtime_s) - log_s)
        # Only against runs of the same function alone on the same node: other nodes' GPUs have other clocks.
        elif use.beside >= COMPANY and place in self._alone_log_s and node.devices[device].sharing == "mps":
            stretch = runtime_s / math.exp(self._alone_log_s[place])
            self._add(node.name, min(LARGEST, max(0.0, stretch - 1.0) / use.beside))

    def duties(self, function: str, variants: Sequence[m.Variant]) -> tuple[float, ...]:
        """Duty of each variant, in steps; 1 for one that is not known, and nothing where none is."""
        known = [self._duty.get((function, variant.name)) if variant.gpu > 0 else None for variant in variants]
        if all(duty is None for duty in known):
            return ()
        return tuple(1.0 if duty is None else max(STEP, round(round(duty / STEP) * STEP, 6)) for duty in known)

    def duties_of(self, function: str) -> dict[str, float]:
        """Duty of each variant of a function that is known."""
        return {variant: duty for (name, variant), duty in self._duty.items() if name == function}

    def interference(self, node: str) -> float | None:
        """How much tasks disturb each other on a node's GPUs; None before enough is known."""
        count, mean = self._interference.get(node, (0, 0.0))
        return mean if count >= GPU_ENOUGH else None

    def news(self, node: str) -> float | None:
        """A node's interference, where it is another than was told last."""
        found = self.interference(node)
        if found is None or abs(found - self._told.get(node, 0.0)) < max(STEP, 0.1 * found):
            return None
        # Told when it has moved by a tenth: every change is a new node to the engine, which looks at all tasks again.
        self._told[node] = found
        return found

    def as_learned(self, node: m.Node) -> m.Node:
        """A node whose GPUs under MPS have the interference that was seen there."""
        found = self.interference(node.name)
        if found is None:
            return node
        devices = [
            msgspec.structs.replace(one, interference=found) if one.kind == "gpu" and one.sharing == "mps" else one
            for one in node.devices
        ]
        return msgspec.structs.replace(node, devices=devices)

    def _add(self, node: str, value: float) -> None:
        count, mean = self._interference.get(node, (0, 0.0))
        weight = max(WEIGHT_IN_COMPANY, 1.0 / (count + 1))
        self._interference[node] = (count + 1, mean + weight * (value - mean))


ENOUGH_RUNS, KEPT = 3, 16
"""Runs at full clock, and below it, from which on a response is known; so many of the newest count."""
GPU_EVERY = 20
"""One attempt of so many is tried at another level."""
TRIED = 2
"""The level that is tried: of those that policies are offered the slowest, which tells most."""


KEPT_AS = "level "
"""Beginning of the keys in the store's ``meta`` under which runs are kept, one of each function and model of GPU."""


class _Runs(msgspec.Struct):
    """Seconds at full clock, bound parts seen below it, and counters (duty, memory) at full clock; the newest."""

    full_s: list[float] = []
    bound: list[float] = []
    counters: list[tuple[float, float]] = []


class LevelLearning:
    """Runs by function and model of GPU."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], _Runs] = {}

    def restore(self, told: Mapping[str, str]) -> None:
        """Take up what the store has of before the last restart."""
        for key, value in told.items():
            if key.startswith(KEPT_AS):
                function, model = msgspec.json.decode(key.removeprefix(KEPT_AS), type=tuple[str, str])
                self._runs[function, model] = msgspec.json.decode(value, type=_Runs)

    def kept(self, function: str, model: str) -> tuple[str, str]:
        """Return a setting of the store from which `restore` has the runs of a function again."""
        key = KEPT_AS + msgspec.json.encode((function, model)).decode()
        return key, msgspec.json.encode(self._of_function(function, model)).decode()

    def counted(self, function: str, device: m.Device, use: m.GpuUse) -> bool:
        """Note the counters of a run at full clock that had its device to itself. True when they say by it how much of
        the function follows the clock, which nobody knew."""
        key = (function, device.model)
        if not device.clocks_mhz or use.memory is None or use.samples < SAMPLES or use.beside >= ALONE:
            return False
        before, runs = self.foreseen(*key), self._runs.setdefault(key, _Runs())
        runs.counters = [*runs.counters, (use.duty, use.memory)][-KEPT:]
        return before is None and self.foreseen(*key) is not None and self.bound(*key) is None

    def foreseen(self, function: str, model: str) -> float | None:
        """Return what counters tell of the part that follows the clock; None: unknown, so full clock."""
        known = self._of_function(function, model).counters
        if len(known) < ENOUGH_RUNS:
            return None
        return clock_share(*(statistics.median(values) for values in zip(*known, strict=True)))

    def ended(self, function: str, device: m.Device, runtime_s: float, clock_mhz: float) -> bool:
        """Count a run that had its device to itself; 0 MHz is full clock. True when a response is known by it."""
        if not device.clocks_mhz or runtime_s <= 0:
            return False
        runs = self._runs.setdefault((function, device.model), _Runs())
        if clock_mhz <= 0:
            runs.full_s = [*runs.full_s, runtime_s][-KEPT:]
            return False
        slower = device.clocks_mhz[0] / clock_mhz - 1.0
        if len(runs.full_s) < ENOUGH_RUNS or slower <= 0:
            return False
        ratio = runtime_s / statistics.median(runs.full_s)
        # Runs differ by themselves: a part below 0 or above 1 is noise.
        runs.bound = [*runs.bound, min(1.0, max(0.0, (ratio - 1.0) / slower))][-KEPT:]
        return len(runs.bound) == ENOUGH_RUNS

    def bound(self, function: str, model: str) -> float | None:
        """Return the part of a function's time that follows the clock; None where nobody knows."""
        known = self._of_function(function, model).bound
        return statistics.median(known) if len(known) >= ENOUGH_RUNS else None

    def trial_mhz(self, function: str, device: m.Device, number: int) -> float:
        """Return the clock that this attempt is to try; 0 for none."""
        seen = len(self._of_function(function, device.model).full_s)
        # With a profile there is nothing left to learn.
        if function in device.responses:
            return 0.0
        if device.sharing != "exclusive" or seen < ENOUGH_RUNS or number % GPU_EVERY or len(device.clocks_mhz) <= TRIED:
            return 0.0
        return device.clocks_mhz[TRIED]

    def as_learned(self, node: m.Node) -> m.Node:
        """A node whose GPUs say what is known of functions at lower clocks."""
        devices = [
            msgspec.structs.replace(device, compute_bound=known) if (known := self._of(device)) else device
            for device in node.devices
        ]
        return msgspec.structs.replace(node, devices=devices)

    def _of(self, device: m.Device) -> dict[str, float]:
        if len(device.clocks_mhz) < 2:
            return {}
        names = sorted(name for name, model in self._runs if model == device.model)
        # What was measured at other clocks goes before what counters at full clock say.
        both = {name: (self.bound(name, device.model), self.foreseen(name, device.model)) for name in names}
        known = {name: foreseen if bound is None else bound for name, (bound, foreseen) in both.items()}
        return {name: share for name, share in known.items() if share is not None}

    def _of_function(self, function: str, model: str) -> _Runs:
        return self._runs.get((function, model)) or _Runs()


WEIGHT = 0.1
SHORTEST_S = 1e-4
KNOWN_FUNCTIONS = 64
"""Functions that the correction tells apart: its work grows with their square."""
ENOUGH = 20
"""Ends on a node before its speed is believed."""
WORTH = 0.1
"""Relative change of a speed that is worth telling."""
EVERY = 8
"""Beyond the first ends only one in so many is learned from: it runs in the server's loop."""
ALL_OF_FIRST = 200


class LearnedEstimates:
    """Estimates for the engine, of tasks that did not say how long they take, and about nodes."""

    def __init__(self) -> None:
        self._log_s: dict[str, tuple[int, float]] = {}
        self._corrector = Corrector()
        self._ends: dict[str, int] = {}
        self._told: dict[str, float] = {}
        self._count = 0

    def finished(self, function: str, end: Ended, node: str = "", speed: float = 1.0) -> None:
        """A task of this function ended well on a node that said it has this speed."""
        if end.started_s is None or end.ended_s is None:
            return
        # In logarithms: runtimes spread by factors, and one of an hour would swamp a thousand of a second.
        value = math.log(max(SHORTEST_S, (end.ended_s - end.started_s) * speed))
        count, mean = self._log_s.get(function, (0, 0.0))
        weight = max(WEIGHT, 1.0 / (count + 1))
        self._log_s[function] = (count + 1, mean + weight * (value - mean))
        self._count += 1
        # The first end of a function has nothing to be compared with.
        if count and node and (self._count <= ALL_OF_FIRST or self._count % EVERY == 0):
            self._correct(function, node, value - mean)

    def runtime_s(self, function: str) -> float | None:
        """Seconds it will take on a node of speed 1; None while nothing is known."""
        known = self._log_s.get(function)
        return math.exp(known[1]) if known is not None else None

    def news(self, node: str, said: float) -> float | None:
        """The speed of a node, where enough ended there to say that it is another than it said or than was told last.

        Speeds are relative, so they are judged against the nodes' mean: with one node there is nothing to learn.
        """
        if self._ends.get(node, 0) < ENOUGH or len([n for n in self._ends.values() if n >= ENOUGH]) < 2:
            return None
        effects = {name: self._corrector.correction("", name) for name, ends in self._ends.items() if ends >= ENOUGH}
        found = said * math.exp(sum(effects.values()) / len(effects) - effects[node])
        before = self._told.get(node, said)
        if not 0 < found < math.inf or abs(found / before - 1.0) < WORTH:
            return None
        self._told[node] = found
        return found

    def _correct(self, function: str, node: str, log_error: float) -> None:
        corrector = self._corrector
        name = function if function in corrector.tasks or len(corrector.tasks) < KNOWN_FUNCTIONS else "others"
        corrector.finished(name, node, log_error)
        self._ends[node] = self._ends.get(node, 0) + 1


SHORT_S = 0.02
"""Longest call of a function that is leased ahead: whoever is placed behind a queue of them waits for little."""
ENOUGH_CALLS = 10
"""Calls that must have ended before."""
FORGET = 0.9
"""Share of the longest call kept after each further one: after one of a second it takes some forty short ones."""
AHEAD = 8
"""Calls to a processor."""
KNOWN = 4096


class Ahead:
    """Which functions are short.

    Args:
        held_back: Whether nodes hold attempts back while others run; nothing is leased ahead elsewhere.
    """

    def __init__(self, held_back: bool = False) -> None:
        self.held_back = held_back
        self._calls: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def ended(self, spec: m.Task, end: m.Ended) -> None:
        """A call ended well."""
        if spec.function is None or end.started_s is None or end.ended_s is None:
            return
        count, longest_s = self._calls.get(spec.function, (0, 0.0))
        self._calls[spec.function] = (count + 1, max(FORGET * longest_s, end.ended_s - end.started_s))
        self._calls.move_to_end(spec.function)
        while len(self._calls) > KNOWN:
            self._calls.popitem(last=False)

    def counted(self, spec: m.Task) -> list[m.Variant]:
        """Tell what the engine counts a task's variants by.

        One that asks for more than a processor stays as it is: an eighth of it might fit where the whole does not.
        """
        count, longest_s = self._calls.get(spec.function or "", (0, 0.0))
        if not self.held_back or not spec.isolate or count < ENOUGH_CALLS or longest_s > SHORT_S:
            return list(spec.variants)
        plain = [one.cpus <= 1 and one.gpu == 0 and not one.fpga and not one.fpgas for one in spec.variants]
        return [replace(one, cpus=one.cpus / AHEAD) if all(plain) else one for one in spec.variants]


log = logging.getLogger(__name__)
STEADY = 0.1
"""Watts and load come from windows that do not quite agree: a load that changes by more than this teaches nothing."""
CURVE_WORTH = 0.1
"""Relative change of a point of a curve that is worth telling."""

WARM_S = 0.05
"""A start that took less found everything warm: a fork takes milliseconds, an interpreter with its modules far more."""
COLD_WEIGHT = 0.2
"""How far a cold start moves the mean of its function. The engine's own number is all that is kept of those before, so
that a restart goes on from it."""


class Learning:
    """Feeds the estimates, and tells the engine of nodes that are not what they said.

    Args:
        keep: Writes a setting of the store: a lesson that no stored end has.
    """

    def __init__(self, decider: JournaledEngine, keep: Callable[[str, str], None] = lambda key, value: None) -> None:
        self._decider, self._keep = decider, keep
        self.estimates, self.ahead = LearnedEstimates(), Ahead()
        self.gpus, self.levels = GpuLearning(), LevelLearning()
        self._news: dict[str, dict[str, Any]] = {}
        self._curves: dict[str, CurveCorrector] = {}
        self._busy: dict[str, float] = {}
        self._read: dict[str, tuple[float, str]] = {}

    def as_learned(self, node: m.Node) -> m.Node:
        """A node with what was learned of it in place of what it says."""
        told = self.gpus.as_learned(msgspec.structs.replace(node, **self._news.get(node.name, {})))
        return self.levels.as_learned(told)

    def began(self, attempt: AttemptRecord, cold_s: float) -> None:
        """An attempt took so long from its order to its start, as whoever ran it measured. It counts once.

        FPGAs are left out: loading a kernel is the device's own number in the engine.
        """
        if attempt.cold_s > 0:
            return
        attempt.cold_s = cold_s
        spec = attempt.task.spec
        if cold_s < WARM_S or spec.variants[attempt.lease.variant].fpga:
            return
        known_s = self._decider.cold_start_s(spec.function_name)
        mean_s = known_s + COLD_WEIGHT * (cold_s - known_s) if known_s > 0 else cold_s
        log.info("a cold start of %s took %.3g s; its mean is %.3g s", spec.function_name, cold_s, mean_s)
        self._decider.cold_start(spec.function_name, mean_s)

    def finished(self, attempt: AttemptRecord, end: m.Ended, node: m.Node) -> None:
        """A task ended well: its runtime counts; a node that is not as fast as it said is told to the engine."""
        self.ahead.ended(attempt.task.spec, end)
        self._at_its_clock(attempt, end, node)
        if attempt.lease.level is not None:
            return  # at a lower clock it took longer than it takes
        self.estimates.finished(attempt.task.spec.function_name, end, node.name, node.speed)
        speed = self.estimates.news(node.name, node.speed)
        if speed is not None:
            log.info("node %s has the speed %.3g, not %.3g", node.name, speed, node.speed)
            self._tell(node, speed=speed)
        if end.gpu is not None and end.started_s is not None and end.ended_s is not None:
            self.on_gpu(attempt.task.spec, attempt.lease.variant, node, attempt.lease.device,
                        end.ended_s - end.started_s, end.gpu)  # fmt: skip
            if (found := self.gpus.news(node.name)) is not None:
                log.info("tasks on GPUs of %s disturb each other: interference %.2g", node.name, found)
                self._tell(node)

    def clock(self, attempt: AttemptRecord, placement: Placement, node: m.Node) -> None:
        """Give an attempt the clock that was decided; now and then another one, from which its response is learned."""
        attempt.slow_down(placement, node)
        lease, flow = attempt.lease, attempt.task.workflow
        late = flow.about.get("deadline_s") is not None or attempt.task.spec.deadline_s is not None
        # A policy that uses no levels, or was told not to, has no use for what a slower run would teach.
        useful = any(self._decider.engine.policy.settings.frequencies)
        if useful and lease.level is None and not late and 0 <= lease.device < len(node.devices):
            tried = self.levels.trial_mhz(attempt.task.spec.function_name, node.devices[lease.device], lease.fence)
            if tried > 0:
                attempt.lease = msgspec.structs.replace(lease, level=m.Level("clock_mhz", tried, lease.device))

    def _at_its_clock(self, attempt: AttemptRecord, end: m.Ended, node: m.Node) -> None:
        """Learn from a run that had its GPU to itself."""
        lease, level = attempt.lease, attempt.lease.level
        known = end.started_s is not None and end.ended_s is not None and 0 <= lease.device < len(node.devices)
        # Under a limit, or beside slower processors, nobody knows which clock the run had.
        foreign = level is not None and (level.kind != "clock_mhz" or level.device < 0)
        if not known or node.devices[lease.device].sharing != "exclusive" or foreign:
            return
        device, name = node.devices[lease.device], attempt.task.spec.function_name
        assert end.started_s is not None and end.ended_s is not None
        if self.levels.ended(name, device, end.ended_s - end.started_s, level.value if level else 0.0):
            log.info("%.2g of %s follows the clock of %s", self.levels.bound(name, device.model), name, device.model)
            self._tell(node)
        elif level is None and end.gpu is not None and self.levels.counted(name, device, end.gpu):
            told = "by its counters %.2g of %s follows the clock of %s"
            log.info(told, self.levels.foreseen(name, device.model), name, device.model)
            self._tell(node)
        if device.clocks_mhz:
            self._keep(*self.levels.kept(name, device.model))

    def on_gpu(self, spec: m.Task, variant: int, node: m.Node, device: int, runtime_s: float, use: m.GpuUse) -> None:
        """A task ended well on a GPU, now or before the last restart."""
        self.gpus.ended(spec.function_name, spec.variants[variant], node, device, runtime_s, use)

    def woke(self, node: NodeRecord, wake_s: float | None) -> None:
        """The engine counts with the time that waking really took."""
        if wake_s is not None and node.spec.sleeps:
            self._tell(node.spec, wake_s=wake_s)

    def curve(self, node: str) -> dict[str, Any] | None:
        """A node's curve as its counter corrects it, with the band of its readings; None before enough was read."""
        known = self._curves.get(node)
        found = None if known is None else known.curve
        if known is None or found is None:
            return None
        off, (at_s, provenance) = known.deviation, self._read[node]
        band = {"low": np.maximum(found - off, 0.0), "high": found + off}
        return {
            "busy": known.busy.tolist(),
            "watts": found.tolist(),
            "provenance": provenance,
            "measured_s": at_s,
            "source": f"learned from {round(float(known.seen.sum()))} readings of the node's counter",
            **{name: [None if math.isnan(w) else w for w in watts.tolist()] for name, watts in band.items()},
        }

    def drew(self, node: m.Node, load: m.Load, at_s: float) -> None:
        """Learn from a node's counter while so much of it was busy. Modelled watts are the curve's own: no news."""
        before, self._busy[node.name] = self._busy.get(node.name, -1.0), load.cpu_busy
        if load.watts is None or load.provenance in ("modelled", "guessed") or len(node.busy) < 2:
            return
        if abs(load.cpu_busy - before) > STEADY:
            return
        known = self._curves.get(node.name)
        if known is None or list(known.watts) != node.watts:
            known = self._curves[node.name] = CurveCorrector.of(node.busy, node.watts)
        known.observe(load.cpu_busy * node.cpus, load.watts)
        self._read[node.name] = (at_s, load.provenance)
        found = known.curve
        told = np.asarray(self._news.get(node.name, {}).get("watts", node.watts))
        if found is not None and float(np.max(np.abs(found - told) / np.maximum(told, 1.0))) >= CURVE_WORTH:
            log.info("node %s draws %s W, not %s", node.name, np.round(found, 1).tolist(), np.round(told, 1).tolist())
            self._tell(node, watts=found.tolist(), provenance=load.provenance)

    def _tell(self, node: m.Node, **news: Any) -> None:
        learned = {**self._news.get(node.name, {}), **news}
        told = self.gpus.as_learned(msgspec.structs.replace(node, **learned))
        self._decider.node(self.levels.as_learned(told))
        self._news[node.name] = (
            learned  # what the engine does not take is not believed, or the node could not come back
        )
