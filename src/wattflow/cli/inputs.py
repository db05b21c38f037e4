"""From what was typed to workloads and clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.generate.recipe import Recipe
    from wattflow.model.workload import Workload


def estimated(source: Workload | Recipe, model: Path | None) -> Workload | Recipe:
    """The workload as policies may know it: with runtimes that a model predicts, where one was named."""
    if model is None:
        return source
    from wattflow.model.workload import Workload
    from wattflow.predict import modelfile, tasks
    from wattflow.predict.estimates import with_predictions

    if not isinstance(source, Workload):
        raise InvalidInput("--estimates", "predictions need a recorded trace; a generated workload has no history")
    loaded, manifest = modelfile.load(model)
    if not isinstance(loaded, tasks.TaskModel):
        raise InvalidInput(str(model), f"a model of {manifest.kind}; --estimates needs a model of tasks")
    return with_predictions(source, loaded.runtime)


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
