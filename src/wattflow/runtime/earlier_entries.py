"""Entries of a server's journal as version 0.1.0 packed them: the messages, not the engine's calls. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from wattflow.live import Engine, Kind
from wattflow.model.workflow import Function
from wattflow.runtime import facts
from wattflow.runtime import messages as m


class Replayed(Protocol):
    """Whoever makes the calls of a journal again (`runtime.decider`)."""

    engine: Engine
    policy: str


def tell(decider: Replayed, entry: bytes, last_s: float) -> float:
    """Make the call of an entry again; the time of the last step, which was ``last_s`` before."""
    name, *args = msgspec.msgpack.decode(entry)
    engine = decider.engine
    if name == "step":
        engine.step(args[0])
        return float(args[0])
    if name == "put":
        engine.put(Kind(args[0]), *args[1], **args[2])
    elif name in ("use", "twin"):
        engine.use(args[0])
        decider.policy = args[0] if name == "use" else decider.policy
    else:
        _tell_fact(engine, name, args)
    return last_s


def _tell_fact(engine: Engine, name: str, args: list[Any]) -> None:
    """Tell the engine what it was told to know: nodes, shapes, functions, workflows, how much room it needs."""
    if name == "node":
        engine.node(facts.node_of(msgspec.convert(args[0], m.Node)))
    elif name == "shape":
        _shape(engine, msgspec.convert(args[0], list[m.Variant]), *args[1:])
    elif name == "cold start":
        known = engine.functions.get(args[0], Function(args[0]))
        engine.function(replace(known, cold_start_s=args[1]))
    elif name == "workflow":
        engine.workflow(deadline_s=args[1], tag=args[0])
    elif name == "room":
        engine.room(*args)


def _shape(engine: Engine, variants: list[m.Variant], function: str, duties: Sequence[float] = ()) -> None:
    known: Sequence[float | None] = duties or [None] * len(variants)
    engine.shape([facts.variant_of(*pair) for pair in zip(variants, known, strict=True)], function)
