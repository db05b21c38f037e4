"""The GPU profiler: watts by share of the device and by load, what sharing costs a job, and where the curve bends.

Each point runs a known load on a share, discards the warm-up and differences the energy counter over a window; points
come in random order, the whole plan repeats until time is up, and the document is written after every point, so a
broken run keeps what it measured.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.energy.gpu_load import LoadFailed, LoadResult, LoadSpec, Mps, Program, RunningLoad
from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import DeviceProfile, Provenance

VERSION = 1
SHARES = tuple(tenth / 10 for tenth in range(1, 11))
DUTIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CO_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
# A job that leaves most of the device to others, so that what they do shows.
BENCH_SHARE = 0.3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuProfileSettings:
    """How long each point is warmed and measured, and when the whole must be over."""

    warm_s: float = 1.2
    measure_s: float = 3.0
    window_s: float = 0.5
    bench_s: float = 2.5
    deadline_s: float = 480.0
    repeats: int = 3
    seed: int = 1


@dataclass(slots=True)
class GpuProfiler:
    """Measures one GPU into a document (plain dict, JSON)."""

    meter: NvmlMeter
    program: Program
    start_mps: Callable[[Program], Mps]
    save: Callable[[Mapping[str, object]], None]
    settings: GpuProfileSettings = field(default_factory=GpuProfileSettings)
    start_load: Callable[[Program, LoadSpec, Mps], RunningLoad] = RunningLoad
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    document: dict[str, object] = field(default_factory=dict)
    mps: Mps = field(default_factory=Mps)

    def measure(self) -> Mapping[str, object]:
        """Run the plan in order of worth until it is done or time is up."""
        begun_s = self.clock()
        gpu = self.meter.domains[0].name
        self.document = {
            "version": VERSION,
            "measured_at": datetime.now(UTC).date().isoformat(),
            "device": dict(self.meter.about(gpu)),
            "sharing": "sm-limit",
            "mps_reason": "",
            "counter": self.meter.domains[0].counter,
            "settings": {name: getattr(self.settings, name) for name in GpuProfileSettings.__slots__},
            "points": [],
            "interference": [],
            "notes": [],
        }
        for label, step in self._plan():
            # Looked at before each step, so that a step that has begun is measured whole.
            if self.clock() - begun_s > self.settings.deadline_s:
                self._note("time is up; left out from " + label)
                break
            try:
                step()
            except LoadFailed as error:
                self._note(f"{label}: {error}")
            self.save(self.document)
        self.mps.stop()
        self.document["seconds"] = self.clock() - begun_s
        self.save(self.document)
        return self.document

    def _plan(self) -> Iterator[tuple[str, Callable[[], None]]]:
        order = random.Random(self.settings.seed)
        kernels = self.program.kernels
        # Before any context exists: a context alone draws watts.
        yield "idle", partial(self._idle, "idle")
        yield "sharing", self._start_sharing
        yield "idle with the sharing daemon", partial(self._idle, "idle-shared")
        # In order of worth: if time runs out, the curve that matters most is complete.
        yield from self._share_steps(order, kernels[0], 0)
        for duty in order.sample(DUTIES, len(DUTIES)):
            yield f"load {duty:g}", partial(self._load, "load", LoadSpec(kernels[0], duty=duty), 0)
        yield f"interference {kernels[0]}", partial(self._interference, kernels[0])
        for kernel in kernels[1:]:
            yield from self._share_steps(order, kernel, 0)
        yield "interference mem", partial(self._interference, "mem")
        for repeat in range(1, self.settings.repeats):
            for kernel in kernels[:2]:
                yield from self._share_steps(order, kernel, repeat)

    def _share_steps(self, order: random.Random, kernel: str, repeat: int) -> Iterator[tuple[str, Callable[[], None]]]:
        # In random order, so that warming up falls on all shares alike.
        for share in order.sample(SHARES, len(SHARES)):
            spec = LoadSpec(kernel, share=share)
            yield f"share {kernel} {share:g} #{repeat}", partial(self._load, "share", spec, repeat)

    def _start_sharing(self) -> None:
        self.mps = self.start_mps(self.program)
        self.document["sharing"] = "mps" if self.mps.active else "sm-limit"
        self.document["mps_reason"] = self.mps.reason

    def _idle(self, kind: str) -> None:
        self.sleep(self.settings.warm_s)
        # Twice as long: idle is under every other figure.
        windows = self._windows(2 * self.settings.measure_s)
        self._add_point({"kind": kind, "kernel": None, "share": 0.0, "duty": 0.0, "repeat": 0}, windows, None)

    def _load(self, kind: str, spec: LoadSpec, repeat: int) -> None:
        # A little longer than what is measured, so that the load does not end within the last window.
        total_s = self.settings.warm_s + self.settings.measure_s + 0.3
        load = self.start_load(self.program, LoadSpec(spec.kernel, spec.share, total_s, 0, spec.duty), self.mps)
        try:
            self.sleep(self.settings.warm_s)
            windows = self._windows(self.settings.measure_s)
            about = self.meter.about(self.meter.domains[0].name)
            done = load.finish()
        finally:
            load.stop()
        point = {"kind": kind, "kernel": spec.kernel, "share": spec.share, "duty": spec.duty, "repeat": repeat}
        self._add_point(point | {key: about[key] for key in ("sm_mhz", "temperature_c")}, windows, done)

    def _windows(self, seconds: float) -> list[float]:
        """Return the mean watts of consecutive windows, by the energy counter (by sampled watts without one)."""
        gpu = self.meter.domains[0]
        watts: list[float] = []
        before, end_s = self.meter.read(), self.clock() + seconds
        while self.clock() < end_s:
            self.sleep(self.settings.window_s)
            after = self.meter.read()
            if gpu.counter:
                start_j, end_j = before.joules[gpu.name], after.joules[gpu.name]
                if start_j is not None and end_j is not None:
                    watts.append((end_j - start_j) / (after.time_s - before.time_s))
            elif (sample := after.watts.get(gpu.name)) is not None:
                watts.append(sample)
            before = after
        return watts

    def _interference(self, kernel: str) -> None:
        """Time a benchmark of fixed work on a share, beside a rising co-load; then beside whole jobs in turns."""
        share = BENCH_SHARE
        trial = self.start_load(self.program, LoadSpec(kernel, share, 1.0), self.mps).finish()
        # As many rounds as take `bench_s` alone; the same work is then timed beside others.
        rounds = max(1, int(trial.rounds_per_s * self.settings.bench_s))
        for co_share in CO_SHARES:
            beside = [LoadSpec(kernel, co_share, 60.0)] if co_share else []
            self._beside(LoadSpec(kernel, share, rounds=rounds), beside, self.mps)
        # An Mps that was never started: clients run without it and take turns.
        turns = Mps(reason="time slicing asked for")
        trial = self.start_load(self.program, LoadSpec(kernel, 1.0, 1.0), turns).finish()
        rounds = max(1, int(trial.rounds_per_s * self.settings.bench_s))
        for count in range(3):
            self._beside(LoadSpec(kernel, rounds=rounds), [LoadSpec(kernel, 1.0, 60.0)] * count, turns)

    def _beside(self, bench: LoadSpec, beside: Sequence[LoadSpec], mps: Mps) -> None:
        others: list[RunningLoad] = []
        try:
            others.extend(self.start_load(self.program, spec, mps) for spec in beside)
            running = self.start_load(self.program, bench, mps)
            before = self.meter.read()
            done = running.finish()
            after = self.meter.read()
        finally:
            for other in others:
                other.stop()
        name = self.meter.domains[0].name
        start_j, end_j = before.joules.get(name), after.joules.get(name)
        watts = None if start_j is None or end_j is None else (end_j - start_j) / (after.time_s - before.time_s)
        rows = self.document["interference"]
        assert isinstance(rows, list)
        rows.append(
            {
                "kernel": bench.kernel,
                "share": bench.share,
                "co_share": sum(spec.share for spec in beside),
                "co_runners": len(beside),
                "sharing": "mps" if mps.active else "time-slice",
                "rounds": done.rounds,
                "runtime_s": done.seconds,
                "watts": watts,
            }
        )

    def _add_point(self, point: Mapping[str, object], windows: Sequence[float], done: LoadResult | None) -> None:
        rows = self.document["points"]
        assert isinstance(rows, list)
        rate = None if done is None else done.rounds_per_s
        achieved = None if done is None else done.busy_s / done.seconds
        watts = float(np.mean(windows)) if windows else None
        rows.append(
            dict(point)
            | {
                "watts": watts,
                "windows_w": [round(w, 3) for w in windows],
                "rounds_per_s": rate,
                "achieved_duty": achieved,
            }
        )

    def _note(self, text: str) -> None:
        notes = self.document["notes"]
        assert isinstance(notes, list)
        notes.append(text)
        _log.warning("%s", text)


@dataclass(frozen=True, slots=True)
class Knee:
    """Where watts against share bend: the breakpoint of two joined lines, with its bootstrap interval.

    Attributes:
        gain: Share of the straight line's squared error that the bend removes; near 0 there is no knee.
        before_w, after_w: Watts per unit of share on either side.
    """

    share: float
    low: float
    high: float
    gain: float
    before_w: float
    after_w: float

    @property
    def flattens(self) -> bool:
        """Tell whether more share adds clearly fewer watts beyond the bend: what is meant by a knee."""
        return self.gain > 0.5 and self.after_w < 0.5 * self.before_w


def knee(share: Sequence[float], watts: Sequence[Sequence[float]], *, draws: int = 400, seed: int = 1) -> Knee:
    """Fit two joined lines to the mean watts at each share; the interval (90 %) resamples each point's windows.

    Args:
        share: Shares, rising.
        watts: For each share its repeated measurements.
    """
    x = np.asarray(share, np.float64)
    if len(x) < 4:
        raise InvalidInput("knee", f"needs at least 4 shares, got {len(x)}")
    y = np.array([float(np.mean(values)) for values in watts])
    generator = np.random.default_rng(seed)
    drawn = np.stack([generator.choice(np.asarray(v, np.float64), (draws, len(v))).mean(axis=1) for v in watts])
    # The breakpoint with the least squared error on a grid of 0.5 % steps, at least two points on either side.
    # From the second to the last but one: each of the two lines needs two points.
    grid = np.arange(x[1], x[-2] + 1e-9, 0.005)
    errors = np.array([_residual(x, at, np.column_stack([y, drawn])) for at in grid])
    best = grid[errors.argmin(axis=0)]
    low, high = np.quantile(best[1:], [0.05, 0.95])
    # The single line: joined at the last point, the second has no length.
    line = float(_residual(x, float(x[-1]), y[:, None])[0])
    slopes = np.linalg.lstsq(_joined(x, best[0]), y, rcond=None)[0]
    gain = 1.0 - float(errors[:, 0].min()) / line if line > 0 else 0.0
    return Knee(float(best[0]), float(low), float(high), gain, float(slopes[1]), float(slopes[1] + slopes[2]))


def _joined(x: NDArray[np.float64], at: float) -> NDArray[np.float64]:
    """Return columns of two lines joined at ``at``; a single line when that is the last point."""
    return np.stack([np.ones_like(x), x, np.maximum(0.0, x - at)], axis=1)


def _residual(x: NDArray[np.float64], at: float, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    design = _joined(x, at)
    left = columns - design @ (np.linalg.pinv(design) @ columns)
    squared: NDArray[np.float64] = (left**2).sum(axis=0)
    return squared


def shipped() -> dict[str, Mapping[str, object]]:
    """Return the measured GPU profiles that come with wattflow, by file name."""
    folder = resources.files("wattflow") / "data" / "profiles"
    found: dict[str, Mapping[str, object]] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".json"):
            document = json.loads(file.read_text(encoding="utf-8"))
            # Tables of other kinds lie in the same folder.
            if isinstance(document, dict) and {"device", "points", "sharing"} <= document.keys():
                found[file.name.removesuffix(".json")] = document
    return found


def by_share(document: Mapping[str, object], kernel: str) -> tuple[list[float], list[list[float]]]:
    """Return shares and the windows measured at each, all repeats together."""
    groups: dict[float, list[float]] = {}
    for point in _rows(document, "points"):
        if point["kind"] == "share" and point["kernel"] == kernel:
            groups.setdefault(float(point["share"]), []).extend(point["windows_w"])
    shares = sorted(share for share, values in groups.items() if values)
    return shares, [groups[share] for share in shares]


def idle_w(document: Mapping[str, object]) -> float | None:
    """Return watts before any context existed."""
    values = [point["watts"] for point in _rows(document, "points") if point["kind"] == "idle"]
    return None if not values or values[0] is None else float(values[0])


def device_profile(document: Mapping[str, object], kernel: str = "gemm") -> DeviceProfile:
    """Return watts by share as a simulator's device profile, idle included."""
    shares, windows = by_share(document, kernel)
    idle = idle_w(document)
    if idle is None or not shares:
        raise InvalidInput("GPU profile", f"holds no idle watts or no shares for the kernel {kernel!r}")
    device = document["device"]
    model = device.get("model") if isinstance(device, Mapping) else None
    watts = tuple(float(np.mean(values)) for values in windows)
    source = f"{model}, {kernel} by {document['sharing']} share, energy counter"
    return DeviceProfile((0.0, *shares), (idle, *watts), Provenance.MEASURED, source)


def _rows(document: Mapping[str, object], key: str) -> list[Mapping[str, Any]]:
    rows = document[key]
    assert isinstance(rows, list)
    return rows
