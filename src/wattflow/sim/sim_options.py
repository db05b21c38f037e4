"""How a run is simulated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimOptions:
    """How a run is simulated.

    Attributes:
        queue: Overrides the policy's queue: ``skip``, ``strict`` or ``easy-backfill``.
        round_s: Decisions only at multiples of this; 0 decides at every event.
        message_s: Delay between a decision and its node.
        sleep_after_s: Sleepable nodes sleep after idling so long; None leaves policy and cluster as they are.
        max_retries: Attempts after the first.
        record_power: Keep every change of watts in ``Run.power_log``.
        from_zero: Count energy from time 0 instead of the first release; the makespan stays as it is.
        runtime_error: Spread (σ of log) of the estimates around the truth; 0 leaves the workload's estimates.
        power_error: Spread (σ of log) of the nodes' true watts around their profiles.
        outages: (node, down_s, up_s) that happen for certain.
        task_faults: (task, attempt, fraction of the work) that fail for certain.
    """

    queue: str | None = None
    round_s: float = 0.0
    message_s: float = 0.0
    sleep_after_s: float | None = None
    max_retries: int = 3
    record_power: bool = False
    from_zero: bool = False
    runtime_error: float = 0.0
    power_error: float = 0.0
    outages: tuple[tuple[int, float, float], ...] = ()
    task_faults: tuple[tuple[int, int, float], ...] = ()
