"""The scheduler's configuration: one TOML file, every mistake told at once, unknown keys refused."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wattflow.clusters import resolve_profile
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.kube.allowance import windows
from wattflow.model.cluster import Sleep
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.policy import registry

MODES = ("schedule", "shadow", "extender")


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Configure a scheduler. ``docs/kube.md`` describes every key.

    Attributes:
        name: The ``schedulerName`` of the pods that it owns.
        shadow_of: In mode ``shadow``: whose pods it decides about without binding them.
        shadow_namespace: Only pods of this namespace; all where it is empty.
        guess: Whether nodes whose watts nobody states get a guessed curve; see `wattflow.kube.power`.
        per_s: Requests a second that it allows itself; infinite by default, the server's fairness decides.
        score_limit: Feasible nodes scored per decision.
        publish: Whether each node's watts are written as an extended resource; see `wattflow.kube.publish`.
        resize: Whether guarantees of long-running pods are moved in place; see `wattflow.kube.resize`.
        data: Whether the sizes that tasks of a workflow state count as transfers between nodes.
        predict: Whether runtimes that nobody states come from `wattflow.predict`, refitted as tasks end.
        joules: How far below the best node's scores a node may lie to be chosen for its joules; see
            `wattflow.kube.scores.node_offers`.
        provision: Whether volumes that wait for their first pod are asked for; see `wattflow.kube.storage`.
        allocate: Whether devices are given to claims that pods name; see `wattflow.kube.dra`.
        preempt: Whether pods of lower priority are evicted for one that fits nowhere; see `wattflow.kube.preempt`.
        journal: Folder in which past decisions can be looked up; see `wattflow.kube.explaining`.
        claim: Whether nodes are claimed by a taint before they are used; see `wattflow.kube.claims`.
        consolidate: Whether nodes that are nearly empty are emptied to sleep; see `wattflow.kube.consolidation`.
        kueue: Whether nodes are woken for what Kueue holds back; see `wattflow.kube.queued_work`.
        hook, redfish, wake_on_lan, karpenter, node_groups: What switches nodes, one of them; see
            `wattflow.kube.node_switches`.
    """

    name: str = "wattflow"
    mode: str = "schedule"
    shadow_of: str = "default-scheduler"
    shadow_namespace: str = ""
    policy: str = "wattflow"
    params: Mapping[str, float] = field(default_factory=dict)
    per_s: float = float("inf")
    burst: float = 100.0
    concurrency: int = 48
    score_limit: int = 512
    events_per_s: float = 50.0
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    lease_name: str = ""
    identity: str = ""
    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0
    address: str = "127.0.0.1"
    port: int = 10359
    stale_after_s: float = 180.0
    token_file: str = ""
    default_profile: str = ""
    node_cap_w: float | None = None
    cluster_cap_w: float | None = None
    argo: bool = True
    finish_first: bool = False
    executions: str = ""
    data: bool = False
    predict: bool = False
    claim: bool = False
    settle_s: float = 2.0
    release_s: float = 30.0
    patience_s: float = 600.0
    profiles: bool = True
    guess: bool = True
    publish: bool = False
    resize: bool = False
    resize_after_s: float = 60.0
    levels: bool = False
    joules: float = 0.1
    provision: bool = False
    allocate: bool = False
    preempt: bool = False
    journal: str = ""
    forecast: str = ""
    hook: str = ""
    redfish: str = ""
    redfish_login: str = ""
    redfish_ca: str = ""
    wake_on_lan: str = ""
    suspend: str = ""
    broadcast: str = "255.255.255.255"
    karpenter: bool = False
    node_groups: str = ""
    sleep_w: float = 10.0
    wake_s: float = 120.0
    enter_s: float = 30.0
    min_on: int = 0
    headroom_cores: float = 0.0
    cooldown_s: float = 0.0
    switches_per_hour: int = 0
    never: str = ""
    dedicated: str = ""
    consolidate: bool = False
    kueue: bool = False
    dry_run: bool = False

    @property
    def actuators(self) -> tuple[str, ...]:
        """Keys of what switches nodes that are set; exactly one where nodes sleep."""
        ways = ("hook", "redfish", "wake_on_lan", "karpenter", "node_groups")
        return tuple(key for key in ways if getattr(self, key))

    @property
    def sleep_state(self) -> Sleep:
        """Sleep of a node of which nothing was learned yet."""
        return Sleep(self.sleep_w, self.wake_s, self.enter_s)

    @property
    def lease(self) -> str:
        """Name of the Lease."""
        return self.lease_name or self.name

    def shadows(self, namespace: str) -> bool:
        """Tell whether pods of a namespace are decided about: in mode ``shadow`` of one, if one is named."""
        return self.mode != "shadow" or not self.shadow_namespace or namespace == self.shadow_namespace

    @property
    def who(self) -> str:
        """This process among those that want the Lease."""
        # Unique among replicas on one host too.
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"


def read(path: Path) -> SchedulerSettings:
    """Read a file. Raises InvalidInput with all of its problems."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    return parse(text, str(path))


def parse(text: str, source: str = "configuration") -> SchedulerSettings:
    """Read settings from TOML text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(source, f"is not TOML: {error}") from error
    problems = Problems()
    settings = _read(StrictTable(data, "", problems))
    if len(problems):
        raise InvalidInput(source, problems.listed())
    return settings


def _read(root: StrictTable) -> SchedulerSettings:
    base = SchedulerSettings()
    found: dict[str, object] = {
        "name": root.text("name", base.name),
        "mode": root.choice("mode", MODES, base.mode),
        "shadow_of": root.text("shadow_of", base.shadow_of),
        "shadow_namespace": root.text("shadow_namespace", base.shadow_namespace),
        "policy": root.text("policy", base.policy),
    }
    if not registry.is_known(str(found["policy"])):
        root.problem("policy", f"there is no policy {found['policy']!r}; `wattflow policies` lists them")
    params = root.table("params")
    if params is not None:
        found["params"] = {key: params.number(key) for key in params.data}
    for section, keys in (
        ("limits", ("per_s", "burst", "concurrency", "score_limit", "events_per_s")),
        ("lease", ("leader_elect", "lease_namespace", "lease_name", "identity", "lease_s", "renew_s", "retry_s")),
        ("http", ("address", "port", "stale_after_s", "token_file")),
        (
            "energy",
            (
                "default_profile",
                "node_cap_w",
                "cluster_cap_w",
                "profiles",
                "guess",
                "publish",
                "resize",
                "resize_after_s",
                "levels",
            ),
        ),
        ("workflows", ("argo", "finish_first", "executions", "data", "predict")),
        ("decisions", ("journal",)),
        ("carbon", ("forecast",)),
        ("scores", ("joules",)),
        ("volumes", ("provision",)),
        ("devices", ("allocate",)),
        ("priority", ("preempt",)),
        (
            "sleep",
            (
                "hook",
                "redfish",
                "redfish_login",
                "redfish_ca",
                "wake_on_lan",
                "suspend",
                "broadcast",
                "karpenter",
                "node_groups",
                "sleep_w",
                "wake_s",
                "enter_s",
                "min_on",
                "headroom_cores",
                "cooldown_s",
                "switches_per_hour",
                "never",
                "dedicated",
                "consolidate",
                "kueue",
                "dry_run",
            ),
        ),
        ("shared", ("claim", "settle_s", "release_s", "patience_s")),
    ):
        table = root.table(section)
        if table is not None:
            found |= _section(table, keys, base)
    # After all sections: keys that nobody asked for are told.
    root.finish()
    settings = SchedulerSettings(**found)  # type: ignore[arg-type]
    # `Leader` gives itself `renew_s`, and bindings time out within lease_s - renew_s - 1: both must be
    # positive.
    if not settings.retry_s < settings.renew_s < settings.lease_s - 1:
        root.problem("lease", "retry_s < renew_s < lease_s − 1 must hold, or two schedulers could bind at once")
    if settings.default_profile:
        try:
            resolve_profile(settings.default_profile, 1)
        except WattflowError as error:
            root.problem("energy", f"default_profile: {error}")
    if not 0 <= settings.joules <= 1:
        root.problem("scores", "joules must be from 0 (kube-scheduler's scores alone) to 1 (joules alone)")
    if not settings.events_per_s > 0:
        root.problem("limits", "events_per_s must be more than 0; 0.01 is as good as none")
    if settings.executions and not settings.token_file:
        root.problem("workflows", "executions needs http.token_file: whoever may tell of workflows must show a token")
    if len(settings.actuators) > 1:
        root.problem("sleep", f"{' and '.join(settings.actuators)}: one of them switches the nodes")
    if settings.consolidate and not settings.actuators:
        root.problem("sleep", "consolidate empties nodes to sleep: say what switches them")
    if settings.kueue and not settings.actuators:
        root.problem("sleep", "kueue wakes nodes for what Kueue holds back: say what switches them")
    if settings.levels and settings.mode != "schedule":
        root.problem("energy", f"levels orders clocks of nodes; mode {settings.mode} orders nothing")
    beyond = settings.actuators or settings.claim or settings.executions or settings.forecast or settings.journal
    if settings.mode == "extender" and beyond:
        root.problem("mode", "extender scores one pod at a time: no sleep, claims, gates, workflows or journal")
    try:
        windows(settings.never)
    except InvalidInput as error:
        root.problem("sleep", str(error))
    if settings.release_s <= settings.settle_s:
        root.problem("shared", "release_s must be more than settle_s, or a node is given back before it is used")
    return settings


def _section(table: StrictTable, keys: tuple[str, ...], base: SchedulerSettings) -> dict[str, object]:
    found: dict[str, object] = {}
    for key in keys:
        if not table.has(key):
            continue
        usual = getattr(base, key)
        # Before `int`: a bool is one in Python.
        if isinstance(usual, bool):
            value = table.value(key)
            if not isinstance(value, bool):
                table.problem(key, f"must be true or false, not {value!r}")
            found[key] = value
        elif isinstance(usual, str):
            found[key] = table.text(key)
        elif isinstance(usual, int):
            found[key] = table.whole(key)
        else:
            found[key] = table.number(key)
    table.finish()
    return found
