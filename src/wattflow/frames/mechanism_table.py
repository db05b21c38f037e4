"""The mechanism table as data: forms, the components they need, and the keys that ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wattflow.frames.frame import Frame

COMPONENTS = {
    "client": "hands in tasks, retries, and asks elsewhere when nobody answers",
    "broker": "splits work over placers, offers hosts to them, adds and removes hosts",
    "placers": "decide where tasks run; one or many, with exact or stale views of the hosts",
    "host": "runs tasks; may keep a queue of its own, a cache of objects, and steal",
    "metadata": "knows where data lie, who is alive, and what a failed placer was doing",
    "data manager": "fetches, keeps and moves objects and intermediate data",
}


@dataclass(frozen=True, slots=True)
class Form:
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
    forms: tuple[Form, ...]


# A need is one of `COMPONENTS` or a key of `frame_rules._MET`, which says how a frame meets it.
def _preempts(kind: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.preemption is not None and frame.preemption.kind == kind


def _form(name: str, key: str, text: str, wanted: Callable[[Frame], bool], *needs: str) -> Form:
    return Form(name, key, text, wanted, needs)


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


def forms_of(frame: Frame) -> list[tuple[Mechanism, Form]]:
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
