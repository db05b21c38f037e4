"""A scheduler frame as data: its components, the delays between them, and the mechanisms they share.

A frame is what no local change of one component's algorithm can give, since several components must act together
(Talluri et al., ExDe, Future Generation Computer Systems 153, 2024). ``None`` means that a component or mechanism is
absent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ARCHITECTURES = ("centralised", "decentralised", "delegated", "hybrid")
RULES = ("policy", "random", "samples", "probes", "hash", "owner")
HASHES = ("ring", "rendezvous", "multi-probe")
SPREADS = ("round-robin", "random", "hash", "shortest-queue", "object")
FLOWS = ("push", "pull", "offers")
BINDINGS = ("early", "late")
PARTITIONS = ("shared", "disjoint")
REBALANCES = ("periodic", "age")
PREEMPTIONS = ("threshold", "fair-share")
INTERMEDIATES = ("free", "local", "stored")
CACHED = ("end", "start")
DISTRIBUTIONS = ("constant", "exponential", "lognormal", "choice")


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds drawn anew each time.

    Attributes:
        kind: ``constant`` (always ``mean_s``), ``exponential`` (mean), ``lognormal`` (median ``mean_s``, σ of its log),
            or ``choice`` among ``values_s`` by ``weights``.
    """

    mean_s: float = 0.0
    kind: str = "constant"
    sigma: float = 0.0
    values_s: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def is_zero(self) -> bool:
        return self.kind == "constant" and self.mean_s == 0.0

    @property
    def expected_s(self) -> float:
        """Its mean."""
        if self.kind == "choice":
            return sum(v * w for v, w in zip(self.values_s, self.weights)) / sum(self.weights)
        # The mean of a log-normal lies above its median.
        return self.mean_s * math.exp(self.sigma**2 / 2) if self.kind == "lognormal" else self.mean_s


NO_DELAY = Delay()


@dataclass(frozen=True, slots=True)
class Messages:
    """Delay and joules of a message between two components."""

    latency: Delay = NO_DELAY
    energy_j: float = 0.0


@dataclass(frozen=True, slots=True)
class Client:
    """Hands in tasks, each after ``service``; asks elsewhere when nobody answers for ``timeout_s``."""

    service: Delay = NO_DELAY
    timeout_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Broker:
    """Splits the work over the placers (and, in frames with offers or elasticity, speaks for the hosts)."""

    service: Delay = NO_DELAY
    split: str = "round-robin"


@dataclass(frozen=True, slots=True)
class Placers:
    """Who decides where tasks run.

    Attributes:
        service: Seconds of one decision.
        rule: How a host is found: ``policy`` (the best score of the placer's hosts), ``random``, ``samples`` (least
            loaded of ``samples`` hosts that are asked), ``probes`` (Sparrow: ``samples`` reservations per task, bound
            when a host has room), ``hash`` (consistent hashing of the task's data object), ``owner`` (ExDe: the host
            that first took a task of the object; until then, and with ``both`` always, the placer's global queue, from
            which idle slots take).
        refresh_s: The view of the hosts is so old at most; 0 is always exact.
        partition: ``disjoint`` gives each placer its own hosts.
        route: How clients find a placer where no broker splits the work.
        binding: ``early`` sends a task to a host's queue at once, ``late`` keeps it until a host has room.
        flow: ``push``; ``pull`` (hosts ask); ``offers`` (the broker offers free hosts to one placer at a time).
        strict: With ``late``: the head of the queue blocks the others; else a task that does not fit is skipped.
        pull_s: With ``pull`` and several placers: a host waits so long at one before it asks the next.
        overflow: With ``hash``: when the home is full, the next host that has room.
        both: With ``owner``: tasks of known objects stand in the owner's queue and in the global one.
        forget_s: With ``owner``: an owner is forgotten so long after it became one; 0 is never.
    """

    count: int = 1
    service: Delay = NO_DELAY
    rule: str = "policy"
    samples: int = 2
    refresh_s: float = 0.0
    partition: str = "shared"
    route: str = "hash"
    binding: str = "late"
    flow: str = "push"
    hash: str = "ring"
    hash_points: int = 100
    overflow: bool = False
    strict: bool = False
    pull_s: float = 1.0
    both: bool = False
    forget_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts; ``queue`` says whether they keep tasks that do not fit yet."""

    queue: bool = False


@dataclass(frozen=True, slots=True)
class MetadataService:
    """Knows where data lie and who is alive."""

    service: Delay = NO_DELAY


@dataclass(frozen=True, slots=True)
class DataManager:
    """Keeps data where tasks need them.

    Attributes:
        cache_objects: Objects that a host's cache holds (least recently used goes first); 0 is no cache.
        fetch: Seconds to bring an object from remote storage to a host.
        object_bytes: Size of an object, for the joules of moving it.
        intermediate: Outputs of parents: ``free``, ``local`` (on the parent's host; others fetch them) or ``stored``.
        cached: An object is in the cache from the ``end`` or from the ``start`` of its fetch on.
        moves: When a host is removed its objects move to their new owners instead of being forgotten.
    """

    service: Delay = NO_DELAY
    cache_objects: int = 0
    fetch: Delay = NO_DELAY
    object_bytes: float = 0.0
    intermediate: str = "free"
    cached: str = "end"
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Hybrid frames: tasks of ``long_s`` or more go to the first placer, which may not use the ``reserved`` share."""

    long_s: float = 10.0
    reserved: float = 0.1


@dataclass(frozen=True, slots=True)
class Stealing:
    """Idle hosts (``hosts``) or idle placers (``placers``) ask this many others for work, or idle slots look there.

    Attributes:
        half: Take half of the difference instead of one task (rebalancing on steal).
        short_only: Hosts take only tasks below the hybrid split's ``long_s`` (Hawk).
        retry_s: Pause after a host found nothing.
        slots: A slot that finds its host's queue empty looks into so many others' (1 or 2), once, and takes the oldest
            task of the longest; when it finds nothing it waits for its own queue (ExDe).
    """

    hosts: int = 0
    placers: int = 0
    half: bool = False
    short_only: bool = False
    retry_s: float = 0.5
    slots: int = 0


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """Queued tasks move to lighter hosts every ``period_s``: all that gain, or those that waited ``age_s``."""

    kind: str = "periodic"
    period_s: float = 1.0
    age_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Speculation:
    """A task that has run ``after`` times its estimate gets a copy; the first to end wins, the other is lost."""

    after: float = 2.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """A task that has run ``after_s`` yields when another waits.

    Attributes:
        kind: ``threshold`` (any other), ``fair-share`` (only one whose job has less of the cluster).
        kill: Start over instead of resuming; the joules are lost.
        resume_s: Seconds of work that resuming (or starting over) costs.
        limit: A task yields so often at most.
    """

    kind: str = "threshold"
    after_s: float = 1.0
    kill: bool = False
    resume_s: float = 0.0
    limit: int = 3


@dataclass(frozen=True, slots=True)
class FaultTolerance:
    """Failures and how the frame tolerates them. Hosts fail by the cluster's ``faults`` or by ``host_mtbf_s``.

    Attributes:
        heartbeat_s: A lost host is noticed after so long.
        retries: Attempts after the first.
        checkpoint_s, checkpoint_cost_s: Seconds of work between checkpoints (0: none), and what one costs.
        failover_s: A standby takes over a placer's queue after so long; None: its clients go elsewhere.
        slow_share, slow_factor: This share of attempts takes this many times as long (stragglers).
    """

    host_mtbf_s: float | None = None
    host_repair_s: float = 60.0
    heartbeat_s: float = 0.0
    retries: int = 3
    checkpoint_s: float = 0.0
    checkpoint_cost_s: float = 0.0
    placer_mtbf_s: float | None = None
    placer_repair_s: float = 60.0
    failover_s: float | None = None
    slow_share: float = 0.0
    slow_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Hints:
    """Placers prefer hosts that hold a task's data: elsewhere the score is worse by ``weight`` (1 is a full host)."""

    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Barriers:
    """``gangs``: tasks of several parts start at once. ``levels``: a workflow's level waits for the one before."""

    gangs: bool = True
    levels: bool = False


@dataclass(frozen=True, slots=True)
class Elasticity:
    """The broker adds a host when the load exceeds ``high`` and removes one below ``low``, one each ``period_s``."""

    high: float = 0.9
    low: float = 0.5
    period_s: float = 10.0
    boot_s: float = 30.0
    least_hosts: int = 1
    off_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Frame:
    """One scheduler frame. ``source`` says where a known system is described."""

    name: str
    architecture: str = "centralised"
    about: str = ""
    source: str = ""
    messages: Messages = Messages()
    client: Client = Client()
    broker: Broker | None = None
    placers: Placers = Placers()
    hosts: Hosts = Hosts()
    metadata: MetadataService | None = None
    data: DataManager | None = None
    split: Split | None = None
    stealing: Stealing | None = None
    rebalancing: Rebalancing | None = None
    speculation: Speculation | None = None
    preemption: Preemption | None = None
    faults: FaultTolerance | None = None
    hints: Hints | None = None
    barriers: Barriers | None = None
    elasticity: Elasticity | None = None
