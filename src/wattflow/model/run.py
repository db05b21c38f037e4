"""A finished run: attempts, energy by account, and a manifest. The same for simulated and real runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.units import human_energy, human_time
from wattflow.model.workload import Workload

ACCOUNTS = ("idle", "sleep", "wake", "run", "cold_start", "transfer", "lost", "unattributed")
"""Every joule is in exactly one of these; they sum to the node's energy."""

OUTCOMES = ("done", "failed", "node_lost", "time_limit", "cancelled", "preempted", "superseded")

ATTEMPT = np.dtype([
    ("task", "i4"), ("part", "i2"), ("attempt", "i2"), ("node", "i4"), ("device", "i4"),
    ("variant", "i2"), ("outcome", "i2"),
    ("ready_s", "f8"), ("placed_s", "f8"), ("start_s", "f8"), ("end_s", "f8"),
    ("message_s", "f4"), ("wake_s", "f4"), ("cold_s", "f4"), ("data_s", "f4"), ("hold_s", "f4"),
    ("run_j", "f8"), ("cold_j", "f4"), ("transfer_j", "f4"), ("marginal_j", "f4"), ("guarantee", "f4"),
])  # fmt: skip
"""One row per attempt of a part. ready → placed is queueing; then message, wake, cold start, data, hold (a gang's
early parts wait for the others); start → end runs.
``device`` is the index of the device within its node, −1 without one; ``run_j`` is the attributed share of P(k) − P(0)
and of the device's watts; ``marginal_j`` is what placing it added at that moment by the estimate."""

BAND = np.dtype([("low_j", "f8"), ("high_j", "f8"), ("provenance", "i1")])
"""One row per attempt: between which joules the truth lies, and how they are known (index into `Provenance`, −1:
nobody knows the joules)."""

SLEEPS = ("asleep", "waking", "down")
SLEEP = np.dtype([("node", "i4"), ("from_s", "f8"), ("to_s", "f8"), ("state", "i1")])
"""A stretch of time in which a node was not on; ``state`` is an index into ``SLEEPS``."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """Hold what happened in a finished run.

    Attributes:
        attempts: Rows of ``ATTEMPT`` in order of end.
        energy_j: Joules by node (rows) and account (columns, order of ``ACCOUNTS``).
        carbon_g, cost: Per node, over the whole run, PUE included in both.
        peak_w, makespan_s: Of the whole cluster; makespan is last end − first release. The peak of a real run is
            that of its meters' windows, None where nobody measured its nodes.
        lead_s: Seconds before the first release that were counted too: ``start_s`` is so much earlier.
        power_log: Columns (time_s, node, watts) at each change, or empty when not asked for. That of a real run has
            ``idle_w`` too, and NaN from where on nobody measured.
        bands: Of a real run, rows of ``BAND`` beside the attempts; None where joules are as good as the profiles.
        sleep_log: Of a real run, rows of ``SLEEP`` by node and time; a simulation's is read off its power.
        scalars: Counters such as ``decisions``, ``events``, ``decision_s``, ``retries``, ``wakes``.
        manifest: Inputs, seed, versions, policy and its parameters, provenance of power.
    """

    workload: Workload
    cluster: Cluster
    policy: str
    attempts: NDArray[np.void]
    energy_j: NDArray[np.float64]
    carbon_g: NDArray[np.float64]
    cost: NDArray[np.float64]
    peak_w: float | None
    makespan_s: float
    start_s: float = 0.0
    lead_s: float = 0.0
    power_log: NDArray[np.void] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    manifest: Mapping[str, object] = field(default_factory=dict)
    simulated: bool = True
    bands: NDArray[np.void] | None = None
    sleep_log: NDArray[np.void] | None = None

    def __repr__(self) -> str:
        what = f"{self.workload.name!r} on {self.cluster.name!r} under {self.policy!r}"
        figures = f"{len(self.attempts):,} attempts, {human_time(self.makespan_s)}, {human_energy(self.total_j)}"
        return f"Run({what}: {figures}, {'simulated' if self.simulated else 'real'})"

    @property
    def total_j(self) -> float:
        """Return all joules of all nodes, PUE not included."""
        return float(self.energy_j.sum())

    @property
    def span_s(self) -> float:
        """Return seconds that joules, grams and rent cover: from ``start_s`` to the last end."""
        return self.lead_s + self.makespan_s

    def account_j(self, account: str) -> float:
        """Return joules of one account over all nodes."""
        return float(self.energy_j[:, ACCOUNTS.index(account)].sum())

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Tell for each task whether all its parts were done."""
        done = self._successful()
        parts = np.array([shape.parts for shape in self.workload.shapes], np.int64)[self.workload.shape]
        # A gang is done when as many rows ended well as it has parts.
        finished: NDArray[np.bool_] = np.bincount(done["task"], minlength=len(self.workload)) >= parts
        return finished

    def start_s_by_task(self) -> NDArray[np.float64]:
        """Start of each task's successful attempt; NaN where there is none."""
        return self._by_task("start_s", np.minimum)

    def end_s_by_task(self) -> NDArray[np.float64]:
        """End of each task's successful attempt (the last part's); NaN where there is none."""
        return self._by_task("end_s", np.maximum)

    def energy_j_by_task(self) -> NDArray[np.float64]:
        """Return the attributed joules of each task, failed attempts included: run, cold start and transfer."""
        rows = self.attempts
        # In double: sums of thousands of float32 lose joules.
        joules = rows["run_j"] + rows["cold_j"].astype(np.float64) + rows["transfer_j"]
        by_task: NDArray[np.float64] = np.bincount(rows["task"], weights=joules, minlength=len(self.workload)).astype(
            np.float64
        )
        return by_task

    def _successful(self) -> NDArray[np.void]:
        """Select rows that ended well in their task's last attempt; parts of a lost gang may have ended well before."""
        rows = self.attempts
        last = np.zeros(len(self.workload), np.int64)
        # Highest attempt number of each task.
        np.maximum.at(last, rows["task"], rows["attempt"])
        found: NDArray[np.void] = rows[(rows["outcome"] == 0) & (rows["attempt"] == last[rows["task"]])]
        return found

    @property
    def _went_well(self) -> bool:
        """Tell whether each task was done in one part and at its first try: then each has one row."""
        rows, count = self.attempts, len(self.workload)
        if len(rows) != count or any(shape.parts != 1 for shape in self.workload.shapes):
            return False
        once = np.bincount(rows["task"], minlength=count)
        return bool((once == 1).all() and (rows["outcome"] == 0).all())

    def _by_task(self, column: str, reduce: np.ufunc) -> NDArray[np.float64]:
        if self._went_well:
            only = np.empty(len(self.workload))
            only[self.attempts["task"]] = self.attempts[column]
            only[~np.isfinite(only)] = np.nan
            return only
        done = self._successful()
        start = -np.inf if reduce is np.maximum else np.inf
        values = np.full(len(self.workload), start)
        reduce.at(values, done["task"], done[column])
        # A gang with parts missing has no start or end of its own.
        values[~np.isfinite(values) | ~self.finished] = np.nan
        return values
