"""Expected runtimes of pods: what they state, else what is predicted, else the mean of their kind that have ended.

A kind is the pod's function (annotation ``wattflow.io/function``), else its Argo template, else its first image. Only
pods that ended well teach; nothing is known of a kind before the first. Seconds are those on a node of speed 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wattflow.kube import objects, tenant
from wattflow.kube.argo.collect import attempt_of, moment_s
from wattflow.kube.predicted import Predicted
from wattflow.kube.tenant import PREFIX

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
