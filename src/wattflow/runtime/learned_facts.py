"""Lessons of starts, ends, wakes and meters: cold starts, runtimes, GPUs, nodes' speeds, wake times, curves."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
import numpy as np

from wattflow.live.protocol import Placement
from wattflow.predict.curve_online import CurveCorrector
from wattflow.runtime import messages as m
from wattflow.runtime.ahead import Ahead
from wattflow.runtime.decider import Decider
from wattflow.runtime.gpu_learning import GpuLearning
from wattflow.runtime.level_learning import LevelLearning
from wattflow.runtime.nodes import NodeRecord
from wattflow.runtime.records import AttemptRecord
from wattflow.runtime.runtime_means import Estimates

log = logging.getLogger(__name__)
STEADY = 0.1
"""Watts and load come from windows that do not quite agree: a load that changes by more than this teaches nothing."""
WORTH = 0.1
"""Relative change of a point of a curve that is worth telling."""

WARM_S = 0.05
"""A start that took less found everything warm: a fork takes milliseconds, an interpreter with its modules far more."""
COLD_WEIGHT = 0.2
"""How far a cold start moves the mean of its function. The engine's own number is all that is kept of those before, so
that a restart goes on from it."""


class Learning:
    """Feeds the estimates, and tells the engine of nodes that are not what they said."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self.estimates, self.ahead = Estimates(), Ahead()
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
        if lease.level is None and not late and 0 <= lease.device < len(node.devices):
            tried = self.levels.trial_mhz(attempt.task.spec.function_name, node.devices[lease.device], lease.fence)
            if tried > 0:
                attempt.lease = msgspec.structs.replace(lease, level=m.Level("clock_mhz", tried))

    def _at_its_clock(self, attempt: AttemptRecord, end: m.Ended, node: m.Node) -> None:
        """Learn from a run that had its GPU to itself."""
        lease, level = attempt.lease, attempt.lease.level
        known = end.started_s is not None and end.ended_s is not None and 0 <= lease.device < len(node.devices)
        if not known or node.devices[lease.device].sharing != "exclusive" or (level and level.kind != "clock_mhz"):
            return
        device, name = node.devices[lease.device], attempt.task.spec.function_name
        assert end.started_s is not None and end.ended_s is not None
        if self.levels.ended(name, device, end.ended_s - end.started_s, level.value if level else 0.0):
            log.info("%.2g of %s follows the clock of %s", self.levels.bound(name, device.model), name, device.model)
            self._tell(node)

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
            "busy": known.busy.tolist(), "watts": found.tolist(), "provenance": provenance, "measured_s": at_s,
            "source": f"learned from {round(float(known.seen.sum()))} readings of the node's counter",
            **{name: [None if math.isnan(w) else w for w in watts.tolist()] for name, watts in band.items()},
        }  # fmt: skip

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
        if found is not None and float(np.max(np.abs(found - told) / np.maximum(told, 1.0))) >= WORTH:
            log.info("node %s draws %s W, not %s", node.name, np.round(found, 1).tolist(), np.round(told, 1).tolist())
            self._tell(node, watts=found.tolist(), provenance=load.provenance)

    def _tell(self, node: m.Node, **news: Any) -> None:
        learned = {**self._news.get(node.name, {}), **news}
        told = self.gpus.as_learned(msgspec.structs.replace(node, **learned))
        self._decider.node(self.levels.as_learned(told))
        self._news[node.name] = (
            learned  # what the engine does not take is not believed, or the node could not come back
        )
