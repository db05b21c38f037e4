"""Numbers of all nodes as arrays, each kept until its node or the node's pods change: scores are sums over these."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from wattflow.kube import objects
from wattflow.kube.filters import snapshot, spread

_MOST = 256
_STAMP, _NODE = operator.attrgetter("stamp"), operator.attrgetter("node")
Ints = NDArray[np.int64]
Value = Callable[[snapshot.NodeView], int]


@dataclass(slots=True)
class Columns:
    """Nodes of a cluster as rows, in the cluster's order. `refresh` first: rows are those of the last call.

    Attributes:
        marks: Another number for a row after every change of its node or of the pods there.
    """

    cluster: snapshot.Snapshot
    views: list[snapshot.NodeView] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)
    marks: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _mark: int = 0
    _nodes: list[objects.Node] = field(default_factory=list)
    _stamps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _kept: OrderedDict[object, tuple[Ints, Ints]] = field(default_factory=OrderedDict)
    _domains: dict[str, dict[str, int]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Look which nodes changed. O(nodes), but without a Python step for each that did not."""
        views = list(self.cluster.nodes.values())
        nodes = list(map(_NODE, views))
        stamps = np.fromiter(map(_STAMP, views), np.int64, len(views))
        self._mark += 1
        if len(views) != len(self.views) or not all(map(operator.is_, views, self.views)):
            self.clear()
            self.views, self.names = views, list(self.cluster.nodes)
            self.row = {name: i for i, name in enumerate(self.names)}
            self.marks = np.full(len(views), self._mark)
        else:
            changed = stamps != self._stamps
            # By identity: a changed node is another object (`Book.on_node`).
            if not all(map(operator.is_, nodes, self._nodes)):
                changed |= [new is not old for new, old in zip(nodes, self._nodes, strict=True)]
            self.marks[changed] = self._mark
        self._nodes, self._stamps = nodes, stamps

    def of(self, what: object, value: Value) -> Ints:
        """Return a number for each row; asked for only where the row has changed since it was told last."""
        if what not in self._kept and len(self._kept) >= _MOST:
            # The least recently used; what pods ask about repeats, since pods come from few templates.
            self._kept.popitem(last=False)
        if what not in self._kept:
            self._kept[what] = np.zeros(len(self.views), np.int64), np.zeros(len(self.views), np.int64)
        self._kept.move_to_end(what)
        found, marks = self._kept[what]
        stale = np.flatnonzero(marks != self.marks)
        for i in stale.tolist():
            found[i] = value(self.views[i])
        marks[stale] = self.marks[stale]
        return found

    def domains(self, key: str) -> Ints:
        """Return a number for each value of a label, -1 where a node has none."""
        codes = self._domains.setdefault(key, {})

        def code(view: snapshot.NodeView) -> int:
            value = view.labels.get(key)
            return -1 if value is None else codes.setdefault(value, len(codes))

        return self.of(("domain", key), code)

    def matching(self, selector: objects.LabelSelector | None, namespace: str) -> Ints:
        """Count as `spread.matching` does."""
        what = ("spread", namespace, msgspec.json.encode(selector))
        return self.of(what, lambda view: spread.matching(view, selector, namespace))

    def clear(self) -> None:
        """Forget all numbers: something else than nodes and their pods has changed."""
        self._kept.clear()
        self._domains.clear()
