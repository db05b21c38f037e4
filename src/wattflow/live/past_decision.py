"""A decision of the past, explained: snapshot and journal replayed up to it, and the engine asked there.

The engine is deterministic, so the replayed State is the one that decided. Within the step the choices before it are
carried out one by one, the cheapest each time, as the step did.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattflow.live import fork, journal
from wattflow.live.engine import Engine
from wattflow.live.protocol import Explained, Placement, UnknownId
from wattflow.model.errors import WattflowError
from wattflow.policy.base import Policy


@dataclass(frozen=True, slots=True)
class Past:
    """A decision as it was made.

    Attributes:
        at_s: The step's time.
        placements: The task's placements in it (several for a gang).
        candidates: What it could have been, cheapest first; of a gang, those of its first part.
        names: The nodes' names at that time, by id.
    """

    at_s: float
    placements: Sequence[Placement]
    candidates: Sequence[Explained]
    names: Mapping[int, str] = field(default_factory=dict)


def explain_past(folder: str | os.PathLike[str], task: int, policies: Mapping[str, Policy] | None = None) -> Past:
    """Explain the last decision that placed a task since the journal's snapshot. The folder is only read."""
    place, known = Path(folder), policies or {}
    found = -1
    placements: list[Placement] = []
    engine = _loaded(place, known)
    for number, call in enumerate(journal.told(place)):
        told = journal.tell(engine, call, known)
        own = [one for one in getattr(told, "placements", ()) if one.task == task]
        if own:
            found, placements = number, own
    if found < 0:
        raise UnknownId(f"{task} was not placed since the snapshot in {folder}")
    engine = _loaded(place, known)
    for number, call in enumerate(journal.told(place)):
        if number == found:
            _, arguments, fields = call
            at_s = float(arguments[0] if arguments else fields["now_s"])
            names = {id: name for name, id in engine.nodes.items()}
            return Past(at_s, placements, candidates_at(engine, at_s, task), names)
        journal.tell(engine, call, known)
    raise WattflowError(f"the journal in {folder} became shorter while it was read")


def _loaded(place: Path, policies: Mapping[str, Policy]) -> Engine:
    return fork.load(journal.last_snapshot(place), policies)[0]


def candidates_at(engine: Engine, at_s: float, task: int) -> list[Explained]:
    """Explain the candidates of a task in the step that an engine is about to take; the engine is spent."""
    engine.state.rules["score_limit"] = 0  # all of them; a decision by hand asks for every row
    hand = engine.by_hand(rows=len(engine.state.candidates) * int(engine.state.shapes.variant_n.max(initial=1)))
    hand.open(at_s)
    before = engine.explain(task)
    wanted, _ = hand.wanted()
    while wanted >= 0 and wanted != task:
        wanted, _ = hand.wanted(0)
    # A policy that does not go by the queue decides over all tasks at once, on the State that the step began with.
    return engine.explain(task) if wanted == task else before


__all__ = ["Past", "candidates_at", "explain_past"]
