"""Expected runtimes of pods: what they state, else what is predicted, else the mean of their kind that have ended.

A kind is the pod's function (annotation ``wattflow.io/function``), else its Argo template, else its first image. Only
pods that ended well teach; nothing is known of a kind before the first. Seconds are those on a node of speed 1.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from wattflow.kube import objects, tenant
from wattflow.kube.argo.collect import attempt_of, moment_s
from wattflow.kube.tenant import PREFIX
from wattflow.predict import runtime
from wattflow.predict.observations import Observations
from wattflow.predict.serving import ServedModel

# Expected runtimes from `wattflow.predict`, by kind of task and bytes of input, refitted as tasks end.
#
# Rows are what ended here, as seconds on a node of speed 1. A first model is fitted when there are enough of them;
# later ones in the background, and each takes over only if it predicts better than the one in use
# (`predict.serving`).

log = logging.getLogger(__name__)
_FIRST, _EVERY, _MOST = 40, 200, 5000
# Seconds are on a node of speed 1, so one machine stands for all.
_MACHINE, _RUN_OF = "reference", 20  # rows that ended one after another are taken for one run


@dataclass(slots=True)
class Predicted:
    """A model in service and the rows that the next is fitted on.

    Attributes:
        first: Ended tasks before the first model.
        every: Ended tasks between refits.
    """

    first: int = _FIRST
    every: int = _EVERY
    served: ServedModel | None = None
    ended: int = 0
    _rows: deque[tuple[str, float, float]] = field(default_factory=lambda: deque(maxlen=_MOST))
    _fitting: Future[runtime.RuntimeModel] | None = None

    def of(self, kind: str, size: float) -> float | None:
        """Predict the seconds of a task by its kind and bytes of input (NaN: unknown); None before it is known."""
        self._take_over()
        if self.served is None:
            return None
        seconds = self.served.predict_s(kind, _MACHINE, size)
        return seconds if math.isfinite(seconds) and seconds >= 0 else None

    def learn(self, kind: str, size: float, seconds: float) -> None:
        """Learn from a task that has ended."""
        # Also not NaN.
        if not seconds > 0:
            return
        self._rows.append((kind, size, seconds))
        self.ended += 1
        self._take_over()
        if self.served is not None:
            self.served.finished(kind, _MACHINE, seconds, size)
            if self.ended % self.every == 0:
                self.served.refit(self._observations())
        elif self._fitting is None and self.ended >= self.first:
            # A thread of its own and only for this fit: fitting takes seconds, and the scheduler's loop must
            # not wait.
            pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wattflow-fit")
            self._fitting = pool.submit(runtime.fit, self._observations())
            pool.shutdown(wait=False)

    def _take_over(self) -> None:
        if self._fitting is None or not self._fitting.done():
            return
        problem = self._fitting.exception()
        if problem is None:
            self.served = ServedModel(self._fitting.result())
        else:
            log.warning("no model of runtimes: %s", problem)
            # Not at every further task: rows that cannot be fitted now will not be with one more.
            self.first = self.ended + self.every
        self._fitting = None

    def _observations(self) -> Observations:
        kinds, sizes, seconds = zip(*self._rows, strict=True)
        runs = [str(number // _RUN_OF) for number in range(len(kinds))]
        return Observations.of(
            task=kinds,
            machine=[_MACHINE] * len(kinds),
            run=runs,
            runtime_s=seconds,
            sizes=[[size] for size in sizes],
            size_names=("input",),
        )


FUNCTION, RUNTIME = f"{PREFIX}function", f"{PREFIX}runtime-s"
INPUT, OUTPUT = f"{PREFIX}input-bytes", f"{PREFIX}output-bytes"
_TEMPLATE = "workflows.argoproj.io/template"
# Tenants choose functions and images freely; memory must not grow with their imagination.
_MOST_KINDS = 10_000


def stated_s(annotations: Mapping[str, str]) -> float | None:
    """Return the runtime that annotations state, or None."""
    return tenant.number(annotations.get(RUNTIME, ""))


def stated_bytes(annotations: Mapping[str, str], key: str) -> float:
    """Return the bytes that annotations state, or NaN."""
    found = tenant.number(annotations.get(key, ""))
    return math.nan if found is None else found


def kind_of(pod: objects.Pod) -> str:
    """Tell what a pod is one of."""
    notes, spec = pod.metadata.annotations, pod.spec
    image = spec.containers[0].image if spec.containers else ""
    # By namespace: the same image may do other work for another tenant.
    return f"{pod.metadata.namespace}/{notes.get(FUNCTION) or notes.get(_TEMPLATE) or image}"


@dataclass(slots=True)
class Estimates:
    """Means by kind, refitted with every pod that ends.

    Attributes:
        speed_of: How fast a node is, by its name.
        predicted: Predictions that come before means, where asked for.
    """

    means: dict[str, tuple[int, float]] = field(default_factory=dict)
    speed_of: Callable[[str], float] = lambda node: 1.0
    predicted: Predicted | None = None

    def of(self, pod: objects.Pod) -> float | None:
        """Return the expected runtime, None where unknown."""
        stated = stated_s(pod.metadata.annotations)
        return stated if stated is not None else self.of_kind(kind_of(pod), pod.metadata.annotations)

    def left(self, pod: objects.Pod, now_s: float) -> float | None:
        """Return what is left of a running pod's expected runtime; ``now_s`` since 1970. None where unknown."""
        whole, began_s = self.of(pod), moment_s(pod.status.start_time)
        if whole is None or began_s is None:
            return whole
        # Time that has passed counts at the node's own speed, since estimates are seconds at speed 1.
        return max(0.0, whole - max(0.0, now_s - began_s) * self.speed_of(pod.spec.node_name))

    def of_kind(self, kind: str, annotations: Mapping[str, str]) -> float | None:
        """Tell what is predicted for one of a kind, else the kind's mean."""
        if self.predicted is not None:
            seconds = self.predicted.of(kind, stated_bytes(annotations, INPUT))
            if seconds is not None:
                return seconds
        count, mean_s = self.means.get(kind, (0, 0.0))
        return mean_s if count else None

    def learn(self, pod: objects.Pod) -> None:
        """Take a pod's runtime in, if it has ended well and tells its times."""
        attempt = attempt_of(pod, 1, None) if pod.status.phase == "Succeeded" else None
        kind = kind_of(pod)
        if attempt is None or (kind not in self.means and len(self.means) >= _MOST_KINDS):
            return
        count, mean_s = self.means.get(kind, (0, 0.0))
        runtime_s = (attempt.end_s - attempt.start_s) * self.speed_of(pod.spec.node_name)
        if self.predicted is not None:
            self.predicted.learn(kind, stated_bytes(pod.metadata.annotations, INPUT), runtime_s)
        # Running mean: no list of runtimes is kept.
        self.means[kind] = (count + 1, mean_s + (runtime_s - mean_s) / (count + 1))
