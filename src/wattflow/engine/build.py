"""From Workload and Cluster to State: facts become rows, names become numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine import groups, tables
from wattflow.engine.offer_rows import (
    MOST_KNOWN,
    Offer,
    ShapeOffers,
    level_count,
    level_tables,
    micro,
    offers_of,
    offers_to,
    shape_offers,
    why_not,
)
from wattflow.engine.settings import QUEUES, SELECTIONS, PolicySettings
from wattflow.engine.tables import MICRO, State
from wattflow.kernel.handle import as_bytes
from wattflow.kernel.records import record_table
from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.errors import InfeasibleTask, InvalidInput, Problem
from wattflow.model.workload import Workload

# A group's bit set has a word for each 64 nodes of its class: with classes
# of any size `group_bits` would grow with the square of the nodes.
_CLASS_CHUNK = 4096
_BLOCK = 4096
_MOST_CELLS = 8192
_SHARING = {"exclusive": 0, "time-slice": 1, "mps": 2, "mig": 3}
_KINDS = {"gpu": tables.GPU, "fpga": tables.FPGA}


def uniform_grid(xs: tuple[float, ...], ys: tuple[float, ...], top: float) -> tuple[NDArray[np.float64], float]:
    """Return the piecewise-linear curve on an even grid from 0 to ``top``: (values, cells per unit of x).

    Exact when the points lie on some even grid of at most 8,192 cells, else on so many.
    """
    if top <= 0:
        return np.array([ys[0]]), 0.0
    points = np.array([x for x in xs if 0 < x < top])
    tried = np.arange(1, _MOST_CELLS + 1)
    at = points[:, None] * tried / top
    # Products of floats stray from whole numbers by an error that grows with the factor.
    exact = np.all(np.abs(at - np.round(at)) < 1e-9 * tried, axis=0)
    cells = int(tried[np.argmax(exact)]) if exact.any() else _MOST_CELLS
    values = np.interp(np.arange(cells + 1) * top / cells, xs, ys)
    return values, cells / top


@dataclass(slots=True)
class Names:
    """Numbers given to architectures, features and device models."""

    architectures: dict[str, int]
    features: dict[str, int]
    models: dict[str, int]


def build_state(workload: Workload, cluster: Cluster, settings: PolicySettings | None = None) -> State:
    """Make a State at time 0: nothing arrived, every node on and empty."""
    return _Builder(workload, cluster, settings or PolicySettings()).build()


def build_offers(workload: Workload, cluster: Cluster, settings: PolicySettings) -> dict[str, Any]:
    """Make what a State of them holds of another policy's offers: ``shapes``, ``variants``, ``class_ok``, ``rules``."""
    made = _Builder(workload, cluster, settings)
    made.offer()
    return made.tables


def follow(rules: Any, settings: PolicySettings) -> None:
    """Write what a policy says of itself into the State's rules."""
    rules["queue"] = QUEUES.index(settings.queue)
    rules["selection"] = SELECTIONS.index(settings.selection)
    for flag in ("largest", "dynamic", "wakes", "grouped", "pods", "samples", "alike"):
        rules[flag] = int(getattr(settings, flag))


class _Builder:
    def __init__(self, workload: Workload, cluster: Cluster, settings: PolicySettings) -> None:
        self.workload, self.cluster, self.settings = workload, cluster, settings
        self.tables: dict[str, Any] = {}
        variants = [v for shape in workload.shapes for v in shape.variants]
        features = sorted({f for n in cluster.nodes for f in n.features} | {f for v in variants for f in v.features})
        # One bit each in `classes.features` and `variants.features`.
        if len(features) > 64:
            raise InvalidInput(cluster.name, f"at most 64 different feature tags are supported, not {len(features)}")
        self.names = Names(
            {a: i for i, a in enumerate(sorted({n.architecture for n in cluster.nodes}))},
            {f: i for i, f in enumerate(features)},
            {m: i for i, m in enumerate(sorted({d.model for n in cluster.nodes for d in n.devices}))},
        )

    def offer(self) -> None:
        """Make the tables that the offers stand in, and those that they rest on."""
        self._scalars()
        self._classes_and_nodes()
        self._devices()
        self._shapes()

    def build(self) -> State:
        self.offer()
        self._tasks()
        self._room()
        state = State(**self.tables)
        # Hashes wrap around at 64 bits; uncompiled, numpy would warn of it.
        with np.errstate(over="ignore"):
            for node in np.flatnonzero(state.nodes.device_n).tolist():
                state.nodes.device_key[node] = groups.device_key(state.handle(), node)
            groups.rebuild(state.handle())
        return state

    def _scalars(self) -> None:
        clock, rules = record_table(tables.CLOCK, 1), record_table(tables.RULES, 1)
        counts, choice = record_table(tables.COUNTS, 1), record_table(tables.CHOICE, 1)
        settings, workload = self.settings, self.workload
        follow(rules, settings)
        clock.retry_at = np.inf
        counts.held_first = -1
        # `backfill.NO_RESERVATION`.
        choice.reserved = -2
        counts.open = len(workload)
        # From 1: 0 in `shapes.failed` says that the shape never failed (`decide.look_again`).
        clock.epoch = 1
        rules.has_data = int(bool(np.any(workload.parent_bytes > 0)))
        rules.cold = int(any(f.cold_start_s > 0 for f in workload.functions))
        counts.free_container = counts.hot_container = -1
        rules.max_retries = 3
        rules.limits = int(any(n.serverless and n.serverless.time_limit_s < np.inf for n in self.cluster.nodes))
        self.tables |= {"clock": clock, "rules": rules, "counts": counts, "choice": choice}

    def _classes_and_nodes(self) -> None:
        nodes = self.cluster.nodes
        by_class: dict[Any, list[list[int]]] = {}
        # In the order of the file within each class: the lowest position is the lowest node, which ties go to.
        for index, node in enumerate(nodes):
            chunks = by_class.setdefault(class_key(node), [[]])
            if len(chunks[-1]) >= _CLASS_CHUNK:
                chunks.append([])
            chunks[-1].append(index)
        members = [chunk for chunks in by_class.values() for chunk in chunks]
        classes = record_table(tables.CLASSES, len(members))
        node_rows = record_table(tables.NODES, len(nodes))
        levels = max(len(node.frequencies) for node in nodes)
        speed_f, power_f = np.zeros((len(members), levels)), np.zeros((len(members), levels))
        speed = np.zeros((len(members), max(1, len(self.workload.functions))))
        grids: list[NDArray[np.float64]] = []
        zones = {zone.name: i for i, zone in enumerate(self.cluster.zones)}
        first = 0
        for c, member in enumerate(members):
            node = nodes[member[0]]
            row = classes[c]
            row.first, row.count, row.room = first, len(member), len(member)
            row.zone = zones[node.zone]
            fill_class(row, node, self.names)
            grid = self._grid(node, row)
            row.grid_first, row.grid_n = sum(len(g) for g in grids), len(grid)
            grids.append(grid)
            for level, frequency in enumerate(node.frequencies):
                speed_f[c, level], power_f[c, level] = frequency.speed, frequency.power
            for f, function in enumerate(self.workload.functions):
                speed[c, f] = node.function_speed.get(function.name, node.speed)
            node_rows.cls[member] = c
            node_rows.pos[member] = np.arange(len(member))
            node_rows.capacity_u[member] = node_rows.request_u[member] = row.request_u
            node_rows.capacity_mem[member] = row.memory
            first += len(member)
        node_rows.first_attempt = -1
        node_rows.first_container = -1
        self.tables |= {
            "classes": classes,
            "nodes": node_rows,
            "speed": speed,
            "grid": np.concatenate(grids),
            "class_nodes": np.array([n for member in members for n in member], np.int32),
            "frequency_speed": speed_f,
            "frequency_power": power_f,
        }
        self.class_example = [nodes[member[0]] for member in members]

    def _grid(self, node: Node, row: Any) -> NDArray[np.float64]:
        if node.power is None:
            return np.zeros(1)
        grid, row.grid_per_core = uniform_grid(node.power.busy, node.power.watts, node.threads)
        return grid

    def _devices(self) -> None:
        kinds: dict[Any, int] = {}
        rows: list[tuple[int, int]] = []
        nodes = self.tables["nodes"]
        for index, node in enumerate(self.cluster.nodes):
            # An attempt's devices are one mask of 64 bits (`attempts.devices`).
            if len(node.devices) > 64:
                raise InvalidInput(self.cluster.name, f"node {node.name} has more than 64 devices")
            nodes.device_first[index], nodes.device_n[index] = len(rows), len(node.devices)
            rows += [(index, kinds.setdefault(device, len(kinds))) for device in node.devices]
        devices = record_table(tables.DEVICES, max(1, len(rows)))
        devices.loaded = -1
        for d, (node_index, cls) in enumerate(rows):
            devices.node[d], devices.cls[d] = node_index, cls
        classes = record_table(tables.DEVICE_CLASSES, max(1, len(kinds)))
        grids = [np.zeros(1)]
        for device, c in kinds.items():
            fill_device_class(classes[c], device, self.names)
            grid, classes.grid_per_share[c] = uniform_grid(device.power.share, device.power.watts, 1.0)
            classes.grid_first[c], classes.grid_n[c] = sum(len(g) for g in grids), len(grid)
            grids.append(grid)
        self.tables |= {"devices": devices, "device_classes": classes, "device_grid": np.concatenate(grids)}
        self._device_levels(kinds)

    def _device_levels(self, kinds: dict[Device, int]) -> None:
        functions = [function.name for function in self.workload.functions]
        rows = level_tables(self.tables["device_classes"], kinds, functions, len(functions))
        self.tables |= dict(zip(("level_seconds", "level_power"), rows, strict=True))

    def _shapes(self) -> None:
        workload, settings = self.workload, self.settings
        shapes = record_table(tables.SHAPES, max(1, len(workload.shapes)))
        shapes["head"] = shapes["tail"] = -1
        levels = self.tables["level_seconds"].shape[1]
        # A device's level is looked up by function; all else that a shape offers goes by its variants.
        known = self._known_offers() if levels == 1 else {}
        found: list[ShapeOffers] = []
        for shape in workload.shapes:
            key = (shape.variants, shape.function if levels > 1 else 0)
            one = known.get(key)
            if one is None:
                one = known[key] = shape_offers(
                    offers_of(*key, settings, levels), self.class_example, workload.functions
                )
            found.append(one)
        variants = record_table(tables.VARIANTS, max(1, sum(len(one.offers) for one in found)))
        class_ok = np.zeros((len(variants), len(self.tables["classes"])), np.uint8)
        if found:
            count = np.array([len(one.offers) for one in found])
            shapes["function"][:] = [shape.function for shape in workload.shapes]
            shapes["parts"][:] = [shape.parts for shape in workload.shapes]
            shapes["variant_first"][:], shapes["variant_n"][:] = np.cumsum(count) - count, count
            # As bytes: numpy would put records together field by field, which takes a hundred times as long.
            as_bytes(variants[: count.sum()])[...] = np.concatenate([one.rows for one in found])
            class_ok[: count.sum()] = np.concatenate([one.fits for one in found])
            for first, one in zip((np.cumsum(count) - count).tolist(), found, strict=True):
                for at in one.on_device:
                    fill_variant(variants[first + at], one.offers[at], self.names)
            if count.sum():
                self.tables["rules"].bare |= int(((variants["need_u"] == 0) | (variants["memory"] == 0)).any())
        functions = record_table(tables.FUNCTIONS, max(1, len(workload.functions)))
        functions.first_container = -1
        for name in ("cold_start_s", "compute_bound", "failure_rate", "checkpoint_s", "checkpoint_cost_s"):
            functions[name][: len(workload.functions)] = [getattr(function, name) for function in workload.functions]
        self.tables |= {"shapes": shapes, "variants": variants, "class_ok": class_ok, "functions": functions}
        self._refuse_impossible()

    def _known_offers(self) -> dict[Any, ShapeOffers]:
        """Return what is known by now of offers to such classes: races build many tables of the same workflows."""
        known = offers_to(
            tuple(map(class_key, self.class_example)), self.settings.guarantees, self.settings.frequencies
        )
        if len(known) > MOST_KNOWN:
            known.clear()
        return known

    def _refuse_impossible(self) -> None:
        """Refuse tasks that no node could run even when empty, and say what is missing."""
        shapes, class_ok = self.tables["shapes"], self.tables["class_ok"]
        problems = []
        able = np.concatenate([[0], np.cumsum(class_ok.any(axis=1))])
        first = shapes["variant_first"].astype(np.int64)
        possible = able[first + shapes["variant_n"]] > able[first]
        # Shapes without a task may ask for what they like.
        used = np.unique(self.workload.shape)
        for s in used[~possible[used] | (shapes["parts"][used] > 1)].tolist():
            if possible[s]:
                problems += self._too_many_parts(s, class_ok[first[s]])
                continue
            task = int(np.flatnonzero(self.workload.shape == s)[0])
            variant = self.workload.shapes[s].variants[0]
            reasons = sorted({r for n in self.class_example if (r := why_not(variant, n, 1.0, 0)) is not None})
            others = int(np.count_nonzero(self.workload.shape == s)) - 1
            more = f" (and {others} more tasks like it)" if others else ""
            problems.append(Problem(f"task {self.workload.task_id(task)}{more}", "; ".join(reasons[:3])))
        if problems:
            raise InfeasibleTask(f"{self.workload.name} on {self.cluster.name}", problems)

    def _too_many_parts(self, s: int, fits: Any) -> list[Problem]:
        """Report a job of several parts that even the empty cluster cannot hold at once."""
        shape = self.workload.shapes[s]
        # With several variants the parts may differ, and a count of the first alone would refuse what fits.
        if shape.parts <= 1 or len(shape.variants) > 1:
            return []
        variant, classes = shape.variants[0], self.tables["classes"]
        room = 0
        for c, node in enumerate(self.class_example):
            if fits[c]:
                # At the least guarantee that may be offered: nothing that could be placed is refused here.
                by_cores = micro(node.request_cores) // max(1, micro(variant.cores * min(self._guarantees())))
                by_memory = node.memory_bytes // variant.memory_bytes if variant.memory_bytes else by_cores
                room += int(classes.count[c]) * min(by_cores, by_memory)
        if room >= shape.parts:
            return []
        task = int(np.flatnonzero(self.workload.shape == s)[0])
        text = f"needs {shape.parts:,} parts of {variant.cores:g} cores at once; the empty cluster holds {room:,}"
        return [Problem(f"task {self.workload.task_id(task)}", text)]

    def _guarantees(self) -> tuple[float, ...]:
        return (1.0, *self.settings.guarantees)

    def _tasks(self) -> None:
        workload = self.workload
        count = len(workload)
        tasks = record_table(tables.TASKS, max(1, count))
        columns: dict[str, NDArray[Any]] = {
            "release": workload.release_s,
            "estimate": workload.estimate_s,
            "form": workload.shape,
            "workflow": workload.workflow,
            "pending": np.diff(workload.parent_start),
        }
        for first in range(0, len(tasks), _BLOCK):  # block by block: each row comes into the processor's cache once
            block = tasks[first : first + _BLOCK]
            for name, column in columns.items():
                block[name][: len(column) - first] = column[first : first + _BLOCK]
            for name in ("node", "pinned", "pinned_variant", "next", "previous"):
                block[name] = -1
        needs_extra = bool(np.isfinite(workload.deadline_s).any() or workload.input_bytes.any())
        extra = record_table(tables.EXTRA, max(2, count) if needs_extra else 1)  # one row means: nothing of the kind
        if needs_extra:
            extra.deadline[:count], extra.input_bytes[:count] = workload.deadline_s, workload.input_bytes
        self.tables["counts"].extra_n = len(extra)
        if workload.input_bytes.any():
            self.tables["rules"].has_data = 1
        workflows = record_table(tables.WORKFLOWS, max(1, len(workload.workflow_names)))
        workflows.submit[: len(workload.workflow_submit_s)] = workload.workflow_submit_s
        workflows.open[: len(workload.workflow_submit_s)] = np.bincount(
            workload.workflow, minlength=len(workload.workflow_submit_s)
        )[: len(workload.workflow_submit_s)]
        links = record_table(tables.LINKS, max(1, count))
        if workload.edge_count:
            child_start, child, _ = workload.children()
            links.child_first[:count], links.child_n[:count] = child_start[:-1], np.diff(child_start)
            links.parent_first[:count] = workload.parent_start[:-1]
            links.parent_n[:count] = np.diff(workload.parent_start)
        else:
            child = np.zeros(1, np.int32)
        self.tables |= {
            "tasks": tasks,
            "extra": extra,
            "workflows": workflows,
            "links": links,
            "child": np.ascontiguousarray(child, np.int32),
            "parent": workload.parent.copy() if workload.edge_count else np.zeros(1, np.int32),
            "parent_bytes": workload.parent_bytes.copy() if workload.edge_count else np.zeros(1),
        }

    def _room(self) -> None:
        """Tables whose size is a matter of capacity."""
        nodes, devices = len(self.cluster.nodes), len(self.tables["devices"])
        parts = max((shape.parts for shape in self.workload.shapes), default=1)
        attempts = self._attempt_capacity(parts)
        groups_n = 2 * nodes + 64
        # Each node in a group of its own, twice over, before `groups._regroup` has to clear away empty ones.
        words = (int(self.tables["classes"].count.max()) + 63) // 64
        slots = 1 << (4 * groups_n - 1).bit_length()
        # A power of two (it is masked) that stays at most a quarter full: probes are short and always meet a free slot.
        candidates = nodes + 2 * devices + 64
        attempt_rows = record_table(tables.ATTEMPTS, attempts)
        attempt_rows.next[:] = np.arange(1, attempts + 1)
        # The free list of attempts: each row names the next.
        attempt_rows.next[-1] = -1
        attempt_rows.task = -1
        containers = record_table(tables.CONTAINERS, 1)
        scratch = max(attempts, len(self.workload) if self.workload.edge_count else 1)
        self.tables |= {
            "attempts": attempt_rows, "placed": np.zeros(attempts, np.int32),
            "groups": record_table(tables.GROUPS, groups_n), "group_bits": np.zeros((groups_n, words), np.uint64),
            "group_slots": np.full(slots, -1, np.int32), "active_groups": np.zeros(groups_n, np.int32),
            "active_shapes": np.zeros(max(1, len(self.workload.shapes)), np.int32),
            "candidates": record_table(tables.CANDIDATES, candidates), "cost": np.zeros(candidates),
            "containers": containers, "actions": record_table(tables.ACTIONS, nodes + 64),
            "gang": np.zeros(2 * candidates, np.int32), "scratch": np.zeros(scratch, np.int32),
            "params": np.zeros(tables.PARAMS), "memory": np.zeros(64), "freed": np.full(4096, -1, np.int32),
            "marks": record_table(tables.MARKS, 1), "node_marks": record_table(tables.NODE_MARKS, 1),
            "node_counts": np.zeros((1, tables.COUNTABLE), np.int64),
            "other_counts": np.zeros((1, tables.COUNTABLE), np.int64),
            "variant_counts": np.zeros((1, tables.COUNTABLE), np.int64),
            "masks": np.zeros((1, 1), np.uint64), "timers": record_table(tables.TIMERS, 1),
            "ended": record_table(tables.ENDED, 1),
            "blocks": np.full(64, -1, np.int64), **tables.no_rules(), **tables.no_boards(),
        }  # fmt: skip

    def _attempt_capacity(self, parts: int) -> int:
        """Size the table for the attempts that can run at once; the driver grows it when it runs out."""
        cores = sum(node.request_cores for node in self.cluster.nodes)
        return int(min(max(64.0, 2.0 * parts, cores * 1.3), 1 << 16, max(64, 4 * len(self.workload)))) + 2 * parts


def container_table(rows: int) -> Any:
    """Container rows, all free."""
    table = record_table(tables.CONTAINERS, rows)
    table.next_node[:] = np.arange(1, rows + 1)
    table.next_node[-1] = -1
    return table


def class_key(node: Node) -> Any:
    """Key nodes by everything that a decision or a joule depends on: all but the name."""
    mapping = tuple(sorted(node.function_speed.items()))
    return (
        node.cores, node.memory_bytes, node.threads_per_core, node.smt_slowdown, node.allocatable_cores, node.speed,
        mapping, node.architecture, node.features, node.zone, node.power, node.tdp_w, node.devices, node.network,
        node.frequencies, node.sleep, node.keep_alive_s, node.cold_start_factor, node.serverless, node.faults,
        node.price_per_hour, node.sharing,
    )  # fmt: skip


def fill_class(row: Any, node: Node, names: Names) -> None:
    """Make the row of what the nodes of one class share."""
    threads = float(node.threads)
    row.cores, row.threads = float(node.cores), threads
    row.smt_gain = 0.0 if threads == node.cores else (threads / node.smt_slowdown - node.cores) / (threads - node.cores)
    row.request_u, row.memory = micro(node.request_cores), node.memory_bytes
    row.known_power = node.power is not None
    row.device_idle_w = sum(device.power.idle_w for device in node.devices)
    row.idle_w = (node.power.idle_w if node.power else 0.0) + row.device_idle_w
    row.full_w = node.power.at(threads) if node.power else 0.0
    row.tdp_w = node.tdp_w if node.tdp_w is not None else row.full_w
    row.frequency_n = len(node.frequencies)
    row.architecture = names.architectures[node.architecture]
    row.features = sum(1 << names.features[f] for f in node.features)
    row.sleepable, row.sleep_after_s = node.sleep is not None, np.inf
    if node.sleep is not None:
        row.sleep_w, row.wake_s, row.enter_s = node.sleep.watts, node.sleep.wake_s, node.sleep.enter_s
        row.wake_w = row.idle_w if node.sleep.wake_w is None else node.sleep.wake_w
        row.sleep_after_s = np.inf if node.sleep.after_s is None else node.sleep.after_s
    row.serverless, row.limit_s, row.burst_u = node.serverless is not None, np.inf, np.inf
    if node.serverless is not None:
        row.burst_u, row.ramp_u_s = node.serverless.burst * MICRO, node.serverless.ramp_per_s * MICRO
        row.limit_s, row.use_price = node.serverless.time_limit_s, node.serverless.price_per_core_s
        row.call_price = node.serverless.price_per_call
    network = node.network
    row.bandwidth, row.latency_s = network.bandwidth_bytes_per_s, network.latency_s
    row.zone_latency_s, row.j_per_byte = network.zone_latency_s, network.energy_j_per_byte
    row.keep_alive_s, row.cold_factor = node.keep_alive_s, node.cold_start_factor
    row.mtbf_s = np.inf if node.faults is None else node.faults.mtbf_s
    if node.faults is not None:
        row.repair_s, row.notice_s = node.faults.repair_s, node.faults.notice_s
    row.price_s = node.price_per_hour / 3600.0


def fill_variant(row: Any, offer: Offer, names: Names) -> None:
    """Write one offer into a row."""
    variant, guarantee = offer.variant, offer.guarantee
    row.cores_u, row.need_u = micro(variant.cores), micro(variant.cores * guarantee)
    row.memory, row.factor, row.guarantee = variant.memory_bytes, variant.runtime_factor, guarantee
    row.origin, row.frequency = offer.base, offer.frequency
    row.level, row.function = offer.level, offer.function
    if variant.device is not None:
        row.device, row.devices = _KINDS[variant.device], max(1, variant.devices)
        row.share_u, row.device_memory = micro(variant.device_share), variant.device_memory_bytes
        row.duty_u = micro(variant.device_duty)
        bits = [names.models[m] for m in variant.device_models if m in names.models]
        if variant.device_models:
            # Models that no device here has: 0 would mean "any".
            row.models = sum(1 << b for b in bits) or (1 << 63)


def is_bare(row: Any) -> int:
    """1 for a variant without a request for cores or for memory."""
    return int(row.need_u == 0 or row.memory == 0)


def fill_device_class(row: Any, device: Device, names: Names) -> None:
    """Make the row of what the devices of one class share."""
    row.kind, row.model = _KINDS[device.kind], names.models[device.model]
    row.sharing, row.slots, row.memory = _SHARING[device.sharing], device.slots, device.memory_bytes
    row.speed, row.interference, row.reconfigure_s = device.speed, device.interference, device.reconfigure_s
    row.switch_loss = device.switch_loss
    row.idle_w, row.full_w = device.power.idle_w, device.power.at(1.0)
    row.tdp_w = device.tdp_w if device.tdp_w is not None else row.full_w
    row.level_n = level_count(device)


__all__ = ["build_state", "micro", "uniform_grid", "why_not"]
