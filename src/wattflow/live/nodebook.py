"""Nodes and their classes as rows that come and go. Cores, memory and countables are a node's own, not its class's."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattflow.engine import build, classes, groups, tables
from wattflow.engine.build import Names, micro
from wattflow.engine.offer_rows import level_tables
from wattflow.engine.tables import COUNTABLE, State
from wattflow.live import growth
from wattflow.live.constraints import ConstraintBook, NodeFacts
from wattflow.live.growth import Extents, grown, widened
from wattflow.live.protocol import BadEvent, Taint
from wattflow.model.cluster import Device, Node

_WORD = 64


@dataclass(slots=True)
class _Class:
    row: int
    example: Node
    members: int = 0


def _key(node: Node) -> Any:
    """Return all that makes two nodes differ in a decision, but name, cores and memory on offer."""
    return build.class_key(replace(node, memory_bytes=0, allocatable_cores=float(node.cores)))


class NodeBook:
    """Rows of nodes, classes, devices, and the tables that hang on them."""

    def __init__(self, state: State, names: Names) -> None:
        self.state, self.names = state, names
        self.facts: dict[int, NodeFacts] = {}
        self.by_name: dict[str, int] = {}
        self.rules = ConstraintBook(state)
        self.zones: dict[str, int] = {}
        self.resources: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.examples = np.full(len(state.classes), -1, np.int64)
        self.sleep_after_s: float | None = None
        self.variants_used = 0
        self.changed = False
        self._classes: dict[Any, _Class] = {}
        self._class_rows = list(range(len(state.classes)))
        self._rows = list(range(len(state.nodes)))
        self._places = Extents(smallest=_WORD)
        self._grid, self._device_grid = Extents(used=1), Extents(used=1)
        self._device_rows = Extents()
        self._device_classes: dict[Device, int] = {}

    def add(self, node: Node, labels: Mapping[str, str], taints: tuple[Taint, ...], counts: Mapping[str, int]) -> int:
        """Make a row for a new node; it is down until a NODE event says otherwise."""
        if len(node.devices) > 64:
            raise BadEvent(f"node {node.name} has {len(node.devices)} devices; at most 64 are supported")
        for name in counts:
            self.resource(name)
        if not self._rows:
            # A sorted list is a heap. The lowest free row is taken, so that a replayed journal gives the same ids.
            self._rows = list(range(len(self.state.nodes), 2 * len(self.state.nodes)))
            growth.grow_nodes(self.state, 2 * len(self.state.nodes))
            groups.rebuild(self.state.handle())
        row = heapq.heappop(self._rows)
        self._add_devices(row, node)
        kind = self._class(node, row)
        self._stand(row, kind)
        self.facts[row] = NodeFacts(node, dict(labels), taints, dict(counts))
        self.by_name[node.name] = row
        self._amounts(row, node, counts)
        self.raise_room(row, int(self.state.nodes.request_u[row]), node.memory_bytes)
        with np.errstate(over="ignore"):
            handle = self.state.handle()
            self.state.nodes.device_key[row] = groups.device_key(handle, row) if node.devices else 0
            self.rules.node_added(row, self.facts[row], int(self.state.classes.first[kind.row]))
            groups.join_new(handle, row)
        self.changed = True
        return row

    def _amounts(self, row: int, node: Node, counts: Mapping[str, int]) -> None:
        rows = self.state.nodes
        rows.capacity_u[row] = rows.request_u[row] = micro(node.request_cores)
        rows.capacity_mem[row] = node.memory_bytes
        # Down, so that nothing is placed here before the step that folds its NODE event.
        rows.power_state[row] = tables.DOWN
        for name in ("used_u", "alloc_u", "used_mem", "running", "frequency", "generation", "falls", "wake_wanted"):
            rows[name][row] = 0
        rows.idle_since[row] = rows.on_at[row] = 0
        rows.first_attempt[row] = rows.first_container[row] = -1
        self.state.node_counts[row] = 0
        for name, count in counts.items():
            self.state.node_counts[row, self.resources[name]] = count
        for name in ("other_u", "other_mem", "warming"):
            self.state.node_marks[name][row] = 0
        self.state.other_counts[row] = 0
        if node.serverless is not None:
            burst = min(node.serverless.burst * tables.MICRO, 9e18)
            rows.capacity_u[row] = min(int(rows.capacity_u[row]), int(burst))

    def relabel(self, row: int, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> None:
        """Note that a node's labels and taints are others now."""
        facts = self.facts[row] = replace(self.facts[row], labels=dict(labels), taints=taints)
        self.rules.node_added(row, facts, int(self.state.classes.first[self.state.nodes.cls[row]]))
        self.rules.freshen()

    def become(self, row: int, node: Node) -> None:
        """Note that a known node has another speed, curve or sleep state now: it moves to the class of those like it.

        What runs there goes on. Its devices stay those that it came with; how much tasks disturb each other on them is
        as told now.
        """
        known = self.facts[row].node
        node = replace(node, devices=_disturbed(known.devices, node.devices))
        self.facts[row] = replace(self.facts[row], node=node)
        old_key = _key(known)
        if _key(node) == old_key:
            return
        state, old = self.state, self._classes[old_key]
        with np.errstate(over="ignore"):
            # Out of its group before its class changes: a group is found by the class, state and room of its nodes.
            groups.leave_for_good(state.handle(), row)
            self._close_ranks(row, old)
            for d, device in enumerate(node.devices, int(state.nodes.device_first[row])):
                state.devices.cls[d] = self._device_class(device)
            kind = self._class(node, row)
            self._stand(row, kind)
            if node.devices:
                state.nodes.device_key[row] = groups.device_key(state.handle(), row)
            state.nodes.frequency[row] = min(int(state.nodes.frequency[row]), len(node.frequencies) - 1)
            self.raise_room(row, int(state.nodes.request_u[row]), int(state.nodes.capacity_mem[row]))
            self.rules.node_added(row, self.facts[row], int(state.classes.first[kind.row]))
            groups.join_new(state.handle(), row)
            if old.members == 0:
                self._drop_class(old_key, old)
            self.rules.freshen()
        self.changed = True

    def raise_room(self, row: int, cores_u: int, memory: int) -> None:
        """Note that a node of this class has so much: variants may fit it that did not fit the class before."""
        c = int(self.state.nodes.cls[row])
        kind = self.state.classes[c]
        if cores_u > kind.request_u or memory > kind.memory:
            kind.request_u, kind.memory = max(cores_u, int(kind.request_u)), max(memory, int(kind.memory))
            classes.fill_class_ok(self.state.handle(), 0, self.variants_used, c, c + 1, self.examples)

    def remove(self, row: int) -> None:
        """Free the row of a node that is down and empty; ids that name it are stale."""
        facts = self.facts.pop(row)
        self.rules.node_removed(row)
        if self.by_name.get(facts.node.name) == row:
            del self.by_name[facts.node.name]
        state = self.state
        groups.leave_for_good(state.handle(), row)
        kind = self._classes[_key(facts.node)]
        self._close_ranks(row, kind)
        if state.nodes.device_n[row]:
            self._device_rows.give(int(state.nodes.device_first[row]), int(state.nodes.device_n[row]))
        # An empty class goes at once: many short-lived kinds of nodes must not fill the table.
        if kind.members == 0:
            self._drop_class(_key(facts.node), kind)
        # From here on ids of the node are stale, also those in reports that are under way.
        state.node_marks.generation[row] += 1
        heapq.heappush(self._rows, row)
        self.changed = True

    def _close_ranks(self, row: int, kind: _Class) -> None:
        """Give the place of a node that leaves to the last of its class, so that a class has no holes."""
        state = self.state
        # Places of a class are dense: decisions walk over `count` places and never ask whether one is empty.
        kind.members -= 1
        state.classes.count[kind.row] = kind.members
        first, pos = int(state.classes.first[kind.row]), int(state.nodes.pos[row])
        last = int(state.class_nodes[first + kind.members])
        state.nodes.pos[row] = -1
        state.class_nodes[first + kind.members] = -1
        if last != row:
            groups.leave_for_good(state.handle(), last)
            state.class_nodes[first + pos], state.nodes.pos[last] = last, pos
            self.rules.move_bit(first + kind.members, first + pos)
            groups.join_new(state.handle(), last)
        self.examples[kind.row] = int(state.class_nodes[first]) if kind.members else -1

    def _drop_class(self, key: Any, kind: _Class) -> None:
        row = self.state.classes[kind.row]
        self._places.give(int(row.first), int(row.room))
        self._grid.give(int(row.grid_first), int(row.grid_n))
        self.examples[kind.row] = -1
        self.state.class_ok[:, kind.row] = 0
        del self._classes[key]
        heapq.heappush(self._class_rows, kind.row)

    def resource(self, name: str) -> int:
        """Return the column of a countable resource."""
        if name not in self.resources:
            if len(self.resources) >= COUNTABLE:
                known = ", ".join(self.resources)
                raise BadEvent(f"resource {name!r}: at most {COUNTABLE} countable resources are supported ({known})")
            self.resources[name] = len(self.resources)
        return self.resources[name]

    def _class(self, node: Node, row: int) -> _Class:
        key = _key(node)
        if key not in self._classes:
            self._classes[key] = self._new_class(node, row)
        return self._classes[key]

    def _new_class(self, node: Node, node_row: int) -> _Class:
        state = self.state
        if not self._class_rows:
            self._grow_classes(2 * len(state.classes))
        c = heapq.heappop(self._class_rows)
        # Before `fill_class`, which looks names up and makes none.
        self.names.architectures.setdefault(node.architecture, len(self.names.architectures))
        for feature in node.features:
            intern_bit(self.names.features, feature, "feature tags")
        row = state.classes[c]
        build.fill_class(row, node, self.names)
        row.zone = self.zones.setdefault(node.zone, len(self.zones))
        # Whole words: a class's bits in masks and groups never share a word with another class's.
        row.room, row.count = _WORD, 0
        row.first = self._take_places(_WORD)
        grid, row.grid_per_core = (np.zeros(1), 0.0)
        if node.power is not None:
            grid, row.grid_per_core = build.uniform_grid(node.power.busy, node.power.watts, node.threads)
        row.grid_first, row.grid_n = self._put_grid("grid", self._grid, grid), len(grid)
        self._frequencies(c, node)
        for name, f in self.functions.items():
            state.speed[c, f] = node.function_speed.get(name, node.speed)
        if self.sleep_after_s is not None and row.sleepable:
            row.sleep_after_s = self.sleep_after_s
        if node.serverless is not None and node.serverless.time_limit_s < np.inf:
            state.rules["limits"] = 1
        self.examples[c] = node_row
        classes.fill_class_ok(state.handle(), 0, self.variants_used, c, c + 1, self.examples)
        return _Class(c, node)

    def _grow_classes(self, rows: int) -> None:
        state, old = self.state, len(self.state.classes)
        state.replace(
            classes=grown(state.classes, rows),
            speed=grown(state.speed, rows, 1.0),
            frequency_speed=grown(state.frequency_speed, rows, 1.0),
            class_ok=widened(state.class_ok, rows),
            frequency_power=grown(state.frequency_power, rows, 1.0),
        )
        self.examples = grown(self.examples, rows, -1)
        self._class_rows = list(range(old, rows))

    def _frequencies(self, c: int, node: Node) -> None:
        state = self.state
        levels = len(node.frequencies)
        if levels > state.frequency_speed.shape[1]:
            state.replace(
                frequency_speed=widened(state.frequency_speed, levels, 1.0),
                frequency_power=widened(state.frequency_power, levels, 1.0),
            )
        for level, frequency in enumerate(node.frequencies):
            state.frequency_speed[c, level], state.frequency_power[c, level] = frequency.speed, frequency.power

    def _put_grid(self, name: str, extents: Extents, grid: Any) -> int:
        first = extents.take(len(grid))
        table = getattr(self.state, name)
        if extents.used > len(table):
            self.state.replace(**{name: grown(table, 2 * extents.used)})
        getattr(self.state, name)[first : first + len(grid)] = grid
        return first

    def _take_places(self, room: int) -> int:
        first = self._places.take(room)
        table = self.state.class_nodes
        if self._places.used > len(table):
            self.state.replace(class_nodes=grown(table, 2 * self._places.used, -1))
            self.rules.widen(len(self.state.class_nodes) // _WORD)
            growth.fit_boards(self.state)
        return first

    def _stand(self, row: int, kind: _Class) -> None:
        """Give a node its position among those of its class."""
        state = self.state
        if kind.members == int(state.classes.room[kind.row]):
            self._widen_class(kind)
        pos = kind.members
        kind.members += 1
        state.classes.count[kind.row] = kind.members
        state.class_nodes[int(state.classes.first[kind.row]) + pos] = row
        state.nodes.cls[row], state.nodes.pos[row] = kind.row, pos

    def _widen_class(self, kind: _Class) -> None:
        """Double the positions of a class: its block of nodes and of mask bits moves."""
        state = self.state
        old, room = int(state.classes.first[kind.row]), int(state.classes.room[kind.row])
        first = self._take_places(2 * room)
        state.class_nodes[first : first + room] = state.class_nodes[old : old + room]
        state.class_nodes[first + room : first + 2 * room] = -1
        state.class_nodes[old : old + room] = -1
        # Masks are by place: the bits must follow before anybody asks a mask again.
        self.rules.move_words(old // _WORD, first // _WORD, room // _WORD)
        self._places.give(old, room)
        state.classes.first[kind.row], state.classes.room[kind.row] = first, 2 * room
        words = max(state.group_bits.shape[1], 2 * room // _WORD)
        growth.grow_groups(state, words)
        groups.rebuild(state.handle())

    def _add_devices(self, row: int, node: Node) -> None:
        state = self.state
        state.nodes.device_n[row] = len(node.devices)
        if not node.devices:
            state.nodes.device_first[row] = 0
            return
        first = self._device_rows.take(len(node.devices))
        if self._device_rows.used > len(state.devices):
            state.replace(devices=grown(state.devices, 2 * self._device_rows.used))
            growth.grow_candidates(state)
        state.nodes.device_first[row] = first
        for d, device in enumerate(node.devices, first):
            entry = state.devices[d]
            entry.node, entry.cls, entry.loaded = row, self._device_class(device), -1
            entry.share_u = entry.memory = entry.tasks = entry.level = 0

    def _device_class(self, device: Device) -> int:
        if device not in self._device_classes:
            c = len(self._device_classes)
            state = self.state
            if c >= len(state.device_classes):
                state.replace(device_classes=grown(state.device_classes, 2 * c))
            intern_bit(self.names.models, device.model, "device models")
            build.fill_device_class(state.device_classes[c], device, self.names)
            grid, state.device_classes.grid_per_share[c] = build.uniform_grid(
                device.power.share, device.power.watts, 1.0
            )
            first = self._put_grid("device_grid", self._device_grid, grid)
            self.state.device_classes.grid_first[c], self.state.device_classes.grid_n[c] = first, len(grid)
            self._device_classes[device] = c
            self._fill_levels()
        return self._device_classes[device]

    def _fill_levels(self) -> None:
        """Write what functions lose and save at the levels of devices, where a device has any."""
        if all(device.levels is None for device in self._device_classes):
            return
        # In the order of their numbers; made anew: a new function or class of devices with levels is rare.
        names = sorted(self.functions, key=self.functions.__getitem__)
        made = level_tables(self.state.device_classes, self._device_classes, names, len(names) + 1)
        self.state.replace(level_seconds=made[0], level_power=made[1])

    def function_added(self, name: str, f: int) -> None:
        """Write the speeds of all classes for a new function."""
        state = self.state
        self.functions[name] = f
        if f >= state.speed.shape[1]:
            state.replace(speed=widened(state.speed, 2 * f, 1.0))
        for kind in self._classes.values():
            state.speed[kind.row, f] = kind.example.function_speed.get(name, kind.example.speed)
        self._fill_levels()

    def fill_class_ok(self, first: int, end: int) -> None:
        """Tell which classes suit new variants."""
        classes.fill_class_ok(self.state.handle(), first, end, 0, len(self.state.classes), self.examples)

    def set_sleep_after(self, after_s: float | None) -> None:
        """Set a policy's own sleep time-out, or each node's."""
        self.sleep_after_s = after_s
        for kind in self._classes.values():
            sleep = kind.example.sleep
            if sleep is not None:
                own = np.inf if sleep.after_s is None else sleep.after_s
                self.state.classes.sleep_after_s[kind.row] = own if after_s is None else after_s


def intern_bit(names: dict[str, int], name: str, what: str) -> int:
    """Return the bit of a name; at most 64 of them."""
    if name not in names:
        if len(names) >= 63:
            raise BadEvent(f"at most 63 different {what} are supported; {name!r} is one too many")
        names[name] = len(names)
    return names[name]


def _disturbed(known: tuple[Device, ...], told: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return known devices with the interference and the levels of those that were told, where they are as many."""
    if len(known) != len(told):
        return known
    pairs = zip(known, told, strict=True)
    return tuple(replace(one, interference=other.interference, levels=other.levels) for one, other in pairs)
