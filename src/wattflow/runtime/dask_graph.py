"""Graphs of Dask's collections as tasks: each of its tasks is one of ours, and its keys are edges."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from wattflow.runtime.task import TaskFunction, Way


def compute(client: Executor, graph: Mapping[Any, Any], keys: Any) -> Any:
    """The values of keys (lists of lists of them, as Dask asks); every task that they need runs once."""
    from dask._task_spec import Alias, DataNode, convert_legacy_graph
    from dask.core import flatten
    from dask.utils import key_split

    # Newer versions of Dask hand over an expression that makes the graph.
    made = graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph
    nodes = convert_legacy_graph(dict(made))
    known: dict[Any, Any] = {}
    wanted = list(flatten([keys]))  # type: ignore[no-untyped-call]
    for key in _parents_first(nodes, wanted):
        node = nodes[key]
        if isinstance(node, DataNode):
            known[key] = node.value
        elif isinstance(node, Alias):
            known[key] = known[node.target]
        else:
            named = TaskFunction(node, [Way("cpu")], name=str(key_split(key)))
            known[key] = client.submit(named, {parent: known[parent] for parent in node.dependencies})
    return _values(keys, known)


def _parents_first(nodes: Mapping[Any, Any], wanted: list[Any]) -> list[Any]:
    """The keys that are wanted and all that they need, each after what it needs. Graphs may be deep: no recursion."""
    ordered: dict[Any, None] = {}
    stack = [(key, False) for key in wanted]
    while stack:
        key, needs_are_in = stack.pop()
        if key in ordered:
            continue
        if needs_are_in:
            ordered[key] = None
            continue
        stack.append((key, True))
        stack += [(parent, False) for parent in sorted(nodes[key].dependencies, key=str) if parent not in ordered]
    return list(ordered)


def _values(keys: Any, known: Mapping[Any, Any]) -> Any:
    if isinstance(keys, list):
        return tuple(_values(key, known) for key in keys)
    value = known[keys]
    return value.result() if hasattr(value, "client") else value
