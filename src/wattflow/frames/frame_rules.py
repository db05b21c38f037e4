"""Which frames can work. What a mechanism needs is read off the mechanism table; every problem says why.

Here are also the placement policies inside a frame (``order+score`` or ``engine:NAME``), and where hosts lie on the
ring of consistent hashing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.frames import frame as frames
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.kernel import frame_tables
from wattflow.kernel import random
from wattflow.model.errors import InvalidInput, Problem, unknown_name
from wattflow.policy import registry
from wattflow.policy.base import Policy

_HOST_SALT = 7


def ring(hosts: int, points: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return points of all hosts on the hash ring, in order, and whose they are."""
    host = np.repeat(np.arange(hosts, dtype=np.int64), max(1, points))
    salted = host.astype(np.uint64) + np.uint64(_HOST_SALT)
    point = random.hashed_each(salted, np.arange(len(host), dtype=np.uint64))
    order = np.argsort(point, kind="stable")
    return point[order], host[order].astype(np.int32)


COMPONENTS = {
    "client": "hands in tasks, retries, and asks elsewhere when nobody answers",
    "broker": "splits work over placers, offers hosts to them, adds and removes hosts",
    "placers": "decide where tasks run; one or many, with exact or stale views of the hosts",
    "host": "runs tasks; may keep a queue of its own, a cache of objects, and steal",
    "metadata": "knows where data lie, who is alive, and what a failed placer was doing",
    "data manager": "fetches, keeps and moves objects and intermediate data",
}


@dataclass(frozen=True, slots=True)
class MechanismForm:
    """One way to have a mechanism: the key that asks for it, and what it does."""

    name: str
    key: str
    text: str
    wanted: Callable[[Frame], bool]
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A row of the table."""

    name: str
    components: tuple[str, ...]
    forms: tuple[MechanismForm, ...]


# A need is one of `COMPONENTS` or a key of `frame_rules._MET`, which says how a frame meets it.
def _preempts(kind: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.preemption is not None and frame.preemption.kind == kind


def _form(name: str, key: str, text: str, wanted: Callable[[Frame], bool], *needs: str) -> MechanismForm:
    return MechanismForm(name, key, text, wanted, needs)


MECHANISMS = (
    Mechanism("preemption", ("placers", "host"), (
        _form("threshold", "preemption.kind", "a task that has run for after_s yields when another waits for its room",
              _preempts("threshold"), "placers", "host"),
        _form("fair share", "preemption.kind", "it yields only to a task whose job holds less of the cluster",
              _preempts("fair-share"), "placers", "host"),
        _form("kill", "preemption.kill", "the task starts over and its joules are lost; else it resumes after resume_s",
              lambda f: f.preemption is not None and f.preemption.kill, "placers", "host"),
    )),
    Mechanism("control flow", ("placers", "broker", "host"), (
        _form("push", "placers.flow", "placers send tasks to hosts", lambda f: f.placers.flow == "push", "placers"),
        _form("pull", "placers.flow", "hosts with room ask a placer for work and wait there for it",
              lambda f: f.placers.flow == "pull", "placers", "host"),
        _form("offers", "placers.flow", "the broker offers all free hosts to one placer at a time, the poorest first",
              lambda f: f.placers.flow == "offers", "placers", "broker"),
        _form("late binding", "placers.binding", "tasks stay with the placer until a host has room",
              lambda f: f.placers.binding == "late", "placers"),
        _form("probes", "placers.rule", "reservations queue at hosts; the first to have room gets a task of the batch",
              lambda f: f.placers.rule == "probes", "placers", "host queue"),
        _form("work stealing by hosts", "stealing.hosts", "an idle host asks k others, takes the longest queue's head",
              lambda f: f.stealing is not None and f.stealing.hosts > 0, "host", "host queue"),
        _form("owner queues", "placers.rule", "who first takes an object's task owns it; its next tasks queue there",
              lambda f: f.placers.rule == "owner", "placers", "host queue"),
        _form("both queues", "placers.both", "tasks of known objects stand in a global queue as well; the first wins",
              lambda f: f.placers.both, "placers", "host queue"),
        _form("work stealing by slots", "stealing.slots", "a slot without work looks into two hosts' queues, once",
              lambda f: f.stealing is not None and f.stealing.slots > 0, "host", "host queue"),
        _form("work stealing by placers", "stealing.placers", "an idle placer asks k others for half their queue",
              lambda f: f.stealing is not None and f.stealing.placers > 0, "placers", "several placers"),
        _form("rebalancing", "rebalancing.kind", "queued tasks move to lighter hosts, periodically or when old",
              lambda f: f.rebalancing is not None, "placers", "host queue"),
        _form("speculative copies", "speculation.after", "a straggler gets a copy; the loser's joules are lost",
              lambda f: f.speculation is not None, "placers", "host"),
    )),
    Mechanism("data placement", ("placers", "metadata", "data manager"), (
        _form("object caches", "data.cache_objects", "hosts keep objects, the least recently used goes first",
              lambda f: f.data is not None and f.data.cache_objects > 0, "metadata", "data manager"),
        _form("intermediate data, shuffle", "data.intermediate",
              "outputs stay on the parent's host and children elsewhere fetch them, or go through storage",
              lambda f: f.data is not None and f.data.intermediate != "free", "metadata", "data manager"),
        _form("movement on scaling", "data.moves", "objects of a removed host move to their new owners",
              lambda f: f.data is not None and f.data.moves, "metadata", "data manager", "elasticity"),
    )),
    Mechanism("fault tolerance", ("placers", "client", "metadata", "data manager"), (
        _form("retry", "faults.retries", "lost and failed tasks are handed in again",
              lambda f: f.faults is not None and f.faults.retries > 0, "client"),
        _form("checkpoint", "faults.checkpoint_s", "a retry starts from the last checkpoint",
              lambda f: f.faults is not None and f.faults.checkpoint_s > 0, "data manager"),
        _form("heartbeat", "faults.heartbeat_s", "a lost host is noticed after a time-out",
              lambda f: f.faults is not None and f.faults.heartbeat_s > 0, "metadata"),
        _form("placer failover", "faults.failover_s", "a standby takes over a failed placer's queue",
              lambda f: f.faults is not None and f.faults.failover_s is not None, "metadata"),
    )),
    Mechanism("networking", ("placers", "metadata"), (
        _form("network hints", "hints.weight", "placers prefer hosts that hold a task's data",
              lambda f: f.hints is not None, "placers", "metadata"),
    )),
    Mechanism("barriers", ("placers", "broker"), (
        _form("gangs", "barriers.gangs", "all parts of a task start at one instant or none",
              lambda f: f.barriers is not None and f.barriers.gangs, "placers", "exact late binding"),
        _form("barriers", "barriers.levels", "a level of a workflow waits for the whole level before",
              lambda f: f.barriers is not None and f.barriers.levels, "placers", "someone who sees all tasks"),
    )),
    Mechanism("elasticity", ("broker", "host"), (
        _form("watermarks", "elasticity.high", "hosts are added above the high and removed below the low watermark",
              lambda f: f.elasticity is not None, "broker", "host"),
    )),
)  # fmt: skip


def forms_of(frame: Frame) -> list[tuple[Mechanism, MechanismForm]]:
    """List the mechanisms that a frame uses, in the order of the table."""
    return [(mechanism, form) for mechanism in MECHANISMS for form in mechanism.forms if form.wanted(frame)]


def components_of(frame: Frame) -> list[str]:
    """Return the components that a frame has."""
    there = {
        "client": True,
        "broker": frame.broker is not None,
        "placers": True,
        "host": True,
        "metadata": frame.metadata is not None,
        "data manager": frame.data is not None,
    }
    return [name for name in COMPONENTS if there[name]]


CHOICES = {
    ("", "architecture"): frames.ARCHITECTURES,
    ("broker", "split"): frames.SPREADS,
    ("placers", "rule"): frames.RULES,
    ("placers", "partition"): frames.PARTITIONS,
    ("placers", "route"): frames.SPREADS,
    ("placers", "binding"): frames.BINDINGS,
    ("placers", "flow"): frames.FLOWS,
    ("placers", "hash"): frames.HASHES,
    ("data", "intermediate"): frames.INTERMEDIATES,
    ("data", "cached"): frames.CACHED,
    ("rebalancing", "kind"): frames.REBALANCES,
    ("preemption", "kind"): frames.PREEMPTIONS,
}
"""Keys whose texts are fixed, by table."""

_LEAST = {
    ("placers", "count"): 1,
    ("placers", "samples"): 1,
    ("placers", "hash_points"): 1,
    ("elasticity", "least_hosts"): 1,
    ("preemption", "limit"): 0,
}
_ABOVE_ZERO = {
    ("client", "timeout_s"), ("placers", "pull_s"), ("stealing", "retry_s"), ("rebalancing", "period_s"),
    ("speculation", "after"), ("preemption", "after_s"), ("elasticity", "period_s"), ("faults", "host_mtbf_s"),
    ("faults", "placer_mtbf_s"), ("faults", "slow_factor"), ("split", "long_s"),
}  # fmt: skip
_SHARES = {("split", "reserved"), ("faults", "slow_share")}


def check(frame: Frame) -> None:
    """Raise InvalidInput with every problem of a frame, or return."""
    problems = list(problems_of(frame))
    if problems:
        raise InvalidInput(f"frame {frame.name!r}", problems)


def problems_of(frame: Frame) -> Iterator[Problem]:
    """Everything that keeps a frame from working."""
    wrong = list(_wrong_values(frame))
    yield from wrong
    # What follows reads these values: wrong ones would give problems that are none.
    if wrong:
        return
    yield from _architecture(frame)
    yield from _missing(frame)
    yield from _placers(frame)
    yield from _slots(frame)


def _wrong_values(frame: Frame) -> Iterator[Problem]:
    for table, part in _parts(frame):
        for item in fields(part):
            value = getattr(part, item.name)
            where = f"{table}.{item.name}" if table else item.name
            if (table, item.name) in CHOICES and value not in CHOICES[table, item.name]:
                yield Problem(where, f"{value!r} is not one of {', '.join(CHOICES[table, item.name])}")
            elif isinstance(value, Delay):
                yield from _wrong_delay(where, value)
            # A bool is an int to Python.
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield from _wrong_number(where, (table, item.name), float(value))
    elastic = frame.elasticity
    if elastic is not None and not elastic.low < elastic.high:
        yield Problem("elasticity.low", f"the low mark {elastic.low:g} must lie below the high one, {elastic.high:g}")


def _parts(frame: Frame) -> Iterator[tuple[str, Any]]:
    yield "", frame
    for item in fields(frame):
        part = getattr(frame, item.name)
        if is_dataclass(part):
            yield item.name, part


def _wrong_number(where: str, key: tuple[str, str], value: float) -> Iterator[Problem]:
    least = _LEAST.get(key, 0)
    # NaN by name: it is below nothing, so no bound would refuse it.
    if math.isnan(value) or value < least:
        yield Problem(where, f"must be at least {least}, not {value:g}")
    elif key in _ABOVE_ZERO and value == 0:
        yield Problem(where, "must be more than 0")
    elif key in _SHARES and value > 1:
        yield Problem(where, f"is a share of at most 1, not {value:g}")
    elif math.isinf(value):
        yield Problem(where, "must be finite; leave it out instead")


def _wrong_delay(where: str, delay: Delay) -> Iterator[Problem]:
    if delay.kind not in frames.DISTRIBUTIONS:
        yield Problem(where, f"{delay.kind!r} is not one of {', '.join(frames.DISTRIBUTIONS)}")
    numbers = (delay.mean_s, delay.sigma, *delay.values_s, *delay.weights)
    if any(not (math.isfinite(number) and number >= 0) for number in numbers):
        yield Problem(where, "needs seconds, spreads and weights that are finite and not negative")
    elif delay.kind == "choice" and (len(delay.values_s) != len(delay.weights) or sum(delay.weights) <= 0):
        yield Problem(where, "needs as many weights as values, with a sum above 0")


def _architecture(frame: Frame) -> Iterator[Problem]:
    count, kind = frame.placers.count, frame.architecture
    if kind == "centralised" and count != 1:
        yield Problem("placers.count", f"a centralised frame has one placer, not {count}; use decentralised for more")
    if kind == "delegated" and frame.broker is None:
        yield Problem("broker", "a delegated frame needs a broker that splits the work over the placers")
    if kind == "delegated" and count < 2:
        yield Problem("placers.count", "a delegated frame needs at least 2 placers to delegate to")
    if kind == "hybrid" and frame.split is None:
        yield Problem("split", "a hybrid frame needs [split] to tell long tasks from short ones")
    if kind == "hybrid" and count < 2:
        yield Problem("placers.count", "a hybrid frame needs 2 placers: one for long tasks, one for short ones")
    if kind != "hybrid" and frame.split is not None:
        yield Problem("split", f"only hybrid frames split long from short tasks; this one is {kind}")


# Needs that are not listed here (client, placers, host) every frame meets. The names are those of `MECHANISMS`.
_MET: dict[str, tuple[Callable[[Frame], bool], str]] = {
    "broker": (lambda f: f.broker is not None, "a broker: add a [broker] table"),
    "metadata": (lambda f: f.metadata is not None, "the metadata service: add a [metadata] table"),
    "data manager": (lambda f: f.data is not None, "a data manager: add a [data] table"),
    "host queue": (
        lambda f: f.hosts.queue and f.placers.binding == "early",
        "queues at the hosts, but tasks wait at the placers: set hosts.queue = true and placers.binding = 'early'",
    ),
    "several placers": (lambda f: f.placers.count > 1, "other placers to ask, but there is only one"),
    "elasticity": (lambda f: f.elasticity is not None, "hosts that come and go: add an [elasticity] table"),
    "exact late binding": (
        lambda f: f.placers.binding == "late" and f.placers.refresh_s == 0,
        "a placer that holds all parts back until they fit: placers.binding = 'late' and refresh_s = 0",
    ),
    "someone who sees all tasks": (
        lambda f: f.broker is not None or f.placers.count == 1,
        "someone who sees all tasks of a workflow: a broker, or a single placer",
    ),
}
"""How a frame meets a need, and how to say that it does not."""


def _missing(frame: Frame) -> Iterator[Problem]:
    """List components that the mechanisms need and the frame lacks."""
    for _, form in forms_of(frame):
        for need in form.needs:
            if need in _MET and not _MET[need][0](frame):
                yield Problem(form.key, f"{form.name} needs {_MET[need][1]}")


def _placers(frame: Frame) -> Iterator[Problem]:
    placers = frame.placers
    late = placers.binding == "late"
    if not late and not frame.hosts.queue:
        yield Problem("placers.binding", "early binding sends tasks to hosts that may be full; set hosts.queue = true")
    if late and placers.rule != "policy":
        yield Problem(
            "placers.rule",
            f"{placers.rule!r} picks hosts without knowing their room; late binding needs 'policy'",
        )
    if placers.flow != "push" and (not late or placers.refresh_s > 0):
        yield Problem("placers.flow", f"{placers.flow} works with late binding and an exact view (refresh_s = 0)")
    if placers.flow == "pull" and placers.count > 1 and frame.barriers is not None and frame.barriers.gangs:
        yield Problem("barriers.gangs", "a gang needs its hosts at once, but with pull they ask one placer or another")
    if placers.flow == "offers" and frame.architecture != "delegated":
        yield Problem("placers.flow", "offers are made by a broker to its placers: the frame must be delegated")
    if placers.partition == "disjoint" and placers.count < 2:
        yield Problem("placers.partition", "a partition needs at least 2 placers")
    if placers.partition == "disjoint" and frame.architecture == "hybrid":
        yield Problem("placers.partition", "a hybrid frame divides its hosts by split.reserved; use 'shared'")
    if placers.partition == "disjoint" and placers.rule == "hash":
        yield Problem("placers.partition", "hashing gives an object one host of the whole cluster; use 'shared'")
    if placers.overflow and placers.rule != "hash":
        yield Problem("placers.overflow", "only rule = 'hash' has a home to overflow from")
    if frame.hints is not None and placers.rule != "policy" and frame.architecture != "hybrid":
        yield Problem("hints", f"hints change the score of hosts, but rule {placers.rule!r} does not score them")
    if frame.hints is not None and frame.data is None:
        yield Problem("hints", "there is nothing to hint at without a [data] table")
    if frame.stealing is not None and frame.stealing.short_only and frame.split is None:
        yield Problem("stealing.short_only", "needs [split] to tell short tasks from long ones")


def _slots(frame: Frame) -> Iterator[Problem]:
    """Slots that look for work themselves do so at once, and nobody else moves tasks."""
    placers, stealing = frame.placers, frame.stealing
    owners = placers.rule == "owner"
    looks = stealing is not None and stealing.slots > 0
    if (placers.both or placers.forget_s > 0) and not owners:
        yield Problem("placers.both", "only rule = 'owner' knows owners; it needs that rule, as forget_s does")
    if looks and stealing is not None and (stealing.slots > 2 or stealing.hosts or stealing.placers):
        yield Problem("stealing.slots", "is 1 or 2, and the only form of stealing: hosts = 0, placers = 0")
    if not (owners or looks):
        return
    where = "placers.rule" if owners else "stealing.slots"
    if not frame.hosts.queue or placers.binding != "early" or placers.flow != "push":
        yield Problem(where, "slots look into queues of hosts: hosts.queue = true, binding = 'early', flow = 'push'")
    if owners and placers.samples > 2:
        yield Problem("placers.samples", f"a slot looks at 1 or 2 global queues, not {placers.samples}")
    if owners and (placers.partition != "shared" or frame.architecture == "hybrid"):
        yield Problem("placers.partition", "owners are hosts of the whole cluster: 'shared', and not a hybrid frame")
    if owners and not placers.service.is_zero:
        yield Problem("placers.service", "an owner is looked up at once; decisions take no time with rule = 'owner'")
    if not frame.messages.latency.is_zero:
        yield Problem("messages.latency", f"slots look into queues at once: no latency with {where}")
    for name in ("rebalancing", "preemption", "elasticity", "hints", "speculation"):
        if getattr(frame, name) is not None:
            yield Problem(name, f"moves tasks or weighs hosts in ways that {where} does not know")
    faults = frame.faults
    if faults is not None and (faults.host_mtbf_s is not None or faults.placer_mtbf_s is not None):
        yield Problem("faults", f"hosts and placers do not fail with {where}; tasks may")
    if frame.barriers is not None and frame.barriers.gangs:
        yield Problem("barriers.gangs", f"a slot takes one task, so there are no gangs with {where}")


ORDERS = ("fifo", "sjf")
SCORES = {
    "least-loaded": frame_tables.LEAST_LOADED,
    "pack": frame_tables.PACK,
    "first": frame_tables.FIRST,
    "fastest": frame_tables.FASTEST,
    "least-energy": frame_tables.LEAST_ENERGY,
    "random": frame_tables.ANY,
}
DEFAULT = "fifo+least-loaded"
ENGINE = "engine:"


@dataclass(frozen=True, slots=True)
class FramePolicy:
    """How queues are ordered and hosts are scored."""

    order: str = "fifo"
    score: str = "least-loaded"
    engine: Policy | None = None
    # Not compared: `==` of arrays has no single answer.
    keys: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return f"{ENGINE}{self.engine.name}" if self.engine is not None else f"{self.order}+{self.score}"


def names() -> list[str]:
    """Return all policies, the default first."""
    return [f"{order}+{score}" for order in ORDERS for score in SCORES]


def load(name: str) -> FramePolicy:
    """Return a policy by name; ``fifo`` and ``sjf`` alone mean least loaded."""
    if name.startswith(ENGINE):
        return of_engine(registry.load(name.removeprefix(ENGINE)))
    order, _, score = name.partition("+")
    policy = FramePolicy(order, score or "least-loaded")
    if policy.order not in ORDERS or policy.score not in SCORES:
        raise unknown_name("frame policy", name, names(), "(an order and a score joined by '+', or engine:NAME)")
    return policy


def of_engine(policy: Policy) -> FramePolicy:
    """Return one of the engine's policies; its score stands behind the name ``first`` until the placers ask it."""
    return FramePolicy("fifo", "first", policy)
