"""Expected runtimes of pods: what they state, else the mean of those of their kind that have ended.

A kind is the pod's function (annotation ``wattflow.io/function``), else its Argo template, else its first image. Only
pods that ended well teach; nothing is known of a kind before the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattflow.kube import objects
from wattflow.kube.argo.collect import attempt_of, moment_s
from wattflow.kube.power import PREFIX

FUNCTION, RUNTIME = f"{PREFIX}function", f"{PREFIX}runtime-s"
_TEMPLATE = "workflows.argoproj.io/template"
_MOST_KINDS = 10_000


def stated_s(annotations: Mapping[str, str]) -> float | None:
    """The runtime that annotations state, or None."""
    try:
        return max(0.0, float(annotations[RUNTIME]))
    except (KeyError, ValueError):
        return None


def kind_of(pod: objects.Pod) -> str:
    """What a pod is one of."""
    notes, spec = pod.metadata.annotations, pod.spec
    image = spec.containers[0].image if spec.containers else ""
    return f"{pod.metadata.namespace}/{notes.get(FUNCTION) or notes.get(_TEMPLATE) or image}"


@dataclass(slots=True)
class Estimates:
    """Means by kind, refitted with every pod that ends."""

    means: dict[str, tuple[int, float]] = field(default_factory=dict)

    def of(self, pod: objects.Pod) -> float | None:
        """Seconds to expect, None where unknown."""
        stated = stated_s(pod.metadata.annotations)
        return stated if stated is not None else self.of_kind(kind_of(pod))

    def left(self, pod: objects.Pod, now_s: float) -> float | None:
        """Seconds to expect of a pod that runs already; ``now_s`` since 1970. None where unknown."""
        whole, began_s = self.of(pod), moment_s(pod.status.start_time)
        return whole if whole is None or began_s is None else max(0.0, whole - max(0.0, now_s - began_s))

    def of_kind(self, kind: str) -> float | None:
        """The mean of a kind."""
        count, mean_s = self.means.get(kind, (0, 0.0))
        return mean_s if count else None

    def learn(self, pod: objects.Pod) -> None:
        """Take a pod's runtime in, if it has ended well and tells its times."""
        attempt = attempt_of(pod, 1, None) if pod.status.phase == "Succeeded" else None
        kind = kind_of(pod)
        if attempt is None or (kind not in self.means and len(self.means) >= _MOST_KINDS):
            return
        count, mean_s = self.means.get(kind, (0, 0.0))
        runtime_s = attempt.end_s - attempt.start_s
        self.means[kind] = (count + 1, mean_s + (runtime_s - mean_s) / (count + 1))
