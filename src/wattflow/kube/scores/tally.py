"""Counts of pods per node that are kept until the node's pods change, and answers about nodes until those change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from wattflow.kube import objects
from wattflow.kube.filters import snapshot, spread
from wattflow.kube.scores import score_points as points

_MOST = 256
T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """Numbers by what is counted and by node, each with the stamp of the view that it was counted on."""

    _known: OrderedDict[object, dict[str, tuple[int, int]]] = field(default_factory=OrderedDict)
    _answers: OrderedDict[object, dict[str, tuple[objects.Node, bool]]] = field(default_factory=OrderedDict)

    def of(self, what: object, count: points.Counter) -> points.Counter:
        """Return the same counter with a memory."""
        kept = _recent(self._known, what)

        def counted(view: snapshot.NodeView) -> int:
            name = view.node.metadata.name
            found = kept.get(name)
            # Stamps are unique among all views, so a node that was made anew cannot hit an old count.
            if found is None or found[0] != view.stamp:
                found = kept[name] = (view.stamp, count(view))
            return found[1]

        return counted

    def holds(self, what: object, test: Callable[[objects.Node], bool]) -> points.Test:
        """Return the same question about nodes with a memory."""
        kept = _recent(self._answers, what)

        def held(view: snapshot.NodeView) -> bool:
            node = view.node
            found = kept.get(node.metadata.name)
            # By identity: a changed node is another object (`Book.on_node`).
            if found is None or found[0] is not node:
                found = kept[node.metadata.name] = (node, test(node))
            return found[1]

        return held

    def matching(self, selector: objects.LabelSelector | None, namespace: str) -> points.Counter:
        """Count as `spread.matching` does."""
        what = ("spread", namespace, msgspec.json.encode(selector))
        return self.of(what, lambda view: spread.matching(view, selector, namespace))

    def clear(self) -> None:
        """Forget all: something else than pods has changed."""
        self._known.clear()


def _recent(table: OrderedDict[object, dict[str, T]], what: object) -> dict[str, T]:
    if what not in table and len(table) >= _MOST:
        # The least recently used; what pods ask about repeats, since pods come from few templates.
        table.popitem(last=False)
    found = table.setdefault(what, {})
    table.move_to_end(what)
    return found
