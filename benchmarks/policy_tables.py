"""Tables of `make bench-policy` as lines of a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy_runs import Scenario


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario: the opponent, per cent saved with its interval, response, p95 and makespan over the baseline's,
    what the lower bound leaves to save (%), and our joules over that bound."""

    scenario: Scenario
    opponent: str
    saved: tuple[float, float, float]
    ratios: tuple[float, float, float]
    leaves: float
    gap: float


AGAINST = (
    "",
    "| cluster | quiet or busy | joules saved (95 %) | response over `hpe:sleep=30`'s | its bound is kept in |",
    "|---|---|---|---|---|",
)


def percent(saved: tuple[float, float, float]) -> str:
    """A saving with its interval."""
    middle, low, high = (f"{value:.1f}".replace("-", "−") for value in saved)
    return f"{middle} % ({low} … {high})"


def savings(rows: list[Row], bound: float) -> Iterator[str]:
    """A line per scenario; what breaks the bound is bold."""
    yield ""
    yield (
        "| cluster | family | load | opponent | joules saved (95 %) | mean response | p95 | makespan "
        "| the bound leaves | ours over the bound |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        times = " | ".join(f"**{value:.3f}**" if value > bound else f"{value:.3f}" for value in row.ratios)
        yield (
            f"| {row.scenario.cluster} | {row.scenario.family} | {row.scenario.load:g} | `{row.opponent}` "
            f"| {percent(row.saved)} | {times} | {row.leaves:.1f} % | × {row.gap:.1f} |"
        )


def against(cluster: str, word: str, saved: tuple[float, float, float], slower: float, kept: int, of: int) -> str:
    """A line of the table against the paper's algorithm."""
    return f"| {cluster} | {word} | {percent(saved)} | × {slower:.2f} | {kept} of {of} |"
