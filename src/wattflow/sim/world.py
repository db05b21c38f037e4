"""World: what the simulator knows and the engine does not: true runtimes, shared clocks, joules, records."""

from __future__ import annotations

import numpy as np

from wattflow.kernel.handle import Tables
from wattflow.model.run import ATTEMPT

# Stages of an attempt
WAKE, RUN, MESSAGE, COLD, LATENCY, DATA, HOLD = 1, 2, 3, 4, 5, 6, 7  # in `attempts.stage`; WAITS and STARTED
# Outcomes, in the order of model.run.OUTCOMES
OK, FAILED, NODE_LOST, TIME_LIMIT, CANCELLED = 0, 1, 2, 3, 4

# ``redo``: the instant is folded, and its decisions go on when the tables have grown. ``round_at``, ``timer_at``
# and ``ramp_at`` say which look ahead is in the agenda already (inf: none), so that each is pushed once.
PULSE = np.dtype([
    ("domain_n", "i8"), ("next_arrival", "i8"), ("record_n", "i8"), ("log_n", "i8"),
    ("redo", "i8"), ("round_at", "f8"), ("timer_at", "f8"), ("ramp_at", "f8"),
    ("total_w", "f8"), ("peak_w", "f8"), ("last_end", "f8"), ("round_s", "f8"), ("message_s", "f8"),
    ("record_power", "i8"), ("seed", "i8"), ("retries", "i8"), ("wakes", "i8"), ("cold_starts", "i8"),
    ("transfers", "i8"), ("events", "i8"), ("series", "i8"), ("ramps", "i8"), ("sleeps", "i8"), ("moved_bytes", "f8"),
])  # fmt: skip
RUNS = np.dtype([
    ("left", "i4"), ("right", "i4"), ("domain", "i4"), ("outcome", "i4"),
    ("warm", "i4"), ("in_lane", "i4"),
    ("finish_v", "f8"), ("since", "f8"), ("start", "f8"), ("mark", "f8"), ("device_mark", "f8"), ("weight_u", "i8"),
    ("run_j", "f8"), ("cold_j", "f8"), ("transfer_j", "f8"), ("message_s", "f8"), ("wake_s", "f8"), ("cold_s", "f8"),
    ("data_s", "f8"), ("hold_s", "f8"), ("planned", "f8"), ("bytes", "f8"),
])  # fmt: skip
# V = v0 + (t − t0) · rate, or t − lag at rate 1; ``next_t`` is when its root ends (see `clocks`).
DOMAINS = np.dtype([
    ("rate", "f8"), ("v0", "f8"), ("t0", "f8"), ("lag", "f8"), ("next_t", "f8"), ("next_seq", "i8"),
    ("root", "i4"), ("count", "i4"), ("place", "i4"),
])  # fmt: skip
NODES = np.dtype([
    ("busy_u", "i8"), ("cold_u", "i8"), ("demand_u", "i8"), ("since", "f8"), ("watts", "f8"), ("dynamic_w", "f8"),
    ("device_w", "f8"), ("integral", "f8"), ("carbon", "f8"), ("cost", "f8"),
    ("failures", "i8"), ("idle_w", "f8"), ("warming_u", "i8"), ("warm_gen", "i8"), ("weight_u", "i8"),
    ("host_u", "i8"), ("lane_first", "i8"), ("lane_n", "i8"),
])  # fmt: skip
DEVICES = np.dtype([
    ("tasks", "i8"), ("busy_u", "i8"), ("duty_u", "i8"), ("since", "f8"), ("dynamic_w", "f8"), ("integral", "f8"),
    ("weight_u", "i8"), ("level", "i8"),
])  # fmt: skip
ZONES = np.dtype([
    ("carbon_first", "i4"), ("carbon_n", "i4"), ("carbon_step", "f8"), ("price_first", "i4"), ("price_n", "i4"),
    ("price_step", "f8"), ("pue", "f8"),
])  # fmt: skip
GANGS = np.dtype([("first_held", "i4"), ("held", "i4")])
"""Per task: its parts that wait for the others, linked by ``runs.left``. One row where no task has several parts."""
POWER_LOG = np.dtype([("time_s", "f8"), ("node", "i4"), ("watts", "f8")])
TASK_FAULTS = np.dtype([("task", "i4"), ("attempt", "i4"), ("fraction", "f8")])

TABLES = (
    "pulse", "runtime", "saved", "arrivals", "runs", "domains", "domain_heap", "nodes", "devices", "energy",
    "zones", "series", "series_sum", "records", "power_log", "task_faults", "watt_error", "gangs",
)  # fmt: skip


class World(Tables):
    """Tables that only the simulator knows: the truth, shared clocks, joules, records."""

    __slots__ = TABLES
    NAMES = TABLES


RECORDS = ATTEMPT
