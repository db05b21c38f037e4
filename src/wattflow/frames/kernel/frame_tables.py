"""The state of a frame's simulation: plain arrays by name, and the numbers in two of them that hold single values.

``s.i`` holds whole numbers and ``s.f`` floats; the constants below are their places. Prefixes of arrays: t a task, h a
host, p a placer, q a queue (placers first, then hosts), a an attempt, e an event, c a host's cache, d a delay.
"""

from __future__ import annotations

from wattflow.kernel.handle import Tables

# The last name of each list counts those before it.
# Whole numbers: sizes, settings, then counters
(
    TASKS, HOSTS, PLACERS, SHAPES, OBJECTS, FUNCTIONS, SORTED, HAS_DAG, HAS_BARRIERS, SEED,
    ARCHITECTURE, HAS_BROKER, SPLIT, ROUTE, LATE, FLOW, EXACT, HOST_QUEUES, CONFLICT_RETRY, SAMPLES,
    HASH_KIND, HASH_PROBES, OVERFLOW, SJF, SCORE, HINTS, RESERVED, RING_N,
    STEAL_K, STEAL_HALF, STEAL_SHORT, PLACER_STEAL_K, REBALANCE, SPECULATE, PREEMPT, PREEMPT_KILL, PREEMPT_LIMIT,
    CACHE_N, INTERMEDIATE, HAS_DATA, MOVE_DATA, MAX_RETRIES, FAULTS, FAILOVER, ELASTIC, LEAST_HOSTS, STRICT, ONE_SHAPE,
    MARGIN, KEEP_RECORDS, LEAST_NEED, SLOTS, OWNERS, BOTH, LOOK_HOSTS, CACHED_AT_START, ASKED,
    NEXT_ARRIVAL, OPEN, SEQUENCE, ATTEMPT_SEQ, EVENT_N, RECORD_N, FREE_ATTEMPT, FREE_PROBE, RUNNING, DIRTY, EPOCH, TURN,
    QUEUED, HOLDER, SOON_FIRST, SOON_NEXT, SCANS, STARVED,
    EVENTS, MESSAGES, DECISIONS, STEALS, STEAL_TRIES, STOLEN, PLACER_STOLEN, HITS, MISSES, PREEMPTIONS, COPIES,
    COPIES_WON, RETRIES, HOST_FAILURES, PLACER_FAILURES, CONFLICTS, PROBES, REBALANCED, HOSTS_ADDED, HOSTS_REMOVED,
    FAILED_TASKS, MOVED_OBJECTS, INTS,
) = range(98)  # fmt: skip

(
    NOW, START, LAST_END, TOTAL_W, PEAK_W, KEEP_UNTIL,
    REFRESH_S, LONG_S, STEAL_RETRY_S, REBALANCE_S, REBALANCE_AGE_S, COPY_AFTER, PREEMPT_S, RESUME_S, MESSAGE_J,
    HIGH, LOW, SCALE_S, BOOT_S, HEARTBEAT_S, FAILOVER_S, CLIENT_S, PLACER_MTBF_S, PLACER_REPAIR_S, CHECKPOINT_S,
    CHECKPOINT_COST_S, SLOW_SHARE, SLOW_FACTOR, HINT_WEIGHT, OBJECT_BYTES, PULL_S, FORGET_S,
    WAIT_CLIENT, WAIT_BROKER, WAIT_PLACER, WAIT_MESSAGE, WAIT_HOST, WAIT_DATA, COPY_J, PREEMPT_J, BUSY_CORE_S, FLOATS,
) = range(42)  # fmt: skip

# Delays, in the order of the delay table
D_LATENCY, D_CLIENT, D_BROKER, D_PLACER, D_METADATA, D_DATA, D_FETCH, DELAYS = range(8)
# Single servers with a queue
CLIENT, BROKER, METADATA, DATA_MANAGER, SERVERS = range(5)
# Kinds of delay
CONSTANT, EXPONENTIAL, LOGNORMAL, CHOICE = range(4)
# Architectures
CENTRALISED, DECENTRALISED, DELEGATED, HYBRID = range(4)
# Rules by which a placer finds a host
BY_SCORE, BY_RANDOM, BY_SAMPLES, BY_PROBES, BY_HASH, BY_OWNER = range(6)
RING, RENDEZVOUS, MULTI_PROBE = range(3)
# How work is spread over placers
ROUND_ROBIN, AT_RANDOM, OF_HASH, SHORTEST, OF_OBJECT = range(5)
PUSH, PULL, OFFERS = range(3)
# Scores of a policy
LEAST_LOADED, PACK, FIRST, FASTEST, LEAST_ENERGY, ANY = range(6)
# Rebalancing
NEVER, PERIODIC, BY_AGE = range(3)
# Preemption
NO_PREEMPTION, THRESHOLD, FAIR_SHARE = range(3)
# `data.fetch_s` asks for "local or stored" by >=: the order matters.
# Intermediate data
FREE_DATA, LOCAL_DATA, STORED_DATA = range(3)
# `attempt_ends._is_abandoned` asks for "handed in or later" by >.
# States of a task
UNBORN, ARRIVED, SUBMITTED, COMPLETED, ABANDONED = range(5)
# `placers.bind` asks for "gone" by > DRAINING.
# States of a host
ON, DRAINING, OFF, BOOTING, DOWN = range(5)
# Stages of an attempt
IN_MESSAGE, IN_DATA, IN_RUN = range(3)
# Folded in this order; it stands in the upper bits of an event's key (`event_heap`).
# Orders of events within an instant
O_FINISH, O_HOST, O_ARRIVAL, O_MESSAGE, O_TIMER = range(5)
# `frame_loop._handle` tells the three groups apart by the first of each.
# Events: of an attempt, between components, of machines and timers
(
    E_FINISH, E_STAGE, E_COPY, E_PREEMPT,
    E_AT_BROKER, E_BROKER_DONE, E_AT_PLACER, E_PLACER_DONE, E_PLACER_WORK, E_AT_HOST, E_NEXT, E_BIND,
    E_STEAL, E_STEAL_TIMER, E_PLACER_STEAL, E_ASK, E_ASK_AGAIN, E_OFFER_DONE,
    E_RESUBMIT, E_HOST_LOST, E_HOST_DETECTED, E_HOST_BACK, E_PLACER_LOST, E_PLACER_BACK, E_REFRESH, E_REBALANCE,
    E_SCALE, E_BOOTED, E_EMPTIED, E_FREED,
) = range(30)  # fmt: skip
# Outcomes, in the order of model.run.OUTCOMES
OK, FAILED, NODE_LOST, TIME_LIMIT, CANCELLED, PREEMPTED, SUPERSEDED = range(7)
MICRO = 1_000_000

FIELDS = (
    "i", "f", "rng", "served", "release", "runtime", "estimate", "shape", "job", "object", "arrivals",
    "child_start", "child", "parent_start", "parent", "parent_bytes", "input_bytes", "group", "group_left",
    "group_start", "group_member", "t_next", "t_right", "t_key", "t_state", "t_placer", "t_node", "t_ready", "t_since",
    "t_message", "t_tries", "t_saved", "t_pending", "t_parts", "t_preempted", "t_bag", "t_home", "s_need", "s_memory",
    "s_parts", "s_factor", "s_function", "s_class", "s_served", "s_failed", "s_fits", "speed", "failure_rate",
    "h_capacity", "h_used", "h_memory", "h_used_memory", "h_queued", "h_coming", "h_state", "h_known", "h_first",
    "h_running", "h_stealing", "h_asked", "h_asked_at", "h_busy", "h_since", "h_dynamic", "h_integral", "h_watts",
    "h_idle_w", "h_off_w", "h_boot_w", "h_threads", "h_grid", "h_grid_n", "h_per_core", "h_mtbf", "h_repair",
    "h_failures", "h_bandwidth", "h_latency", "h_j_byte", "h_known_power", "grid", "energy", "p_low", "p_high",
    "p_rule", "p_busy", "p_up", "p_dirty", "p_used", "p_gen", "p_batch", "p_batch_at", "p_stealing", "seen",
    "q_head", "q_tail", "q_len", "x_leader", "x_placer", "j_used", "a_task", "a_part", "a_host", "a_next",
    "a_previous", "a_seq", "a_stage", "a_outcome", "a_twin", "a_copy", "a_placed", "a_start", "a_since", "a_work",
    "a_extra", "a_mark", "a_message_s", "a_data_s", "a_transfer_j", "a_marginal", "e_time", "e_key", "e_what",
    "e_who", "e_other", "n_what", "n_who", "n_other", "d_kind", "d_a", "d_b", "d_first", "d_n", "d_value",
    "d_until", "c_place", "c_object", "c_next", "c_previous", "c_head", "c_tail", "c_len", "owner", "owner_epoch",
    "owner_since", "ring", "ring_host", "records", "scratch",
)  # fmt: skip


class FrameState(Tables):
    """The arrays as plain attributes; ``handle()`` is what compiled functions take."""

    __slots__ = FIELDS
    NAMES = FIELDS
