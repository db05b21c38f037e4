"""Past decisions with all their candidates: the engine's journal, replayed up to the one that is asked about.

A binding's own note says where a pod went and what it added. Which other nodes there were, and what the policy thought
of each, is too much to write into every pod; the journal holds what the engine was told, and the engine is
deterministic, so the question can be asked again as it was. One folder for each run of a scheduler, the newest kept.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattflow.engine.tables import UNKNOWN_COST
from wattflow.kube.engine_decider import EngineDecider
from wattflow.live.journal import Journal
from wattflow.live.past_decision import Past, explain_past
from wattflow.live.protocol import UnknownId
from wattflow.model.errors import InvalidInput

_RUNS, _MOST_BYTES, _LOOK_S = 3, 256 << 20, 10.0
_PREFIX = "run-"


@dataclass(slots=True)
class Decisions:
    """The journal of one run."""

    decider: EngineDecider
    journal: Journal

    @classmethod
    def into(cls, folder: Path, decider: EngineDecider) -> Decisions:
        """Begin a run's journal; of older runs the last few stay."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Names are times, so sorted is oldest first; with the new one there are `_RUNS`.
        for old in sorted(folder.glob(f"{_PREFIX}*"))[: 1 - _RUNS]:
            shutil.rmtree(old, ignore_errors=True)
        # Padded, so that names sort as times do.
        return cls(decider, Journal(decider.engine, folder / f"{_PREFIX}{time.time_ns():020}"))

    def note(self, uid: str) -> dict[str, object]:
        """Return what a binding writes so that the decision can be found again."""
        task = self.decider.task_of(uid)
        return {} if task is None else {"run": self.journal.folder.name, "task": task}

    async def run(self) -> None:
        """Begin anew from a snapshot where the journal has become large; decisions before it are forgotten."""
        with self.journal:
            while True:
                await asyncio.sleep(_LOOK_S)
                if sum(file.stat().st_size for file in self.journal.folder.glob("journal-*")) > _MOST_BYTES:
                    self.journal.checkpoint()


def candidates(folder: Path, note: Mapping[str, object], most: int = 8) -> list[str]:
    """Describe the candidates of the decision that a pod's note names, cheapest first, with the terms of each."""
    run, task = note.get("run"), note.get("task")
    if not isinstance(run, str) or not isinstance(task, int):
        return ["candidates: the scheduler kept no journal when it decided ([decisions] journal)"]
    # The note comes from a pod's annotation: it must not lead out of the folder.
    if "/" in run or not (folder / run).is_dir():
        raise InvalidInput(str(folder), f"it does not hold the journal {run!r} of the scheduler that decided")
    try:
        past = explain_past(folder / run, task)
    except UnknownId:
        return ["candidates: the decision is older than the journal's last snapshot"]
    return [f"{sum(one.alike for one in past.candidates)} candidates, cheapest first:", *_listed(past, most)]


def _listed(past: Past, most: int) -> list[str]:
    found = []
    for one in past.candidates[:most]:
        terms = ", ".join(f"{name} {value:.4g}" for name, value in one.terms.items())
        alike = f" and {one.alike - 1} alike" if one.alike > 1 else ""
        said = (
            # Nodes of unknown watts have a cost beyond all known ones (`UNKNOWN_COST`), which says nothing as a
            # number.
            f"cost {one.cost:.4g} ({terms})" if one.cost < UNKNOWN_COST else "watts unknown, after all that are known"
        )
        found.append(f"  {past.names.get(one.node, '?')}{alike}: {said}")
    rest = len(past.candidates) - most
    return [*found, *([f"  … and {rest} more"] if rest > 0 else []), *_moves(past)]


def _moves(past: Past, most: int = 4) -> list[str]:
    """Tell what moved a learned policy to the cheapest rather than the next: the features that count most."""
    known = [one for one in past.candidates if one.cost < UNKNOWN_COST and one.moved]
    if len(known) < 2:
        return []
    first, second = known[:2]
    # Moves are differences of logarithms of the price; a person reads per cent.
    told = [f"{name} {math.expm1(move):+.1%}" for name, move in first.against(second).items()]
    said = ", ".join(told[:most]).replace("-", "−").replace("%", " %") or "nothing"
    return [
        f"features that moved the first price against that of {past.names.get(second.node, '?')}: {said}"
        + (f" and {len(told) - most} smaller" if len(told) > most else "")
    ]
