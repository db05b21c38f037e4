"""The state of a frame's simulation: plain arrays by name, and the numbers in two of them that hold single values.

``s.i`` holds whole numbers and ``s.f`` floats; the constants below are their places. Prefixes of arrays: t a task, h a
host, p a placer, q a queue (placers first, then hosts), a an attempt, e an event, c a host's cache, d a delay.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

from numba import typeof, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.experimental import structref

from wattflow.frames.kernel import jit
from wattflow.frames.kernel.jit import bare

# Whole numbers: sizes, settings, then counters
(
    TASKS, HOSTS, PLACERS, SHAPES, OBJECTS, FUNCTIONS, SORTED, HAS_DAG, HAS_BARRIERS, SEED,
    ARCHITECTURE, HAS_BROKER, SPLIT, ROUTE, LATE, FLOW, EXACT, HOST_QUEUES, CONFLICT_RETRY, SAMPLES,
    HASH_KIND, HASH_PROBES, OVERFLOW, SJF, SCORE, HINTS, RESERVED, RING_N,
    STEAL_K, STEAL_HALF, STEAL_SHORT, PLACER_STEAL_K, REBALANCE, SPECULATE, PREEMPT, PREEMPT_KILL, PREEMPT_LIMIT,
    CACHE_N, INTERMEDIATE, HAS_DATA, MOVE_DATA, MAX_RETRIES, FAULTS, FAILOVER, ELASTIC, LEAST_HOSTS, STRICT, ONE_SHAPE,
    MARGIN, KEEP_RECORDS, LEAST_NEED,
    NEXT_ARRIVAL, OPEN, SEQUENCE, ATTEMPT_SEQ, EVENT_N, RECORD_N, FREE_ATTEMPT, FREE_PROBE, RUNNING, DIRTY, EPOCH, TURN,
    QUEUED, HOLDER, SOON_FIRST, SOON_NEXT, SCANS, STARVED,
    EVENTS, MESSAGES, DECISIONS, STEALS, STEAL_TRIES, STOLEN, PLACER_STOLEN, HITS, MISSES, PREEMPTIONS, COPIES,
    COPIES_WON, RETRIES, HOST_FAILURES, PLACER_FAILURES, CONFLICTS, PROBES, REBALANCED, HOSTS_ADDED, HOSTS_REMOVED,
    FAILED_TASKS, MOVED_OBJECTS, INTS,
) = range(92)  # fmt: skip

(
    NOW, START, LAST_END, TOTAL_W, PEAK_W, KEEP_UNTIL,
    REFRESH_S, LONG_S, STEAL_RETRY_S, REBALANCE_S, REBALANCE_AGE_S, COPY_AFTER, PREEMPT_S, RESUME_S, MESSAGE_J,
    HIGH, LOW, SCALE_S, BOOT_S, HEARTBEAT_S, FAILOVER_S, CLIENT_S, PLACER_MTBF_S, PLACER_REPAIR_S, CHECKPOINT_S,
    CHECKPOINT_COST_S, SLOW_SHARE, SLOW_FACTOR, HINT_WEIGHT, OBJECT_BYTES, PULL_S,
    WAIT_CLIENT, WAIT_BROKER, WAIT_PLACER, WAIT_MESSAGE, WAIT_HOST, WAIT_DATA, COPY_J, PREEMPT_J, BUSY_CORE_S, FLOATS,
) = range(41)  # fmt: skip

# Delays, in the order of the delay table
D_LATENCY, D_CLIENT, D_BROKER, D_PLACER, D_METADATA, D_DATA, D_FETCH, DELAYS = range(8)
# Single servers with a queue
CLIENT, BROKER, METADATA, DATA_MANAGER, SERVERS = range(5)
# Kinds of delay
CONSTANT, EXPONENTIAL, LOGNORMAL, CHOICE = range(4)
# Architectures
CENTRALISED, DECENTRALISED, DELEGATED, HYBRID = range(4)
# Rules by which a placer finds a host
BY_SCORE, BY_RANDOM, BY_SAMPLES, BY_PROBES, BY_HASH = range(5)
RING, RENDEZVOUS, MULTI_PROBE = range(3)
# How work is spread over placers
ROUND_ROBIN, AT_RANDOM, OF_HASH, SHORTEST = range(4)
PUSH, PULL, OFFERS = range(3)
# Scores of a policy
LEAST_LOADED, PACK, FIRST, FASTEST, LEAST_ENERGY, ANY = range(6)
# Rebalancing
NEVER, PERIODIC, BY_AGE = range(3)
# Preemption
NO_PREEMPTION, THRESHOLD, FAIR_SHARE = range(3)
# Intermediate data
FREE_DATA, LOCAL_DATA, STORED_DATA = range(3)
# States of a task
UNBORN, ARRIVED, SUBMITTED, COMPLETED, ABANDONED = range(5)
# States of a host
ON, DRAINING, OFF, BOOTING, DOWN = range(5)
# Stages of an attempt
IN_MESSAGE, IN_DATA, IN_RUN = range(3)
# Orders of events within an instant
O_FINISH, O_HOST, O_ARRIVAL, O_MESSAGE, O_TIMER = range(5)
# Events: of an attempt, between components, of machines and timers
(
    E_FINISH, E_STAGE, E_COPY, E_PREEMPT,
    E_AT_BROKER, E_BROKER_DONE, E_AT_PLACER, E_PLACER_DONE, E_PLACER_WORK, E_AT_HOST, E_NEXT, E_BIND,
    E_STEAL, E_STEAL_TIMER, E_PLACER_STEAL, E_ASK, E_ASK_AGAIN, E_OFFER_DONE,
    E_RESUBMIT, E_HOST_LOST, E_HOST_DETECTED, E_HOST_BACK, E_PLACER_LOST, E_PLACER_BACK, E_REFRESH, E_REBALANCE,
    E_SCALE, E_BOOTED, E_EMPTIED, E_FREED,
) = range(30)  # fmt: skip
# Accounts, in the order of model.run.ACCOUNTS
IDLE_J, SLEEP_J, WAKE_J, RUN_J, COLD_J, TRANSFER_J, LOST_J = range(7)
# Outcomes, in the order of model.run.OUTCOMES
OK, FAILED, NODE_LOST, TIME_LIMIT, CANCELLED, PREEMPTED, SUPERSEDED = range(7)
MICRO = 1_000_000

FIELDS = (
    "i", "f", "rng", "served", "release", "runtime", "estimate", "shape", "job", "object", "arrivals",
    "child_start", "child", "parent_start", "parent", "parent_bytes", "input_bytes", "group", "group_left",
    "group_start", "group_member", "t_next", "t_right", "t_state", "t_placer", "t_node", "t_ready", "t_since",
    "t_message", "t_tries", "t_saved", "t_pending", "t_parts", "t_preempted", "t_bag", "s_need", "s_memory",
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
    "ring", "ring_host", "records", "scratch",
)  # fmt: skip


class State:
    """The arrays as plain attributes; ``handle`` is what compiled functions take."""

    __slots__ = (*FIELDS, "_handle")

    def __init__(self, **arrays: Any) -> None:
        for name in FIELDS:
            setattr(self, name, arrays[name])
        self._handle: Any = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def handle(self) -> Any:
        """A StructRef over the same memory, or this object when uncompiled."""
        if not jit.COMPILED:
            return self
        if self._handle is None:
            self._handle = _new_state(*(getattr(self, name) for name in FIELDS))
        return self._handle

    def replace(self, **arrays: Any) -> None:
        """Put larger arrays in the place of full ones."""
        for name, array in arrays.items():
            setattr(self, name, array)
        self._handle = None


@structref.register
class FrameStateType(types.StructRef):
    """The compiled type of State."""

    def __init__(self, fields: Any) -> None:
        super().__init__(fields)
        self.name = f"FrameState_{hashlib.sha256(self.name.encode()).hexdigest()[:12]}"

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


@register_default(FrameStateType)
class _Unowned(models.StructRefModel):  # type: ignore[misc]
    """No reference counts for the state: it is passed to every function, and counting costs more than most of them do.

    The Python object that built it owns it and outlives every call.
    """

    def traverse(self, builder: Any) -> list[Any]:
        return []

    def has_nrt_meminfo(self) -> bool:
        return False

    def get_nrt_meminfo(self, builder: Any, value: Any) -> None:
        return None


class _Proxy(structref.StructRefProxy):
    def __new__(cls, *arrays: Any) -> Any:
        return structref.StructRefProxy.__new__(cls, *arrays)


structref.define_proxy(_Proxy, FrameStateType, list(FIELDS))


# Written out because a function with *arguments cannot be cached.
def _construct(  # type: ignore[no-untyped-def]
    i, f, rng, served, release, runtime, estimate, shape, job, object, arrivals, child_start, child, parent_start,
    parent, parent_bytes, input_bytes, group, group_left, group_start, group_member, t_next, t_right, t_state,
    t_placer, t_node, t_ready, t_since, t_message, t_tries, t_saved, t_pending, t_parts, t_preempted, t_bag, s_need,
    s_memory, s_parts, s_factor, s_function, s_class, s_served, s_failed, s_fits, speed, failure_rate, h_capacity,
    h_used, h_memory, h_used_memory, h_queued, h_coming, h_state, h_known, h_first, h_running, h_stealing, h_asked,
    h_asked_at, h_busy, h_since, h_dynamic, h_integral, h_watts, h_idle_w, h_off_w, h_boot_w, h_threads, h_grid,
    h_grid_n, h_per_core, h_mtbf, h_repair, h_failures, h_bandwidth, h_latency, h_j_byte, h_known_power, grid,
    energy, p_low, p_high, p_rule, p_busy, p_up, p_dirty, p_used, p_gen, p_batch, p_batch_at, p_stealing, seen,
    q_head, q_tail, q_len, x_leader, x_placer, j_used, a_task, a_part, a_host, a_next, a_previous, a_seq, a_stage,
    a_outcome, a_twin, a_copy, a_placed, a_start, a_since, a_work, a_extra, a_mark, a_message_s, a_data_s,
    a_transfer_j, a_marginal, e_time, e_key, e_what, e_who, e_other, n_what, n_who, n_other, d_kind, d_a, d_b,
    d_first, d_n, d_value, d_until, c_place, c_object, c_next, c_previous, c_head, c_tail, c_len, owner,
    owner_epoch, ring, ring_host, records, scratch,
):  # fmt: skip
    return _Proxy(
        bare(i), bare(f), bare(rng), bare(served), bare(release), bare(runtime), bare(estimate), bare(shape),
        bare(job), bare(object), bare(arrivals), bare(child_start), bare(child), bare(parent_start), bare(parent),
        bare(parent_bytes), bare(input_bytes), bare(group), bare(group_left), bare(group_start), bare(group_member),
        bare(t_next), bare(t_right), bare(t_state), bare(t_placer), bare(t_node), bare(t_ready), bare(t_since),
        bare(t_message), bare(t_tries), bare(t_saved), bare(t_pending), bare(t_parts), bare(t_preempted),
        bare(t_bag), bare(s_need), bare(s_memory), bare(s_parts), bare(s_factor), bare(s_function), bare(s_class),
        bare(s_served), bare(s_failed), bare(s_fits), bare(speed), bare(failure_rate), bare(h_capacity),
        bare(h_used), bare(h_memory), bare(h_used_memory), bare(h_queued), bare(h_coming), bare(h_state),
        bare(h_known), bare(h_first), bare(h_running), bare(h_stealing), bare(h_asked), bare(h_asked_at),
        bare(h_busy), bare(h_since), bare(h_dynamic), bare(h_integral), bare(h_watts), bare(h_idle_w),
        bare(h_off_w), bare(h_boot_w), bare(h_threads), bare(h_grid), bare(h_grid_n), bare(h_per_core),
        bare(h_mtbf), bare(h_repair), bare(h_failures), bare(h_bandwidth), bare(h_latency), bare(h_j_byte),
        bare(h_known_power), bare(grid), bare(energy), bare(p_low), bare(p_high), bare(p_rule), bare(p_busy),
        bare(p_up), bare(p_dirty), bare(p_used), bare(p_gen), bare(p_batch), bare(p_batch_at), bare(p_stealing),
        bare(seen), bare(q_head), bare(q_tail), bare(q_len), bare(x_leader), bare(x_placer), bare(j_used),
        bare(a_task), bare(a_part), bare(a_host), bare(a_next), bare(a_previous), bare(a_seq), bare(a_stage),
        bare(a_outcome), bare(a_twin), bare(a_copy), bare(a_placed), bare(a_start), bare(a_since), bare(a_work),
        bare(a_extra), bare(a_mark), bare(a_message_s), bare(a_data_s), bare(a_transfer_j), bare(a_marginal),
        bare(e_time), bare(e_key), bare(e_what), bare(e_who), bare(e_other), bare(n_what), bare(n_who),
        bare(n_other), bare(d_kind), bare(d_a), bare(d_b), bare(d_first), bare(d_n), bare(d_value), bare(d_until),
        bare(c_place), bare(c_object), bare(c_next), bare(c_previous), bare(c_head), bare(c_tail), bare(c_len),
        bare(owner), bare(owner_epoch), bare(ring), bare(ring_host), bare(records), bare(scratch),
    )  # fmt: skip


def _new_state(*arrays: Any) -> Any:
    """A handle over these arrays; the constructor is compiled for their types and kept."""
    return _constructor(tuple(typeof(array) for array in arrays))(*arrays)


@functools.cache
def _constructor(kinds: tuple[Any, ...]) -> Any:
    return jit.compiled(kinds, _construct)
