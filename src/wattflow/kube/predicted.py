"""Expected runtimes from `wattflow.predict`, by kind of task and bytes of input, refitted as tasks end.

Rows are what ended here, as seconds on a node of speed 1. A first model is fitted when there are enough of them;
later ones in the background, and each takes over only if it predicts better than the one in use (`predict.serving`).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from wattflow.predict import runtime
from wattflow.predict.observations import Observations
from wattflow.predict.serving import ServedModel

log = logging.getLogger(__name__)
_FIRST, _EVERY, _MOST = 40, 200, 5000
# Seconds are on a node of speed 1, so one machine stands for all.
_MACHINE, _RUN_OF = "reference", 20  # rows that ended one after another are taken for one run


@dataclass(slots=True)
class Predicted:
    """A model in service and the rows that the next is fitted on.

    Attributes:
        first: Ended tasks before the first model.
        every: Ended tasks between refits.
    """

    first: int = _FIRST
    every: int = _EVERY
    served: ServedModel | None = None
    ended: int = 0
    _rows: deque[tuple[str, float, float]] = field(default_factory=lambda: deque(maxlen=_MOST))
    _fitting: Future[runtime.RuntimeModel] | None = None

    def of(self, kind: str, size: float) -> float | None:
        """Predict the seconds of a task by its kind and bytes of input (NaN: unknown); None before it is known."""
        self._take_over()
        if self.served is None:
            return None
        seconds = self.served.predict_s(kind, _MACHINE, size)
        return seconds if math.isfinite(seconds) and seconds >= 0 else None

    def learn(self, kind: str, size: float, seconds: float) -> None:
        """Learn from a task that has ended."""
        # Also not NaN.
        if not seconds > 0:
            return
        self._rows.append((kind, size, seconds))
        self.ended += 1
        self._take_over()
        if self.served is not None:
            self.served.finished(kind, _MACHINE, seconds, size)
            if self.ended % self.every == 0:
                self.served.refit(self._observations())
        elif self._fitting is None and self.ended >= self.first:
            # A thread of its own and only for this fit: fitting takes seconds, and the scheduler's loop must
            # not wait.
            pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wattflow-fit")
            self._fitting = pool.submit(runtime.fit, self._observations())
            pool.shutdown(wait=False)

    def _take_over(self) -> None:
        if self._fitting is None or not self._fitting.done():
            return
        problem = self._fitting.exception()
        if problem is None:
            self.served = ServedModel(self._fitting.result())
        else:
            log.warning("no model of runtimes: %s", problem)
            # Not at every further task: rows that cannot be fitted now will not be with one more.
            self.first = self.ended + self.every
        self._fitting = None

    def _observations(self) -> Observations:
        kinds, sizes, seconds = zip(*self._rows, strict=True)
        runs = [str(number // _RUN_OF) for number in range(len(kinds))]
        return Observations.of(
            task=kinds,
            machine=[_MACHINE] * len(kinds),
            run=runs,
            runtime_s=seconds,
            sizes=[[size] for size in sizes],
            size_names=("input",),
        )
