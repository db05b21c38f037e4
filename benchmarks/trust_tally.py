"""Portions of `make bench-trust` added up: what each found is kept with its seed, its commit and its failures.

Only portions against the same sources are added, as in `make chaos`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos_tally import sources

MOST_FAILURES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one portion of one part found.

    Attributes:
        counts: Numbers that portions add.
        worst: Numbers of which the largest stands.
        failures: What went wrong, each with what is needed to see it again.
    """

    part: str
    seed: int
    took_s: float
    counts: dict[str, float] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    sources: str = field(default_factory=sources)
    commit: str = field(default_factory=lambda: commit())


def commit() -> str:
    """The commit that is checked out, with a mark where files differ from it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def recorded(file: Path, portion: Portion) -> list[Portion]:
    """Add a portion to a file; returns all portions of its part against the same sources, this one last."""
    known = read(file)
    known.append(portion)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps([asdict(one) for one in known], indent=1))
    draft.replace(file)
    return [one for one in known if (one.part, one.sources) == (portion.part, portion.sources)]


def read(file: Path) -> list[Portion]:
    """All portions of a file; none where there is no file."""
    return [Portion(**one) for one in json.loads(file.read_text())] if file.exists() else []


def summed(portions: Sequence[Portion]) -> Portion:
    """Portions of one part as one."""
    counts: dict[str, float] = {}
    worst: dict[str, float] = {}
    for one in portions:
        for name, value in one.counts.items():
            counts[name] = counts.get(name, 0) + value
        for name, value in one.worst.items():
            worst[name] = max(worst.get(name, value), value)
    failures = [failure for one in portions for failure in one.failures][:MOST_FAILURES]
    last = portions[-1]
    return Portion(part=last.part, seed=last.seed, took_s=sum(one.took_s for one in portions), counts=counts,
                   worst=worst, failures=failures, sources=last.sources, commit=last.commit)  # fmt: skip
