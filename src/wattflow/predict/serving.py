"""A runtime model in service: single rows, corrected after each finished task, refitted behind a shadow test."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from wattflow.predict import runtime
from wattflow.predict.fast import RowPredictor
from wattflow.predict.observations import Benchmarks, Observations
from wattflow.predict.online import AdaptiveWidth, Corrector, shadow_test

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
