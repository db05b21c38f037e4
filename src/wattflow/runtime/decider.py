"""The live engine, with every call written down before its effects are seen.

The engine is deterministic: the same calls give the same ids and placements. So the journal is the calls, and a
restart is the last
snapshot plus the calls after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wattflow.live import Engine, Kind, fork
from wattflow.live.protocol import Step, Why
from wattflow.model.workflow import Function
from wattflow.runtime import facts
from wattflow.runtime import messages as m

if TYPE_CHECKING:
    from wattflow.live.rehearsing import Rehearsing

POLICY_OF = {
    "energy": "least-energy",
    "response": "sjf",
    "makespan": "heft",
    "edp": "wattflow",
    "cost": "mashup",
    "utilisation": "most-allocated",
}
"""Which policy serves an objective."""
NEVER = 1_000_000
"""Tries that the engine allows; how often a task may fail by its own doing is the service's count."""

ROOM_TASKS, ROOM_ATTEMPTS = 1 << 17, 1 << 14
"""Tasks and attempts that the engine has memory for at the start: 30 MB, and 40 ms that nobody waits for."""


class Decider:
    """An engine whose calls are kept in ``entries`` until the service has written them."""

    def __init__(self, policy: str, seed: int = 0, rehearsing: Rehearsing | None = None) -> None:
        self.entries: list[bytes] = []
        self.policy = policy
        self.rehearsing = rehearsing
        self._shapes: dict[bytes, int] = {}
        self.engine = Engine(policy, seed=seed, max_retries=NEVER)

    def began_with(self, policy: str) -> None:
        """Write down the policy of an engine that knows nothing yet: a later start may be told another one."""
        self._note("use", policy)

    def room(self, tasks: int = ROOM_TASKS, attempts: int = ROOM_ATTEMPTS) -> None:
        """Tables that are large enough from the start: growing them under way would hold the loop up."""
        self.engine.room(tasks, attempts)
        self._note("room", tasks, attempts)

    def node(self, node: m.Node) -> int:
        """A node joins or changes."""
        identity = self._node(node)
        self._note("node", node)
        return identity

    def shape(self, variants: list[m.Variant], function: str, duties: Sequence[float] = ()) -> int:
        """What a kind of task needs. The engine gives the same id for the same values, so each is asked once.

        ``duties`` are those of the variants on their GPUs, as measured; empty where none is known.
        """
        key = m.pack((variants, function, duties))
        if key not in self._shapes:
            self._shapes[key] = self._shape(variants, function, duties)
            self._note("shape", variants, function, *([duties] if duties else []))
        return self._shapes[key]

    def cold_start_s(self, function: str) -> float:
        """Seconds of a cold start that the engine counts with; 0 while it was told none."""
        return self.engine.functions.get(function, Function(function)).cold_start_s

    def knows(self, function: str) -> bool:
        """Whether the engine has seen a function."""
        return function in self.engine.functions

    def function_name(self, number: int) -> str:
        """The function that the engine's number stands for."""
        return self.engine.function_name(number)

    def cold_start(self, function: str, seconds: float) -> None:
        """The engine counts with this cold start from now on."""
        self._cold_start(function, seconds)
        self._note("cold start", function, seconds)

    def function(self, function: m.Function) -> None:
        """Note what is stated about a function that the engine has not seen; what it has learned stays."""
        if not self.knows(function.name):
            self.engine.function(facts.function_of(function))
            self._note("function", function)

    def workflow(self, tag: int, deadline_s: float | None) -> int:
        """A workflow opens."""
        identity = self.engine.workflow(deadline_s=deadline_s, tag=tag)
        self._note("workflow", tag, deadline_s)
        return identity

    def put(self, kind: Kind, *who: int, **fields: Any) -> int | None:
        """An event. One that the engine refuses is not written down."""
        identity = self.engine.put(kind, *who, **fields)
        self._note("put", int(kind), who, fields)
        return identity

    def use(self, policy: str) -> None:
        """Another policy from now on. Raises before anything is written where it cannot run live."""
        self.engine.use(policy)
        self.policy = policy
        self._note("use", policy)

    def step(self, now_s: float) -> Step:
        """Fold and decide; a rehearsal may choose other dials for what comes next, which is at once."""
        self._note("step", now_s)
        step = self.engine.step(now_s)
        chosen = None if self.rehearsing is None else self.rehearsing.consider(self.engine, now_s)
        if chosen is not None:
            self.engine.use(chosen)
            self._note("dials", chosen.name)
            return replace(step, wake_at=now_s)
        return step

    def why(self, task: int) -> Why:
        """Why a task waits."""
        return self.engine.why(task)

    def replay(self, entries: Iterable[bytes]) -> float:
        """Make the calls of a journal again; returns the time of the last step."""
        last_s = 0.0
        for entry in entries:
            name, *args = msgspec.msgpack.decode(entry)
            if name == "step":
                last_s = args[0]
                self.engine.step(last_s)
            elif name == "put":
                self.engine.put(Kind(args[0]), *args[1], **args[2])
            elif name == "node":
                self._node(msgspec.convert(args[0], m.Node))
            elif name == "shape":
                self._shape(msgspec.convert(args[0], list[m.Variant]), *args[1:])
            elif name == "cold start":
                self._cold_start(*args)
            elif name == "function":
                self.engine.function(facts.function_of(msgspec.convert(args[0], m.Function)))
            elif name == "workflow":
                self.engine.workflow(deadline_s=args[1], tag=args[0])
            elif name == "use":
                self.engine.use(args[0])
                self.policy = args[0]
            elif name == "dials":
                self.engine.use(args[0])
            elif name == "twin":  # of 0.1, whose dial of break-even times was named as the seconds are now
                self.engine.use(args[0].replace(":sleep=", ":idle="))
            elif name == "room":
                self.engine.room(*args)
        return last_s

    def save(self, path: Path) -> None:
        """A snapshot of the engine."""
        fork.save(self.engine, path)

    def load(self, path: Path) -> None:
        """Go on from a snapshot."""
        self.engine, _ = fork.load(path)

    def _note(self, *entry: object) -> None:
        self.entries.append(m.pack(entry))

    def _node(self, node: m.Node) -> int:
        return self.engine.node(facts.node_of(node))

    def _cold_start(self, function: str, seconds: float) -> None:
        known = self.engine.functions.get(function, Function(function))
        self.engine.function(replace(known, cold_start_s=seconds))

    def _shape(self, variants: list[m.Variant], function: str, duties: Sequence[float] = ()) -> int:
        known: Sequence[float | None] = duties or [None] * len(variants)
        return self.engine.shape([facts.variant_of(*pair) for pair in zip(variants, known, strict=True)], function)
