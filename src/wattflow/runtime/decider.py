"""The live engine, with every call written down before its effects are seen.

The engine is deterministic: the same calls give the same ids and placements. So the journal is the calls, and a
restart is the last snapshot plus the calls after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from wattflow.live import Engine, Kind, fork, journal
from wattflow.live.protocol import Step, Why
from wattflow.model.errors import BrokenPolicy
from wattflow.model.workflow import Function, Variant
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.policy.weighted import packed
from wattflow.runtime import facts
from wattflow.runtime import messages as m
from wattflow.runtime.aside import SetAside

if TYPE_CHECKING:
    from wattflow.live.shielding import Adviser


POLICY_OF = {
    "energy": "least-energy",
    "response": "sjf",
    "makespan": "heft",
    "edp": "wattflow",
    "cost": "mashup",
    "utilisation": "most-allocated",
}
"""Which policy serves an objective where all open workflows have the same."""
WEIGHTS_OF = {
    "energy": {"energy": 1.0},
    "response": {"time": 1.0, "short": 1.0},
    "makespan": {"time": 1.0},
    "edp": {"energy": 0.5, "time": 0.5},
    "cost": {"time": 1.0},
    "utilisation": {"packing": 1.0},
}
"""Weights of a workflow's objective where others have another."""
WEIGHTED = "weighted"
"""The policy that serves several objectives at once, each workflow by its own weights."""
FALLBACK = "least-energy"
"""The policy that decides where the one in use broke its contract."""
CHOSEN = "chosen"
"""In a journal, in place of `use`: the policy that was chosen by rehearsal, not the one that was asked for."""
SHIELD = "shield"
"""In a journal: what the shield has observed by then (`live.shielding.Remembered`, as plain values)."""
KEEPER = "power-cap"
"""The policy that keeps caps: no objective of a workflow takes its place."""
NEVER = 1_000_000
"""Tries that the engine allows; how often a task may fail by its own doing is the service's count."""

ROOM_TASKS, ROOM_ATTEMPTS = 1 << 17, 1 << 14
"""Tasks and attempts that the engine has memory for at the start: 30 MB, and 40 ms that nobody waits for."""


class JournaledEngine:
    """An engine whose calls are kept in ``entries`` until the service has written them."""

    def __init__(self, policy: str, seed: int = 0, rehearsing: Adviser | None = None) -> None:
        self.entries: list[bytes] = []
        self.policy = self.own = self._served = policy
        self.keeper: str | None = None
        self.rehearsing = rehearsing
        self.shield: dict[str, Any] = {}
        self.aside = SetAside()
        self._shapes: dict[bytes, int] = {}
        self.engine = Engine(policy, seed=seed, max_retries=NEVER)

    def began_with(self, policy: str) -> None:
        """Write down the policy of an engine that knows nothing yet: a later start may be told another one."""
        self._note("use", policy)

    def room(self, tasks: int = ROOM_TASKS, attempts: int = ROOM_ATTEMPTS) -> None:
        """Tables that are large enough from the start: growing them under way would hold the loop up."""
        self._call("room", tasks, attempts)

    def node(self, node: m.Node) -> int:
        """A node joins or changes."""
        return int(self._call("node", facts.node_of(node)))

    def shape(self, variants: list[m.Variant], function: str, duties: Sequence[float] = ()) -> int:
        """Tell the engine what a kind of task needs. It gives the same id for the same values, so each is asked once.

        ``duties`` are those of the variants on their GPUs, as measured; empty where none is known.
        """
        # Packed bytes as the key: equal needs are equal bytes, and hashing them costs less than comparing structs.
        key = m.pack((variants, function, duties))
        if key not in self._shapes:
            self._shapes[key] = int(self._call("shape", _needs(variants, duties), function))
        return self._shapes[key]

    def cold_start_s(self, function: str) -> float:
        """Seconds of a cold start that the engine counts with; 0 while it was told none."""
        return self.engine.functions.get(function, Function(function)).cold_start_s

    def knows(self, function: str) -> bool:
        """Say whether the engine has seen a function."""
        return function in self.engine.functions

    def level_of(self, node: int) -> int:
        """Return the frequency level that the engine reckons with on a node; 0 is full clock."""
        return int(self.engine.describe(node).get("frequency", 0))

    def lowered(self) -> bool:
        """Return whether any node is reckoned with below full clock."""
        return bool(np.any(self.engine.state.nodes["frequency"] > 0))

    def function_name(self, number: int) -> str:
        """The function that the engine's number stands for."""
        return self.engine.function_name(number)

    def cold_start(self, function: str, seconds: float) -> None:
        """The engine counts with this cold start from now on."""
        known = self.engine.functions.get(function, Function(function))
        self._call("function", replace(known, cold_start_s=seconds))

    def function(self, function: m.Function) -> None:
        """Note what is stated about a function that the engine has not seen; what it has learned stays."""
        if not self.knows(function.name):
            self._call("function", facts.function_of(function))

    def workflow(self, tag: int, deadline_s: float | None, objective: str | None = None) -> int:
        """A workflow opens. It carries its weights from the start: others may come with unlike ones."""
        weights = {"weights": packed(**WEIGHTS_OF[objective])} if objective is not None else {}
        return int(self._call("workflow", deadline_s=deadline_s, tag=tag, **weights))

    def put(self, kind: Kind, *who: int, **fields: Any) -> int | None:
        """An event. One that the engine refuses is not written down."""
        identity: int | None = self._call("put", kind, *who, **fields)
        return identity

    def pin(self, tasks: Sequence[int], node: int | None) -> None:
        """Only this node may take these tasks, which wait, and they go first; with None, any may."""
        for task in tasks:
            self._call("pin", task, node)
        if node is not None:
            self.prefer(tasks)

    def prefer(self, tasks: Sequence[int]) -> None:
        """Let these tasks, as far as they wait, go before others that the policy takes for equal."""
        self._call("prefer", list(tasks))

    def use(self, policy: str) -> None:
        """Another policy from now on, also for those who name no objective. Raises before anything is written where
        it cannot run live."""
        self.own = self._served = policy
        if self.keeper is None:
            self._use(policy)

    def again(self) -> None:
        """Have the policy in use note its nodes anew: a snapshot of an earlier version has other notes."""
        self._use(self.policy)

    def keep(self) -> None:
        """Take the policy in use for the server's own."""
        self.own = self._served = self.policy

    def keeps(self, own: str) -> None:
        """The policy in use keeps a cap in the place of this one."""
        self.keeper, self.own, self._served = self.policy, own, own

    def cap(self, keeper: str | None) -> None:
        """Have this policy decide, whoever asks for another, for it keeps a cap; with None, who decided before."""
        self.keeper = keeper
        wanted = self._served if keeper is None else keeper
        if wanted != self.policy:
            self._use(wanted)

    def serve(self, objectives: Collection[str | None]) -> None:
        """Use what serves the objectives of all open workflows (None for one without) from now on: the policy of the
        one that they have in common, else the weights of each."""
        wanted = {POLICY_OF[one] if one is not None else self.own for one in objectives}
        # A cap is the cluster's: a workflow that wants to be quick does not lift it.
        capped = self.own.partition(":")[0] == KEEPER
        self._served = self.own if capped else wanted.pop() if len(wanted) == 1 else WEIGHTED
        # Also back to the server's own: an objective is its workflow's, not that of whoever comes after it.
        if self.keeper is None and self._served != self.policy:
            self._use(self._served)

    def _use(self, policy: str) -> None:
        self._call("use", policy)
        self.policy = policy

    def step(self, now_s: float) -> Step:
        """Fold and decide.

        A policy that breaks its contract is put aside for a plain one, which decides the rest of the step.
        """
        # Noted before it is made: where the policy breaks half-way, a replay breaks there too, and `step_on` goes on.
        self._note("step", now_s)
        try:
            step = self.engine.step(now_s)
        except BrokenPolicy as error:
            if self.policy == FALLBACK:
                raise
            self.aside.put("policy", self.policy, error)
            if self.own == self.policy:
                self.own = FALLBACK  # else the next submission would bring the broken one back
            self._served = FALLBACK if self._served == self.policy else self._served
            self.policy = FALLBACK
            self.close()
            step = self._call("step_on", FALLBACK)
        if self.rehearsing is not None:
            if self.keeper is not None:  # what it would choose is no policy that keeps a cap
                self.rehearsing.skip(now_s)
            else:
                self._rehearse(partial(self.rehearsing.note, self.engine, now_s, step))
        return step

    def look_ahead(self, now_s: float) -> bool:
        """Ask the rehearsal, when what was decided has been handed out: whether it has chosen other dials for what
        comes next, which is at once."""
        if self.rehearsing is None or self.keeper is not None:
            return False
        chosen = self._rehearse(partial(self.rehearsing.consider, self.engine, now_s))
        news = None if self.rehearsing is None else self.rehearsing.news()
        if news is not None:
            self.shield = asdict(news)
            self._note(SHIELD, json.dumps(self.shield))  # text, for calls take plain arguments alone
        if chosen is not None:
            # Noted under a name of its own: a replay must use what was chosen then, not rehearse again.
            self.engine.use(chosen)
            self._note(CHOSEN, chosen)
        return chosen is not None

    def _rehearse(self, call: Callable[[], Policy | None]) -> Policy | None:
        """Call the rehearsal. One that fails is not asked again: what it would have chosen is advice."""
        try:
            return call()
        except Exception as error:
            self.aside.put("rehearsal", self.policy, error)
            self.close()
            return None

    def close(self) -> None:
        """End the rehearsal, which may have a process of its own."""
        if self.rehearsing is not None:
            self.rehearsing.close()
            self.rehearsing = None

    def why(self, task: int) -> Why:
        """Why a task waits."""
        return self.engine.why(task)

    def replay(self, entries: Iterable[bytes]) -> float:
        """Make the calls of a journal again; returns the time of the last step."""
        last_s = 0.0
        for entry in entries:
            if not entry.startswith(b"["):  # no line of JSON: version 0.1.0 packed them otherwise
                last_s = _tell_earlier(self, entry, last_s)
                continue
            name, arguments, fields = journal.decode(entry)
            if name == SHIELD:  # no call of the engine, which decides alike without it
                self.shield = json.loads(arguments[0])
                continue
            if name == "step":
                last_s = float(arguments[0])
            elif name in ("use", "step_on"):
                self.policy = arguments[0]
            # A step that a broken policy did not finish is refused as it was then; `step_on` finishes it.
            journal.tell(self.engine, ("use" if name == CHOSEN else name, arguments, fields))
        return last_s

    def save(self, path: Path) -> None:
        """A snapshot of the engine."""
        fork.save(self.engine, path, {SHIELD: self.shield})

    def load(self, path: Path) -> None:
        """Go on from a snapshot."""
        self.engine, notes = fork.load(path)
        self.shield = notes.get(SHIELD, {})
        # Before the journal is replayed, whose calls it decides. What these note follows from the nodes alone.
        if self.engine.policy.name.partition(":")[0] in (KEEPER, registry.SHIELDED):
            fork.note_anew(self.engine)

    def _call(self, name: str, *arguments: Any, **fields: Any) -> Any:
        """Make a call of the engine and write it down; one that the engine refuses is not written."""
        # Made first: a call that the engine refuses must not be in the journal, where it would be refused at every
        # start.
        answer = getattr(self.engine, name)(*arguments, **fields)
        self._note(name, *arguments, **fields)
        return answer

    def _note(self, name: str, *arguments: Any, **fields: Any) -> None:
        self.entries.append(journal.encode(name, arguments, fields))


def _needs(variants: Sequence[m.Variant], duties: Sequence[float]) -> list[Variant]:
    known: Sequence[float | None] = duties or [None] * len(variants)
    return [facts.variant_of(*pair) for pair in zip(variants, known, strict=True)]


def _tell_earlier(decider: JournaledEngine, entry: bytes, last_s: float) -> float:
    """Make the call of an entry as 0.1.0 packed it (the message, not the call); the time of the last step."""
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
        variants, function, duties = msgspec.convert(args[0], list[m.Variant]), args[1], args[2] if args[2:] else ()
        engine.shape(_needs(variants, duties), function)
    elif name == "cold start":
        known = engine.functions.get(args[0], Function(args[0]))
        engine.function(replace(known, cold_start_s=args[1]))
    elif name == "workflow":
        engine.workflow(deadline_s=args[1], tag=args[0])
    elif name == "room":
        engine.room(*args)
