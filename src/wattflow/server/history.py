"""Finished workflows in a server's store, as work to learn from on a twin of the cluster.

Read from the tables beside a running server. Seconds on a node become seconds on a node of speed 1. The twin is
refitted to what was recorded: nodes on which the same functions took longer or shorter than their speed says get
another speed, and curves of watts are scaled to the joules that their counters counted, both in coarse steps, so that
noise does not make every node a kind of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from wattflow.learn import recorded
from wattflow.learn.recorded import Recorded
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.runtime import messages as m
from wattflow.runtime.facts import node_of
from wattflow.server.runs import structure
from wattflow.store import reads, schema
from wattflow.store.reads import Found

Floats = NDArray[np.float64]
_TASK = msgspec.msgpack.Decoder(tuple[int, m.Task])
_NODE = msgspec.msgpack.Decoder(tuple[int, m.Node])
ENOUGH = 5
"""Attempts, or windows of a counter, without which nothing of a node is refitted."""
SPEED_STEP, WATTS_STEP = 0.1, 0.05
"""Of the logarithms of what is refitted."""


@dataclass(frozen=True, slots=True)
class History:
    """Finished workflows, oldest first.

    Attributes:
        submitted_s: When each came, by the server's clock.
    """

    workload: Workload
    cluster: Cluster
    submitted_s: Floats

    def blocks(self, name: str, since_s: float = -math.inf, until_s: float = math.inf) -> list[Recorded]:
        """Those that came in a time, in blocks; none where there are too few."""
        flows = np.flatnonzero((self.submitted_s > since_s) & (self.submitted_s <= until_s))
        if len(flows) < recorded.FEWEST:
            return []
        return recorded.blocks(name, recorded.only(self.workload, flows), self.cluster)


@dataclass(frozen=True, slots=True)
class _Done:
    """A task that ended well, and its last attempt."""

    flow: int
    number: int
    spec: m.Task
    submitted_s: float
    deadline_s: float
    attempt: Found

    @property
    def seconds(self) -> float:
        return max(1e-3, float(self.attempt["ended_s"]) - float(self.attempt["started_s"]))

    @property
    def factor(self) -> float:
        return self.spec.variants[int(self.attempt["variant"])].runtime_factor


def finished(database: sa.Engine, since_s: float = 0.0) -> tuple[int, float]:
    """How many workflows have ended after a time, and when the last of them did (that time where none did)."""
    table = schema.workflows.c
    asked: list[Any] = [sa.func.count().label("count"), sa.func.max(table.ended_s).label("last_s")]
    (found,) = reads.rows(database, sa.select(*asked).where(table.state != "open", table.ended_s > since_s))
    return int(found["count"]), since_s if found["last_s"] is None else float(found["last_s"])


def read_history(database: sa.Engine, most: int = 1000) -> History:
    """The last workflows that ended, with what ran well of them.

    Raises:
        InvalidInput: Nothing has ended yet, or no node tells what it draws.
    """
    # Twice as many are read: open ones among them teach nothing yet and are left out.
    flows = [row for row in reads.workflows(database, most=2 * most) if row["state"] != "open"][:most][::-1]
    done = [one for i, row in enumerate(flows) for one in _done(database, i, row)]
    if not done:
        raise InvalidInput("store", "no workflow has ended there yet: there is nothing to learn from")
    cluster = _twin(database, done)
    kept = sorted({one.flow for one in done})
    workload = _workload(done, kept, {node.name: node for node in cluster.nodes})
    return History(workload, cluster, np.array([float(flows[i]["submitted_s"]) for i in kept]))


def _done(database: sa.Engine, flow: int, row: Found) -> list[_Done]:
    """Tasks of a workflow that began and ended well."""
    last = {found["task"]: found for found in reads.attempts(database, row["id"]) if found["outcome"] == "done"}
    about = msgspec.msgpack.decode(row["about"])
    until_s = about.get("deadline_s")
    made = []
    for found in reads.tasks(database, row["id"]):
        attempt = last.get(found["id"])
        if attempt is None or attempt["started_s"] is None or attempt["ended_s"] is None:
            continue
        spec = _TASK.decode(found["spec"])[1]
        came_s = float(found["submitted_s"])
        due_s = (
            came_s + spec.deadline_s if spec.deadline_s is not None else math.inf if until_s is None else float(until_s)
        )
        made.append(_Done(flow, int(found["id"]), spec, came_s, due_s, attempt))
    return made


def _twin(database: sa.Engine, done: Sequence[_Done]) -> Cluster:
    """The nodes that are there or were used, as they seem to be of late."""
    used = {str(one.attempt["node"]) for one in done}
    told = {
        row["name"]: node_of(_NODE.decode(row["spec"])[1])
        for row in reads.nodes(database)
        if row["state"] != "down" or row["name"] in used
    }
    if not any(node.power for node in told.values()):
        raise InvalidInput("store", "no node tells what it draws: without joules there is nothing to save")
    pace = _paces(done, told)
    first_s, last_s = (f(float(one.attempt["ended_s"]) for one in done) for f in (min, max))
    windows = reads.energy(database, first_s, last_s)
    nodes = []
    for name, node in told.items():
        changed = replace(node, speed=node.speed * pace.get(name, 1.0))
        more = _drawn(node, [w for w in windows if w["node"] == name], [d for d in done if d.attempt["node"] == name])
        if node.power is not None and more != 1.0:
            changed = replace(changed, power=replace(node.power, watts=tuple(w * more for w in node.power.watts)))
        nodes.append(changed)
    return Cluster("live", tuple(nodes), about="as the store tells")


def _paces(done: Sequence[_Done], nodes: Mapping[str, Node]) -> dict[str, float]:
    """How much faster nodes are than they say: the same functions beside their median on all nodes."""
    rows = [
        (one.spec.function_name, str(one.attempt["node"]), math.log(one.seconds / one.factor))
        for one in done
        if one.attempt["node"] in nodes
    ]
    usual: dict[str, list[float]] = {}
    for function, node, seconds in rows:
        usual.setdefault(function, []).append(seconds + math.log(nodes[node].speed))
    # Medians: one attempt beside a busy neighbour must not make a node look slow.
    middle = {function: float(np.median(values)) for function, values in usual.items()}
    beyond: dict[str, list[float]] = {}
    for function, node, seconds in rows:
        beyond.setdefault(node, []).append(middle[function] - seconds - math.log(nodes[node].speed))
    return {node: _step(float(np.median(v)), SPEED_STEP) for node, v in beyond.items() if len(v) >= ENOUGH}


def _drawn(node: Node, windows: Sequence[Found], done: Sequence[_Done]) -> float:
    """Divide what a node's counter counted by what its curve says for the attempts of the same time."""
    if node.power is None or len(windows) < ENOUGH:
        return 1.0
    began, ended, cores = (
        np.array([f(one) for one in done])
        for f in (
            lambda one: float(one.attempt["started_s"]),
            lambda one: float(one.attempt["ended_s"]),
            lambda one: one.spec.variants[int(one.attempt["variant"])].cpus,
        )
    )
    expected = 0.0
    for window in windows:
        length_s = max(1e-9, float(window["ended_s"]) - float(window["began_s"]))
        inside = np.minimum(ended, float(window["ended_s"])) - np.maximum(began, float(window["began_s"]))
        busy = float((np.maximum(0.0, inside) * cores).sum()) / length_s
        expected += node.power.at(min(busy, float(node.threads))) * length_s
    counted = sum(float(window["counted_j"]) for window in windows)
    return _step(math.log(counted / expected), WATTS_STEP) if counted > 0.0 and expected > 0.0 else 1.0


def _step(logarithm: float, step: float) -> float:
    """A factor in coarse steps, within a third and threefold."""
    return math.exp(step * round(max(-1.1, min(1.1, logarithm)) / step))


def _workload(done: Sequence[_Done], kept: Sequence[int], nodes: Mapping[str, Node]) -> Workload:
    columns = structure([(one.flow, one.spec) for one in done])
    names = [function.name for function in columns["functions"]]
    first_s = min(one.submitted_s for one in done)
    speed = {name: node.speed for name, node in nodes.items()}
    runtime = np.array([one.seconds * speed.get(str(one.attempt["node"]), 1.0) / one.factor for one in done])
    function = np.array([names.index(one.spec.function_name) for one in done])
    usual = np.array([float(np.median(runtime[function == i])) for i in range(len(names))])
    given = np.array([math.nan if one.spec.estimate_s is None else one.spec.estimate_s for one in done])
    release = np.array([one.submitted_s for one in done]) - first_s
    flow = np.array([kept.index(one.flow) for one in done], np.int32)
    submit = np.full(len(kept), np.inf)
    np.minimum.at(submit, flow, release)
    return Workload.of_columns(
        "live",
        release_s=release,
        runtime_s=runtime,
        # What a client does not tell is what the server had learned: what the function usually takes.
        estimate_s=np.where(np.isfinite(given), given, usual[function]),
        **columns,
        workflow=flow,
        workflow_submit_s=submit,
        deadline_s=np.array([one.deadline_s for one in done]) - first_s,
    )
