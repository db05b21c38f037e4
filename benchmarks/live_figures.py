"""Lines of the live engine's figures: shown as they come, and all together at the end."""

from __future__ import annotations

LINES: list[str] = []


def figure(name: str, value: float, unit: str, goal: str, ok: bool, note: str = "") -> None:
    """Keep a figure for the end, and show it now with its note."""
    LINES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
    print(LINES[-1] + note, flush=True)


def at_most(name: str, value: float, unit: str, goal: float, note: str = "") -> None:
    """Good when it is small."""
    figure(name, value, unit, f"<={goal:g}", value <= goal, note)


def at_least(name: str, value: float, unit: str, goal: float, note: str = "") -> None:
    """Good when it is large."""
    figure(name, value, unit, f">={goal:g}", value >= goal, note)
