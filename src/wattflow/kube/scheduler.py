"""The scheduler: watches fill the book, a step decides, placements are assumed, checked once more and bound.

Everything that decides runs in one task, so there are no locks; bindings run beside it and report back by a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattflow.kube import carbon_hold, node_switches, objects, sleep_facts, sleeping, telling
from wattflow.kube.binder import Binder, BindingEnd, Bound
from wattflow.kube.book import Book, Record
from wattflow.kube.claims import Claims
from wattflow.kube.client import Client, uncollected
from wattflow.kube.cluster_cap import ClusterCap
from wattflow.kube.decider_port import Choice, Chosen, Decider
from wattflow.kube.dra.claim_writer import ClaimWriter
from wattflow.kube.estimates import Estimates
from wattflow.kube.executions import Executions
from wattflow.kube.frame.reservations import Page, Reservations
from wattflow.kube.frame.role import Role
from wattflow.kube.frame.theft import Thief
from wattflow.kube.late_binding import LateBinding
from wattflow.kube.late_pods import Late
from wattflow.kube.leader import Leader
from wattflow.kube.power import GROUP, NodePowerProfile, Watts
from wattflow.kube.prometheus_text import Metrics
from wattflow.kube.publish import Publisher
from wattflow.kube.quarantine import Aside
from wattflow.kube.reflect import Mirror
from wattflow.kube.resize import Raiser
from wattflow.kube.settings import SchedulerSettings
from wattflow.kube.shadow import Shadow
from wattflow.kube.sleeping import Sleeper
from wattflow.kube.storage import Shelves
from wattflow.kube.telling import Teller
from wattflow.live.protocol import Power

log = logging.getLogger(__name__)
Step = Callable[[objects.Pod, str, Callable[[str | None], None]], bool]
"""Something to do before a binding; False where the pod needs none of it, else the callback is called at its end."""
_FIRST_BACKOFF_S, _MOST_BACKOFF_S = 1.0, 10.0
_GATHER_S, _TURN_S = 0.002, 0.5  # placements of a round are taken for so long; the rest is put back and decided anew


@dataclass(slots=True)
class Scheduler:
    """One scheduler over one cluster. `run` goes on until cancelled."""

    client: Client
    settings: SchedulerSettings
    decider: Decider
    watts: Watts = field(default_factory=Watts)
    metrics: Metrics = field(default_factory=Metrics)
    estimates: Estimates = field(default_factory=Estimates)
    clock: Callable[[], float] = time.monotonic
    book: Book = field(init=False)
    binder: Binder = field(init=False)
    shelves: Shelves = field(init=False)
    claim_writer: ClaimWriter = field(init=False)
    teller: Teller = field(init=False)
    leader: Leader = field(init=False)
    claims: Claims | None = None
    executions: Executions | None = None
    sleeper: Sleeper | None = None
    holds: carbon_hold.Holds | None = None
    role: Role | None = None
    ledger: Reservations | None = None
    thief: Thief | None = None
    raiser: Raiser | None = None
    shadow: Shadow | None = None
    note_of: Callable[[str], dict[str, object]] = lambda uid: {}
    aside: Aside = field(init=False)
    late: Late = field(init=False)
    cap: ClusterCap = field(init=False)
    mirrors: list[Mirror[Any]] = field(init=False)
    extra: list[Callable[[], Coroutine[None, None, None]]] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _queue: asyncio.Queue[Sequence[tuple[str, str, float]]] = field(default_factory=asyncio.Queue)
    _outcomes: list[BindingEnd] = field(default_factory=list)
    _failures: dict[str, int] = field(default_factory=dict)
    _integrated_s: float = 0.0
    _until_awake: LateBinding = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        # an extender decides for none: all that runs is load to it
        mine = {"shadow": settings.shadow_of, "extender": None}.get(settings.mode, settings.name)
        self.book = Book(
            self.decider,
            owns=lambda pod: (
                pod.spec.scheduler_name == mine
                and settings.shadows(pod.metadata.namespace)
                and (self.role is None or self.role.owns(pod))
            ),
            power_of=self.watts.profile_of,
            estimate_of=self.estimates.of,
        )
        self.late, self.cap = Late(self.book), ClusterCap(self.watts, self.book)
        self._until_awake = LateBinding(self.book, self.estimates.of, settings.sleep_state)
        self.estimates.speed_of = self.book.speed_of
        self.book.offers.joules = 1.0 if settings.mode == "extender" else settings.joules
        self.book.offers.capped, self.book.offers.caps = self.watts.capped, self.watts.capped_nodes
        self.shelves = Shelves(self.client, self.book, self._wake.set)
        self.shelves.storage.provisions = settings.provision and settings.mode == "schedule"
        self.claim_writer = ClaimWriter(self.client, self.book, self._wake.set)
        if settings.mode == "shadow":
            self.shadow = Shadow(self.book, self.watts, self.clock)
        if self.role is not None:
            self.book.serves = self.role.serves
        if self.executions is not None:
            self.book.keeps_back = self.executions.keeps_back
            self.executions.on_released = self._released
        self.binder = Binder(self.client, settings.name, settings.events_per_s, settings.lease_s - settings.renew_s - 1)
        self.teller = Teller(self.book, self.decider, self.binder, self.metrics, settings.name, self.clock)
        times = settings.lease_s, settings.renew_s, settings.retry_s
        self.leader = Leader(self.client, settings.lease_namespace, settings.lease, settings.who, *times)
        if settings.claim:
            times = settings.settle_s, settings.release_s, settings.patience_s
            self.claims = Claims(self.client, settings.name, self.clock, *times)
        if settings.resize and settings.mode == "schedule":
            self.raiser = Raiser(self.client, self.book, self.watts, self.clock, settings.resize_after_s)
        if settings.forecast and settings.mode == "schedule":
            self.holds = carbon_hold.Holds(self.client, Path(settings.forecast))
        hook = node_switches.make(settings, self.client) if settings.mode == "schedule" else None
        if hook is not None:
            in_use = lambda name: self.book.in_use(name, sleeping.is_daemon)  # noqa: E731
            self.sleeper = Sleeper(
                self.client, settings.name, hook, in_use, self._powered, self._unwoken, settings.settle_s,
                told=lambda node, reason, text: self.binder.event_of("Node", node, "Normal", reason, text),
                replay=self._on_node,
            )  # fmt: skip
            sleeping.allow(self.sleeper, settings, self.book.cluster.nodes, self.clock)
        wake, aside = self._wake.set, Aside(self.binder, self.metrics, settings.mode == "schedule")
        self.aside = aside
        on_node, on_pod = aside.guarded("Node", self._on_node), aside.guarded("Pod", self._on_pod)
        self.mirrors = [
            Mirror(self.client, "/api/v1/nodes", objects.Node, on_node, after_batch=wake, aside=aside.told),
            Mirror(self.client, "/api/v1/namespaces", objects.Namespace, self._on_namespace, after_batch=wake),
            Mirror(self.client, "/api/v1/pods", objects.Pod, on_pod, after_batch=wake, aside=aside.told),
        ]
        if settings.profiles:
            kind, told = NodePowerProfile, aside.told
            found = Mirror(self.client, GROUP, kind, self._on_profile, after_batch=wake, aside=told, optional=True)
            self.mirrors.insert(0, found)
        if self.role is not None:
            self._join_frame(self.role)

    @property
    def _pods(self) -> Mirror[objects.Pod]:
        return next(mirror for mirror in self.mirrors if mirror.kind is objects.Pod)

    def _join_frame(self, role: Role) -> None:
        """Add what one of several placers needs besides: pages of nodes that are shared, and theft."""
        name, seen = self.settings.name, self._pods.items.get
        if role.shared:
            space, limit_s = self.settings.lease_namespace, self.binder.timeout_s
            self.ledger = Reservations(self.client, space, name, role.index, role.count, self.book, seen, limit_s)
            pages = Mirror(self.client, self.ledger.path, Page, self.ledger.on_page, self.ledger.query, self._wake.set)
            self.mirrors.append(pages)
        if role.asks:
            self.thief, self.binder.exact = Thief(self.client, name, role, self.book), True

    # what happens

    def _on_node(self, kind: str, node: objects.Node) -> None:
        if self.claims is not None:
            node = self.claims.seen(kind, node)
        shown = self.sleeper.seen(kind, node) if self.sleeper is not None else node
        if shown is not None:
            self.book.on_node(kind, shown)

    def _on_namespace(self, kind: str, namespace: objects.Namespace) -> None:
        self.book.on_namespace(kind, namespace)
        if self.sleeper is not None and namespace.metadata.name == self.settings.lease_namespace:
            self.sleeper.on_namespace(namespace)

    def _on_pod(self, kind: str, pod: objects.Pod) -> None:
        uid = pod.metadata.uid
        before = uid in self.book.waiting
        if pod.ended and uid in self.book.records:
            self.estimates.learn(pod)
        if self.executions is not None:
            self.executions.seen(pod)
        if self.claims is not None and not self.book.owns(pod):
            self.claims.pod_seen(kind, pod)
        if self.ledger is not None:
            self.ledger.on_pod(kind, pod)
        if self.shadow is None or not self.shadow.keeps(kind, pod):
            self.book.on_pod(kind, pod)
        if uid in self.book.waiting and not before:
            self.book.since_s.setdefault(uid, self.clock())
            self.aside.unread("Pod", pod.metadata)

    def _released(self) -> None:
        # at the loop's next turn, so that pods are not looked at from within a look at them
        for job in (self.book.look_again, self._wake.set):
            asyncio.get_running_loop().call_soon(job)

    def _on_profile(self, kind: str, profile: NodePowerProfile) -> None:
        self.watts.on_profile(kind, profile)
        for view in self.book.cluster.nodes.values():
            if profile.applies(view.node):
                self.book.tell_node(view)

    # the loop

    async def run(self) -> None:
        """Follow the cluster, take the lease, decide and bind."""
        self.book.live = False
        async with asyncio.TaskGroup() as tasks:
            for mirror in self.mirrors:
                tasks.create_task(mirror.run())
            for job in self.extra:
                tasks.create_task(job())
            tasks.create_task(self.shelves.run())
            if self.settings.allocate and self.settings.mode == "schedule":
                tasks.create_task(self.claim_writer.run(lambda: self.may_bind))
            for mirror in self.mirrors:
                await mirror.synced.wait()
            log.info("synced: %d nodes, %d pods wait", len(self.book.cluster.nodes), len(self.book.waiting))
            if self.settings.leader_elect and self.settings.mode == "schedule":
                tasks.create_task(self.leader.run(self._lost))
                await self.leader.elected.wait()
                log.info("leading as %s", self.settings.who)
            await self._pods.news()  # the lists were asked for while the engine was loaded
            for node in await self.sleeper.begin() if self.sleeper is not None else ():
                self.book.on_node("ADDED", node)
            self._begin()
            for _ in range(self.settings.concurrency):
                tasks.create_task(self._bind_worker())
            tasks.create_task(self.teller.run(lambda: self.may_bind))
            tasks.create_task(self.binder.write_events(self._queue.empty))
            if self.ledger is not None:
                tasks.create_task(self.ledger.sweep())
            if self.thief is not None:
                idle = lambda: self.may_bind and not self.book.waiting and self._queue.empty()  # noqa: E731
                tasks.create_task(self.thief.run(idle, self._pods.items.values, self.clock))
            if self.raiser is not None:
                tasks.create_task(self.raiser.run(lambda: self.may_bind))
            if self.settings.publish:
                tasks.create_task(Publisher(self.client, self.book, self.watts).run(lambda: self.may_bind))
            if self.holds is not None:
                tasks.create_task(self.holds.run(self.book.gated, self.estimates.of, lambda: self.may_bind))
            await self._decide_forever()

    def _begin(self) -> None:
        """Take up what is there: nodes, our pods that run, those that wait."""
        pods = self._pods.items.values()
        wall_s = time.time()
        gc.freeze()  # what was listed stays: a full collection would walk all of it again and again
        if self.ledger is not None:
            self.ledger.begin(pods)
        with uncollected():
            held = self.book.begin(pods, lambda pod: self.estimates.left(pod, wall_s), self.clock())
        log.info("begun: %d of our pods run already", held)
        for name, state in self.sleeper.states.items() if self.sleeper is not None else ():
            self._powered(name, state)

    def _lost(self) -> None:
        raise SystemExit("lost the lease: stopping, another scheduler may bind now")

    @property
    def may_bind(self) -> bool:
        """Tell whether a binding may leave now."""
        return self.settings.mode == "schedule" and (not self.settings.leader_elect or self.leader.leads)

    async def _decide_forever(self) -> None:
        wake_at_s = self._integrated_s = self.clock()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(wake_at_s - self.clock(), 1.0))):
                    await self._wake.wait()
            if not self._queue.empty():  # bindings are under way: what comes meanwhile is decided together
                await asyncio.sleep(_GATHER_S)
            self._wake.clear()
            wake_at_s = self.decide()
            await asyncio.sleep(0)  # an event that is set lets nobody else in: the lease would not be renewed
            wake_at_s = self.clock() if self.decider.look_ahead(self.clock()) else wake_at_s

    def decide(self) -> float:
        """One round: settle bindings, tell the decider what changed, step, assume; returns when to come again."""
        began_s = self.clock()
        if began_s - self._integrated_s >= 1:
            self.watts.integrate(self.book.cluster, began_s - self._integrated_s)
            self._integrated_s = began_s
            if self.sleeper is not None and self.may_bind:
                self._wake_ahead()
            if self.claims is not None and self.may_bind:
                self.claims.release_idle(self.book.holds)
        for outcome in self._outcomes:
            self._settle(outcome, began_s)
        self._outcomes.clear()
        self.book.flush(began_s)
        chosen = self.decider.step(began_s)
        if chosen.choices:
            self.cap.look(self.settings.cluster_cap_w)
        self.metrics.algorithm_s.observe(self.clock() - began_s)
        together: dict[int | str, list[Choice]] = {}
        for choice in chosen.choices:
            together.setdefault(choice.group or choice.uid, []).append(choice)
        put_back = False
        for choices in sorted(together.values(), key=lambda some: bool(some[0].group)):  # gangs last
            # a last look at all pods for each of a thousand would keep the lease from being renewed
            if self.clock() > began_s + _TURN_S:
                put_back = True
                for choice in choices:
                    self.decider.refused(choice.uid, began_s)
            else:
                self._take(choices, began_s)
        self._order(chosen)
        if self.shadow is not None:
            self.shadow.settle()
        return began_s if put_back or self.book.offers.waits(began_s) else chosen.wake_at_s

    # nodes that sleep

    def _order(self, chosen: Chosen) -> None:
        """Carry out what the step wants of nodes."""
        for name in chosen.sleep:
            if self.sleeper is not None and self.may_bind:
                self.sleeper.sleep(name)
            else:
                self.decider.powered(name, Power.ON)
        for name in chosen.wake if self.sleeper is not None else ():
            self.sleeper.wake(name)  # type: ignore[union-attr]

    def _wake_ahead(self) -> None:
        """Wake what the operator wants on, nodes for tasks that will be wanted about when these are ready, and for pods
        that have waited too long for room elsewhere."""
        assert self.sleeper is not None
        for name in self.sleeper.keep_on():
            self.decider.powered(name, Power.WAKING)
        if not self.sleeper.states:
            return
        missing_m = self.decider.coming_m(self.settings.wake_s)
        for name in self.sleeper.wake_ahead(missing_m, self.late, self.clock()):
            self.decider.powered(name, Power.WAKING)

    def _powered(self, name: str, state: Power) -> None:
        """A node fell asleep, or is on: what waited for it goes now."""
        self.decider.powered(name, state)
        view = self.book.cluster.nodes.get(name)
        if state is Power.ASLEEP and view is not None:
            self.watts.asleep_w[name] = sleep_facts.of(view.node, self.settings.sleep_state).watts
        elif state is Power.ON:
            slept = self.watts.asleep_w.pop(name, None) is not None
            self._until_awake.decide_again(name, self.clock())
            for waiting, record in (waited := self._until_awake.take(name)):
                # minutes have passed since the node was chosen: a cordon or a taint that came meanwhile wins
                reason = self.book.against(record)
                if reason is None:
                    self._send(waiting)
                else:
                    self._give_back(waiting[0], reason)
            if not slept and not waited:
                return  # it was not let sleep: the policy may want that again at once, and again
        self._wake.set()

    def _unwoken(self, name: str) -> None:
        for waiting, _ in self._until_awake.take(name):
            if self.sleeper is not None and name not in self.sleeper.states:
                # gone, or another came in its place: no fault of the pod, which must not wait while that one idles
                self._failures.pop(waiting[0], None)
            self._give_back(waiting[0], "the node did not wake")

    def _give_back(self, uid: str, reason: str) -> None:
        now_s = self.clock()
        self.book.forget(uid, now_s)
        self._undo(uid, reason, now_s)

    def _take(self, choices: list[Choice], began_s: float) -> None:
        """Assume placements and send them off, or undo all of them with the reason."""
        if self.claims is not None:
            ready_s = max(self.claims.wait_until_s(choice.node) for choice in choices)
            if ready_s:
                for choice in choices:
                    self.decider.refused(choice.uid, ready_s)
                return
        for i, choice in enumerate(choices):
            reason = self.cap.against(choice) or self.book.assume(choice.uid, choice.node)
            if reason is not None:
                for done in choices[:i]:
                    self.book.forget(done.uid, began_s)
                for other in choices:
                    self._undo(other.uid, reason, began_s)
                return
        if len(choices) > 1:
            self.book.start_together([choice.uid for choice in choices])
        if self.settings.mode == "schedule":
            together = [(choice.uid, choice.node, began_s) for choice in choices]
            if self.ledger is not None:  # room for all of them is promised before any is bound
                self._queue.put_nowait(together)
                return
            for choice, waiting in zip(choices, together, strict=True):
                if self.sleeper is None or self.sleeper.awake(choice.node):
                    self._send(waiting)
                else:
                    self._until_awake.wait(waiting)
                    # whatever the engine believes of the node: who waits for one that sleeps has it woken
                    self.sleeper.wake(choice.node)

    def _send(self, waiting: tuple[str, str, float]) -> None:
        """Have a pod bound, after its volumes are made and its devices allocated where there are any."""
        self._prepare(waiting, [self.shelves.makes, self.claim_writer.makes])

    def _prepare(self, waiting: tuple[str, str, float], steps: list[Step]) -> None:
        """Go through the steps that have something to do for the pod, one after the other, then to its binding."""
        uid, node, _ = waiting

        def done(why: str | None, rest: list[Step]) -> None:
            if why is not None:
                self._report(BindingEnd(uid, Bound.FAILED, why))
            elif uid in self.book.records:  # it may have been deleted meanwhile
                self._prepare(waiting, rest)

        for number, step in enumerate(steps, 1):
            if step(self.book.records[uid].pod, node, functools.partial(done, rest=steps[number:])):
                return
        self._queue.put_nowait([waiting])

    def _undo(self, uid: str, reason: str, now_s: float, conflict: bool = False) -> None:
        self.metrics.refused.add(reason=reason[:60])
        # who lost against another placer knows more now; the other has got on meanwhile
        failures = self._failures[uid] = self._failures.get(uid, 0) + (not conflict)
        # a first conflict is tried again at once, with what the watch has told meanwhile
        until_s = now_s + min(_MOST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (failures - 2)) if failures > 1 else 0.0
        self.decider.refused(uid, until_s)
        self.book.not_before_s[uid] = until_s
        self._wake.set()

    def _settle(self, outcome: BindingEnd, now_s: float) -> None:
        uid = outcome.uid
        record = self.book.records.get(uid)
        if outcome.bound is Bound.DONE:
            self._failures.pop(uid, None)
            self.decider.started(uid)
            return
        self.metrics.attempts.add(result="error", profile=self.settings.name)
        if record is None or not record.assumed:
            return  # the watch has told more already
        self.book.forget(uid, now_s)
        self._undo(uid, outcome.text or outcome.bound.value, now_s, outcome.bound is Bound.CONFLICT)
        if outcome.bound is Bound.GONE:
            self.book.on_pod("DELETED", record.pod)
        elif not self.book.owns(record.pod):  # stolen while its binding was under way
            self.book.on_pod("MODIFIED", record.pod)

    # bindings

    async def _bind_worker(self) -> None:
        while True:
            group = await self._queue.get()
            found = [(self.book.records.get(uid), began_s) for uid, _, began_s in group]
            ready = [(record, began_s) for record, began_s in found if record is not None and record.assumed]
            reason = None
            if self.ledger is not None and self.may_bind:
                reason = await self.ledger.reserve([record for record, _ in ready])
            for record, began_s in ready:
                if reason is not None:
                    self._report(BindingEnd(record.pod.metadata.uid, Bound.CONFLICT, reason))
                else:
                    await self._bind(record, began_s)

    async def _bind(self, record: Record, began_s: float) -> None:
        uid, node, sent_s = record.pod.metadata.uid, record.node, self.clock()
        bound, text = Bound.FAILED, "not the leader"
        if self.may_bind:  # promising room took a while
            bound, text = await self.binder.bind(record.pod, node, self._notes(record))
        if bound is Bound.DONE:
            self._bound(record, node, began_s, sent_s)
        elif self.ledger is not None:
            self.ledger.withdraw(uid, node)
        self._report(BindingEnd(uid, bound, text))

    def _report(self, outcome: BindingEnd) -> None:
        self._outcomes.append(outcome)
        self._wake.set()

    def _bound(self, record: Record, node: str, began_s: float, sent_s: float) -> None:
        now_s, uid = self.clock(), record.pod.metadata.uid
        self.metrics.bind_s.observe(now_s - sent_s)
        self.metrics.attempt_s.observe(now_s - began_s)
        self.metrics.sli_s.observe(now_s - self.book.since_s.get(uid, began_s))
        self.metrics.attempts.add(result="scheduled", profile=self.settings.name)
        self.teller.forget(uid)
        self.binder.event(record.pod, "Normal", "Scheduled", f"Successfully assigned {record.pod.key} to {node}")

    def _notes(self, record: Record) -> dict[str, str]:
        more = self.note_of(record.pod.metadata.uid) | ({} if self.role is None else {"placer": self.role.index})
        return telling.placement_note(self.book, self.watts, record, self.settings.policy, more)
