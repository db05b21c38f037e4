"""Keep what is known of the cluster: nodes, every pod on them whoever bound it, our waiting pods, what is assumed.

Watches write here; the decider is told what it must know. An assumed pod counts on its node from the moment of the
decision, so nothing is given away twice while a binding is on its way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from wattflow.kube import accounting, changes, gangs, gpus, objects, power
from wattflow.kube.decider_port import Decider, Wanted
from wattflow.kube.filters import feasible, interpod, snapshot, volumes
from wattflow.kube.grouping import Groups, Rules
from wattflow.kube.last_look import KEPT, LastLook, Nominations, costs_one_pod
from wattflow.kube.reflect import DELETED
from wattflow.kube.scores.node_offers import Offers
from wattflow.model.profile import PowerProfile

log = logging.getLogger(__name__)
PowerOf = Callable[[objects.Node], PowerProfile | None]


def _everywhere(node: objects.Node) -> bool:
    return True


@dataclass(slots=True)
class Record:
    """A pod on a node. ``held`` means that the decider accounts it; ``assumed`` that its binding is not seen yet."""

    pod: objects.Pod
    node: str
    amounts: accounting.Amounts
    held: bool
    assumed: bool


@dataclass(slots=True)
class Book:
    """The scheduler's view of the cluster.

    Attributes:
        waiting: Our pods without a node, by uid.
        refused: Of those, the ones that we do not place at all, with the reason.
        gated: Our pods with a scheduling gate.
        kept: Our pods that are not to be placed yet, as `keeps_back` says.
        claimed: Set when a pod of ours names a volume claim; `wattflow.kube.storage` follows them from then on.
        asked_devices: Set when one names a claim of devices; `wattflow.kube.dra` follows these.
        serves: Whether a node is one that we may use; others only count for rules between pods.
        live: Whether the decider is told. One who waits for the lease only keeps book, until `begin`.
        version: Rises with every change that filters which count pods may feel.
        nominated: Pods that room is kept for, by uid.
        not_before_s: Pods whose binding was refused, and when they may be looked at again.
        offers: What pods prefer, and who is offered which nodes therefore.
    """

    decider: Decider
    owns: Callable[[objects.Pod], bool]
    power_of: PowerOf
    estimate_of: Callable[[objects.Pod], float | None] = lambda pod: None
    keeps_back: Callable[[objects.Pod], bool] = lambda pod: False
    serves: Callable[[objects.Node], bool] = _everywhere
    cluster: snapshot.Snapshot = field(default_factory=lambda: snapshot.Snapshot({}, {}))
    waiting: dict[str, objects.Pod] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    kept: dict[str, objects.Pod] = field(default_factory=dict)
    gated: dict[str, objects.Pod] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    claimed: asyncio.Event = field(default_factory=asyncio.Event)
    asked_devices: asyncio.Event = field(default_factory=asyncio.Event)
    version: int = 0
    live: bool = True
    offers: Offers = field(init=False)
    nominated: Nominations = field(default_factory=Nominations)
    not_before_s: dict[str, float] = field(default_factory=dict)
    _now_s: float = 0.0
    _by_node: dict[str, set[str]] = field(default_factory=dict)
    _dirty: set[str] = field(default_factory=set)
    _last: LastLook = field(init=False)
    _claiming: set[str] = field(default_factory=set)
    _doubted: set[str] = field(default_factory=set)
    _groups: Groups = field(default_factory=Groups)
    _rules: dict[str, Rules] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)  # -1: asks the filters again
    _amounts: dict[str, accounting.Amounts] = field(default_factory=dict)
    _answers: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    _answered: int = -1

    def __post_init__(self) -> None:
        # late: frames set it
        self.offers = Offers(self.cluster, serves=lambda: None if self.serves is _everywhere else self.serves)
        self._last = LastLook(self.cluster, self.nominated)

    # what watches say

    def on_node(self, kind: str, node: objects.Node) -> None:
        """A node came, changed or went."""
        name = node.metadata.name
        self.version += 1
        self.offers.on_node(kind, node)
        if kind == DELETED:
            self.cluster.nodes.pop(name, None)
            if self.live:
                self.decider.drop_node(name)
            self._let_go(name)
            return
        view = self.cluster.nodes.get(name)
        if view is None:
            pods = [self.records[uid].pod for uid in self._by_node.get(name, ())]
            self.cluster.nodes[name] = view = snapshot.NodeView.of(node, pods)
            self._dirty.add(name)
        elif not changes.matters(view.node, node):
            view.node = node
            return
        served = self.serves(view.node)
        view.node = node
        view.allocatable = accounting.node_allocatable(node)
        if served and not self.serves(node) and self.live:
            self.decider.drop_node(name)
            self._let_go(name)
        self.tell_node(view)

    def on_pod(self, kind: str, pod: objects.Pod) -> None:
        """A pod came, changed or went."""
        if kind == DELETED or pod.ended:
            self._leave(pod.metadata.uid)
        elif pod.spec.node_name:
            self._bound(pod)
        else:
            self._unbound(pod)

    def on_namespace(self, kind: str, namespace: objects.Namespace) -> None:
        """Labels of namespaces, which affinity terms may select by."""
        names = {name: labels for name, labels in self.cluster.namespaces.items() if name != namespace.metadata.name}
        if kind != DELETED:
            names[namespace.metadata.name] = namespace.metadata.labels
        self.cluster.namespaces = names
        self.version += 1

    def storage_changed(self, concerns: Callable[[objects.Pod], bool]) -> None:
        """Claims, volumes or devices are others now: pods that wait and are concerned are looked at again."""
        self.version += 1
        listed = self.cluster.storage is not None or self.cluster.devices is not None
        for uid in sorted(self._claiming) if listed else ():
            pod = self.waiting.get(uid)
            if pod is None:
                self._claiming.discard(uid)
            elif concerns(pod):
                self._want(pod)

    # what the scheduler does

    def begin(self, pods: Iterable[objects.Pod], left_s: Callable[[objects.Pod], float | None], now_s: float) -> int:
        """Tell the decider all that is known, our pods that run already among it; how many of those it holds."""
        self.live = True
        for view in self.cluster.nodes.values():
            self.tell_node(view)
        self.decider.past([pod for pod in pods if pod.status.phase == "Succeeded" and self.owns(pod)])
        ours = [record for record in self.records.values() if not record.held and self.owns(record.pod)]
        rules = {record.pod.metadata.uid: self._rules_of(record.pod) for record in ours}
        running = [
            (Wanted(one.pod, one.amounts, None, left_s(one.pod), rules[one.pod.metadata.uid]), one.node) for one in ours
        ]
        held = self.decider.adopt(running, now_s) if running else set()
        for record in ours:
            uid = record.pod.metadata.uid
            if uid in held:
                record.held, self._rules[uid] = True, rules[uid]
            self._count(record)
        self._dirty.update(name for name, uids in self._by_node.items() if uids)
        for pod in list(self.waiting.values()):
            self._want(pod)
        return len(held)

    def tell_node(self, view: snapshot.NodeView) -> None:
        """Tell the decider of a node as it is now, if it is one of ours."""
        if self.live and self.serves(view.node):
            self.decider.set_node(view.node, view.allocatable, self.power_of(view.node))

    def assume(self, uid: str, node: str) -> str | None:
        """Count a chosen pod on its node; returns the reason where it must not go there after all."""
        pod, view = self.waiting.get(uid), self.cluster.nodes.get(node)
        if pod is None or view is None or not self.serves(view.node):
            return "the pod or the node is gone"
        amounts = self._amounts.get(uid) or accounting.pod_requests(pod)
        reason = self._last.against(pod, amounts, view) or self.cluster.assume(pod, view.node)
        if reason is not None:
            # The engine has counted otherwise, or knows nothing of kept room: it would choose the same node again.
            if uid in self._rules and (reason == KEPT or not self._unsure(pod)):
                self._doubted.add(uid)
                self._counted[uid] = -1
            return reason
        del self.waiting[uid]
        self.nominated.pop(uid, None)
        self._amounts.pop(uid, None)
        self._counted.pop(uid, None)
        self.offers.forget(uid)
        asked = gpus.wish(pod)
        if asked is not None:
            pod = changes.noted(pod, {gpus.INDEX: str(gpus.place(view.node, view.gpus, asked))})
        self._put(Record(pod, node, amounts, held=True, assumed=True))
        return None

    def start_together(self, uids: Iterable[str]) -> None:
        """Note in assumed pods of a gang which start together, so that a later run of us can tell them from others."""
        records = [self.records[uid] for uid in uids]
        newest = gangs.newest(record.pod for record in records)
        for record in records:
            record.pod = changes.noted(record.pod, {gangs.STARTED: newest})

    def forget(self, uid: str, now_s: float) -> None:
        """Undo an assumption: the binding was refused."""
        record = self.records.get(uid)
        if record is not None and record.assumed:
            self._take(uid)
            self.waiting[uid] = record.pod = changes.noted(record.pod, {gpus.INDEX: None, gangs.STARTED: None})
            self.since_s.setdefault(uid, now_s)
            if self._unsure(record.pod) or self.offers.concern(record.pod):
                self._counted[uid] = -1
            if not record.held:  # its node went meanwhile, and with it what the decider knew of the pod
                self._want(record.pod)

    def against(self, record: Record) -> str | None:
        """The reason why an assumed pod must not go to its node after all, by what is known now."""
        view = self.cluster.nodes.get(record.node)
        if view is None or not record.assumed:
            return "the pod or the node is gone"
        view.remove(record.pod.metadata.uid)
        try:
            return self._last.against(changes.noted(record.pod, {gpus.INDEX: None}), record.amounts, view)
        finally:
            view.add(record.pod, record.amounts)

    def unkeep(self, uid: str) -> None:
        """Keep no room for a pod any more; whoever it was kept from is asked for again."""
        if self.nominated.pop(uid, None) is not None:
            self.version += 1

    def look_again(self) -> None:
        """Pods that were kept back may go now."""
        for pod in list(self.kept.values()):
            if pod.metadata.uid in self.kept:
                self._unbound(pod)

    def in_use(self, node: str, unless: Callable[[objects.Pod], bool]) -> bool:
        """Tell whether a pod is on the node, or on its way there, but for those of a kind."""
        return any(not unless(self.records[uid].pod) for uid in self._by_node.get(node, ()))

    def speed_of(self, node: str) -> float:
        """How fast a node is; 1 where it is not known."""
        view = self.cluster.nodes.get(node)
        return 1.0 if view is None else power.speed_of(view.node)

    def holds(self, node: str) -> bool:
        """Tell whether a pod of ours is on the node, or on its way there."""
        return any(self.owns(self.records[uid].pod) for uid in self._by_node.get(node, ()))

    def flush(self, now_s: float, most: int = 64) -> None:
        """Tell the decider what changed since the last step."""
        self._now_s = now_s
        for name in self._dirty & self.cluster.nodes.keys():
            self.decider.set_load(name, self._foreign(name))
        self._dirty.clear()
        stale = [
            uid for uid, seen in self._counted.items()
            if seen != self.version and self.not_before_s.get(uid, now_s) <= now_s
        ]  # fmt: skip
        for uid in stale[:most]:
            self._want(self.waiting[uid])
        for uid in self.offers.due(now_s):
            if uid in self.waiting:
                self._want(self.waiting[uid], turn=True)

    # inside

    def _unbound(self, pod: objects.Pod) -> None:
        uid = pod.metadata.uid
        wanted = self.owns(pod) and not pod.spec.scheduling_gates and pod.metadata.deletion_timestamp is None
        if uid in self.records:
            notes = self.records[uid].pod.metadata.annotations
            self.records[uid].pod = changes.noted(pod, {key: notes.get(key) for key in (gpus.INDEX, gangs.STARTED)})
            return
        if not wanted:
            self._unwant(uid)
            if self.owns(pod) and pod.spec.scheduling_gates:
                self.gated[uid] = pod
            return
        if self.keeps_back(pod):
            self._unwant(uid)
            self.kept[uid] = pod
            return
        self.kept.pop(uid, None)
        self.gated.pop(uid, None)
        known = self.waiting.get(uid)
        self.waiting[uid] = pod
        if known is None or changes.wishes(known) != changes.wishes(pod):
            self._want(pod)

    @costs_one_pod
    def _want(self, pod: objects.Pod, turn: bool = False) -> None:
        """Tell the decider of a pod's wish; one with preferences has to wait for its turn."""
        uid = pod.metadata.uid
        for named, event in ((volumes.claims(pod), self.claimed), (pod.spec.resource_claims, self.asked_devices)):
            if named:
                self._claiming.add(uid)
                event.set()
        reason = feasible.unsupported(pod, self.cluster) or gpus.wrong(pod)
        self.refused.pop(uid, None)
        if reason is not None:
            self.refuse(uid, reason)
        if reason is not None or not self.live:
            return
        prefers, nodes = self.offers.concern(pod), None
        if prefers and not turn:
            self._counted.pop(uid, None)
            self.decider.unwant(uid)  # else it might be placed by what its scores were before
            self.offers.queue(pod, self._now_s)
            return
        rules = self._rules[uid] = self._rules_of(pod)
        unsure = uid in self._doubted or self._groups.unsure(pod, rules)
        self._counted.pop(uid, None)
        if unsure or prefers:
            self._counted[uid] = self.version
        if unsure:
            nodes = self._taking(pod)
        amounts = self._amounts[uid] = accounting.pod_requests(pod)
        if prefers:
            nodes = self.offers.nodes(pod, amounts, nodes, self._now_s)
        self.decider.want(Wanted(pod, amounts, nodes, self.estimate_of(pod), rules))

    def refuse(self, uid: str, reason: str) -> None:
        """Place a waiting pod nowhere until something of it changes."""
        self.refused[uid] = reason
        self._counted.pop(uid, None)
        self.offers.forget(uid)
        self.decider.unwant(uid)

    def _taking(self, pod: objects.Pod) -> tuple[str, ...]:
        """Return the nodes that the filters which count pods accept.

        Pods that are alike come by the thousand, and each answer costs a look at all pods: one stands for all of them
        until something changes.
        """
        key = feasible.alike(pod) if not self.nominated else None
        if self._answered != self.version:
            self._answers.clear()
            self._answered = self.version
        if key is not None and key in self._answers:
            return self._answers[key]
        asked = feasible.Question.of(pod, self.cluster)
        kept, views = self.nominated.keep_off, self.cluster.nodes.items()
        free = [(name, view) for name, view in views if not self.nominated or not kept(pod, asked.requests, view)]
        nodes = tuple(name for name, view in free if feasible.counted_against(asked, view) is None)
        if key is not None:
            self._answers[key] = nodes
        return nodes

    def _rules_of(self, pod: objects.Pod) -> Rules:
        """Return what the engine counts for a pod; waiting pods of a group that has a name only now are told anew.

        Parts of a gang are placed as one task, so they stay with the filters.
        """
        if gangs.gang_of(pod) is not None:
            return Rules(whole=not feasible.is_counted(pod))
        new = self._groups.register(pod, self.owns(pod))
        if new:
            for record in self.records.values():
                self._count(record, new)
            for other in self._groups.members(new, self.waiting.values()):
                if other.metadata.uid != pod.metadata.uid and other.metadata.uid in self._rules:
                    self._counted[other.metadata.uid] = -1
        return self._groups.rules(pod)

    def _unsure(self, pod: objects.Pod) -> bool:
        """Tell whether the filters that count pods must be asked."""
        return self._groups.unsure(pod, self._rules.get(pod.metadata.uid) or self._rules_of(pod))

    def _count(self, record: Record, names: Iterable[str] | None = None) -> None:
        """A pod is on a node: the engine counts it, or it is unseen, which concerns those that wait."""
        carried = self._rules.get(record.pod.metadata.uid) if record.held else None
        changed = self._groups.placed(record.pod, carried, names)
        if changed:
            for uid, rules in self._rules.items():
                if uid in self.waiting and not rules.named.union(rules.groups).isdisjoint(changed):
                    self._counted[uid] = -1

    def _let_go(self, node: str) -> None:
        """The decider no longer holds what is on a node."""
        for uid in self._by_node.get(node, ()):
            self.records[uid].held = False
            self._count(self.records[uid])

    def _unwant(self, uid: str) -> None:
        self.kept.pop(uid, None)
        self.gated.pop(uid, None)
        self.refused.pop(uid, None)
        self._counted.pop(uid, None)
        self.not_before_s.pop(uid, None)
        self.unkeep(uid)
        self.offers.forget(uid)
        self._drop_rules(uid)
        self._amounts.pop(uid, None)
        self.since_s.pop(uid, None)
        if self.waiting.pop(uid, None) is not None:
            self.decider.unwant(uid)

    def _bound(self, pod: objects.Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        record = self.records.get(uid)
        if record is not None and record.node != node:
            if record.held:
                self.decider.refused(uid, float("inf"))
                self.decider.unwant(uid)
            self._take(uid)
            self._drop_rules(uid)
            record = None
        if record is None:
            self._unwant(uid)
            self._put(Record(pod, node, accounting.pod_requests(pod), held=False, assumed=False))
            return
        amounts = record.amounts if changes.same_needs(record.pod, pod) else accounting.pod_requests(pod)
        relabelled = record.pod.metadata.labels != pod.metadata.labels
        leaving = record.pod.metadata.deletion_timestamp != pod.metadata.deletion_timestamp
        record.pod = pod
        if record.assumed:
            record.assumed = False
            self.since_s.pop(uid, None)
        if amounts != record.amounts:
            self._resize(uid, record, amounts)
        elif relabelled or leaving:
            self._put(record)

    def _resize(self, uid: str, record: Record, amounts: accounting.Amounts) -> None:
        record.amounts = amounts
        self._put(record)
        if record.held:
            self.decider.resized(uid, amounts)

    def _leave(self, uid: str) -> None:
        record = self.records.get(uid)
        if record is None:
            self._unwant(uid)
            return
        self._take(uid)
        self._drop_rules(uid)
        self.since_s.pop(uid, None)
        self.not_before_s.pop(uid, None)
        if record.held:
            self.decider.ended(uid)

    def _drop_rules(self, uid: str) -> None:
        self._rules.pop(uid, None)
        self._doubted.discard(uid)
        self._groups.forget(uid)

    def _put(self, record: Record) -> None:
        uid = record.pod.metadata.uid
        self.records[uid] = record
        self._by_node.setdefault(record.node, set()).add(uid)
        view = self.cluster.nodes.get(record.node)
        if view is not None:
            view.add(record.pod, record.amounts)
        shy = bool(interpod.anti_affinity_terms(record.pod))
        if shy:
            self._last.shy[uid] = record.pod
        if shy and uid not in self._rules:
            self._rules_of(record.pod)
        if shy or len(self._groups):  # tens of thousands come at a start, most of them plain
            self._count(record)
        self.offers.placed(record.pod, record.node)
        if not record.held:
            self._dirty.add(record.node)
        self.version += 1

    def _take(self, uid: str) -> None:
        record = self.records.pop(uid)
        self.cluster.forget(uid)
        self._by_node[record.node].discard(uid)
        view = self.cluster.nodes.get(record.node)
        if view is not None:
            view.remove(uid)
        self._last.shy.pop(uid, None)
        self.offers.left(uid)
        self._groups.left(uid)
        if not record.held:
            self._dirty.add(record.node)
        self.version += 1

    def _foreign(self, node: str) -> accounting.Amounts:
        total: accounting.Amounts = {}
        for uid in self._by_node.get(node, ()):
            record = self.records[uid]
            for name, value in () if record.held else record.amounts.items():
                total[name] = total.get(name, 0) + value
        return total
