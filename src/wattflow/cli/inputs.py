"""From what was typed to workloads and clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.generate.recipe import Recipe
    from wattflow.model.workload import Workload


def workload_of(text: str) -> Workload | Recipe:
    """A file, or the recipe of a generated workload (``family:key=value,…`` or the name of a bundled one)."""
    from wattflow.generate import DEMOS, FAMILIES
    from wattflow.generate.recipe import Recipe

    if not Path(text).exists():
        if text.startswith("demo:") and text[5:] in DEMOS:
            return DEMOS[text[5:]]
        if text.partition(":")[0] in FAMILIES:
            return Recipe.parse(text)
        if "/" not in text and "." not in text:
            names = ", ".join((*FAMILIES, *(f"demo:{name}" for name in DEMOS)))
            raise InvalidInput(text, f"is neither a file nor a generated workload; the families are {names}")
        raise InvalidInput(text, "no such file")
    from wattflow import traces

    loaded: Workload = traces.load(text)
    return loaded
