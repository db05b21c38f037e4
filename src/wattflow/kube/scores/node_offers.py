"""Which nodes a pod with preferences is offered: those whose scores are near the best; joules decide among them.

``joules`` says how near: 0 offers only the best nodes by all of kube-scheduler's scores, free room included; 1 all that
can take the pod; 0.1 those within a tenth of the way from the best node's points to the worst one's. Scores depend on
where the pods before it went, so pods that count one another take turns: one of them is offered nodes in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from wattflow.kube import accounting, gangs, objects
from wattflow.kube.client import Client
from wattflow.kube.filters import feasible, interpod, selectors, snapshot, spread
from wattflow.kube.reflect import DELETED, Mirror, Receiver
from wattflow.kube.scores import score_points as points
from wattflow.kube.scores.score_points import Columns, Ints

# Services and controllers of replicas: by which selector a pod is spread where it names no constraint itself.
#
# As kube-scheduler deduces it: the labels that the Services of the pod select by, and the selector of the ReplicaSet,
# StatefulSet or ReplicationController that owns it. Pods of Jobs, DaemonSets and workflows are not spread.

_OWNERS = {("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("v1", "ReplicationController")}
PATHS = {
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicationController": "/api/v1/replicationcontrollers",
}
SERVICES = "/api/v1/services"
RIGHTS = tuple(
    (group, resource, verb)
    for group, resource in (
        ("", "services"), ("", "replicationcontrollers"), ("apps", "replicasets"), ("apps", "statefulsets"),
    )
    for verb in ("list", "watch")
)  # fmt: skip
"""Rights it needs: group, resource, verb."""


@dataclass(slots=True)
class Replicas:
    """Selectors of pods that serve together. Empty until `mirrors` are followed."""

    _services: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], objects.LabelSelector] = field(default_factory=dict)
    followed: bool = False

    def mirrors(self, client: Client) -> list[Mirror[objects.Service] | Mirror[objects.Replicas]]:
        """Return what keeps this up to date."""
        self.followed = True
        found: list[Mirror[objects.Service] | Mirror[objects.Replicas]] = [
            Mirror(client, path, objects.Replicas, self.on_owner(kind), optional=True) for kind, path in PATHS.items()
        ]
        return [Mirror(client, SERVICES, objects.Service, self.on_service, optional=True), *found]

    def on_service(self, change: str, service: objects.Service) -> None:
        """Take up a Service; one without a selector selects nothing."""
        about = service.metadata
        known = self._services.setdefault(about.namespace, {})
        # A Service without a selector has its endpoints from elsewhere.
        if change == DELETED or not service.spec.selector:
            known.pop(about.name, None)
        else:
            known[about.name] = service.spec.selector

    def on_owner(self, kind: str) -> Receiver[objects.Replicas]:
        """Return a receiver of controllers of one kind."""

        def receive(change: str, owner: objects.Replicas) -> None:
            if change == DELETED:
                self._owners.pop((kind, owner.key), None)
            else:
                self._owners[kind, owner.key] = _selector(kind, owner)

        return receive

    def awaited(self, pod: objects.Pod) -> bool:
        """Tell whether the pod's controller must exist and has not been seen: watches do not keep order."""
        owner = _controller(pod)
        # Only what is followed can be awaited.
        return self.followed and owner is not None and owner not in self._owners

    def selector(self, pod: objects.Pod) -> objects.LabelSelector | None:
        """Return the selector of the pods that serve with this one, or None."""
        labels = pod.metadata.labels
        together: dict[str, str] = {}
        for wanted in self._services.get(pod.metadata.namespace, {}).values():
            # Labels of several Services are joined, as kube-scheduler's DefaultSelector does.
            if all(labels.get(key) == value for key, value in wanted.items()):
                together |= wanted
        owner = _controller(pod)
        own = self._owners.get(owner) if owner is not None else None
        if own is None:
            return objects.LabelSelector(match_labels=together) if together else None
        # as an expression each, so that one which contradicts a Service's selects nothing
        exact = [objects.Requirement(key=key, operator="In", values=[value]) for key, value in own.match_labels.items()]
        both = objects.LabelSelector(match_labels=together, match_expressions=[*exact, *own.match_expressions])
        return None if selectors.is_empty(both) else both


def _controller(pod: objects.Pod) -> tuple[str, str] | None:
    owners = [one for one in pod.metadata.owner_references if one.controller]
    if not owners or (owners[0].api_version, owners[0].kind) not in _OWNERS:
        return None
    return owners[0].kind, f"{pod.metadata.namespace}/{owners[0].name}"


def _selector(kind: str, owner: objects.Replicas) -> objects.LabelSelector:
    raw = owner.spec.selector
    if kind == "ReplicationController":
        return objects.LabelSelector(match_labels=msgspec.convert(raw, dict[str, str]))
    return msgspec.convert(msgspec.to_builtins(raw), objects.LabelSelector)


_HARD_WEIGHT = 1
"""Weight of a required affinity term of a pod that runs, for one that it selects."""
_OWNER_S = 2.0
"""How long a pod waits for its controller to be seen."""
_PATIENCE_S = 10.0
"""How long a pod is offered only a part of the nodes: preferences are wishes, they keep nobody waiting."""
Weighted = tuple[int, Ints]


@dataclass(slots=True)
class Offers:
    """Preferences of pods over one cluster.

    Attributes:
        capped: What of a node's room may be used; ``caps``: the nodes of which that may be less than all.
        serves: Which nodes are ours; None where all are.
        fond: Placed pods, with their nodes, whose terms may draw others near or keep them off.
    """

    cluster: snapshot.Snapshot
    joules: float = 1.0
    capped: Callable[[str, accounting.Amounts], accounting.Amounts] = lambda name, amounts: amounts
    serves: Callable[[], Callable[[objects.Node], bool] | None] = lambda: None
    replicas: Replicas = field(default_factory=Replicas)
    caps: Callable[[], Collection[str]] = tuple
    table: Columns = field(init=False)
    fond: dict[str, tuple[objects.Pod, str]] = field(default_factory=dict)
    _soft: dict[str, list[objects.Taint]] = field(default_factory=dict)
    _queue: dict[str, tuple[objects.Pod, float, object]] = field(default_factory=dict)
    _offered_s: dict[str, float] = field(default_factory=dict)
    _names: object = None

    def __post_init__(self) -> None:
        self.table = Columns(self.cluster)

    # what happens

    def on_node(self, kind: str, node: objects.Node) -> None:
        """Know the soft taints."""
        soft = [one for one in node.spec.taints if one.effect == "PreferNoSchedule"]
        if soft and kind != DELETED:
            self._soft[node.metadata.name] = soft
        else:
            self._soft.pop(node.metadata.name, None)

    def placed(self, pod: objects.Pod, node: str) -> None:
        """A pod is on a node, or on its way."""
        if interpod.affinity_terms(pod) or interpod.preferred_terms(pod):
            self.fond[pod.metadata.uid] = (pod, node)

    def left(self, uid: str) -> None:
        """It is on none any more."""
        self.fond.pop(uid, None)

    # turns

    def concern(self, pod: objects.Pod) -> bool:
        """Tell whether scores may matter to a pod. Gangs are placed as one and stay with joules."""
        if self.joules >= 1 or gangs.gang_of(pod) is not None:
            return False
        if points.preferred_nodes(pod) or interpod.preferred_terms(pod) or spread.soft(pod):
            return True
        if any(one.kind == "Workflow" for one in pod.metadata.owner_references):
            return False  # whose structure the engine follows; soft taints decide among equal nodes there
        if not pod.spec.topology_spread_constraints and (self.replicas.awaited(pod) or self.replicas.selector(pod)):
            return True
        return any(points.soft_taints(pod, soft) for soft in self._soft.values()) or self._liked(pod)

    def _liked(self, pod: objects.Pod) -> bool:
        names = self.cluster.namespaces
        return any(
            interpod.selects(term, other, pod, names) for other, _ in self.fond.values() for _, term in _terms(other)
        )

    def queue(self, pod: objects.Pod, now_s: float) -> None:
        """Have a pod wait for its turn; one that waits already keeps its place."""
        uid = pod.metadata.uid
        # A pod that is queued again (its wishes changed) does not go to the end.
        since_s = self._queue[uid][1] if uid in self._queue else now_s
        # scores of free room concern all, those of pods alike only them
        self._queue[uid] = (pod, since_s, None if self.joules == 0 else self._alike(pod))

    def _alike(self, pod: objects.Pod) -> object:
        """Tell by what pods count one another: their controller, else what they are spread by or drawn to.

        Not by labels: pods of one Service or StatefulSet may each have one of their own, their name or their number.
        """
        owner = next((one.uid for one in pod.metadata.owner_references if one.controller), "")
        counted = [self.replicas.selector(pod), spread.soft(pod), interpod.preferred_terms(pod)]
        told = counted if any(counted) else sorted(pod.metadata.labels.items())
        return owner or (pod.metadata.namespace, msgspec.json.encode(told))

    def due(self, now_s: float) -> list[str]:
        """Pods whose turn it is: of those alike the one of highest priority that has waited longest."""
        turns: dict[object, tuple[int, str]] = {}
        for uid, (pod, since_s, alike) in self._queue.items():
            if self._early(pod, since_s, now_s):
                continue
            first = turns.get(alike)
            # First in the queue wins among equals: dicts keep the order.
            if first is None or pod.spec.priority > first[0]:
                turns[alike] = (pod.spec.priority, uid)
        for _, uid in turns.values():
            del self._queue[uid]
        # Whoever was offered a part of the nodes for too long is offered all.
        late = [uid for uid, at_s in self._offered_s.items() if now_s - at_s >= _PATIENCE_S and uid not in self._queue]
        return list(dict.fromkeys([*(uid for _, uid in turns.values()), *late]))

    def _early(self, pod: objects.Pod, since_s: float, now_s: float) -> bool:
        return now_s - since_s < _OWNER_S and self.replicas.awaited(pod)

    def waits(self, now_s: float) -> bool:
        """Tell whether a pod's turn could come at once."""
        return any(not self._early(pod, since_s, now_s) for pod, since_s, _ in self._queue.values())

    def forget(self, uid: str) -> None:
        """A pod is placed, or wants no place."""
        self._queue.pop(uid, None)
        self._offered_s.pop(uid, None)

    # scores

    def nodes(
        self, pod: objects.Pod, amounts: accounting.Amounts, among: tuple[str, ...] | None, now_s: float
    ) -> tuple[str, ...] | None:
        """Return the nodes to offer a pod, of those that filters left (None: all); as they came where none could."""
        uid = pod.metadata.uid
        self.table.refresh()
        rows = self._feasible(pod, amounts, among)
        if not len(rows) or now_s - self._offered_s.setdefault(uid, now_s) >= _PATIENCE_S:
            if not len(rows):
                self._offered_s.pop(uid, None)
            return among
        given = self.scores(pod, amounts, rows)
        if not given:
            return among
        totals = np.sum([weight * found for weight, found in given], axis=0)
        # Of what tells these nodes apart, not of all points there are: the more replicas run, the fewer points one of
        # them is worth, so a fixed number of points would come to allow for several too many in a zone.
        enough = totals.max() - self.joules * (totals.max() - totals.min())
        near = rows[totals >= enough].tolist()
        # Everything is near: no narrowing, and no list of nodes for the engine.
        return among if len(near) == len(rows) else tuple(map(self.table.names.__getitem__, near))

    def scores(self, pod: objects.Pod, amounts: accounting.Amounts, rows: Ints) -> list[Weighted]:
        """Return the points of each kind that tells some nodes from others, with the weight of the kind."""
        found: list[tuple[int, Sequence[int] | Ints]] = []
        weights, preferred = self.neighbours(pod), points.preferred_nodes(pod)
        views: list[snapshot.NodeView] = []
        if self._soft or weights or preferred or self.joules == 0:
            views = [self.table.views[i] for i in rows.tolist()]
        if self._soft:
            found.append((points.TAINT, points.of_taints(pod, views)))
        if preferred:
            found.append((points.NODE_AFFINITY, points.of_node_affinity(pod, views)))
        spreading = points.Spreading.of(pod, self.replicas.selector(pod), lambda rule: self._included(pod, rule))
        if spreading is not None:
            found.append((points.SPREAD, points.of_spread(pod, self.table, rows, spreading)))
        if weights:
            found.append((points.INTERPOD, points.of_neighbours(views, weights)))
        if self.joules == 0:
            found.append((points.ROOM, points.of_room(amounts, pod, views)))
            found.append((points.BALANCE, points.of_balance(amounts, views)))
        # A kind that gives all nodes the same points decides nothing.
        told = [(weight, np.asarray(each, np.int64)) for weight, each in found]
        return [(weight, each) for weight, each in told if each.min() < each.max()]

    def neighbours(self, pod: objects.Pod) -> points.Pairs:
        """Weights by topology pair: what the pod's preferred terms find, and the terms of others that find the pod."""
        # Counts by terms with namespace selectors depend on labels of namespaces.
        if self._names is not self.cluster.namespaces:
            self._names = self.cluster.namespaces
            self.table.clear()
        weights: dict[interpod.Pair, int] = {}
        for weight, term in interpod.preferred_terms(pod):
            count = self._meeting(pod, term)
            for i in np.flatnonzero(count).tolist():
                _add(weights, self.table.views[i], term.topology_key, weight * int(count[i]))
        for other, name in self.fond.values():
            for weight, term in _terms(other) if name in self.cluster.nodes else ():
                if interpod.selects(term, other, pod, self.cluster.namespaces):
                    _add(weights, self.cluster.nodes[name], term.topology_key, weight)
        return weights

    def _meeting(self, pod: objects.Pod, term: objects.PodAffinityTerm) -> Ints:
        """Count the pods of each node that a term of a newcomer speaks of."""
        names = self.cluster.namespaces

        def count(view: snapshot.NodeView) -> int:
            return sum(interpod.selects_as_newcomer(term, pod, other, names) for other in view.pods.values())

        return self.table.of(("term", pod.metadata.namespace, msgspec.json.encode(term)), count)

    def _feasible(self, pod: objects.Pod, amounts: accounting.Amounts, among: tuple[str, ...] | None) -> Ints:
        """Return the rows of nodes that could take a pod, in the order of ``among``."""
        table, wanted = self.table, tuple(amounts.items())
        fits = table.of(("room", wanted), lambda view: _has_room(wanted, view.allocatable, view.requested)) != 0
        for name in self.caps():  # caps change without a change of the node
            row = table.row.get(name)
            if row is not None:
                view = table.views[row]
                fits[row] = _has_room(wanted, self.capped(name, view.allocatable), view.requested)
        what = ("standing", _standing_wishes(pod))
        fits &= table.of(what, lambda view: feasible.standing(pod, view.node) is None) != 0
        rows = np.flatnonzero(fits)
        if among is not None:
            asked = np.array([table.row[name] for name in among], np.int64)
            rows = asked[fits[asked]]
        serves = self.serves()
        if serves is not None:
            rows = rows[np.array([serves(table.views[i].node) for i in rows.tolist()], bool)]
        return rows

    def _included(self, pod: objects.Pod, rule: objects.SpreadConstraint) -> Ints:
        what = ("included", _standing_wishes(pod), rule.node_affinity_policy, rule.node_taints_policy)
        return self.table.of(what, lambda view: spread.included(rule, pod, view.node))


def _has_room(wanted: Iterable[tuple[str, int]], room: accounting.Amounts, used: accounting.Amounts) -> bool:
    return all(value <= room.get(key, 0) - used.get(key, 0) for key, value in wanted)


def _standing_wishes(pod: objects.Pod) -> bytes:
    """All of a pod that says which nodes it may use by themselves."""
    spec = pod.spec
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return msgspec.json.encode([spec.node_name, spec.node_selector, required, spec.tolerations])


def _terms(pod: objects.Pod) -> list[tuple[int, objects.PodAffinityTerm]]:
    """Terms of a placed pod that speak of newcomers, with their weights."""
    return [*interpod.preferred_terms(pod), *((_HARD_WEIGHT, term) for term in interpod.affinity_terms(pod))]


def _add(weights: dict[interpod.Pair, int], view: snapshot.NodeView, key: str, weight: int) -> None:
    value = view.labels.get(key)
    if value is not None and weight:
        weights[key, value] = weights.get((key, value), 0) + weight
