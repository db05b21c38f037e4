"""Training data: the user's tables, or traces."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Scope
from wattflow.predict import tasks, user_tables, watts
from wattflow.predict.core import INPUTS
from wattflow.predict.modelfile import Manifest
from wattflow.predict.observations import Observations, concatenate, of_workload
from wattflow.predict.runtime import RuntimeModel
from wattflow.traces import registry

_ASKED = {
    user_tables.TASKS: "tasks or a trace",
    user_tables.COUNTERS: "usage counters",
}


def kind_of(source: str) -> str:
    """Return ``tasks`` or ``watts``: the kind of model that a source teaches, and can be asked about."""
    if not Path(source).exists():
        raise InvalidInput(source, "there is no such file")
    found = user_tables.kind_of(Path(source))
    return user_tables.TASKS if found == user_tables.TRACE else found


def need_kind(source: str, kind: str, model: str) -> None:
    """Refuse a source that a model of this kind cannot be asked about."""
    if (found := kind_of(source)) != kind:
        raise InvalidInput(source, f"holds {_ASKED[found]}; {model} is a model of {kind} and needs {_ASKED[kind]}")


def rows_of(source: str) -> Observations:
    """Read task rows of a CSV table, or of any trace wattflow reads."""
    if kind_of(source) != user_tables.TASKS:
        raise InvalidInput(source, f"holds {_ASKED[kind_of(source)]}, not tasks")
    path = Path(source)
    if user_tables.kind_of(path) == user_tables.TASKS:
        return user_tables.task_table(path)
    return of_workload(registry.load(path))


def train(source: str, also: Sequence[str] = ()) -> tuple[object, Manifest]:
    """Fit the model of one or several sources of one kind and describe it."""
    kind = kind_of(source)
    for other in also:
        need_kind(other, kind, source)
    files = tuple(_described(name) for name in (source, *also))
    if kind != user_tables.TASKS and also:
        raise InvalidInput(also[0], f"several sources are learned together for tasks only, not for {kind}")
    if kind == user_tables.COUNTERS:
        return _train_watts(source, files)
    rows = concatenate([rows_of(name) for name in (source, *also)])
    fitted = tasks.fit(rows)
    metrics = metrics_of(fitted.runtime) | {"rows": float(len(rows))}
    return fitted, Manifest("tasks", files, metrics, "; ".join(tasks.not_learned(rows)))


def _train_watts(source: str, files: tuple[Mapping[str, object], ...]) -> tuple[object, Manifest]:
    usage = user_tables.counter_table(Path(source))
    if usage.scope is None:
        raise InvalidInput(source, "no watts: the column power_w, platform_power or package_power is needed to fit")
    good = np.flatnonzero(usage.power_w > 0)
    # Texts that are no numbers keep the order of the file, which is stable.
    good = good[np.argsort(np.array([_moment(text) for text in usage.time[good].tolist()]), kind="stable")]
    counters = {name: values[good] for name, values in usage.counters.items()}
    found = watts.fit(counters, usage.power_w[good], usage.scope)
    metrics = {f"left_out_mean_error_{kind.replace(' ', '_')}": cost for kind, cost in found.costs.items()}
    scope = {Scope.WALL: "wall", Scope.PACKAGE: "package"}.get(usage.scope, str(usage.scope))
    return found, Manifest("watts", files, metrics, f"{scope} watts; most weight: {found.kind}")


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def metrics_of(model: RuntimeModel) -> dict[str, float]:
    """Return errors on inner left-out rows by novelty; what could not be measured is left out."""
    found: dict[str, float] = {}
    for kind, parts in model.calibrations.items():
        for known, calibration in zip(INPUTS, parts, strict=True):
            for name, value in (("median", calibration.median_error), ("mean", calibration.mean_error)):
                if np.isfinite(value):
                    found[f"left_out_{name}_error_{kind}_{known}".replace(" ", "_")] = value
    return found


def _described(source: str) -> Mapping[str, object]:
    """Describe a file by name and hash; without its folders, for a model file may be shared."""
    path = Path(source)
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return {"path": path.name, "sha256": content, "licence": "the user's own"}
