"""What goes into the reference simulator beside workload and cluster, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from wattflow.model.workflow import Variant

ACCOUNTS = ("idle", "sleep", "wake", "run", "cold_start", "transfer", "lost", "unattributed")


class Stuck(Exception):
    """Tasks are open, nothing runs, and nothing will ever happen again."""


@dataclass(frozen=True)
class Offer:
    """One way to run a task: a base variant (``base`` is its number) with a guarantee, at a level of cores or device.

    ``clock`` is the level of the device; of whom it asks for, ``function`` says how it responds.
    """

    index: int
    base: int
    variant: Variant
    guarantee: float = 1.0
    level: int = 0
    clock: int = 0
    function: str = ""

    @cached_property
    def guaranteed_cores(self) -> float:
        return self.guarantee * self.variant.cores


@dataclass(frozen=True)
class Policy:
    """Order and placement. Smaller priority first (None: first in, first out); lower cost wins, inf is "not here"."""

    name: str
    cost: Callable[[Any, int, Offer, int, int], float]
    priority: Callable[[Any, int], float] | None = None


@dataclass(frozen=True)
class Options:
    """Settings of a run.

    Attributes:
        queue: ``skip``, ``strict`` or ``easy-backfill``.
        guarantees: Shares of the request that may be guaranteed, in the order offered.
        levels: Frequency levels offered (indices into the node's or the device's list), in that order.
        round_s: Decisions only at multiples of this; None: at every instant.
        message_s: Fixed time between placement and the next stage.
        see_sleeping: Offer nodes that are not on beside those that are.
        from_zero: Energy counts from time 0, not from the first release.
        node_failures: (node, lost at, back at) in seconds.
        task_failures: (task, attempt number from 0) -> share of the attempt's work at which it fails.
    """

    queue: str = "skip"
    guarantees: tuple[float, ...] = (1.0,)
    levels: tuple[int, ...] = (0,)
    round_s: float | None = None
    message_s: float = 0.0
    see_sleeping: bool = False
    from_zero: bool = False
    max_retries: int = 3
    node_failures: tuple[tuple[int, float, float], ...] = ()
    task_failures: Mapping[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One attempt of one part, as it happened. Times in seconds; energy in joules."""

    task: int
    part: int
    attempt: int
    node: int
    device: int
    variant: int
    outcome: str
    ready_s: float
    placed_s: float
    start_s: float
    end_s: float
    message_s: float
    wake_s: float
    cold_s: float
    data_s: float
    hold_s: float
    run_j: float
    cold_j: float
    transfer_j: float
    guarantee: float


@dataclass(frozen=True)
class Result:
    """What happened. ``energy_j`` has a row per node and a column per account; carbon and cost are per node."""

    records: tuple[Record, ...]
    energy_j: np.ndarray
    carbon_g: np.ndarray
    cost: np.ndarray
    peak_w: float
    start_s: float
    end_s: float
    released_s: float
    abandoned: tuple[int, ...] = ()

    @property
    def makespan_s(self) -> float:
        """From the first release, whenever energy began to count."""
        return self.end_s - self.released_s

    def of_task(self, task: int) -> list[Record]:
        """All attempts of a task, in order of end."""
        return [record for record in self.records if record.task == task]

    def account_j(self, account: str) -> float:
        return float(self.energy_j[:, ACCOUNTS.index(account)].sum())
