"""State: the tables that the engine reads and writes, and nothing else.

Each table is a record array; ``state.nodes.used_u[n]`` reads the same compiled and uncompiled (so no field may bear the
name of an array attribute: a task's shape is its ``form``). Cores are counted in millionths
(``_u``), so sums are exact. Scalars stand in one-row tables: ``clock``,
``rules``, ``counts`` and ``choice``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.kernel.handle import Tables
from wattflow.kernel.records import record_table

MICRO = 1_000_000
COUNTABLE = 8
"""Countable resources (pods, licences, extended resources) that a node can have."""
PARAMS = 24
"""Numbers that a policy can have."""
UNKNOWN_COST = 1e30
"""A finite cost worse than any known one: an unknown node loses to every known node that fits."""

# Power states of a node
ON, ASLEEP, WAKING, FALLING, DOWN, DRAINING = 0, 1, 2, 3, 4, 5
# Sharing modes of a device
EXCLUSIVE, TIME_SLICE, MPS, MIG = 0, 1, 2, 3
# Device kinds
NO_DEVICE, GPU, FPGA = 0, 1, 2
# Queue modes
SKIP, STRICT, EASY = 0, 1, 2
# Selections
ORDERED, BEST_PAIR = 0, 1
# Task states
WAITING, READY, PLACED, DONE, FAILED, CANCELLED = 0, 1, 2, 3, 4, 5
# Further states of tasks in a live engine: cancelled but still in a heap; the same, its row to be freed when it comes
# out; out of the queue until a time; a free row; standing for work that is not known yet
GHOST, LEFT, PARKED, FREE, UNKNOWN = 6, 7, 8, 9, 10
# Actions
ACT_TIMER, ACT_SLEEP, ACT_WAKE, ACT_WARM, ACT_FREQUENCY, ACT_STOP, ACT_CAP = 0, 1, 2, 3, 4, 5, 6
# What a live engine knows of an attempt: placed, waiting for its node to wake, started; and whether it is to stop
ASSUMED, WAITS, STARTED = 0, 1, 2
# What becomes of a task when its last attempt is gone; the graver one holds
BACK, RETRY, GIVE_UP, CANCEL = 1, 2, 3, 4

CLOCK = np.dtype([
    ("now", "f8"), ("start", "f8"), ("retry_at", "f8"), ("instant", "i8"), ("sequence", "i8"), ("epoch", "i8"),
    ("random", "u8"),
])  # fmt: skip
"""Time, and what orders things that happen at one time."""
RULES = np.dtype([
    ("queue", "i8"), ("selection", "i8"), ("largest", "i8"), ("dynamic", "i8"), ("wakes", "i8"), ("grouped", "i8"),
    ("has_priority", "i8"), ("has_score", "i8"), ("has_act", "i8"), ("has_data", "i8"), ("cold", "i8"),
    ("limits", "i8"), ("max_retries", "i8"), ("tainted", "i8"), ("score_limit", "i8"),
    ("parks", "i8"), ("wishes", "i8"), ("pods", "i8"), ("samples", "i8"), ("bare", "i8"), ("local", "i8"),
    ("alike", "i8"),
])  # fmt: skip
"""Flags of the policy and of the workload: constant while a policy is in use. ``bare``: a variant lacks a
request for cores or for memory."""
COUNTS = np.dtype([
    ("waiting", "i8"), ("open", "i8"), ("running", "i8"), ("held", "i8"), ("decisions", "i8"), ("scored", "i8"),
    ("placed_n", "i8"), ("action_n", "i8"), ("active_n", "i8"), ("candidate_n", "i8"), ("group_n", "i8"),
    ("asleep_n", "i8"), ("shapes_n", "i8"), ("extra_n", "i8"), ("failed_tasks", "i8"), ("held_first", "i8"),
    ("free_attempt", "i8"), ("free_container", "i8"), ("hot_container", "i8"), ("free_task", "i8"),
    ("free_workflow", "i8"),
    ("sealed_first", "i8"), ("child_n", "i8"), ("parent_n", "i8"), ("timer_n", "i8"), ("stale", "i8"),
    ("ended_n", "i8"), ("stamp", "i8"), ("newest_tasks", "i8"), ("newest_attempts", "i8"),
])  # fmt: skip
"""How many rows of each table are in use, the heads of free lists, and tallies for the Run."""
CHOICE = np.dtype([
    ("best_cost", "f8"), ("shadow", "f8"), ("best_node", "i8"), ("best_device", "i8"), ("best_variant", "i8"),
    ("bad_task", "i8"), ("bad_variant", "i8"), ("reserved", "i8"), ("scan_at", "i8"), ("scan_left", "i8"),
    ("head", "i8"), ("spare", "i8"), ("sample_at", "i8"), ("floor", "i8"),
])  # fmt: skip
"""The decision under way: the cheapest place so far, a cost that was no number, the head's reservation."""
NODES = np.dtype([
    ("used_u", "i8"), ("alloc_u", "i8"), ("capacity_u", "i8"), ("used_mem", "i8"), ("capacity_mem", "i8"),
    ("cls", "i4"), ("pos", "i4"), ("group", "i4"), ("running", "i4"), ("power_state", "i2"), ("frequency", "i2"),
    ("first_container", "i4"),
    ("request_u", "i8"), ("device_key", "u8"), ("count_key", "u8"), ("idle_since", "f8"),
    ("first_attempt", "i4"), ("device_first", "i4"), ("device_n", "i4"), ("falls", "i4"), ("wake_wanted", "i4"),
    ("unused", "i4"),
    ("freed_u", "i8"), ("freed_mem", "i8"), ("on_at", "f8"), ("generation", "i8"), ("unused_0", "i8"),
    ("unused_1", "i8"), ("unused_2", "i8"), ("unused_3", "i8"),
])  # fmt: skip
"""A decision reads the first 64 bytes of a node's row, one line of the processor's cache."""
CLASSES = np.dtype([
    ("first", "i4"), ("count", "i4"), ("room", "i4"), ("grid_first", "i4"), ("grid_n", "i4"), ("zone", "i4"),
    ("known_power", "i2"), ("serverless", "i2"), ("sleepable", "i2"), ("frequency_n", "i2"),
    ("grid_per_core", "f8"), ("cores", "f8"), ("threads", "f8"), ("smt_gain", "f8"),
    ("idle_w", "f8"), ("full_w", "f8"), ("tdp_w", "f8"), ("sleep_w", "f8"), ("wake_s", "f8"), ("enter_s", "f8"),
    ("wake_w", "f8"), ("sleep_after_s", "f8"),
    ("burst_u", "f8"), ("ramp_u_s", "f8"), ("limit_s", "f8"), ("use_price", "f8"), ("call_price", "f8"),
    ("bandwidth", "f8"), ("latency_s", "f8"), ("zone_latency_s", "f8"),
    ("j_per_byte", "f8"), ("keep_alive_s", "f8"), ("cold_factor", "f8"), ("mtbf_s", "f8"), ("repair_s", "f8"),
    ("notice_s", "f8"), ("price_s", "f8"), ("device_idle_w", "f8"),
    ("request_u", "i8"), ("memory", "i8"), ("features", "u8"), ("architecture", "i4"), ("unused", "i4"),
    ("unused_0", "i8"), ("unused_1", "i8"), ("unused_2", "i8"), ("unused_3", "i8"),
])  # fmt: skip
"""As of a node, the first 64 bytes are what most decisions read."""
DEVICES = np.dtype([
    ("node", "i4"), ("cls", "i4"), ("share_u", "i8"), ("memory", "i8"), ("tasks", "i4"), ("loaded", "i4"),
    ("busy_u", "i8"), ("duty_u", "i8"), ("level", "i4"), ("unused", "i4"),
])  # fmt: skip
"""``level``: the clock that it has now, 0 for full; the highest that one of its attempts asked for."""
DEVICE_CLASSES = np.dtype([
    ("kind", "i4"), ("model", "i4"), ("sharing", "i4"), ("slots", "i4"), ("memory", "i8"), ("speed", "f8"),
    ("interference", "f8"), ("switch_loss", "f8"), ("reconfigure_s", "f8"), ("idle_w", "f8"), ("full_w", "f8"),
    ("tdp_w", "f8"), ("grid_first", "i4"), ("grid_n", "i4"), ("grid_per_share", "f8"), ("level_n", "i4"),
    ("level_first", "i4"),
])  # fmt: skip
"""From row ``level_first`` on: a row for each function in ``level_seconds`` and ``level_power``, a column a level."""
FUNCTIONS = np.dtype([
    ("cold_start_s", "f8"), ("compute_bound", "f8"), ("failure_rate", "f8"), ("checkpoint_s", "f8"),
    ("checkpoint_cost_s", "f8"), ("first_container", "i4"), ("running", "i4"), ("started", "i8"), ("waiting", "i4"),
])  # fmt: skip
SHAPES = np.dtype([
    ("function", "i4"), ("variant_first", "i4"), ("variant_n", "i4"), ("parts", "i4"),
    ("head", "i4"), ("tail", "i4"), ("waiting", "i4"), ("place", "i4"), ("failed", "i8"),
    ("constraint", "i4"), ("level", "i4"), ("counted", "i4"), ("tasks", "i4"),
    ("generation", "i4"), ("ghosts", "i4"), ("seen", "i8"), ("held", "i4"), ("unused", "i4"),
])  # fmt: skip
VARIANTS = np.dtype([
    ("cores_u", "i8"), ("need_u", "i8"), ("memory", "i8"), ("share_u", "i8"), ("device_memory", "i8"), ("duty_u", "i8"),
    ("origin", "i4"), ("device", "i4"), ("devices", "i4"), ("frequency", "i4"), ("factor", "f8"), ("guarantee", "f8"),
    ("models", "u8"), ("features", "u8"), ("counts_n", "i4"), ("architecture", "i4"), ("likeness", "u8"),
    ("board", "i4"), ("level", "i4"), ("function", "i4"), ("unused", "i4"),
])  # fmt: skip
"""``frequency`` is a level of the node's cores, ``level`` one of its device; ``function`` is set beside the latter."""
TASKS = np.dtype([
    ("release", "f8"), ("estimate", "f8"), ("ready", "f8"), ("key", "f8"), ("sequence", "i8"),
    ("form", "i4"), ("workflow", "i4"), ("pending", "i4"), ("next", "i4"), ("previous", "i4"), ("node", "i4"),
    ("pinned", "i4"), ("parts_left", "i4"), ("pinned_variant", "i2"), ("attempt", "i2"), ("state", "i1"),
    ("arrived", "i1"),
])  # fmt: skip
LINKS = np.dtype([("child_first", "i4"), ("child_n", "i4"), ("parent_first", "i4"), ("parent_n", "i4")])
"""Where a task's children and parents stand in ``child`` and ``parent``: extents, so that they can grow."""
MARKS = np.dtype([
    ("tag", "i8"), ("until", "f8"), ("generation", "i4"), ("sibling", "i4"), ("fate", "i4"), ("running", "i4"),
    ("attempt", "i4"), ("stamp", "i8"),
])  # fmt: skip
"""Per-task facts that only a live engine has; one row in a simulation."""
EXTRA = np.dtype([
    ("deadline", "f8"), ("rank", "f8"), ("slack", "f8"), ("input_bytes", "f8"), ("start_at", "f8"), ("typical", "f8"),
    ("path", "f8"),
])  # fmt: skip
"""Per-task facts that only some policies and workloads need; one shared row when none does.

``slack`` is always seconds by which the task may start after its earliest start without making its workflow late;
``start_at`` its latest start, ``typical`` its seconds at the cluster's mean speed, ``path`` its workflow's critical
path.
"""
ATTEMPTS = np.dtype([
    ("task", "i4"), ("part", "i4"), ("variant", "i4"), ("node", "i4"), ("device", "i4"), ("next", "i4"),
    ("previous", "i4"), ("attempt", "i4"), ("devices", "u8"), ("placed", "f8"), ("ready", "f8"), ("end", "f8"),
    ("marginal_j", "f8"), ("sequence", "i8"), ("need_u", "i8"), ("cores_u", "i8"), ("memory", "i8"),
    ("started", "f8"), ("was_idle", "f8"), ("generation", "i4"), ("stage", "i4"), ("stopping", "i4"),
    ("was_loaded", "i4"), ("sibling", "i4"),
])  # fmt: skip
GROUPS = np.dtype([
    ("key", "u8"), ("free_u", "i8"), ("free_mem", "i8"), ("cls", "i4"), ("count", "i4"), ("low", "i4"), ("place", "i4"),
    ("power_state", "i4"), ("words", "i4"), ("node", "i4"), ("unused", "i4"), ("unused_0", "i8"),
])  # fmt: skip
"""``low`` is the position of the lowest node in its class, ``node`` the node itself."""
CANDIDATES = np.dtype([("node", "i4"), ("device", "i4"), ("variant", "i4")])
HOT = -1
"""In place of a function: a container that serves any."""
CONTAINERS = np.dtype([
    ("node", "i4"), ("function", "i4"), ("next_node", "i4"), ("previous_node", "i4"), ("next_function", "i4"),
    ("previous_function", "i4"), ("idle_since", "f8"),
])  # fmt: skip
ACTIONS = np.dtype([("kind", "i4"), ("node", "i4"), ("value", "i8"), ("at", "f8")])
NODE_MARKS = np.dtype([
    ("other_u", "i8"), ("other_mem", "i8"), ("generation", "i4"), ("next", "i4"), ("warming", "i8"),
])  # fmt: skip
"""Per-node facts that only a live engine has; ``warming`` counts containers that are being made ahead of need."""
MASK_ROWS = np.dtype([("condition", "i4"), ("wish_first", "i4"), ("wish_n", "i4")])
"""Beside each row of ``masks``: its first condition that counts tasks (0: none), and its levels of preference."""
TERMS = np.dtype([
    ("total", "i8"), ("first", "i4"), ("topology", "i4"), ("condition", "i4"), ("bits", "i4"), ("domains", "i4"),
    ("unused", "i4"),
])  # fmt: skip
"""A counter: tasks of one kind in each domain of a topology (−1: each node), from ``tallies[first]`` on.

The nodes of its domains stand in ``domain_bits[bits:][:domains]``, as bits by place; not of single nodes."""
CONDITIONS = np.dtype([
    ("low", "i8"), ("at_low", "i8"), ("kind", "i4"), ("term", "i4"), ("row", "i4"), ("skew", "i4"), ("own", "i4"),
    ("next_term", "i4"), ("next_row", "i4"),
])  # fmt: skip
"""A condition that a row of ``masks`` puts to a counter; ``own``: its tasks count themselves, ``low``: fewest in any
domain, which ``at_low`` of them have."""
COUNTED = np.dtype([("term", "i4"), ("next", "i4")])
"""Which counters a shape's tasks enter, as lists; row 0 ends them."""
TOPOLOGIES = 8
"""Labels that domains can be made of, beside the node itself."""
BOARDS = np.dtype([("owner", "u8"), ("synced", "i8")])
"""Kept costs: the likeness of the variants whose they are (0: nobody's), and the stamp up to which they are right."""
TOUCHES = np.dtype([("now", "i8"), ("following", "i8")])
"""The latest stamp of a node's change, and the board that is given away next."""
ENDED = np.dtype([("task", "i8"), ("tag", "i8"), ("outcome", "i8")])
"""Tasks that left a live engine in this step: id, tag, state."""
TIMERS = np.dtype([("time", "f8"), ("sequence", "i8"), ("generation", "i8"), ("what", "i4"), ("who", "i4")])
"""A heap of what a live engine must come back for."""
WORKFLOWS = np.dtype([
    ("submit", "f8"), ("work_left", "f8"), ("path_left", "f8"), ("open", "i4"), ("started", "i4"), ("rank", "f8"),
    ("deadline", "f8"), ("tag", "i8"), ("first_task", "i4"), ("generation", "i4"), ("sealed", "i4"), ("dirty", "i4"),
])  # fmt: skip

TABLES = (
    "clock", "rules", "counts", "choice", "nodes", "classes", "class_nodes", "devices", "device_classes", "functions",
    "shapes", "variants", "tasks",
    "extra", "attempts", "groups", "group_bits", "group_slots", "active_groups", "active_shapes", "candidates", "cost",
    "containers", "actions", "workflows", "placed", "class_ok", "speed", "frequency_speed", "frequency_power", "grid",
    "device_grid", "level_seconds", "level_power",
    "links", "child", "parent", "parent_bytes", "gang", "scratch", "params", "memory", "marks",
    "node_marks", "node_counts", "other_counts", "variant_counts", "masks", "freed", "timers", "ended", "blocks",
    "mask_rows", "bases", "wishes", "wish_weights", "terms", "conditions", "counted", "tallies", "domains",
    "domain_bits", "boards", "board_costs", "board_lows", "board_synced", "touches", "touched",
    "touched_words", "touch_ring",
)  # fmt: skip
"""Tables of State."""


class State(Tables):
    """The engine's knowledge: estimates and allocations, never the truth."""

    __slots__ = TABLES
    NAMES = TABLES
    UNSAVED = ("boards", "board_costs", "board_lows", "board_synced", "touched", "touched_words", "touch_ring")


def no_boards() -> dict[str, Any]:
    """The tables of kept costs where none are kept."""
    return {
        "boards": record_table(BOARDS, 0), "board_costs": np.zeros((0, 1)), "board_lows": np.zeros((0, 1)),
        "board_synced": np.zeros((0, 1), np.int64), "touches": record_table(TOUCHES, 1),
        "touched": np.zeros(0, np.int64), "touched_words": np.zeros(0, np.int64), "touch_ring": np.zeros(0, np.int32),
    }  # fmt: skip


def no_rules() -> dict[str, Any]:
    """The tables of rules that count tasks and of preferences, as they are where nobody has any."""
    return {
        "mask_rows": record_table(MASK_ROWS, 1), "bases": np.zeros((1, 1), np.uint64),
        "wishes": np.zeros((1, 1), np.uint64), "wish_weights": np.zeros(1), "terms": record_table(TERMS, 1),
        "conditions": record_table(CONDITIONS, 1), "counted": record_table(COUNTED, 1),
        "tallies": np.zeros(1, np.int32), "domains": np.full((1, TOPOLOGIES), -1, np.int32),
        "domain_bits": np.zeros((1, 1), np.uint64),
    }  # fmt: skip
