"""Rules between pods as counters of the engine: who is in which group, and who must be apart from or with whom.

A pod's standing wishes (node selector, affinity, tolerations, preferences) are said in the engine's words here, too.

A required term of (anti-)affinity between pods and a host port each name a *group*: the pods that the term selects, or
those that take the port. Pods that the engine places carry the names of their groups, so it counts them itself. What it
does not count is *unseen*: pods of others, and pods that were placed before a group had a name. As long as nobody
unseen is concerned, the engine's counters say all; else the filters in Python are asked as well.

What has another meaning in the engine stays with the filters: topology spread (whose domains count differently where
nodes are tainted), several terms of affinity at once (one pod must meet all), selectors of namespaces, ports of one
address only, shares of GPUs, volumes of claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from wattflow.kube import gpus, objects
from wattflow.kube.filters import interpod, selectors, snapshot, spread, volumes
from wattflow.live import protocol
from wattflow.live.protocol import Apart, Together

_ANYWHERE = "0.0.0.0"
# Each placed pod is matched against each group, so their number bounds the cost of a placement.
_MOST_GROUPS = 256
# Fewer than the engine has columns for (`engine.tables.TOPOLOGIES`).
_MOST_TOPOLOGIES = 6


@dataclass(frozen=True, slots=True)
class Rules:
    """Tell the engine the groups of a pod, and whom it must be apart from or with.

    Attributes:
        groups: Names of the groups that the pod is in.
        whole: Whether these rules are all that the pod wishes of other pods.
    """

    groups: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()
    together: tuple[Together, ...] = ()
    whole: bool = True

    @property
    def named(self) -> set[str]:
        """Return the groups whose members matter to the pod."""
        return {one.group for one in self.apart} | {one.group for one in self.together}


NONE = Rules()


@dataclass(slots=True)
class _Group:
    """One group.

    Attributes:
        named_by: Pods that name it; without any it is no group any more.
        shy: Of those the ones that must be apart from it by a term.
        unseen, unseen_shy: Placed pods that are in it, or shy of it, and that the engine does not count as such.
        spoilt: The engine counts somebody who has left the group by a change of labels.
    """

    owner: objects.Pod
    term: objects.PodAffinityTerm | None
    port: tuple[str, int] | None
    named_by: set[str] = field(default_factory=set)
    shy: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    unseen_shy: set[str] = field(default_factory=set)
    spoilt: bool = False

    def has(self, pod: objects.Pod) -> bool:
        """Tell whether a pod is in the group; also one that takes the port at one address only."""
        if self.term is not None:
            # Without labels of namespaces: terms that select by them are never groups (`_mapped`).
            return interpod.selects(self.term, self.owner, pod, {})
        return any(one[1:] == self.port for one in snapshot.host_ports(pod))

    def carried_by(self, pod: objects.Pod) -> bool:
        """Tell whether the engine counts a pod for it: every collision with a port at all addresses is one."""
        return self.has(pod) if self.port is None else (_ANYWHERE, *self.port) in snapshot.host_ports(pod)


@dataclass(slots=True)
class Groups:
    """All groups of a cluster."""

    _groups: dict[str, _Group] = field(default_factory=dict)
    _topologies: set[str] = field(default_factory=set)
    _names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _odd: dict[str, objects.Pod] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._groups)

    def register(self, pod: objects.Pod, ours: bool) -> list[str]:
        """Know the groups that a pod names (of others' pods those that they are shy of); those that are new."""
        uid = pod.metadata.uid
        unseen_shy = [name for name in self._names.get(uid, ()) if uid in self._groups[name].unseen_shy]
        self.forget(uid)
        new, names = [], []
        for name, group, shy in self._named(pod):
            # Being apart is mutual, so terms of others' pods count too; whom others want to be with is their
            # concern.
            if not ours and not shy:
                continue
            if name not in self._groups:
                # What finds no place stays with the filters: `rules` leaves it out, and `whole` is false then.
                if len(self._groups) >= _MOST_GROUPS:
                    continue
                self._groups[name] = group
                new.append(name)
            self._groups[name].named_by.add(uid)
            if shy:
                self._groups[name].shy.add(uid)
            names.append(name)
        if names:
            self._names[uid] = tuple(dict.fromkeys(names))
        for name in unseen_shy:  # whoever is on a node already is there still
            if name in self._groups and uid in self._groups[name].shy:
                self._groups[name].unseen_shy.add(uid)
        return new

    def forget(self, uid: str) -> None:
        """Forget what a pod named; a group that nobody else names is gone with it."""
        for name in self._names.pop(uid, ()):
            group = self._groups[name]
            for members in (group.named_by, group.shy, group.unseen_shy):
                members.discard(uid)
            if not group.named_by:
                del self._groups[name]

    def left(self, uid: str) -> None:
        """Note that a pod is on no node any more."""
        self._odd.pop(uid, None)
        for group in self._groups.values():
            group.unseen.discard(uid)
            group.unseen_shy.discard(uid)

    def placed(self, pod: objects.Pod, carried: Rules | None, names: Iterable[str] | None = None) -> list[str]:
        """Note that a pod is on a node, counted under these rules or (None) not; returns groups now unsure."""
        uid, rules = pod.metadata.uid, carried or NONE
        if any(not self._mapped(term) for term in interpod.anti_affinity_terms(pod)):
            self._odd[uid] = pod
        changed = []
        for name in list(self._groups) if names is None else names:
            group = self._groups[name]
            before = (bool(group.unseen), bool(group.unseen_shy), group.spoilt)
            _set(group.unseen, uid, name not in rules.groups and group.has(pod))
            _set(group.unseen_shy, uid, uid in group.shy and name not in rules.named)
            # For good: the engine took the groups with the task and cannot take one back.
            group.spoilt = group.spoilt or (name in rules.groups and not group.carried_by(pod))
            if (bool(group.unseen), bool(group.unseen_shy), group.spoilt) != before:
                changed.append(name)
        return changed

    def rules(self, pod: objects.Pod) -> Rules:
        """Tell what the engine can be told of a pod whose groups are registered."""
        # All groups that it is in, not those that it names: others may wish to be apart from it.
        carried = tuple(name for name, group in self._groups.items() if group.carried_by(pod))
        apart = [Apart(name) for name, group, _ in self._named(pod) if group.port is not None and self._sound(name)]
        for term in interpod.anti_affinity_terms(pod):
            if self._mapped(term) and self._sound(_name(term, pod)):
                apart.append(Apart(_name(term, pod), term.topology_key))
        together = []
        wanted = interpod.affinity_terms(pod)
        if len(wanted) == 1 and self._mapped(wanted[0]):
            name = _name(wanted[0], pod)
            # somebody unseen may be whom it wants to be with, which the engine would not know
            if self._sound(name) and not self._groups[name].unseen:
                together.append(Together(name, wanted[0].topology_key))
        # Every wish that became a rule is counted here, so equal numbers say that none was left out.
        # Repeats are taken out afterwards only.
        known = len(snapshot.host_ports(pod)) + len(interpod.anti_affinity_terms(pod)) + len(wanted)
        counted = gpus.SHARE not in pod.metadata.annotations and not spread.hard(pod) and not volumes.claims(pod)
        whole = counted and known == len(apart) + len(together)
        return Rules(carried, tuple(dict.fromkeys(apart)), tuple(together), whole)

    def unsure(self, pod: objects.Pod, rules: Rules) -> bool:
        """Tell whether the filters in Python must be asked too: not all is in the rules, or unseen pods count."""
        # Terms that are no groups are known by their placed owners only; few, so each is asked.
        if not rules.whole or any(self._selected(odd, pod) for odd in self._odd.values()):
            return True
        if any(not self._sound(name) or self._groups[name].unseen for name in rules.named):
            return True
        return any(name in self._groups and self._groups[name].unseen_shy for name in rules.groups)

    def members(self, names: Iterable[str], pods: Iterable[objects.Pod]) -> list[objects.Pod]:
        """Select the pods that are in one of these groups."""
        groups = [self._groups[name] for name in names if name in self._groups]
        return [pod for pod in pods if any(group.has(pod) for group in groups)]

    # inside

    def _named(self, pod: objects.Pod) -> Iterator[tuple[str, _Group, bool]]:
        """Yield the groups that a pod's wishes name, and whether it is shy of them."""
        for term in interpod.anti_affinity_terms(pod):
            if self._mapped(term):
                yield _name(term, pod), _Group(pod, term, None), True
        wanted = interpod.affinity_terms(pod)
        if len(wanted) == 1 and self._mapped(wanted[0]):
            yield _name(wanted[0], pod), _Group(pod, wanted[0], None), False
        for address, kind, number in snapshot.host_ports(pod):
            if address == _ANYWHERE:
                yield f"port/{kind}/{number}", _Group(pod, None, (kind, number)), False

    def _sound(self, name: str) -> bool:
        return name in self._groups and not self._groups[name].spoilt

    def _mapped(self, term: objects.PodAffinityTerm) -> bool:
        """Tell whether a term means the same to the engine; labels that make domains are taken as they come."""
        if term.namespace_selector is not None or not term.topology_key:
            return False
        # First come, first served: a label that found no column stays with the filters for good.
        if len(self._topologies) < _MOST_TOPOLOGIES:
            self._topologies.add(term.topology_key)
        return term.topology_key in self._topologies

    def _selected(self, odd: objects.Pod, pod: objects.Pod) -> bool:
        """Tell whether a placed pod may keep this one away by a term that is no group, in whatever namespace."""
        return any(
            not self._mapped(term) and selectors.matches(term.label_selector, pod.metadata.labels)
            for term in interpod.anti_affinity_terms(odd)
        )


def _set(members: set[str], uid: str, there: bool) -> None:
    if there:
        members.add(uid)
    else:
        members.discard(uid)


def _name(term: objects.PodAffinityTerm, owner: objects.Pod) -> str:
    """Name a term's group: the same for terms that select the same pods."""
    spaces = sorted(term.namespaces or [owner.metadata.namespace])
    return "pods/" + msgspec.json.encode([spaces, term.label_selector]).decode()


NAME = "metadata.name"
"""Label that every node has for the engine, so that fields are matched like labels."""
_OPERATORS = {"In": "in", "NotIn": "not-in", "Exists": "exists", "DoesNotExist": "absent", "Gt": "gt", "Lt": "lt"}
_CORDON = protocol.Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# In none of no values: never true.
_NEVER = (protocol.Match(NAME, "in", ()),)


def constraint(pod: objects.Pod, nodes: tuple[str, ...] | None, rules: Rules = NONE) -> protocol.Constraint:
    """Say where the pod may go, as far as nodes themselves and the engine's counters say.

    ``nodes`` narrows it to what the filters that count pods allow.
    """
    # None left is not "no limit", which an empty tuple means to the engine.
    if nodes is not None and not nodes:
        return protocol.Constraint(any_of=(_NEVER,))
    return protocol.Constraint(
        any_of=_any_of(pod),
        nodes=nodes or (),
        # An operator that the API does not know tolerates nothing.
        tolerates=tuple(_toleration(one) for one in pod.spec.tolerations if one.operator in ("", "Equal", "Exists")),
        apart=rules.apart,
        together=rules.together,
        prefer=tuple(_preferences(pod)),
    )


def _any_of(pod: objects.Pod) -> tuple[tuple[protocol.Match, ...], ...]:
    # Sorted: equal wishes must become one shape, whatever the order of their keys.
    always = tuple(protocol.Match(key, "in", (value,)) for key, value in sorted(pod.spec.node_selector.items()))
    if pod.spec.node_name:
        always += (protocol.Match(NAME, "in", (pod.spec.node_name,)),)
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    if required is None:
        return (always,) if always else ()
    terms = [term for term in required.node_selector_terms if term.match_expressions or term.match_fields]
    found = tuple(always + matches for matches in map(_matches, terms) if matches is not None)
    # Terms of which none can hold are not the same as no terms.
    return found or (_NEVER,)


def _matches(term: objects.NodeSelectorTerm) -> tuple[protocol.Match, ...] | None:
    """Translate a term into matches, or None where it can never hold."""
    found = []
    for one in (*term.match_expressions, *term.match_fields):
        if one.operator not in _OPERATORS:
            return None
        found.append(protocol.Match(one.key, _OPERATORS[one.operator], tuple(one.values)))
    return tuple(found)


def _toleration(one: objects.Toleration) -> protocol.Toleration:
    return protocol.Toleration(one.key, None if one.operator == "Exists" else one.value, one.effect)


def _preferences(pod: objects.Pod) -> Iterable[tuple[float, tuple[protocol.Match, ...]]]:
    affinity = pod.spec.affinity
    for one in affinity.node_affinity.preferred if affinity is not None and affinity.node_affinity is not None else ():
        matches = _matches(one.preference)
        # An empty preference asks nothing; kube-scheduler gives no points for it either.
        if matches:
            yield float(one.weight), matches


def labels(node: objects.Node) -> dict[str, str]:
    """Return a node's labels for the engine."""
    return {**node.metadata.labels, NAME: node.metadata.name}


def taints(node: objects.Node) -> tuple[protocol.Taint, ...]:
    """Return a node's taints for the engine; a cordon is one of them."""
    found = tuple(protocol.Taint(one.key, one.value, one.effect) for one in node.spec.taints)
    # The node controller writes the same taint a moment after a cordon.
    return (*found, _CORDON) if node.spec.unschedulable and _CORDON not in found else found
