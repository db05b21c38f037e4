"""From what was typed to workloads and clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.generate.recipe import Recipe
    from wattflow.model.workload import Workload


def estimated(source: Workload | Recipe, model: Path | None) -> Workload | Recipe:
    """Return the workload as policies may know it: with runtimes that a model predicts, where one was named."""
    if model is None:
        return source
    # Only where a model was named: predictions load numba and scipy.
    from wattflow.model.workload import Workload
    from wattflow.predict import modelfile, tasks
    from wattflow.predict.engine_estimates import with_predictions

    if not isinstance(source, Workload):
        raise InvalidInput("--estimates", "predictions need a recorded trace; a generated workload has no history")
    loaded, manifest = modelfile.load(model)
    if not isinstance(loaded, tasks.TaskModel):
        raise InvalidInput(str(model), f"a model of {manifest.kind}; --estimates needs a model of tasks")
    return with_predictions(source, loaded.runtime)
