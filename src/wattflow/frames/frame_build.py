"""From frame, workload, cluster and policy to the state of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.build import micro, uniform_grid, why_not
from wattflow.frames import frame as frames
from wattflow.frames import frame_rules, workloads
from wattflow.frames.frame import Frame
from wattflow.frames.frame_rules import SCORES, FramePolicy
from wattflow.frames.kernel import frame_tables
from wattflow.frames.kernel.frame_tables import FrameState
from wattflow.kernel import random
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InfeasibleTask, InvalidInput, Problem
from wattflow.model.run import ATTEMPT
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload

# One number for each host and object, so that a look into a cache is O(1).
_LARGEST_CACHE_TABLE = 1 << 28
Arrays = dict[str, NDArray[Any]]


def build(frame: Frame, workload: Workload, cluster: Cluster, policy: FramePolicy, seed: int) -> FrameState:
    """Make the state before the first event. The frame has been validated."""
    return _Builder(frame, workload, cluster, policy, seed).build()


class _Builder:
    """Collects the arrays of a State."""

    def __init__(self, frame: Frame, workload: Workload, cluster: Cluster, policy: FramePolicy, seed: int) -> None:
        self.frame, self.workload, self.cluster, self.policy, self.seed = frame, workload, cluster, policy, seed
        self.i = np.zeros(frame_tables.INTS, np.int64)
        self.f = np.zeros(frame_tables.FLOATS)
        self.tasks, self.hosts, self.placers = len(workload), len(cluster.nodes), frame.placers.count
        self.has_dag = workload.edge_count > 0 or (frame.barriers is not None and frame.barriers.levels)
        self.arrays: Arrays = {"i": self.i, "f": self.f, "served": np.zeros(frame_tables.SERVERS)}

    def build(self) -> FrameState:
        self._settings()
        self._shapes()
        self._tasks()
        self._dag()
        self._hosts()
        self._placers()
        self._attempts()
        self._delays()
        self._caches()
        # Through the hash, as a stream's first word: neighbouring seeds begin far apart.
        self.arrays["rng"] = random.hashed_each(np.array([self.seed], np.uint64), np.zeros(1, np.uint64))
        return FrameState(**self.arrays)

    def _settings(self) -> None:
        i, f, frame, placers = self.i, self.f, self.frame, self.frame.placers
        i[frame_tables.TASKS], i[frame_tables.HOSTS], i[frame_tables.PLACERS] = self.tasks, self.hosts, self.placers
        i[frame_tables.SEED], i[frame_tables.OPEN] = self.seed, self.tasks
        i[frame_tables.ARCHITECTURE] = frames.ARCHITECTURES.index(frame.architecture)
        i[frame_tables.HAS_BROKER] = frame.broker is not None and frame.architecture in ("delegated", "hybrid")
        i[frame_tables.SPLIT] = frames.SPREADS.index(frame.broker.split) if frame.broker else 0
        i[frame_tables.ROUTE] = frames.SPREADS.index(placers.route)
        i[frame_tables.LATE] = placers.binding == "late"
        i[frame_tables.FLOW] = frames.FLOWS.index(placers.flow)
        i[frame_tables.EXACT] = placers.refresh_s == 0
        i[frame_tables.HOST_QUEUES] = frame.hosts.queue
        i[frame_tables.SAMPLES] = placers.samples
        i[frame_tables.HASH_KIND] = frames.HASHES.index(placers.hash)
        i[frame_tables.HASH_PROBES] = 21  # Appleton and O'Reilly: a peak to average load of 1.05
        i[frame_tables.OVERFLOW], i[frame_tables.STRICT] = placers.overflow, placers.strict
        i[frame_tables.SJF], i[frame_tables.SCORE] = self.policy.order == "sjf", SCORES[self.policy.score]
        i[frame_tables.HINTS], i[frame_tables.HOLDER] = frame.hints is not None, -1
        i[frame_tables.KEEP_RECORDS] = 1
        f[frame_tables.REFRESH_S], f[frame_tables.PULL_S] = placers.refresh_s, placers.pull_s
        i[frame_tables.OWNERS], i[frame_tables.BOTH] = placers.rule == "owner", placers.both
        i[frame_tables.LOOK_HOSTS] = frame.stealing.slots if frame.stealing else 0
        i[frame_tables.SLOTS] = i[frame_tables.OWNERS] or i[frame_tables.LOOK_HOSTS] > 0
        f[frame_tables.FORGET_S] = placers.forget_s
        if i[frame_tables.SLOTS] and self.policy.order != "fifo":
            raise InvalidInput(
                frame.name, f"slots take the oldest task; the order must be fifo, not {self.policy.order}"
            )
        f[frame_tables.HINT_WEIGHT] = frame.hints.weight if frame.hints else 0.0
        f[frame_tables.MESSAGE_J], f[frame_tables.CLIENT_S] = frame.messages.energy_j, frame.client.timeout_s
        f[frame_tables.LONG_S] = frame.split.long_s if frame.split else np.inf
        i[frame_tables.RESERVED] = round(frame.split.reserved * self.hosts) if frame.split else 0
        f[frame_tables.START] = f[frame_tables.LAST_END] = float(self.workload.release_s.min()) if self.tasks else 0.0
        self._mechanisms()

    def _mechanisms(self) -> None:
        i, f, frame = self.i, self.f, self.frame
        if (steal := frame.stealing) is not None:
            i[frame_tables.STEAL_K], i[frame_tables.PLACER_STEAL_K] = steal.hosts, steal.placers
            i[frame_tables.STEAL_HALF], i[frame_tables.STEAL_SHORT] = steal.half, steal.short_only
            f[frame_tables.STEAL_RETRY_S] = steal.retry_s
        if (rebalancing := frame.rebalancing) is not None:
            i[frame_tables.REBALANCE] = 1 + frames.REBALANCES.index(rebalancing.kind)
            f[frame_tables.REBALANCE_S], f[frame_tables.REBALANCE_AGE_S] = rebalancing.period_s, rebalancing.age_s
        if (speculation := frame.speculation) is not None:
            i[frame_tables.SPECULATE], f[frame_tables.COPY_AFTER] = 1, speculation.after
        if (preemption := frame.preemption) is not None:
            i[frame_tables.PREEMPT] = 1 + frames.PREEMPTIONS.index(preemption.kind)
            i[frame_tables.PREEMPT_KILL], i[frame_tables.PREEMPT_LIMIT] = preemption.kill, min(preemption.limit, 200)
            f[frame_tables.PREEMPT_S], f[frame_tables.RESUME_S] = preemption.after_s, preemption.resume_s
        faults = frame.faults or frames.FaultTolerance()
        i[frame_tables.MAX_RETRIES] = faults.retries
        i[frame_tables.FAILOVER] = faults.failover_s is not None
        f[frame_tables.FAILOVER_S], f[frame_tables.HEARTBEAT_S] = faults.failover_s or 0.0, faults.heartbeat_s
        f[frame_tables.PLACER_MTBF_S] = np.inf if faults.placer_mtbf_s is None else faults.placer_mtbf_s
        f[frame_tables.PLACER_REPAIR_S] = faults.placer_repair_s
        f[frame_tables.CHECKPOINT_S], f[frame_tables.CHECKPOINT_COST_S] = faults.checkpoint_s, faults.checkpoint_cost_s
        f[frame_tables.SLOW_SHARE], f[frame_tables.SLOW_FACTOR] = faults.slow_share, faults.slow_factor
        if (elastic := frame.elasticity) is not None:
            i[frame_tables.ELASTIC], i[frame_tables.LEAST_HOSTS] = 1, min(elastic.least_hosts, self.hosts)
            f[frame_tables.HIGH], f[frame_tables.LOW], f[frame_tables.SCALE_S] = (
                elastic.high,
                elastic.low,
                elastic.period_s,
            )
            f[frame_tables.BOOT_S] = elastic.boot_s

    def _shapes(self) -> None:
        shapes = self.workload.shapes
        chosen = [_cpu_variant(shape.variants) for shape in shapes]
        count = max(1, len(shapes))
        fits = np.zeros((count, self.hosts), np.int8)
        problems = []
        used = set(np.unique(self.workload.shape).tolist()) if self.tasks else set()
        for k, variant in enumerate(chosen):
            if variant is None:
                if k in used:
                    problems.append(Problem(f"shape {k}", "needs a device; frames run tasks on CPUs only"))
                continue
            reasons = [_why_not(variant, node) for node in self.cluster.nodes]
            fits[k] = [reason is None for reason in reasons]
            if k in used and not fits[k].any():
                problems.append(Problem(f"shape {k}", "; ".join(sorted({r for r in reasons if r})[:3])))
            if k in used and shapes[k].parts > 1 and (self.frame.barriers is None or not self.frame.barriers.gangs):
                problems.append(Problem(f"shape {k}", f"has {shapes[k].parts} parts, but the frame no gangs"))
        if problems:
            raise InfeasibleTask(f"{self.workload.name} on {self.cluster.name}", problems)
        needs = [micro(variant.cores) if variant else 0 for variant in chosen] or [micro(1)]
        kind_of: list[int] = []
        kinds: dict[object, int] = {}
        for k, variant in enumerate(chosen):
            # Shapes that need the same and fit the same hosts are one kind: a scan gives up on all of them at once.
            needs_of = (needs[k], variant.memory_bytes if variant else 0, shapes[k].parts, fits[k].tobytes())
            kinds.setdefault(needs_of, len(kinds))
            kind_of.append(kinds[needs_of])
        self.i[frame_tables.SHAPES] = len({kind_of[k] for k in used})
        self.i[frame_tables.ONE_SHAPE] = self.i[frame_tables.SHAPES] <= 1
        self.i[frame_tables.LEAST_NEED] = max(1, min(needs[k] for k in used)) if used else 1
        self.arrays |= {
            "s_need": np.array(needs, np.int64),
            "s_memory": np.array([v.memory_bytes if v else 0 for v in chosen] or [0], np.int64),
            "s_parts": np.array([shape.parts for shape in shapes] or [1], np.int64),
            "s_factor": np.array([v.runtime_factor if v else 1.0 for v in chosen] or [1.0]),
            "s_function": np.array([shape.function for shape in shapes] or [0], np.int64),
            "s_class": np.array(kind_of or [0], np.int64),
            "s_failed": np.zeros(count, np.int64),
            "s_fits": fits,
        }
        functions = self.workload.functions
        self.arrays["failure_rate"] = np.array([function.failure_rate for function in functions] or [0.0])
        self.arrays["speed"] = np.array(
            [
                [node.function_speed.get(function.name, node.speed) for function in functions] or [node.speed]
                for node in self.cluster.nodes
            ]
        )

    def _tasks(self) -> None:
        n, load, frame = self.tasks, self.workload, self.frame
        probes = n * frame.placers.samples + 64 if frame.placers.rule == "probes" else 0
        if self.i[frame_tables.BOTH]:
            probes = n
        heap = self.policy.order == "sjf" or self.i[frame_tables.SLOTS]
        preempts = frame.preemption is not None
        saves = preempts or self.f[frame_tables.CHECKPOINT_S] > 0
        rows = max(2, n)  # an array of one row means that the frame does without it
        is_sorted = bool(np.all(load.release_s[1:] >= load.release_s[:-1]))
        self.i[frame_tables.SORTED] = is_sorted
        order = np.zeros(1, np.int32) if is_sorted else np.argsort(load.release_s, kind="stable").astype(np.int32)
        self.i[frame_tables.HAS_DAG] = self.has_dag
        links = np.full(rows + probes, -1, np.int32)
        if probes:
            links[n : n + probes - 1] = np.arange(1, probes)
        gangs = any(shape.parts > 1 for shape in load.shapes)
        self.arrays |= {
            "release": _own(load.release_s, np.float64),
            "runtime": _own(load.runtime_s, np.float64),
            "estimate": _known(load.estimate_s),
            "shape": _own(load.shape, np.int32),
            "job": _own(load.workflow, np.int32),
            "arrivals": order,
            "t_next": links,
            "t_right": np.full(rows + probes, -1, np.int32) if heap else np.zeros(1, np.int32),
            "t_key": _keys(self.policy, load) if heap else np.zeros(1),
            "t_state": np.zeros(rows, np.int8),
            "t_placer": np.zeros(rows, np.int16),
            "t_node": np.full(rows if self.has_dag else 1, -1, np.int32),
            "t_ready": np.zeros(rows),
            "t_since": np.zeros(rows),
            "t_message": np.zeros(rows, np.float32),
            "t_tries": np.zeros(rows, np.int16),
            "t_saved": np.zeros(rows if saves else 1),
            "t_parts": np.zeros(rows if gangs else 1, np.int32),
            "t_preempted": np.zeros(rows if preempts else 1, np.int16),
            "t_home": np.full(rows if self.i[frame_tables.SLOTS] else 1, -1, np.int32),
            "t_bag": np.full(rows if probes else 1, -1, np.int32),
            "x_leader": np.arange(max(1, probes), dtype=np.int32),
            "x_placer": np.zeros(max(1, probes), np.int16),
            "j_used": np.zeros(workloads.jobs(load) if preempts else 1, np.int64),
            "records": np.zeros(workloads.record_rows(load), ATTEMPT).view(np.recarray),
            "scratch": np.zeros(rows if self.has_dag else 1, np.int32),
        }

    def _dag(self) -> None:
        load = self.workload
        data = self.frame.data
        moves = data is not None and data.intermediate != "free"
        has_bytes = moves and bool(load.parent_bytes.any() or load.input_bytes.any())
        self.i[frame_tables.HAS_DATA] = has_bytes
        self.i[frame_tables.INTERMEDIATE] = frames.INTERMEDIATES.index(data.intermediate) if data else 0
        if load.edge_count:
            child_start, child, _ = load.children()
            parent_start, parent, sizes = load.parent_start, load.parent, load.parent_bytes
        else:
            child_start = parent_start = np.zeros(self.tasks + 1, np.int64)
            child = parent = np.zeros(1, np.int32)
            sizes = np.zeros(1)
        self.arrays |= {
            "child_start": _own(child_start, np.int64),
            "child": _own(child, np.int32),
            "parent_start": _own(parent_start, np.int64),
            "parent": _own(parent, np.int32),
            "parent_bytes": _own(sizes, np.float64),
            # One row more: with a single task one row would mean "no bytes".
            "input_bytes": np.append(load.input_bytes, 0.0) if has_bytes and load.input_bytes.any() else np.zeros(1),
        }
        pending = np.diff(load.parent_start).astype(np.int32) if self.has_dag else np.zeros(1, np.int32)
        self.arrays["t_pending"] = pending if len(pending) else np.zeros(1, np.int32)
        self._levels()

    def _levels(self) -> None:
        """Groups of one workflow and level each; a barrier stands before all but a workflow's first."""
        group: NDArray[Any] = np.zeros(1, np.int32)
        left: NDArray[Any] = group
        start: NDArray[Any] = group
        member: NDArray[Any] = group
        barriers = self.frame.barriers
        if barriers is not None and barriers.levels and self.tasks:
            self.i[frame_tables.HAS_BARRIERS] = 1
            level = workloads.levels(self.workload)
            # Level max + 2: levels of different workflows never have neighbouring numbers.
            key = self.workload.workflow.astype(np.int64) * (int(level.max()) + 2) + level
            unique, group = np.unique(key, return_inverse=True)
            left = np.bincount(group)
            member = np.argsort(group, kind="stable")
            start = np.concatenate([[0], np.cumsum(left), [len(member)]])
            follows = np.concatenate([[False], np.diff(unique) == 1])
            self.arrays["t_pending"] += follows[group].astype(np.int32)
            self._gaps(follows, start, member, group)
            return
        self.arrays |= {
            "group": group.astype(np.int32),
            "group_left": left.astype(np.int32),
            "group_start": start.astype(np.int64),
            "group_member": member.astype(np.int32),
        }

    def _gaps(self, follows: Any, start: Any, member: Any, group: Any) -> None:
        """Renumber groups so that a workflow's last group is followed by an empty one."""
        # `attempt_ends._pass_barrier` opens group g + 1, which must not be another workflow's.
        number = np.arange(len(follows)) + np.cumsum(~follows)
        top = int(number[-1]) + 3
        left = np.zeros(top, np.int32)
        left[number] = np.diff(start)[: len(number)]
        first = np.zeros(top + 1, np.int64)
        np.cumsum(left, out=first[1:])
        self.arrays |= {
            "group": number[group].astype(np.int32),
            "group_left": left,
            "group_start": first,
            "group_member": member.astype(np.int32),
        }

    def _hosts(self) -> None:
        nodes, h = self.cluster.nodes, self.hosts
        grids = [uniform_grid(n.power.busy, n.power.watts, n.threads) if n.power else (np.zeros(1), 0.0) for n in nodes]
        sizes = np.array([len(grid) for grid, _ in grids], np.int64)
        faults, elastic = self.frame.faults or frames.FaultTolerance(), self.frame.elasticity
        mtbf = [_mtbf(node, faults) for node in nodes]
        if self.i[frame_tables.SLOTS] and any(np.isfinite(mean) for mean, _ in mtbf):
            raise InvalidInput(
                self.cluster.name, "has hosts that fail, which frames whose slots look for work do not bear"
            )
        idle = np.array([(n.power.idle_w if n.power else 0.0) + sum(d.power.idle_w for d in n.devices) for n in nodes])
        boot = [i if n.sleep is None or n.sleep.wake_w is None else n.sleep.wake_w for n, i in zip(nodes, idle)]
        whole = ("h_used", "h_used_memory", "h_queued", "h_coming", "h_busy")
        self.arrays |= {name: np.zeros(h, np.int64) for name in whole}
        small = ("h_running", "h_stealing", "h_asked", "h_failures")
        self.arrays |= {name: np.zeros(h, np.int32) for name in small}
        floats = ("h_asked_at", "h_since", "h_dynamic", "h_integral", "h_watts")
        self.arrays |= {name: np.zeros(h) for name in floats}
        self.arrays |= {
            "h_capacity": np.array([micro(_cores(node)) for node in nodes], np.int64),
            "h_memory": np.array([node.memory_bytes for node in nodes], np.int64),
            "h_state": np.zeros(h, np.int8),
            "h_known": np.ones(h, np.int8),
            "h_first": np.full(h, -1, np.int32),
            "h_idle_w": idle,
            "h_off_w": np.full(h, elastic.off_w if elastic else 0.0),
            "h_boot_w": np.array(boot, np.float64),
            "h_threads": np.array([float(node.threads) for node in nodes]),
            "h_grid": np.cumsum(sizes) - sizes,
            "h_grid_n": sizes,
            "h_per_core": np.array([per_core for _, per_core in grids], np.float64),
            "h_mtbf": np.array([m for m, _ in mtbf], np.float64),
            "h_repair": np.array([r for _, r in mtbf], np.float64),
            "h_bandwidth": np.array([node.network.bandwidth_bytes_per_s for node in nodes], np.float64),
            "h_latency": np.array([node.network.latency_s for node in nodes], np.float64),
            "h_j_byte": np.array([node.network.energy_j_per_byte for node in nodes], np.float64),
            "h_known_power": np.array([node.power is not None for node in nodes], np.int8),
            "grid": np.concatenate([grid for grid, _ in grids]),
            "energy": np.zeros((h, 8)),
        }

    def _placers(self) -> None:
        p, h, frame = self.placers, self.hosts, self.frame
        low, high = np.zeros(p, np.int64), np.full(p, h, np.int64)
        if frame.placers.partition == "disjoint":
            edges = np.linspace(0, h, p + 1).round().astype(np.int64)
            low, high = edges[:-1].copy(), edges[1:].copy()
        rule = np.full(p, frames.RULES.index(frame.placers.rule), np.int64)
        if frame.architecture == "hybrid":
            rule[0] = frame_tables.BY_SCORE
            low[0] = min(self.i[frame_tables.RESERVED], h - 1)
        if (high <= low).any():
            raise InvalidInput(frame.name, f"{p} placers cannot share {h} hosts without overlap")
        queues = p + h
        self.arrays["s_served"] = self._served(low, high)
        self.arrays |= {
            "p_low": low, "p_high": high, "p_rule": rule, "p_busy": np.zeros(p, np.int8), "p_up": np.ones(p, np.int8),
            "p_dirty": np.zeros(p, np.int8), "p_used": np.zeros(p, np.int64), "p_gen": np.zeros(p, np.int64),
            "p_batch": np.full(p, -1, np.int32), "p_batch_at": np.zeros(p), "p_stealing": np.zeros(p, np.int8),
            "seen": np.zeros((p, h), np.int64), "q_head": np.full(queues, -1, np.int32),
            "q_tail": np.full(queues, -1, np.int32), "q_len": np.zeros(queues, np.int32),
        }  # fmt: skip

    def _served(self, low: Any, high: Any) -> NDArray[np.int8]:
        """Return which placers have hosts that could run a shape, all its parts at once."""
        needs, fits = self.arrays["s_need"], self.arrays["s_fits"]
        room = (self.arrays["h_capacity"][None, :] // np.maximum(needs, 1)[:, None]) * fits
        served = np.stack([room[:, a:b].sum(axis=1) >= self.arrays["s_parts"] for a, b in zip(low, high)], axis=1)
        used = np.unique(self.workload.shape) if self.tasks else np.zeros(0, np.int64)
        alone = [int(k) for k in used if not served[k].any()]
        if alone:
            where = f"{self.workload.name} under {self.frame.name}"
            what = "no placer has hosts that could run all its parts at once"
            raise InfeasibleTask(where, [Problem(f"shape {k}", what) for k in alone])
        return served.astype(np.int8)

    def _attempts(self) -> None:
        least = int(self.i[frame_tables.LEAST_NEED])
        room = int((self.arrays["h_capacity"] // least).sum())
        parts = int(self.arrays["s_parts"].max())
        # As many as the cores hold, or two for each part (the
        # second a copy); a gang more, for what is tried and undone.
        rows = min(room, 2 * self.tasks * parts) + parts + 8
        following = np.arange(1, rows + 1, dtype=np.int32)
        following[-1] = -1
        whole = ("a_host", "a_previous", "a_part", "a_stage", "a_outcome", "a_twin", "a_copy")
        self.arrays |= {name: np.zeros(rows, np.int32) for name in whole}
        floats = (
            "a_placed", "a_start", "a_since", "a_work", "a_extra", "a_mark", "a_message_s", "a_data_s", "a_transfer_j",
            "a_marginal",
        )  # fmt: skip
        self.arrays |= {name: np.zeros(rows) for name in floats}
        self.arrays |= {"a_next": following, "a_task": np.full(rows, -1, np.int32), "a_seq": np.zeros(rows, np.int64)}
        children = int(np.diff(self.arrays["child_start"]).max()) if self.has_dag and self.tasks else 0
        per_task = 4 + self.frame.placers.samples
        # Rows that one event can add at most, generously: `frame_loop.advance` asks for them before each.
        self.i[frame_tables.MARGIN] = 2 * rows + 8 * self.hosts + 8 * self.placers + per_task * (children + 2) + 65
        if self.i[frame_tables.HAS_BARRIERS]:
            self.i[frame_tables.MARGIN] += per_task * self.tasks
        events = 4 * int(self.i[frame_tables.MARGIN])
        self.arrays |= {
            "e_time": np.zeros(events), "e_key": np.zeros(events, np.int64), "e_what": np.zeros(events, np.int32),
            "e_who": np.zeros(events, np.int32), "e_other": np.zeros(events, np.int64),
            "n_what": np.zeros(events, np.int32), "n_who": np.zeros(events, np.int32),
            "n_other": np.zeros(events, np.int64),
        }  # fmt: skip

    def _delays(self) -> None:
        frame = self.frame
        delays = [frames.NO_DELAY] * frame_tables.DELAYS
        delays[frame_tables.D_LATENCY], delays[frame_tables.D_CLIENT] = frame.messages.latency, frame.client.service
        delays[frame_tables.D_PLACER] = frame.placers.service
        if frame.broker is not None:
            delays[frame_tables.D_BROKER] = frame.broker.service
        if frame.metadata is not None:
            delays[frame_tables.D_METADATA] = frame.metadata.service
        if frame.data is not None:
            delays[frame_tables.D_DATA], delays[frame_tables.D_FETCH] = frame.data.service, frame.data.fetch
        values: list[float] = []
        until: list[float] = []
        first = []
        for delay in delays:
            first.append(len(values))
            values += delay.values_s
            # Cumulative shares: `draws.draw` walks them with one number.
            until += np.cumsum(np.array(delay.weights) / sum(delay.weights)).tolist() if delay.weights else []
        self.arrays |= {
            "d_kind": np.array([frames.DISTRIBUTIONS.index(delay.kind) for delay in delays], np.int64),
            "d_a": np.array([delay.mean_s for delay in delays]),
            "d_b": np.array([delay.sigma for delay in delays]),
            "d_first": np.array(first, np.int64),
            "d_n": np.array([len(delay.values_s) for delay in delays], np.int64),
            "d_value": np.array(values or [0.0]),
            "d_until": np.array(until or [1.0]),
        }

    def _caches(self) -> None:
        data, h = self.frame.data, self.hosts
        column = self.workload.columns.get("object")
        objects = int(column.max()) + 1 if column is not None and len(column) else 0
        size = min(data.cache_objects, objects) if data is not None else 0
        if h * objects > _LARGEST_CACHE_TABLE and size:
            raise InvalidInput(self.workload.name, f"{objects} objects on {h} hosts are too many for the caches' table")
        self.i[frame_tables.OBJECTS], self.i[frame_tables.CACHE_N] = objects, size
        self.i[frame_tables.CACHED_AT_START] = data is not None and data.cached == "start"
        self.i[frame_tables.MOVE_DATA] = data is not None and data.moves
        self.f[frame_tables.OBJECT_BYTES] = data.object_bytes if data is not None else 0.0
        slots, places = max(1, h * size), max(1, h * objects if size else 1)
        # Multi-probe hashing needs one point a host.
        each = 1 if self.frame.placers.hash == "multi-probe" else self.frame.placers.hash_points
        points, owners = frame_rules.ring(h, each)
        self.i[frame_tables.RING_N] = len(points)
        self.arrays |= {
            "object": _own(column, np.int32) if objects and column is not None else np.zeros(1, np.int32),
            "c_place": np.full(places, -1, np.int32), "c_object": np.zeros(slots, np.int32),
            "c_next": np.full(slots, -1, np.int32), "c_previous": np.full(slots, -1, np.int32),
            "c_head": np.full(h, -1, np.int32), "c_tail": np.full(h, -1, np.int32), "c_len": np.zeros(h, np.int32),
            "owner": np.full(max(1, objects), -1, np.int32), "owner_epoch": np.full(max(1, objects), -1, np.int64),
            "owner_since": np.zeros(max(1, objects) if self.i[frame_tables.OWNERS] else 1),
            "ring": points, "ring_host": owners,
        }  # fmt: skip


def _keys(policy: FramePolicy, load: Workload) -> NDArray[np.float64]:
    """Return the sort keys of the queues: the estimates, or the policy's own."""
    if policy.keys is not None:
        return _own(policy.keys, np.float64)
    return _known(load.estimate_s).copy()


def _own(values: Any, kind: Any) -> NDArray[Any]:
    """Return the array as compiled code needs it: contiguous, writable, of this type; copied only if need be."""
    array = np.ascontiguousarray(values, kind)
    if len(array) == 0:
        return np.zeros(1, kind)
    return array if array.flags.writeable else array.copy()


def _known(estimate_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimates with the mean of the known ones in place of unknown ones."""
    unknown = np.isnan(estimate_s)
    if not unknown.any():
        return _own(estimate_s, np.float64)
    # Nothing known at all: a second, as the core counts.
    mean = float(estimate_s[~unknown].mean()) if not unknown.all() else 1.0
    return np.where(unknown, mean, estimate_s)


def _cpu_variant(variants: Sequence[Variant]) -> Variant | None:
    return next((variant for variant in variants if variant.device is None), None)


def _cores(node: Node) -> float:
    """Return cores that a host offers: its requests' limit, at most its physical cores (frames know no SMT)."""
    # Beyond its cores tasks would slow each other down, which frames do not model.
    return min(node.request_cores, float(node.cores))


def _why_not(variant: Variant, node: Node) -> str | None:
    if micro(variant.cores) > micro(_cores(node)):
        return f"needs {variant.cores:g} cores, the most on one host is {_cores(node):g}"
    return why_not(variant, node, 1.0, 0)


def _mtbf(node: Node, faults: frames.FaultTolerance) -> tuple[float, float]:
    if faults.host_mtbf_s is not None:
        return faults.host_mtbf_s, faults.host_repair_s
    return (node.faults.mtbf_s, node.faults.repair_s) if node.faults is not None else (np.inf, 0.0)
