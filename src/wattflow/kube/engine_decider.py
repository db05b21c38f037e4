"""The live engine as the scheduler's decider: uids and names on this side, ids and events on the other."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from wattflow.kube import accounting, gangs, grouping, objects, power, telling
from wattflow.kube.argo.engine_workflows import Structure
from wattflow.kube.argo.watching import Flows
from wattflow.kube.decider_port import Choice, Chosen, Wanted
from wattflow.kube.estimates import FUNCTION, Estimates
from wattflow.kube.executions import ORDERS, Executions
from wattflow.kube.level_orders import LevelOrders
from wattflow.live import Engine, candidate_rows, protocol
from wattflow.live.shielding import Adviser
from wattflow.model.cluster import Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import registry
from wattflow.policy.base import Policy

_MOST_SHAPES = 2048
_MOST_PRIORITY, _ORDERS = 200_000, ORDERS  # product plus one order stays below 2**31: levels are 32-bit
_COUNTED = 8  # `engine.tables.COUNTABLE`
"""Countable resources that an engine knows by name; further ones are only checked before binding."""
SleepOf = Callable[[objects.Node], Sleep | None]
Capped = Callable[[str, accounting.Amounts], accounting.Amounts]


def as_requested(policy: Policy | str) -> Policy:
    """Return a policy as it can run here: whole requests at nominal frequency.

    What a pod is guaranteed stands in its requests, which a scheduler may not edit, and nobody sets a frequency for
    one pod. A policy that would give less than is requested (the HPE rule and what is built on it) would else place
    pods where they have no room; the rule is applied at admission instead.
    """
    made = registry.load(policy) if isinstance(policy, str) else policy
    return made.with_settings(guarantees=(1.0,), frequencies=(0,))


def warm(policy: Policy, costs: bool = False) -> None:
    """Load what is compiled by placing one pod in a cluster of one node, so that the first real one need not wait.

    With ``costs`` also what an extender needs, whose first answer kube-scheduler would else give up waiting for.
    """
    trial = EngineDecider(policy)
    room = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    node = objects.Node(metadata=objects.Metadata(name="n"), status=objects.NodeStatus(allocatable=room, capacity=room))
    trial.set_node(node, accounting.node_allocatable(node), None)
    pod = objects.Pod(metadata=objects.Metadata(name="p", uid="p"))
    trial.want(Wanted(pod, {accounting.CPU: 1000, accounting.PODS: 1}))
    for choice in trial.step(0.0).choices:
        trial.started(choice.uid)
        trial.ended(choice.uid)
    trial.step(1.0)
    if costs:
        trial.costs(Wanted(pod, {accounting.CPU: 1000, accounting.PODS: 1}), 2.0)


class EngineDecider:
    """Fulfils `decider.Decider` with one `wattflow.live.Engine`."""

    def __init__(
        self,
        policy: Policy | str,
        score_limit: int = 512,
        capped: Capped = lambda name, amounts: amounts,
        flows: Flows | None = None,
        finish_first: bool = False,
        estimates: Estimates | None = None,
        executions: Executions | None = None,
        sleep_of: SleepOf = lambda node: None,
        rehearsing: Adviser | None = None,
        data: bool = False,
        levels: LevelOrders | None = None,
    ) -> None:
        self.engine = Engine(as_requested(policy), score_limit=score_limit)
        self.rehearsing, self._levels = rehearsing, levels if levels is not None else LevelOrders()
        self._capped, self._sleep_of = capped, sleep_of
        self._nodes: dict[str, int] = {}
        self._curves: dict[str, PowerProfile | None] = {}
        self._loads: dict[str, accounting.Amounts] = {}
        self._offered: dict[str, accounting.Amounts] = {}
        self._needs: dict[str, accounting.Amounts] = {}
        self._overbooked: set[str] = set()
        self._names: dict[int, str] = {}
        self._tasks: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._on_node: dict[str, set[str]] = {}
        self._place: dict[str, str] = {}
        self._uids: dict[int, str] = {}
        self._tags = itertools.count(1)
        self._tag_of: dict[str, int] = {}
        self._shapes: OrderedDict[tuple[object, ...], int] = OrderedDict()
        self._own: dict[str, tuple[int, int]] = {}
        self._resources, self._now_s = [accounting.PODS], 0.0
        self._gangs = gangs.Gangs()
        self._flows, self._executions, self._finish_first = flows, executions, finish_first
        self._structure: Structure | None = None
        self._emptied: list[str] = []
        self._later: dict[str, tuple[objects.Node, accounting.Amounts, PowerProfile | None]] = {}
        if flows is not None:
            self._structure = Structure(
                self.engine, flows, self._shape_like, lambda: next(self._tags), estimates or Estimates(), data
            )

    def use(self, policy: Policy) -> None:
        """Use another policy from now on."""
        self.engine.use(as_requested(policy))

    # nodes

    def set_node(self, node: objects.Node, allocatable: accounting.Amounts, profile: PowerProfile | None) -> None:
        """Take up a node that is new or has changed. Another curve counts once nothing of ours is on the node."""
        name = node.metadata.name
        self._later.pop(name, None)
        if name in self._nodes and self._curves[name] != profile:
            if self._on_node.get(name):
                self._later[name] = (node, allocatable, profile)
                profile = self._curves[name]
            else:
                self.engine.put(protocol.GONE, self._nodes[name])
                del self._names[self._nodes.pop(name)]
        self._curves[name] = profile
        offered = self._offered[name] = self._capped(name, allocatable)
        facts = Node(
            name,
            cores=power.threads_of(node),
            memory_bytes=offered.get(accounting.MEMORY, 0),
            # A cap may leave none, and a node of no cores is refused (`model.cluster.Node`); a thousandth takes no pod.
            allocatable_cores=max(1e-3, accounting.cores(offered)),
            speed=power.speed_of(node),
            architecture=node.status.node_info.architecture or "amd64",
            power=profile,
            sleep=self._sleep_of(node),
            frequencies=self._levels.of(node),
        )
        for resource in sorted(offered):  # the first few names that come are the ones that the engine counts
            self._counts_by(resource)
        counts = {resource: offered.get(resource, 0) for resource in self._resources}
        id = self.engine.node(facts, labels=grouping.labels(node), taints=grouping.taints(node), counts=counts)
        self._nodes[name], self._names[id] = id, name
        self._levels.reckoned(name, int(self.engine.describe(id)["frequency"]))
        if name in self._loads:  # the engine's node may be a new one, or have less than before
            self.set_load(name, self._loads[name])

    def drop_node(self, name: str) -> None:
        """Forget a node. What we placed there ends here; the pods themselves are the cluster's business."""
        if (id := self._nodes.pop(name, None)) is None:
            return
        for uid in list(self._on_node.pop(name, ())):  # copied: `ended` takes out of it
            self.ended(uid)
        self._names.pop(id, None)
        for known in (self._curves, self._loads, self._offered, self._later):
            known.pop(name, None)
        self._overbooked.discard(name)
        self._levels.dropped(name)
        self.engine.put(protocol.GONE, id)

    def powered(self, name: str, state: protocol.Power) -> None:
        """Note that a node is on, or asleep, now."""
        if name in self._nodes:
            self.engine.put(protocol.NODE, self._nodes[name], state=state)

    def coming_m(self, within_s: float) -> int:
        """Return the milli-cores of workflows' tasks whose parents are all done or about to be."""
        return self._structure.coming_m(self._now_s, within_s) if self._structure is not None else 0

    def set_load(self, name: str, amounts: accounting.Amounts) -> None:
        """Tell what pods that were not chosen here use on a node.

        Of what is overbooked no more is told than is left: it bars pods that ask for some of it, not the others.
        """
        if (id := self._nodes.get(name)) is None:
            return
        self._loads[name] = amounts
        left = self._left_by_ours(name)
        told = {key: min(value, max(0, left.get(key, 0))) for key, value in amounts.items()}
        (self._overbooked.discard if told == amounts else self._overbooked.add)(name)
        cores, memory = accounting.cores(told), told.get(accounting.MEMORY, 0)
        counts = {resource: told.get(resource, 0) for resource in self._resources}
        self.engine.put(protocol.LOAD, id, cores=cores, memory_bytes=memory, counts=counts)

    def _left_by_ours(self, name: str) -> accounting.Amounts:
        """Tell what a node offers without what is held there."""
        left = dict(self._offered[name])
        for uid in self._on_node.get(name, ()):
            for key, value in self._needs[uid].items():
                left[key] = left.get(key, 0) - value
        return left

    def _counts_by(self, resource: str) -> bool:
        """Tell whether the engine counts a resource; the first few names are taken as they come."""
        if resource in (accounting.CPU, accounting.MEMORY):
            return False
        if resource not in self._resources and len(self._resources) < _COUNTED:
            self._resources.append(resource)
        return resource in self._resources

    # pods

    def want(self, wanted: Wanted) -> None:
        """Queue a pod that wants a place; the same pod again replaces the wish."""
        uid = wanted.pod.metadata.uid
        self.unwant(uid)
        if self._join(wanted):
            return
        self._needs[uid] = wanted.amounts
        shape = self._shape(wanted)
        # A pod that is offered certain nodes needs a constraint of its own, which a task in the graph cannot get.
        found = self._structure.enter(wanted.pod, shape, self._now_s) if self._structure and not wanted.nodes else None
        if found is None:
            tag = next(self._tags)
            found = self.engine.put(protocol.TASK, shape, estimate_s=wanted.estimate_s, tag=tag), tag
        self._tasks[uid], self._tag_of[uid] = found
        self._uids[found[1]] = uid

    def past(self, pods: Sequence[objects.Pod]) -> None:
        """Note pods that ended well before we came."""
        if self._structure is not None:
            for pod in pods:
                self._structure.past(pod)

    def adopt(self, running: Sequence[tuple[Wanted, str]], now_s: float) -> set[str]:
        """Make running pods tasks that may go nowhere else, and place them by a step."""
        self._now_s = now_s
        where = {wanted.pod.metadata.uid: name for wanted, name in running if name in self._nodes}
        for wanted, name in running:
            if name in self._nodes:
                self._pinned(wanted, self._nodes[name])
        kept = set()
        result = self.engine.step(now_s)
        self._levels.take(result.actions, self._names, self.engine)
        for action in result.actions:
            if action.kind is protocol.Act.SLEEP:  # not now
                self.engine.put(protocol.NODE, action.who, state=protocol.Power.ON)
        for placement in result.placements:
            uid = self._uids.get(placement.tag, "")
            # Not the node it runs on, or not of these at all: undone, it counts as load.
            if self._nodes.get(where.get(uid, "")) != placement.node:
                self.engine.put(protocol.REFUSED, placement.attempt)
                continue
            self._hold(uid, where[uid], placement.attempt)
            self.engine.put(protocol.STARTED, placement.attempt)
            kept.add(uid)
        for uid in where.keys() - kept:
            self.unwant(uid)
        return kept

    def _pinned(self, wanted: Wanted, node: int) -> None:
        uid = wanted.pod.metadata.uid
        self._gangs.adopt(wanted)
        # as it was before its binding: the node is no wish of it, and those after it may go elsewhere
        pod = msgspec.structs.replace(wanted.pod, spec=msgspec.structs.replace(wanted.pod.spec, node_name=""))
        self._needs[uid] = wanted.amounts
        shape = self._shape(Wanted(pod, wanted.amounts, rules=wanted.rules))
        found = self._structure.enter(pod, shape, self._now_s) if self._structure else None
        if found is None:
            tag = next(self._tags)
            found = self.engine.put(protocol.TASK, shape, estimate_s=wanted.estimate_s, tag=tag, node=node), tag
        else:
            self.engine.pin(found[0], node)
            if wanted.estimate_s is not None:
                self.engine.put(protocol.ESTIMATE, found[0], wanted.estimate_s)
        self._tasks[uid], self._tag_of[uid] = found
        self._uids[found[1]] = uid

    def unwant(self, uid: str) -> None:
        """Take a pod out of the queue; nothing where it is not waiting."""
        self._part(uid)
        self._needs.pop(uid, None)
        task = self._tasks.pop(uid, None)
        if task is None:
            return
        self.engine.put(protocol.CANCEL, task)
        self._forget(uid)
        if self._structure is not None:
            self._structure.left(uid)

    def started(self, uid: str) -> None:
        """Note that the choice was carried out."""
        attempt = self._attempts.get(uid)
        if attempt is not None:
            self.engine.put(protocol.STARTED, attempt)
            if self._structure is not None:
                self._structure.started(uid, self._now_s)
            gang = self._gangs.of(uid)
            if gang is not None:
                gang.started.add(uid)

    def refused(self, uid: str, until_s: float) -> None:
        """Undo a choice that could not be carried out."""
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return
        self._leave_node(uid)
        # A member by itself has a task of its own; only parts of the gang's task can follow.
        follower = self._gangs.follow(uid) if uid not in self._tasks else None
        if follower is not None:  # the others run already
            self.engine.put(protocol.FINISHED, attempt)
            self.want(follower)
            return
        self.engine.put(protocol.REFUSED, attempt, until_s=until_s if math.isfinite(until_s) else 0.0)

    def ended(self, uid: str) -> None:
        """Note that the pod holds nothing any more."""
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return
        self._leave_node(uid)
        self._tasks.pop(uid, None)
        self._needs.pop(uid, None)
        self._part(uid, ended=True)
        self.engine.put(protocol.FINISHED, attempt)
        self._forget(uid)
        if self._structure is not None:
            self._structure.ended(uid)

    def resized(self, uid: str, amounts: accounting.Amounts) -> None:
        """Note that a running pod's requests changed in place."""
        attempt = self._attempts.get(uid)
        if attempt is not None:
            cores, memory = accounting.cores(amounts), amounts.get(accounting.MEMORY, 0)
            self.engine.put(protocol.RESIZE, attempt, cores=cores, memory_bytes=memory)
            self._needs[uid] = amounts
            self._load_again(self._place[uid])

    def step(self, now_s: float) -> Chosen:
        """Decide."""
        self._now_s = now_s
        while self._emptied:
            empty = self._emptied.pop()
            if empty in self._later and not self._on_node.get(empty):
                self.set_node(*self._later[empty])
        result = self.engine.step(now_s)
        if self.rehearsing is not None:
            self.rehearsing.note(self.engine, now_s, result)
        choices, short = list[Choice](), dict[str, gangs.Gang]()
        for placement in result.placements:
            whose, name = self._uids.get(placement.tag), self._names.get(placement.node)
            if whose is None or name is None:
                self.engine.put(protocol.REFUSED, placement.attempt)
                continue
            gang = self._gangs.named(whose)
            if gang is not None and not gang.complete:  # members went while it waited for its nodes
                self.engine.put(protocol.REFUSED, placement.attempt)
                short[whose] = gang
                continue
            # `uids` sorts them, so part i is the same pod at every call.
            uid = whose if gang is None else gang.uids()[placement.part]
            if gang is not None:
                self._needs[uid] = gang.amounts()
            self._hold(uid, name, placement.attempt)
            choices.append(Choice(uid, name, 0 if gang is None else placement.tag))
        for gang in short.values():  # those that are left wait for a full number again
            self.want(next(iter(gang.members.values())))
        self._levels.take(result.actions, self._names, self.engine)
        known = [(one.kind, self._names[one.who]) for one in result.actions if one.who in self._names]
        sleep, wake = ([n for kind, n in known if kind is act] for act in (protocol.Act.SLEEP, protocol.Act.WAKE))
        return Chosen(choices, result.wake_at, sleep, wake)

    def look_ahead(self, now_s: float) -> bool:
        """Ask the rehearsal, when choices have been handed out; True where another policy decides, at once."""
        chosen = None if self.rehearsing is None else self.rehearsing.consider(self.engine, now_s)
        if chosen is not None:
            self.use(chosen)
        return chosen is not None

    def task_of(self, uid: str) -> int | None:
        """Return the engine's task for a pod that is wanted or held."""
        gang = self._gangs.of(uid)
        return self._tasks.get(uid) if gang is None or uid in self._tasks else gang.task

    def costs(self, wanted: Wanted, now_s: float) -> dict[str, float]:
        """Tell what the policy in use thinks of each node for a pod that is alone in waiting; nothing is placed."""
        self._now_s = now_s
        task = self.engine.put(protocol.TASK, self._shape(wanted), estimate_s=wanted.estimate_s)
        hand = self.engine.by_hand(rows=max(1, len(self._nodes)))
        hand.open(now_s)
        found, rows = hand.wanted()
        groups = self.engine.state.nodes.group
        shown = rows[rows["kind"] == candidate_rows.PLACE] if found == task else rows[:0]
        by_group = dict(zip(groups[shown["node_row"]].tolist(), shown["cost"].tolist(), strict=True))
        while found >= 0:
            found, _ = hand.wanted()
        for action in hand.close().actions:
            if action.kind is protocol.Act.SLEEP:  # not ours to order here
                self.engine.put(protocol.NODE, action.who, state=protocol.Power.ON)
        self.engine.put(protocol.CANCEL, task)
        at = {name: int(groups[protocol.row_of(id)]) for name, id in self._nodes.items()}
        self._forget(wanted.pod.metadata.uid)
        return {name: by_group[group] for name, group in at.items() if group in by_group}

    def why(self, uid: str) -> str:
        """Say why a wanted pod is not placed."""
        task, gang = self._tasks.get(uid), self._gangs.of(uid)
        if gang is not None and task is None:
            if gang.task is None:
                return f"its gang has {len(gang.members)} of {gang.size} pods"
            task = gang.task
        if task is None:
            return "not wanted"
        return telling.waiting(self.engine.why(task))

    # gangs

    def _join(self, wanted: Wanted) -> bool:
        """Tell whether the pod waits as part of a gang; the last one to come makes it a task."""
        gang = self._gangs.join(wanted)
        if gang is None:
            return False
        if gang.complete:
            shape = self._shape(Wanted(wanted.pod, gang.amounts()), gang.size)
            tag = next(self._tags)
            self._uids[tag], self._tag_of[gang.key] = gang.key, tag
            gang.task = self.engine.put(protocol.TASK, shape, estimate_s=wanted.estimate_s, tag=tag)
        return True

    def _part(self, uid: str, ended: bool = False) -> None:
        """Take a pod out of its gang. Before the gang has started, the others wait for a full number again."""
        gang = self._gangs.of(uid)
        gone, again = self._gangs.leave(uid, ended)
        unstarted = gang is not None and not gang.started and (again or (gone is not None and not ended))
        if gang is not None and gang.task is not None and unstarted:
            self.engine.put(protocol.CANCEL, gang.task)
        if gone is not None or again:
            self._forget(gang.key if gang is not None else "")
        for wanted in again:
            self._join(wanted)

    def _hold(self, uid: str, name: str, attempt: int) -> None:
        self._attempts[uid] = attempt
        self._on_node.setdefault(name, set()).add(uid)
        self._place[uid] = name

    def _leave_node(self, uid: str) -> None:
        name = self._place.pop(uid, "")
        self._on_node.get(name, set()).discard(uid)
        if name in self._later and not self._on_node.get(name):
            self._emptied.append(name)
        if name in self._overbooked:
            self._load_again(name)

    def _load_again(self, name: str) -> None:
        """Tell the others' load anew after something of ours left an overbooked node or was resized."""
        if name in self._loads:
            self.set_load(name, self._loads[name])

    def _forget(self, uid: str) -> None:
        self._uids.pop(self._tag_of.pop(uid, 0), None)
        own = self._own.pop(uid, None)
        if own is not None:
            for id in own:
                self.engine.drop(id)

    def _shape_like(self, pod: objects.Pod, amounts: accounting.Amounts, function: str | None) -> int:
        """Return the shape of a pod that will be like this one, but for its amounts and its function."""
        notes = {key: value for key, value in pod.metadata.annotations.items() if key != FUNCTION}
        notes |= {} if function is None else {FUNCTION: function}
        metadata = msgspec.structs.replace(pod.metadata, annotations=notes)
        return self._shape(Wanted(msgspec.structs.replace(pod, metadata=metadata), amounts))

    def _level(self, pod: objects.Pod) -> int:
        """Rank a pod by its priority class and its workflow's own priority, then, if asked, older workflows."""
        found = self._flows.of(pod) if self._flows is not None else None
        priority = pod.spec.priority + (found[0].priority if found is not None else 0)
        level = max(-_MOST_PRIORITY, min(_MOST_PRIORITY, priority)) * _ORDERS
        if self._executions is not None:
            level += self._executions.order_of(pod)
        return level - found[0].order % _ORDERS if found is not None and self._finish_first else level

    def _shape(self, wanted: Wanted, parts: int = 1) -> int:
        pod, amounts = wanted.pod, wanted.amounts
        level = self._level(pod)
        wish, groups = grouping.constraint(pod, wanted.nodes, wanted.rules), wanted.rules.groups
        function = pod.metadata.annotations.get(FUNCTION, "pod")
        counts = {name: value for name, value in amounts.items() if self._counts_by(name)}
        variant = Variant(cores=accounting.cores(amounts), memory_bytes=amounts.get(accounting.MEMORY, 0))
        # By what the engine is told, so that one key has one shape: a drop would take it from another key, too.
        key = (variant, tuple(sorted(counts.items())), wish, function, level, parts, groups)
        # A shape with a list of nodes belongs to one pod and is dropped with it; others are shared by all equal pods.
        if wanted.nodes is None and key in self._shapes:
            self._shapes.move_to_end(key)
            return self._shapes[key]
        rule = self.engine.constraint(wish)
        shape = self.engine.shape([variant], function, parts, level, constraint=rule, counts=counts, groups=groups)
        if wanted.nodes is not None:
            self._own[pod.metadata.uid] = (shape, rule)
            return shape
        self._shapes[key] = shape
        # The least recently used. Tasks that still use its shape keep the row until they end.
        if len(self._shapes) > _MOST_SHAPES:
            self.engine.drop(self._shapes.popitem(last=False)[1])
        return shape
