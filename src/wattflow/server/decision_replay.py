"""A decision of the past: the snapshot before it and the journal up to it, replayed, and the engine asked there.

The engine is deterministic, so the replayed one is in the state in which it decided. An attempt was placed by the step
of its ``placed_s``: the replay stops before that step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from wattflow.live import past_decision
from wattflow.live.protocol import Explained
from wattflow.runtime import messages as m
from wattflow.runtime.compaction import Replayed, load_snapshot
from wattflow.runtime.decider import JournaledEngine
from wattflow.server.not_there import Missing, NotKept
from wattflow.store import journal, reads
from wattflow.store.reads import Found

MOST_CANDIDATES = 100
_SPEC = msgspec.msgpack.Decoder(tuple[int, m.Task])


def explained(database: sa.Engine, task: int, number: int) -> dict[str, Any]:
    """Candidates of the decision that placed an attempt (0: the last), and what it cost in the end.

    Raises:
        Gone: It is older than all that is kept.
        Missing: It was never placed.
    """
    row = reads.task(database, task)
    if row is None:
        raise Missing(f"no task {task}")
    attempts = reads.attempts(database, row["workflow"], row["key"])
    chosen = [one for one in attempts if number in (0, one["number"])]
    if not chosen:
        told = f"attempt {number} of it" if number else "an attempt of it"
        raise Missing(f"task {task} ({row['key']}): {told} was never placed, so there is no decision to explain")
    attempt = chosen[-1]
    engine, spec = _SPEC.decode(row["spec"])
    decider = before(database, attempt["placed_s"])
    candidates = past_decision.candidates_at(decider.engine, attempt["placed_s"], engine)
    names = {identity: name for name, identity in decider.engine.nodes.items()}
    about = {
        "task": task, "key": row["key"], "state": row["state"], "when": "past", "at_s": attempt["placed_s"],
        "attempt": attempt["number"], "policy": decider.policy, "why": None, "shield": shield_note(decider),
        "chosen": {"node": attempt["node"], "variant": spec.variants[attempt["variant"]].name},
    }  # fmt: skip
    place = (attempt["node"], attempt["variant"])
    return about | {"candidates": shown(candidates, names, spec.variants, place)} | _in_the_end(attempt)


def shield_note(decider: JournaledEngine) -> str | None:
    """Tell the shield's choice by then, what it forbade and whose lateness was paid for; None without a shield."""
    note = decider.shield.get("note")
    if not note:
        return None
    from wattflow.plan.shield import told  # the simulator with it

    return told(note)


def shown(
    candidates: Iterable[Explained], names: dict[int, str], variants: list[m.Variant], place: tuple[str, int] | None
) -> list[dict[str, Any]]:
    """Candidates as plain data, the cheapest first; the one that was taken is marked.

    A candidate stands for all nodes that are alike, so one on another node may be marked: then it is the first that
    has the variant.
    """
    made = [
        {"node": names.get(one.node, "?"), "variant": variants[one.variant].name, "cost": one.cost, "alike": one.alike,
         "terms": one.terms, "moved": dict(list(one.moved.items())[:12]), "chosen": False, "number": one.variant}
        for one in list(candidates)[:MOST_CANDIDATES]
    ]  # fmt: skip
    if place is not None:
        same = [one for one in made if one["number"] == place[1]]
        exact = [one for one in same if one["node"] == place[0]]
        for one in (exact or same)[:1]:
            one["chosen"] = True
    for one in made:
        del one["number"]
    return made


def _in_the_end(attempt: Found) -> dict[str, Any]:
    known = attempt["ended_s"] is not None and attempt["started_s"] is not None
    fields = ("energy_j", "low_j", "high_j", "marginal_j", "provenance", "outcome")
    return {"cost_s": attempt["ended_s"] - attempt["started_s"] if known else None} | {
        name: attempt[name] for name in fields
    }


def before(database: sa.Engine, at_s: float) -> JournaledEngine:
    """The engine as it was when it was about to decide at a time."""
    decider, begun = _begun(database, at_s)
    for entry in journal.entries(database, begun.sequence, begun.checksum):
        calls: list[bytes] = msgspec.msgpack.decode(entry.data)
        for number, call in enumerate(calls):
            if is_step(call, at_s):
                decider.replay(calls[:number])
                return decider
        decider.replay(calls)
    raise NotKept(f"the decision of {at_s:.3f} s is not in the journal that the store keeps")


def is_step(call: bytes, at_s: float) -> bool:
    """Say whether a call of the journal is the step of a time. Only steps are decoded."""
    if call.startswith(b'["step",'):
        return bool(msgspec.json.decode(call)[1][0] == at_s)
    return call.startswith(b"\x92\xa4step") and bool(msgspec.msgpack.decode(call)[1] == at_s)  # of version 0.1.0


def _begun(database: sa.Engine, at_s: float) -> tuple[JournaledEngine, Replayed]:
    """The engine of the last snapshot before a time; a new one where the journal still has its first entry."""
    decider = JournaledEngine("fifo")  # the journal's first call, or the snapshot, says which policy it really was
    older = [one for one in journal.snapshots(database) if one.time_s < at_s]
    if older:
        return decider, load_snapshot(decider, database, older[-1])
    if reads.first_entry(database) == 1:
        return decider, Replayed()
    raise NotKept(
        "this decision is too old: the store keeps snapshots and journal of the engine up to a number of bytes, and it "
        "was made before the oldest that is left"
    )
