"""The scheduler as a process: check what it needs, wire it together, follow its configuration, end cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import signal
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path

import aiohttp
import msgspec

from wattflow.frames.frame import Frame
from wattflow.kube import engine_decider, given_back, node_switches, queued_work, settings, sleep_facts, sleeping
from wattflow.kube.access import Access
from wattflow.kube.argo.fetch import API as ARGO
from wattflow.kube.argo.watching import ArgoTemplate, ArgoWorkflow, Flows
from wattflow.kube.client import ApiError, Client
from wattflow.kube.consolidation import Consolidator
from wattflow.kube.dra import claim_writer
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.estimates import Estimates, Predicted
from wattflow.kube.executions import Executions
from wattflow.kube.explaining import Decisions
from wattflow.kube.frame import fleet
from wattflow.kube.frame.broker import Broker
from wattflow.kube.frame.role import Role
from wattflow.kube.http_endpoints import serving, shield_gauges
from wattflow.kube.leader import Leader
from wattflow.kube.level_orders import LevelOrders
from wattflow.kube.power import GROUP, Watts
from wattflow.kube.preempt import Evictor, Preemptor
from wattflow.kube.reflect import Mirror
from wattflow.kube.scheduler import Scheduler
from wattflow.kube.scores import node_offers
from wattflow.kube.settings import SchedulerSettings
from wattflow.live.protocol import Power
from wattflow.live.shielding import Shielding, adviser
from wattflow.model.errors import InvalidInput, Problem, WattflowError
from wattflow.policy import registry
from wattflow.policy.base import Policy

log = logging.getLogger(__name__)
_RELOAD_S = 2.0
_AWAY_S, _AGAIN_S, _LOOKS = 120.0, 2.0, 2
_NEEDS: tuple[tuple[str, str, str], ...] = (
    ("", "pods", "list"), ("", "pods", "watch"), ("", "nodes", "list"), ("", "nodes", "watch"),
    ("", "namespaces", "list"), ("", "pods/binding", "create"), ("", "pods/status", "patch"),
    ("events.k8s.io", "events", "create"), ("coordination.k8s.io", "leases", "update"),
)  # fmt: skip
_APIS = ("/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1")


async def missing(client: Client, chosen: SchedulerSettings, role: Role | None = None) -> list[Problem]:
    """Tell what the cluster or our rights lack, all at once."""
    found = []
    node_switches.make(chosen, client)  # raises for a login that is not there: now, not at the first node that sleeps
    needs = (*_NEEDS, ("", "nodes", "patch")) if chosen.claim or chosen.actuators or chosen.levels else _NEEDS
    if chosen.mode != "schedule":  # a shadow and an extender write nothing, and lead nobody
        needs = tuple(need for need in _NEEDS if need[2] in ("list", "watch"))
    if chosen.mode != "extender" and chosen.joules < 1:
        needs = (*needs, *node_offers.RIGHTS)
    if chosen.forecast or (role is not None and role.asks):
        needs = (*needs, ("", "pods", "patch"))
    if chosen.provision:
        needs = (
            *needs,
            ("", "persistentvolumeclaims", "patch"),
            ("", "persistentvolumes", "patch"),
            ("storage.k8s.io", "storageclasses", "list"),
        )
    if chosen.allocate:
        needs = (*needs, *claim_writer.RIGHTS)
    if chosen.preempt or chosen.consolidate:
        needs = (*needs, ("", "pods/eviction", "create"), ("policy", "poddisruptionbudgets", "list"))
    if chosen.karpenter:
        needs = (*needs, *given_back.RIGHTS)
    if chosen.kueue:
        needs = (*needs, *queued_work.RIGHTS)
    if chosen.publish:
        needs = (*needs, ("", "nodes/status", "patch"))
    if chosen.levels and role is not None:
        found.append(Problem("energy.levels", "several placers of a frame would order of the same nodes"))
    if chosen.resize:
        needs = (*needs, ("", "pods/resize", "patch"))
        offered = msgspec.json.decode(await client.call("GET", "/api/v1"))["resources"]
        if not any(one["name"] == "pods/resize" for one in offered):
            found.append(Problem("energy.resize", "the cluster has no pods/resize (it came with Kubernetes 1.33)"))
    if role is not None and role.shared:
        needs = (*needs, ("coordination.k8s.io", "leases", "list"), ("coordination.k8s.io", "leases", "watch"))
    for path in _APIS if chosen.mode == "schedule" else ():
        try:
            await client.call("GET", path)
        except ApiError as error:
            # A wrong token is no missing API: nothing else can be asked either.
            if error.code == 401:
                raise
            if error.code == 404:
                found.append(Problem(path, "the API server does not serve it; Kubernetes 1.19 or later is needed"))
    for group, resource, verb in needs:
        if resource == "leases" and not chosen.leader_elect:
            continue
        name, _, sub = resource.partition("/")
        asked = {"group": group, "resource": name, "subresource": sub, "verb": verb}
        if name == "leases":
            # A right to the lease may be limited to its name; one to list cannot be.
            asked |= {"namespace": chosen.lease_namespace} | ({"name": chosen.lease} if verb == "update" else {})
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked}}  # fmt: skip
        raw = await client.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        if msgspec.json.decode(raw)["status"].get("allowed") is not True:
            found.append(Problem("permission", f"may not {verb} {resource}{' of ' + group if group else ''}"))
    optional = (
        (chosen.profiles, GROUP, "apply deploy/base, or set profiles = false under [energy]"),
        (chosen.argo and chosen.mode != "extender", f"{ARGO}/workflows",
         "install Argo Workflows, or set argo = false under [workflows]"),
    )  # fmt: skip
    for wanted, path, mend in optional:
        if wanted:
            try:
                await client.call("GET", path, query={"limit": "1"})
            except ApiError as error:
                if error.code != 404:  # what is not installed is done without, and looked for again
                    found.append(Problem(path, f"cannot be read ({error}); {mend}"))
    return found


async def check(where: Access, chosen: SchedulerSettings, role: Role | None = None) -> None:
    """Raise InvalidInput with everything that is missing."""
    async with Client(where) as client:
        problems = await missing(client, chosen, role)
    if problems:
        raise InvalidInput(where.server, problems)


def make(client: Client, chosen: SchedulerSettings, role: Role | None = None) -> Scheduler:
    """A scheduler with the live engine; with a role, one placer of a frame."""
    watts = Watts(chosen.default_profile, chosen.node_cap_w, guesses=chosen.guess)
    extends = chosen.mode == "extender"  # it sees one pod at a time, of nodes that another has chosen
    policy = policy_of(chosen, role)
    engine_decider.warm(policy, extends)
    flows, estimates = Flows() if chosen.argo and not extends else None, Estimates()
    estimates.predicted = Predicted() if chosen.predict else None
    executions = Executions(Path(chosen.executions)) if chosen.executions else None
    if executions is not None:
        executions.restore()

    def look_at(node: str) -> None:
        if (view := scheduler.book.cluster.nodes.get(node)) is not None:
            scheduler.book.tell_node(view)

    rehearsing = adviser(typed(policy.name, chosen.params))
    usual = chosen.sleep_state if chosen.actuators else None
    levels = LevelOrders(chosen.name if chosen.levels else "")
    decider = EngineDecider(
        policy, 0 if extends else chosen.score_limit, watts.capped, flows, chosen.finish_first, estimates, executions,
        lambda node: sleep_facts.of(node, usual) if usual is not None and sleeping.may_sleep(node) else None,
        rehearsing, chosen.data, levels,
    )  # fmt: skip
    scheduler = Scheduler(client, chosen, decider, watts, estimates=estimates, executions=executions, role=role)
    _show_shield(scheduler, rehearsing)
    if chosen.levels:
        scheduler.extra.append(lambda: levels.run(client, lambda: scheduler.may_bind and scheduler.book.live, look_at))
    if chosen.journal:
        decisions = Decisions.into(Path(chosen.journal), decider)
        scheduler.note_of = decisions.note
        scheduler.extra.append(decisions.run)
    if chosen.joules < 1 and not extends:
        # Before pods, so that most owners are listed when their pods come.
        scheduler.mirrors[:0] = scheduler.book.offers.replicas.mirrors(client)
    evictor = Evictor(client)
    if (chosen.preempt and chosen.mode == "schedule") or (chosen.consolidate and scheduler.sleeper is not None):
        scheduler.mirrors.insert(0, evictor.mirror())
    if chosen.preempt and chosen.mode == "schedule":
        preemptor = Preemptor(evictor, scheduler.book, scheduler.binder, scheduler.clock)
        scheduler.extra.append(lambda: preemptor.run(lambda: scheduler.may_bind and scheduler.book.live))
    if chosen.consolidate and scheduler.sleeper is not None:
        watts, sleeper = scheduler.watts, scheduler.sleeper
        emptier = Consolidator(
            evictor, scheduler.book, scheduler.binder, watts, sleeper, chosen.sleep_state, scheduler.clock
        )
        scheduler.extra.append(lambda: emptier.run(lambda: scheduler.may_bind and scheduler.book.live))
    if chosen.kueue and scheduler.sleeper is not None:
        _follow_kueue(scheduler, scheduler.sleeper)
    if flows is not None:
        told = scheduler.aside.told
        flows.on_unread = lambda workflow, what: scheduler.aside.of("Workflow", workflow.metadata, what)
        template, workflow = flows.on_template, flows.on_workflow
        # Templates before workflows before pods: a pod whose workflow is not known yet is placed as one
        # without structure.
        scheduler.mirrors[:0] = [
            Mirror(client, f"{ARGO}/clusterworkflowtemplates", ArgoTemplate, template, aside=told, optional=True),
            Mirror(client, f"{ARGO}/workflowtemplates", ArgoTemplate, template, aside=told, optional=True),
            Mirror(client, f"{ARGO}/workflows", ArgoWorkflow, workflow, aside=told, optional=True),
        ]
    return scheduler


def _follow_kueue(scheduler: Scheduler, sleeper: sleeping.Sleeper) -> None:
    """Have nodes woken, and kept on, for what Kueue holds back."""
    queued = queued_work.QueuedWork(
        scheduler.client, sleeper, scheduler.book, scheduler.clock, scheduler.settings.wake_s,
        lambda name: scheduler.decider.powered(name, Power.WAKING),
    )  # fmt: skip
    sleeper.expected = queued.awaits
    scheduler.mirrors.extend((queued.workloads, queued.local, queued.queues, queued.flavors))
    scheduler.extra.append(lambda: queued.run(lambda: scheduler.may_bind and scheduler.book.live))


async def run(where: Access, chosen: SchedulerSettings, config: Path | None = None, role: Role | None = None) -> None:
    """Run until SIGTERM or SIGINT; the lease is given back."""
    # 16 beside the bindings: watches, lists and writes of other parts.
    async with Client(where, per_s=chosen.per_s, burst=chosen.burst, most=chosen.concurrency + 16) as client:
        # Asked for first: the server's answers to these two are the longest wait of a start.
        for path in ("/api/v1/pods", "/api/v1/nodes"):
            client.list_ahead(path)
        problems = await _missing_now(client, chosen, role)
        if problems:
            raise InvalidInput(where.server, problems)
        # beside the loop: the API server is busy with long lists for seconds, and their bytes are taken up meanwhile
        await asyncio.to_thread(
            engine_decider.warm, registry.load(chosen.policy, **chosen.params), chosen.mode == "extender"
        )
        scheduler = make(client, chosen, role)
        if config is not None:
            scheduler.extra.append(lambda: follow(config, scheduler))
        async with serving(scheduler) as port:
            log.warning("scheduling for %r by %s; http://%s:%d", chosen.name, chosen.policy, chosen.address, port)
            await _until_told(scheduler.run())
            # Before the lease: another leader must not find claims of one that is gone.
            if scheduler.claims is not None and scheduler.may_bind:
                await scheduler.claims.give_back()
            await _give_back(scheduler.leader)


async def _missing_now(client: Client, chosen: SchedulerSettings, role: Role | None) -> list[Problem]:
    """Ask what is missing; an API server that is being restarted is waited for.

    Ending then would make a crash loop of a short outage, since both are often restarted together. Just started it
    refuses whatever it has not read the rights of yet, so permissions are asked for again before they count.
    """
    looks, ends_s = 0, time.monotonic() + _AWAY_S
    while True:
        try:
            problems = await missing(client, chosen, role)
            looks += 1
            if looks > _LOOKS or not any(one.where == "permission" for one in problems):
                return problems
        except (aiohttp.ClientError, TimeoutError, OSError, ApiError) as error:
            refused = isinstance(error, ApiError) and error.code not in (403, 429) and error.code < 500
            if refused or time.monotonic() > ends_s:
                if refused:
                    raise
                said = f"has not served us for {_AWAY_S:g} s: {error or type(error).__name__}"
                raise InvalidInput(client.access.server, said) from None
            log.warning("the API server does not serve us (%s); asked again", error or type(error).__name__)
        await asyncio.sleep(_AGAIN_S)


async def _give_back(leader: Leader) -> None:
    """Give the lease up on the way out; where the server does not answer, another waits for its end."""
    try:
        await leader.release()
    except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("the lease %s was not given back: %s", leader.name, error or type(error).__name__)


async def _until_told(job: Coroutine[None, None, None]) -> None:
    """Run a job until SIGTERM or SIGINT."""
    task = asyncio.create_task(job)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Cancelled, not stopped: `finally` blocks and context managers run.
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def run_broker(where: Access, chosen: SchedulerSettings, frame: Frame) -> None:
    """Run a frame's broker until SIGTERM or SIGINT."""
    async with Client(where, per_s=chosen.per_s, burst=chosen.burst) as client:
        leader = Leader(
            client, chosen.lease_namespace, chosen.lease, chosen.who, chosen.lease_s, chosen.renew_s, chosen.retry_s
        )
        broker = Broker(client, chosen, frame, leader)
        log.warning("broker for %r by %s", chosen.name, frame.name)
        await _until_told(broker.run())
        await _give_back(leader)


async def follow(config: Path, scheduler: Scheduler) -> None:
    """Read the file again when it changes: policy and caps change at once, the rest says that it needs a restart."""
    seen = _changed_at(config)
    while True:
        await asyncio.sleep(_RELOAD_S)
        try:
            changed = _changed_at(config)
            if changed == seen:
                continue
            seen = changed
            new = settings.read(config)
            # In a frame the lease's name differs by placer.
            role = scheduler.role
            reload(scheduler, new if role is None else fleet.placer_settings(new, role.index))
        except WattflowError as error:
            log.error("configuration not taken over: %s", error)


def _changed_at(config: Path) -> int | None:
    """When a file was last written; None where it is gone."""
    try:
        return config.stat().st_mtime_ns
    except OSError:
        return None


def policy_of(chosen: SchedulerSettings, role: Role | None) -> Policy:
    """Return the policy that is configured; `wattflow` shielded, where the scheduler sees all its pods and places them.

    A placer of a frame sees a part of the pods, an extender one at a time: what a shield compares is not there.
    """
    alone = chosen.mode == "schedule" and role is None
    return registry.load(registry.served(chosen.policy) if alone else chosen.policy, **chosen.params)


def typed(policy: str, params: Mapping[str, float]) -> str:
    """Return a policy as it is typed with its parameters: the shield has a process of its own, which loads it by
    name."""
    return ":".join([policy, *(f"{name}={value!r}" for name, value in params.items())])


def _show_shield(scheduler: Scheduler, shield: Shielding | None) -> None:
    """Have the shield's figures among the metrics, and those of none where there is none."""
    gauges = scheduler.metrics.gauges
    for name in [name for name in gauges if name.startswith("wattflow_shield_")]:
        del gauges[name]
    if shield is not None:
        gauges |= shield_gauges(shield)


def reload(scheduler: Scheduler, new: SchedulerSettings) -> None:
    """Take over what may change while running."""
    old = scheduler.settings
    fixed = ("name", "mode", "lease_name", "lease_namespace", "address", "port", "concurrency", "profiles", "argo",
             "token_file", "executions", "hook", "redfish", "redfish_login", "redfish_ca", "wake_on_lan", "suspend",
             "broadcast", "karpenter", "node_groups", "wake_s", "enter_s", "forecast", "publish", "resize",
             "resize_after_s", "data", "predict", "journal", "joules", "levels",
             "provision", "allocate", "preempt", "consolidate", "kueue", "guess", "shadow_namespace")  # fmt: skip
    for key in fixed:
        if getattr(old, key) != getattr(new, key):
            log.error("%s changed in the configuration; it needs a restart", key)
    other = (old.policy, dict(old.params)) != (new.policy, dict(new.params))
    # The engine keeps its State; only the rule is exchanged.
    if other and isinstance(scheduler.decider, EngineDecider):
        policy, before = (
            policy_of(dataclasses.replace(new, mode=old.mode), scheduler.role),
            scheduler.decider.rehearsing,
        )
        scheduler.decider.use(policy)
        # Of the policy before: its next answer would bring that one back.
        if before is not None:
            before.close()
        scheduler.decider.rehearsing = shield = adviser(typed(policy.name, new.params))
        _show_shield(scheduler, shield)
    # Fixed keys keep their old value, so that what is shown is what runs.
    scheduler.settings = dataclasses.replace(new, **{key: getattr(old, key) for key in fixed})
    if old.node_cap_w != new.node_cap_w:
        scheduler.watts.node_cap_w = new.node_cap_w
        # Nodes are told again with other room.
        for view in scheduler.book.cluster.nodes.values():
            scheduler.book.tell_node(view)
    log.warning("configuration taken over: policy %s", new.policy)
