"""One placer's part in a frame: whose pods it places and which nodes it uses.

The file is the one that the simulator runs. What it says of times (service, messages, refresh) is modelled there and is
whatever the cluster takes here; what it says of mechanisms is carried out, or refused with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from wattflow.frames.frame import Frame
from wattflow.kube import gangs, objects, tenant
from wattflow.kube.settings import SchedulerSettings
from wattflow.kube.tenant import PREFIX
from wattflow.model.errors import InvalidInput, Problem

PLACER = f"{PREFIX}placer"
"""Label of pods and nodes: the number of the placer that they belong to."""
OBJECT = f"{PREFIX}object"
"""Annotation of pods: the data object by which they are hashed."""


def number(text: str, count: int) -> int:
    """Which of ``count`` a text belongs to; the same in every process."""
    # Not Python's `hash`, which differs from process to process.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % count


def labelled(labels: dict[str, str], count: int) -> int | None:
    """The placer that labels name, or None where they name none that exists."""
    text = labels.get(PLACER, "")
    found = tenant.count(text)
    return found if found is not None and found < count else None


def hash_key(pod: objects.Pod) -> str:
    """Tell what a pod is hashed by: its gang, else its data object, else itself."""
    gang = gangs.gang_of(pod)
    # The gang first: its pods must have one placer whatever they read.
    return gang[0] if gang is not None else pod.metadata.annotations.get(OBJECT) or pod.metadata.uid


@dataclass(frozen=True, slots=True)
class Role:
    """Placer number ``index`` of a frame."""

    frame: Frame
    index: int

    @property
    def count(self) -> int:
        return self.frame.placers.count

    @property
    def delegated(self) -> bool:
        """Tell whether a broker says whose each pod is."""
        return self.frame.broker is not None

    @property
    def disjoint(self) -> bool:
        return self.frame.placers.partition == "disjoint"

    @property
    def shared(self) -> bool:
        """Tell whether several placers use the same nodes."""
        return self.count > 1 and not self.disjoint

    @property
    def asks(self) -> int:
        """How many others it asks for work when it has none."""
        return self.frame.stealing.placers if self.frame.stealing is not None else 0

    def owner_of(self, pod: objects.Pod) -> int | None:
        """Whose a pod is; None while the broker has not said."""
        if self.count == 1:
            return 0
        named = labelled(pod.metadata.labels, self.count)
        return named if named is not None or self.delegated else number(hash_key(pod), self.count)

    def owns(self, pod: objects.Pod) -> bool:
        return self.owner_of(pod) == self.index

    def serves(self, node: objects.Node) -> bool:
        """Tell whether this placer may use a node.

        Where there is a broker it alone divides nodes, so that none has two owners before and after it spoke.
        """
        if not self.disjoint:
            return True
        if self.delegated:
            return labelled(node.metadata.labels, self.count) == self.index
        # By name: every placer finds the same owner without asking anybody.
        return number(node.metadata.name, self.count) == self.index


def refusals(frame: Frame) -> Iterator[Problem]:
    """Tell what of a frame cannot be had on Kubernetes, and why."""
    kubelet = "a kubelet starts what is bound to it, or fails it"
    placers, stealing = frame.placers, frame.stealing
    if frame.architecture == "hybrid":
        yield Problem("architecture", "hybrid needs one reading of 'long' that all placers share; estimates are each "
                      "placer's own here. Use delegated")  # fmt: skip
    if frame.hosts.queue or placers.binding == "early":
        yield Problem("placers.binding", f"early binding needs queues at hosts, and {kubelet}; use 'late' and no queue")
    if stealing is not None and (stealing.hosts or stealing.slots):
        yield Problem(
            "stealing",
            f"hosts that steal need the kubelet's help: {kubelet}, and gives nothing back. Use stealing.placers",
        )
    if frame.rebalancing is not None:
        yield Problem("rebalancing", f"moves tasks between queues of hosts, and {kubelet}")
    if frame.preemption is not None:
        what = "kills" if frame.preemption.kill else "suspends: a kubelet can end a pod, not halt it and go on later"
        yield Problem("preemption", f"{what}; this scheduler waits and evicts nobody")
    if frame.speculation is not None:
        yield Problem("speculation", "a copy is a second pod, which only the pod's own controller may make")
    if placers.rule != "policy":
        yield Problem("placers.rule", f"{placers.rule!r} chooses hosts without a policy; use 'policy'")
    if placers.flow != "push":
        yield Problem(
            "placers.flow", f"{placers.flow!r} needs hosts or a broker that ask; kubelets do not ask for work"
        )
    if placers.strict:
        yield Problem("placers.strict", "the queue is the policy's; choose a policy that keeps the order")
    if frame.elasticity is not None:
        yield Problem("elasticity", "nodes come and go by the cluster's autoscaler, or by [sleep] of the configuration")
    for key in ("data", "hints"):
        if getattr(frame, key) is not None:
            yield Problem(key, "where data lie is not known to the API server")
    if frame.barriers is not None and frame.barriers.levels:
        yield Problem("barriers.levels", "the workflow engine says when a pod is made")
    # "hash" and "random" need only the pod; a random split here is the hash of its uid.
    if frame.broker is None and placers.count > 1 and placers.route not in ("hash", "random"):
        yield Problem("placers.route", f"{placers.route!r} needs somebody who sees all pods: give the frame a broker")


def against(chosen: SchedulerSettings, frame: Frame) -> Iterator[Problem]:
    """Tell what of a configuration cannot be had with several placers."""
    if frame.placers.count == 1:
        return
    needs = ((chosen.mode != "schedule", "mode"), (chosen.cluster_cap_w is not None, "energy.cluster_cap_w"),
             (bool(chosen.executions), "workflows.executions"), (bool(chosen.forecast), "carbon.forecast"),
             *((True, f"sleep.{key}") for key in chosen.actuators), (chosen.claim, "shared.claim"),
             (chosen.resize and frame.placers.partition == "shared", "energy.resize"),
             (not chosen.leader_elect, "lease.leader_elect"))  # fmt: skip
    for wrong, key in needs:
        if wrong:
            yield Problem(key, "needs one placer that sees all of it; the frame has several")


def check(frame: Frame, chosen: SchedulerSettings) -> None:
    """Raise InvalidInput with everything of a frame that cannot be had here."""
    problems = [*refusals(frame), *against(chosen, frame)]
    if problems:
        raise InvalidInput(f"frame {frame.name!r} on Kubernetes", problems)
