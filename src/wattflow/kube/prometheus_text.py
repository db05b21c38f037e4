"""Counters and histograms in the Prometheus text format, with kube-scheduler's names where it has one."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
# kube-scheduler's own buckets (from 1 ms, doubled), so that its dashboards and alerts work on ours.
SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384)


@dataclass(slots=True)
class Counter:
    """A sum that only rises, by labels."""

    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, amount: float = 1.0, **labels: str) -> None:
        key = tuple(labels.items())
        self.values[key] = self.values.get(key, 0.0) + amount

    def lines(self, name: str) -> Iterator[str]:
        for labels, value in self.values.items():
            yield f"{name}{_braces(labels)} {value:g}"


@dataclass(slots=True)
class Histogram:
    """Durations in fixed buckets."""

    bounds: tuple[float, ...] = SECONDS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        # `le` includes its bound.
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        so_far = 0
        for bound, count in zip((*(f"{b:g}" for b in self.bounds), "+Inf"), self.counts, strict=True):
            # Buckets are cumulative in the format.
            so_far += count
            yield f'{name}_bucket{{le="{bound}"}} {so_far}'
        yield f"{name}_sum {self.total:g}"
        yield f"{name}_count {so_far}"


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    quoted = [f'{key}="{_escaped(value)}"' for key, value in labels]
    return "{" + ",".join(quoted) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(slots=True)
class Metrics:
    """All that the scheduler counts. ``gauges`` are read when asked for."""

    attempts: Counter = field(default_factory=Counter)
    attempt_s: Histogram = field(default_factory=Histogram)
    algorithm_s: Histogram = field(default_factory=Histogram)
    bind_s: Histogram = field(default_factory=Histogram)
    sli_s: Histogram = field(default_factory=lambda: Histogram((*SECONDS, 32.768, 65.536, 131.072)))
    refused: Counter = field(default_factory=Counter)
    set_aside: Counter = field(default_factory=Counter)
    gauges: dict[str, tuple[str, Callable[[], list[tuple[Labels, float]]]]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the page that Prometheus reads."""
        lines: list[str] = []
        for name, about, kind, source in (
            ("scheduler_schedule_attempts_total", "Attempts to schedule pods, by result.", "counter", self.attempts),
            ("scheduler_scheduling_attempt_duration_seconds", "From the start of a step to bound.", "histogram",
             self.attempt_s),
            ("scheduler_scheduling_algorithm_duration_seconds", "Time of one step of the engine.", "histogram",
             self.algorithm_s),
            ("scheduler_binding_duration_seconds", "Time of one binding call.", "histogram", self.bind_s),
            ("scheduler_pod_scheduling_sli_duration_seconds", "From first seen to bound.", "histogram", self.sli_s),
            ("wattflow_refused_total", "Placements that were undone, by reason.", "counter", self.refused),
            ("wattflow_set_aside_total", "Wishes and objects that were left out, by kind.", "counter", self.set_aside),
        ):  # fmt: skip
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *source.lines(name)]
        for name, (about, read) in self.gauges.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_braces(labels)} {value:g}" for labels, value in read()]
        return "\n".join(lines) + "\n"
