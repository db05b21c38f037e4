"""A runtime model in service: single rows, corrected after each finished task, refitted behind a shadow test."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from wattflow.model.workload import Workload
from wattflow.predict import conformal, runtime
from wattflow.predict.compiled import compiled
from wattflow.predict.core import LARGE
from wattflow.predict.observations import Benchmarks, Floats, Ints, Observations, of_workload
from wattflow.predict.online import AdaptiveWidth, Corrector, shadow_test

Process = tuple[Floats, Floats, Floats, Floats, Ints, Ints, Floats, Ints, Floats]
"""Lines, offsets, nearness of machines and scales; then start, machine, size, data and weight of the fitted rows."""


class RowPredictor:
    """Point predictions of a fitted runtime model for single rows, equal to `RuntimeModel.predict` on known tasks."""

    def __init__(self, model: runtime.RuntimeModel) -> None:
        core, process, plain = model.core, model.core.process, model.core.plain
        self._task = {name: i for i, name in enumerate(model.names.tasks)}
        self._machine = {name: i for i, name in enumerate(model.names.machines)}
        self._data = {name: i for i, name in enumerate(model.names.data)}
        self._ran = core.ran
        self._inputs, self._machines = plain.inputs, plain.pair.shape[2]
        same = zip(plain.data.key.tolist(), plain.data.value.tolist(), plain.steadied.value.tolist(), strict=True)
        self._same = {key: (value, steadied) for key, value, steadied in same}
        self._here = dict(zip(plain.here.key.tolist(), plain.here.value.tolist(), strict=True))
        scales = np.exp(process.scales)
        # Machine distances are fixed: their kernel is made once, not in every call.
        near = np.exp(-(process.distance**2) / (2 * scales[5] ** 2))
        # Infinite where sizes do not matter: then no size is large.
        highest = np.where(plain.spread > 0, np.log(np.maximum(core.backbone.highest, 1.0)), np.inf)
        self._process = (
            np.ascontiguousarray(np.column_stack([
                core.backbone.intercept, core.backbone.slope, core.backbone.floor,
                np.sqrt(np.maximum(core.backbone.lowest, 1.0) * np.maximum(core.backbone.highest, 1.0)), highest,
            ])),
            np.ascontiguousarray(core.backbone.offset), near, scales, process.start, process.places.machine,
            process.places.log_size, process.places.data, process.weight,
        )  # fmt: skip
        self._plain = (np.ascontiguousarray(plain.pair), np.ascontiguousarray(plain.task))
        self._weights = {kind: np.ascontiguousarray(table) for kind, table in model.weights.items()}
        self._shift = {
            (kind, known): np.asarray(found.shift * np.minimum(found.scale**2, conformal.SHIFT_MOST))
            for kind, parts in model.calibrations.items()
            for known, found in enumerate(parts)
        }

    def predict_s(self, task: str, machine: str, size: float = math.nan, data: str = "") -> float:
        """Predict seconds; NaN for a task that was never profiled, or for a novelty the model was not fitted for."""
        k = self._task.get(task, -1)
        if k < 0:
            return math.nan
        # As in `Core.members`: the last column is a machine that nobody knows.
        m = self._machine.get(machine, self._ran.shape[1] - 1)
        kind = runtime.KNOWN if self._ran[k, m] else runtime.NEW_MACHINE
        weights = self._weights.get(kind)
        if weights is None:
            return math.nan
        d = self._data.get(data, -1)
        # The same keys as `Plain.data_key` and `here_key`; both must change together.
        key = k * self._inputs + d if d >= 0 else -1
        same, steadied = self._same.get(key, (math.nan, math.nan))
        here = self._here.get(key * self._machines + m, math.nan) if d >= 0 else math.nan
        log_s, large = _log_seconds((k, m, size, d), (same, here, steadied), self._process, self._plain, weights)
        # x == x is False for NaN only: this counts what is known of the input, as `Core.regime` does.
        return math.exp(log_s - (0.0 if large else self._shift[kind, (same == same) + (here == here)][k]))


@compiled
def _log_seconds(
    row: tuple[int, int, float, int],
    inputs: tuple[float, float, float],
    process: Process,
    plain: tuple[Floats, Floats],
    weights: Floats,
) -> tuple[float, bool]:
    """Return (log seconds of the weighted members, whether the size is among the largest); see `Core.members`."""
    k, m, size, data = row
    same, here, steadied = inputs
    line, smooth = _smooth(k, m, size, data, process)
    pair, task = plain
    median = task[0, k]
    median_here = pair[0, k, m] if pair[0, k, m] == pair[0, k, m] else smooth
    last_here = pair[1, k, m] if pair[1, k, m] == pair[1, k, m] else smooth
    x = size / 1e9
    along = _along(task[2, k], task[3, k], task[4, k], x, median)
    line_here = _along(pair[2, k, m], pair[3, k, m], pair[4, k, m], x, median_here)
    squares_here = _along(pair[5, k, m], pair[6, k, m], pair[4, k, m], x, line_here)
    # Before the fallbacks below replace what is unknown.
    known = (1 if same == same else 0) + (1 if here == here else 0)
    # The order of fallbacks is that of `core._WIDER`.
    same = same if same == same else median
    here = here if here == here else same
    steadied = steadied if steadied == steadied else median
    large = size == size and math.log(max(size, 1.0)) - process[0][k, 4] > -math.log(LARGE)
    w = weights[known + (3 if large else 0)]
    # The order of members is that of `core.MEMBERS`.
    total = w[0] * smooth + w[1] * line + w[2] * median + w[3] * median_here + w[4] * last_here + w[5] * along
    total += w[6] * line_here + w[7] * squares_here + w[8] * same + w[9] * here + w[10] * steadied
    return total, large


@compiled
def _along(intercept: float, slope: float, floor: float, x: float, otherwise: float) -> float:
    seconds = intercept + slope * x
    return math.log(max(seconds, floor)) if seconds == seconds else otherwise


@compiled
def _smooth(k: int, m: int, size: float, data: int, arrays: Process) -> tuple[float, float]:
    line, offset, near, scales, start, machines, log_sizes, datas, weight = arrays
    # The middle of the sizes seen (`Backbone.curve`), but 0 for the process (`Rows.places`).
    known = size if size == size else line[k, 3]
    seconds = max(line[k, 0] + line[k, 1] * known / 1e9, line[k, 2])
    log_size = math.log((size if size == size else 0.0) / 1e9 + 1e-6)
    straight = math.log(seconds) + offset[k, m]
    total = straight
    for i in range(start[k], start[k + 1]):
        close = near[m, machines[i]]
        gap = log_size - log_sizes[i]
        value = scales[0] * scales[0] * close
        if data >= 0 and datas[i] == data:
            value += scales[1] * scales[1] + scales[2] * scales[2] * close
        value += math.exp(-gap * gap / (2 * scales[6] * scales[6])) * (
            scales[3] * scales[3] + scales[4] * scales[4] * close
        )
        total += value * weight[i]
    return straight, total


_LEAST_SHADOW, _MOST_SHADOW, _MOST_ASKED = 30, 200, 10_000
_Asked = tuple[str, str, str]


@dataclass(slots=True)
class _Side:
    """A model with its own correction and its errors since both sides were judged together."""

    model: runtime.RuntimeModel
    corrector: Corrector = field(default_factory=Corrector)
    errors: list[float] = field(default_factory=list)
    rows: RowPredictor = field(init=False)

    def __post_init__(self) -> None:
        self.rows = RowPredictor(self.model)

    def predict_s(self, task: str, machine: str, size: float, data: str) -> float:
        return self.rows.predict_s(task, machine, size, data) * math.exp(self.corrector.correction(task, machine, size))

    def finished(self, task: str, machine: str, size: float, data: str, runtime_s: float) -> None:
        raw = self.rows.predict_s(task, machine, size, data)
        if math.isnan(raw):
            # As wrong as is counted: a model that cannot answer must not win by silence.
            self.errors.append(1.0)
            return
        # Judged before it learns from the task.
        self.errors.append(abs(math.log(runtime_s / self.predict_s(task, machine, size, data))))
        # The corrector learns from the raw error, or it would correct itself.
        self.corrector.finished(task, machine, math.log(runtime_s / raw), size, self.model.scale(task))


class ServedModel:
    """Predicts, learns from what finished, and takes over a refitted model only when that did better.

    A refit runs in a thread. Its result predicts in the shadow, on tasks that finish from then on; it takes over when
    it wins by the shadow test, and is dropped when it has not won after 200 tasks.
    """

    def __init__(self, model: runtime.RuntimeModel) -> None:
        self._current = _Side(model)
        self._shadow: _Side | None = None
        self._training: Future[runtime.RuntimeModel] | None = None
        self._width, self._asked = AdaptiveWidth(), dict[_Asked, tuple[float, float, float]]()
        self.replaced = 0

    @property
    def model(self) -> runtime.RuntimeModel:
        return self._current.model

    def predict_s(self, task: str, machine: str, size: float = math.nan, data: str = "") -> float:
        """Predict corrected seconds; NaN for a task that was never profiled."""
        return self._current.predict_s(task, machine, size, data)

    def interval_s(self, task: str, machine: str, size: float = math.nan, data: str = "") -> tuple[float, float]:
        """Return where 90 % of such tasks end: the corrected interval, as wide as finished tasks showed it must be.

        A task that was never profiled has the wide interval of those it resembles. What was asked here is judged when
        the task finishes.
        """
        sizes = np.full((1, len(self.model.size_names)), size)
        row = Observations.of(
            task=[task],
            machine=[machine],
            data=[data],
            sizes=sizes,
            size_names=self.model.size_names,
            # Any known source: the interval should not widen for a name that nobody gave.
            source=[self.model.names.sources[0]],
        )
        found = self.model.predict(row)
        low, high = float(found.low_s[0]), float(found.high_s[0])
        point = float(found.runtime_s[0])
        # Never profiled (NaN), or an odd interval: nothing to correct by.
        if not low <= point <= high:
            return low, high
        moved = math.exp(self._current.corrector.correction(task, machine, size))
        asked = (point * moved, low * moved, high * moved)
        # Asked and never finished: the oldest is forgotten.
        if len(self._asked) >= _MOST_ASKED:
            self._asked.pop(next(iter(self._asked)))
        self._asked[task, machine, data] = asked
        return self._width.interval(task, *asked)

    def finished(self, task: str, machine: str, runtime_s: float, size: float = math.nan, data: str = "") -> None:
        """Learn from a finished task; runtimes that are not above 0 teach nothing."""
        if not runtime_s > 0:
            return
        if asked := self._asked.pop((task, machine, data), None):
            self._width.finished(task, runtime_s, *asked)
        if self._training is not None and self._training.done():
            self.offer(self._training.result())
            self._training = None
        self._current.finished(task, machine, size, data, runtime_s)
        if self._shadow is not None:
            self._shadow.finished(task, machine, size, data, runtime_s)
            self._judge(self._shadow)

    def offer(self, candidate: runtime.RuntimeModel) -> None:
        """Put a candidate into the shadow; both sides are judged from here on."""
        self._shadow = _Side(candidate)
        # From here on both sides see the same tasks.
        self._current.errors.clear()

    def refit(self, rows: Observations, benchmarks: Benchmarks | None = None) -> None:
        """Fit on these rows in the background; a refit already under way goes on instead."""
        if self._training is None:
            pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wattflow-refit")
            self._training = pool.submit(runtime.fit, rows, benchmarks)
            pool.shutdown(wait=False)

    def _judge(self, shadow: _Side) -> None:
        ours, theirs = self._current.errors, shadow.errors
        # Every thirty tasks: looking after each one would let chance win some time.
        if len(theirs) % _LEAST_SHADOW:
            return
        # One failure counts at most 1 on both sides.
        if shadow_test(np.minimum(ours, 1.0).tolist(), np.minimum(theirs, 1.0).tolist(), _LEAST_SHADOW):
            self._current, self._shadow = shadow, None
            self._current.errors.clear()
            self.replaced += 1
        elif len(theirs) >= _MOST_SHADOW:
            self._shadow = None


def with_predictions(workload: Workload, model: runtime.RuntimeModel, machine: str = "") -> Workload:
    """Return the workload with estimates from a model; a task that was never profiled has none (NaN).

    ``machine`` is the machine predictions are made for where the trace names none: the one of speed 1.
    """
    rows = of_workload(workload, machine)
    return workload.with_estimates(model.predict(rows).runtime_s)
