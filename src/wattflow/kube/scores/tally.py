"""Counts of pods per node that are kept until the node's pods change."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from wattflow.kube import objects
from wattflow.kube.filters import snapshot, spread
from wattflow.kube.scores import points

_MOST = 256


@dataclass(slots=True)
class Tally:
    """Numbers by what is counted and by node, each with the stamp of the view that it was counted on."""

    _known: OrderedDict[object, dict[str, tuple[int, int]]] = field(default_factory=OrderedDict)

    def of(self, what: object, count: points.Counter) -> points.Counter:
        """Return the same counter with a memory."""
        if what not in self._known and len(self._known) >= _MOST:
            self._known.popitem(last=False)
        kept = self._known.setdefault(what, {})
        self._known.move_to_end(what)

        def counted(view: snapshot.NodeView) -> int:
            name = view.node.metadata.name
            found = kept.get(name)
            if found is None or found[0] != view.stamp:
                found = kept[name] = (view.stamp, count(view))
            return found[1]

        return counted

    def matching(self, selector: objects.LabelSelector | None, namespace: str) -> points.Counter:
        """Count as `spread.matching` does."""
        what = ("spread", namespace, msgspec.json.encode(selector))
        return self.of(what, lambda view: spread.matching(view, selector, namespace))

    def clear(self) -> None:
        """Forget all: something else than pods has changed."""
        self._known.clear()
