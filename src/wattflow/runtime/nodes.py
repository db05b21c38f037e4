"""The nodes that the service knows, by name and by the engine's id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wattflow.runtime.messages import Load, Node


@dataclass(slots=True)
class NodeRecord:
    """A node: what it announced, its id in the engine, its state (on, down, asleep, waking, falling).

    ``warm`` are the functions that were ordered to be held ready there, and are.
    """

    spec: Node
    engine: int
    state: str = "on"
    load: Load | None = None
    warm: set[str] = field(default_factory=set)


class Nodes:
    """All nodes, the lost ones included."""

    def __init__(self) -> None:
        self._by_name: dict[str, NodeRecord] = {}
        self._by_engine: dict[int, NodeRecord] = {}

    def add(self, spec: Node, engine: int, state: str = "on") -> NodeRecord:
        """A node is known from now on, or has changed."""
        record = NodeRecord(spec, engine, state)
        self._by_name[spec.name] = self._by_engine[engine] = record
        return record

    @property
    def specs(self) -> list[Node]:
        """Return what all of them announced."""
        return [record.spec for record in self]

    def get(self, name: str) -> NodeRecord | None:
        """A node by name."""
        return self._by_name.get(name)

    def by_engine(self, engine: int) -> NodeRecord | None:
        """A node by the engine's id."""
        return self._by_engine.get(engine)

    def __getitem__(self, name: str) -> NodeRecord:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[NodeRecord]:
        return iter(self._by_name.values())
