"""Findings of an experiment: tables beside the published ones, figures against goals, pictures, a JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[float, str], None]
"""Called with the share done and what is under way."""

Picture = Callable[[Path], None]
"""Draws one picture to the path it is given; the ending says the format."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number against its goal. ``goal`` is text such as ``16.2±3`` or ``≤5``; ``ok`` says whether it is met."""

    name: str
    value: float
    unit: str
    goal: str
    ok: bool

    def __str__(self) -> str:
        return f"figure {self.name} {self.value:.4g} {self.unit} goal {self.goal} {'ok' if self.ok else 'short'}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table for the terminal: texts, row by row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything an experiment found.

    Attributes:
        sheets: Tables, ours beside the published ones.
        notes: Sentences that explain them: what was calibrated, what the model cannot explain.
        figures: Numbers with goals, those that fall short included.
        results: What is written as JSON; plain numbers, texts, lists and maps.
        pictures: By file name without ending.
    """

    sheets: tuple[Sheet, ...]
    figures: tuple[Figure, ...]
    results: Mapping[str, object]
    notes: tuple[str, ...] = ()
    pictures: Mapping[str, Picture] = field(default_factory=dict)


def no_progress(share: float, text: str) -> None:
    """Ignore progress, for callers who look at nothing."""
