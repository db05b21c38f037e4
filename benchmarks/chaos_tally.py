"""Portions of `make chaos` added up: what each found is kept in a file, with its seed and the sources it attacked.

Only portions against the same sources (server, agents, store) are added: a kill of last week's code proves nothing
about today's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import wattflow

UNDER_ATTACK = ("runtime", "server", "store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one attack found.

    Attributes:
        lost: Tasks that did not end well, whatever the reason.
        late_s: The longest time until a loss was noticed, while the server was up all the time.
        late_down_s: The same where the server itself was away in between.
    """

    seed: int
    sources: str
    kills: int
    tasks: int
    lost: int
    twice: int
    silent: int
    losses: int
    late_s: float
    late_down_s: float
    took_s: float
    faults: dict[str, int] = field(default_factory=dict)


def sources() -> str:
    """A hash of the code under attack."""
    root, digest = Path(wattflow.__file__).parent, hashlib.sha256()
    for path in sorted(path for name in UNDER_ATTACK for path in (root / name).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def recorded(file: Path, portion: Portion) -> list[Portion]:
    """Add a portion to a file; returns all in it that attacked the same sources, this one last."""
    known = [Portion(**one) for one in json.loads(file.read_text())] if file.exists() else []
    known.append(portion)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps([asdict(one) for one in known], indent=1))
    draft.replace(file)
    return [one for one in known if one.sources == portion.sources]


def summed(portions: Sequence[Portion]) -> Portion:
    """All of them as one; the longest waits count."""
    faults: dict[str, int] = {}
    for one in portions:
        for name, count in one.faults.items():
            faults[name] = faults.get(name, 0) + count
    counted = ("kills", "tasks", "lost", "twice", "silent", "losses", "took_s")
    sums = {name: sum(getattr(one, name) for one in portions) for name in counted}
    worst = {name: max(getattr(one, name) for one in portions) for name in ("late_s", "late_down_s")}
    return Portion(seed=portions[-1].seed, sources=portions[-1].sources, faults=faults, **sums, **worst)
