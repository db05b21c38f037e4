"""Points from 0 to 100 that kube-scheduler's default plugins give the nodes that could take a pod, and their weights.

Each function gets the feasible nodes, since points are relative to those, and returns a whole number for each. The
formulas are those of version 1.36 (pkg/scheduler/framework/plugins); ImageLocality is not there: nodes' lists of images
are not read.
"""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from wattflow.kube import accounting, objects
from wattflow.kube.filters import interpod, selectors, snapshot, spread

_MOST = 256
_STAMP, _NODE = operator.attrgetter("stamp"), operator.attrgetter("node")
Ints = NDArray[np.int64]
Value = Callable[[snapshot.NodeView], int]


@dataclass(slots=True)
class Columns:
    """Nodes of a cluster as rows, in the cluster's order. `refresh` first: rows are those of the last call.

    Attributes:
        marks: Another number for a row after every change of its node or of the pods there.
    """

    cluster: snapshot.Snapshot
    views: list[snapshot.NodeView] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)
    marks: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _mark: int = 0
    _nodes: list[objects.Node] = field(default_factory=list)
    _stamps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _kept: OrderedDict[object, tuple[Ints, Ints]] = field(default_factory=OrderedDict)
    _domains: dict[str, dict[str, int]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Look which nodes changed. O(nodes), but without a Python step for each that did not."""
        views = list(self.cluster.nodes.values())
        nodes = list(map(_NODE, views))
        stamps = np.fromiter(map(_STAMP, views), np.int64, len(views))
        self._mark += 1
        if len(views) != len(self.views) or not all(map(operator.is_, views, self.views)):
            self.clear()
            self.views, self.names = views, list(self.cluster.nodes)
            self.row = {name: i for i, name in enumerate(self.names)}
            self.marks = np.full(len(views), self._mark)
        else:
            changed = stamps != self._stamps
            # By identity: a changed node is another object (`Book.on_node`).
            if not all(map(operator.is_, nodes, self._nodes)):
                changed |= [new is not old for new, old in zip(nodes, self._nodes, strict=True)]
            self.marks[changed] = self._mark
        self._nodes, self._stamps = nodes, stamps

    def of(self, what: object, value: Value) -> Ints:
        """Return a number for each row; asked for only where the row has changed since it was told last."""
        if what not in self._kept and len(self._kept) >= _MOST:
            # The least recently used; what pods ask about repeats, since pods come from few templates.
            self._kept.popitem(last=False)
        if what not in self._kept:
            self._kept[what] = np.zeros(len(self.views), np.int64), np.zeros(len(self.views), np.int64)
        self._kept.move_to_end(what)
        found, marks = self._kept[what]
        stale = np.flatnonzero(marks != self.marks)
        for i in stale.tolist():
            found[i] = value(self.views[i])
        marks[stale] = self.marks[stale]
        return found

    def domains(self, key: str) -> Ints:
        """Return a number for each value of a label, -1 where a node has none."""
        codes = self._domains.setdefault(key, {})

        def code(view: snapshot.NodeView) -> int:
            value = view.labels.get(key)
            return -1 if value is None else codes.setdefault(value, len(codes))

        return self.of(("domain", key), code)

    def matching(self, selector: objects.LabelSelector | None, namespace: str) -> Ints:
        """Count as `spread.matching` does."""
        what = ("spread", namespace, msgspec.json.encode(selector))
        return self.of(what, lambda view: spread.matching(view, selector, namespace))

    def clear(self) -> None:
        """Forget all numbers: something else than nodes and their pods has changed."""
        self._kept.clear()
        self._domains.clear()


HIGHEST = 100
TAINT, NODE_AFFINITY, SPREAD, INTERPOD, ROOM, BALANCE = 3, 2, 2, 2, 1, 1
"""Weights of the default profile."""
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SYSTEM_DEFAULT = ((HOSTNAME, 3), (ZONE, 5))
"""Keys and greatest skews by which replicas are spread that name no constraint."""
_NO_CPU_M, _NO_MEMORY = 100, 200 << 20
"""Request assumed of a container without one where free room is scored."""
Views = Sequence[snapshot.NodeView]


def of_taints(pod: objects.Pod, views: Views) -> list[int]:
    """Fewer points the more ``PreferNoSchedule`` taints are not tolerated: 100 − 100 · count / most."""
    counts = [soft_taints(pod, view.node.spec.taints) for view in views]
    most = max(counts)
    # Whole numbers, divided as Go divides them: rounding must be kube-scheduler's.
    return [HIGHEST - (HIGHEST * count // most if most else 0) for count in counts]


def soft_taints(pod: objects.Pod, found: Sequence[objects.Taint]) -> int:
    """Count the ``PreferNoSchedule`` taints that a pod does not tolerate."""
    soft = [one for one in found if one.effect == "PreferNoSchedule"]
    return sum(not any(selectors.tolerates(one, taint) for one in pod.spec.tolerations) for taint in soft)


def of_node_affinity(pod: objects.Pod, views: Views) -> list[int]:
    """Sum of the weights of the preferred terms that a node meets: 100 · sum / most."""
    terms = preferred_nodes(pod)
    sums = [sum(one.weight for one in terms if selectors.node_term(one.preference, view.node)) for view in views]
    most = max(sums)
    return [HIGHEST * value // most if most else 0 for value in sums]


def preferred_nodes(pod: objects.Pod) -> list[objects.PreferredNode]:
    """Return the preferred terms that count: those with a weight and something asked."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return []
    return [
        one for one in affinity.node_affinity.preferred
        if one.weight and (one.preference.match_expressions or one.preference.match_fields)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spreading:
    """Soft constraints of a pod.

    Attributes:
        whole: Nodes must have the labels of all constraints, or get no points; not so for the system's default.
        included: Tells which nodes' domains count for a constraint.
    """

    constraints: Sequence[objects.SpreadConstraint]
    whole: bool
    included: Callable[[objects.SpreadConstraint], Ints]

    @classmethod
    def of(
        cls,
        pod: objects.Pod,
        replicas: objects.LabelSelector | None,
        included: Callable[[objects.SpreadConstraint], Ints],
    ) -> Spreading | None:
        """Return the pod's own, or those of replicas that name none; None where there are none."""
        if pod.spec.topology_spread_constraints:
            own = spread.soft(pod)
            return cls(own, True, included) if own else None
        if replicas is None:
            return None
        made = [
            objects.SpreadConstraint(
                max_skew=skew, topology_key=key, when_unsatisfiable="ScheduleAnyway", label_selector=replicas
            )
            for key, skew in SYSTEM_DEFAULT
        ]
        return cls(made, False, included)


def of_spread(pod: objects.Pod, table: Columns, rows: Ints, spreading: Spreading) -> Ints:
    """Fewer points the more pods alike are in a node's domains: 100 · (most + least − s) / most.

    s sums over the constraints: pods in the domain · ln(domains + 2) + greatest skew − 1, rounded.
    """
    rules = spreading.constraints
    codes = [table.domains(rule.topology_key) for rule in rules]
    # Ignored nodes get 0 points, but are not among those that set most and least.
    counted = (
        np.logical_and.reduce([code >= 0 for code in codes]) if spreading.whole else np.ones(len(table.views), bool)
    )
    ignored = ~counted[rows]
    kept = rows[~ignored]
    sums = np.zeros(len(rows))
    for rule, code in zip(rules, codes, strict=True):
        count = table.matching(spread.selector_of(rule, pod), pod.metadata.namespace)
        if rule.topology_key == HOSTNAME:
            alike, domains = count[rows], len(kept)
        else:
            here = counted & (spreading.included(rule) != 0)
            # Nodes without the label (-1) are a domain of their own.
            per = np.bincount(code[here] + 1, count[here], code.max(initial=-1) + 2)
            alike, domains = per[code[rows] + 1], len(np.unique(code[kept]))
        # Two more than the domains, so that the logarithm is positive for one domain as well.
        sums += np.where(code[rows] >= 0, alike * math.log(domains + 2) + rule.max_skew - 1, 0.0)
    # Halves go up, as Go's math.Round does for positive values.
    return _fewest_best(np.floor(sums + 0.5).astype(np.int64), ignored)


def _fewest_best(sums: Ints, ignored: NDArray[np.bool_]) -> Ints:
    kept = sums[~ignored]
    most, least = int(kept.max(initial=0)), int(kept.min()) if len(kept) else 0
    # No pod alike anywhere: all nodes are equally good.
    found = np.full(len(sums), HIGHEST) if most == 0 else HIGHEST * (most + least - sums) // most
    return np.where(ignored, 0, found)


Pairs = Mapping[interpod.Pair, int]


def of_neighbours(views: Views, weights: Pairs) -> list[int]:
    """Points by the summed weights of a node's domains (`neighbours`): 100 · (s − least) / (most − least)."""
    keys = {key for key, _ in weights}
    sums = [sum(weights.get((key, view.labels[key]), 0) for key in keys if key in view.labels) for view in views]
    least, most = min(sums), max(sums)
    # Towards zero, as a conversion to int64 in Go.
    return [int(HIGHEST * ((value - least) / (most - least))) if most > least else 0 for value in sums]


def of_room(amounts: accounting.Amounts, pod: objects.Pod, views: Views) -> list[int]:
    """Mean of the free parts of processor and memory with the pod there (``LeastAllocated``)."""
    wanted = _at_least_usual(amounts, pod)
    found = []
    for view in views:
        parts = []
        for name in (accounting.CPU, accounting.MEMORY):
            all_of = view.allocatable.get(name, 0)
            if all_of:
                # With something assumed for containers that request nothing: else empty requests would look free.
                used = wanted[name] + sum(_at_least_usual(view.taken[uid], one)[name] for uid, one in view.pods.items())
                parts.append((all_of - used) * HIGHEST // all_of if used <= all_of else 0)
        found.append(sum(parts) // len(parts) if parts else 0)
    return found


def _at_least_usual(amounts: accounting.Amounts, pod: objects.Pod) -> accounting.Amounts:
    """A pod's processor and memory, with something for each container that requests none."""
    found = {name: amounts.get(name, 0) for name in (accounting.CPU, accounting.MEMORY)}
    if pod.spec.resources is None:
        for one in pod.spec.containers:
            asked = one.resources.requests
            found[accounting.CPU] += 0 if accounting.CPU in asked else _NO_CPU_M
            found[accounting.MEMORY] += 0 if accounting.MEMORY in asked else _NO_MEMORY
    return found


def of_balance(amounts: accounting.Amounts, views: Views) -> list[int]:
    """How much the pod evens out the used parts of processor and memory: 75 where it changes nothing."""
    if not amounts.get(accounting.CPU) and not amounts.get(accounting.MEMORY):
        # A pod that requests neither changes no balance, and kube-scheduler skips the plugin.
        return [0] * len(views)
    half, found = HIGHEST // 2, []
    for view in views:
        after = _evenness(view, amounts)
        found.append(half + int((half + after - _evenness(view, {})) / 2))
    return found


def _evenness(view: snapshot.NodeView, more: accounting.Amounts) -> int:
    parts = [
        # More than all is no more than full.
        min(1.0, (view.requested.get(name, 0) + more.get(name, 0)) / view.allocatable[name])
        for name in (accounting.CPU, accounting.MEMORY)
        if view.allocatable.get(name, 0)
    ]
    # The standard deviation of two numbers is half of their distance.
    apart = abs(parts[0] - parts[1]) / 2 if len(parts) == 2 else 0.0
    return int((1 - apart) * HIGHEST)
