"""A large workflow as DAGs inside a DAG, so that Argo's controller keeps up with it.

At each change of a workflow the controller walks all ancestors of every task that has begun, in one DAG of thousand
tasks with a join in the middle half a million of them: seconds of processor time, in which no pod is made. Where one
task separates all that comes before from all that comes after it, the two can be DAGs of their own that follow one
another, and the same tasks begin after the same ends.
"""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Mapping, Sequence

from kuberig.api import JSON

LEAST = 50
"""Tasks of a section, before it may end."""


def separators(parents: Mapping[str, Sequence[str]]) -> tuple[list[str], list[int]]:
    """All tasks in an order, parents first, and the places of those that are related to every other task.

    Whoever comes before such a task leads to it: each has a child at or before its place. The same with parents for
    whoever comes after it.
    """
    order = list(graphlib.TopologicalSorter(parents).static_order())
    place = {name: i for i, name in enumerate(order)}
    first_child = [len(order)] * len(order)
    for name, above in parents.items():
        for one in above:
            first_child[place[one]] = min(first_child[place[one]], place[name])
    last_parent = [max((place[one] for one in parents[name]), default=-1) for name in order]
    reached = [0, *itertools.accumulate(first_child, max)]
    reaching = [len(order), *itertools.accumulate(reversed(last_parent), min)][::-1]
    return order, [i for i in range(len(order)) if reached[i] <= i <= reaching[i + 1]]


def sections(parents: Mapping[str, Sequence[str]], least: int = LEAST) -> list[list[str]]:
    """The tasks in groups that follow one another, each but the last ended by a task that waits for all of it."""
    order, ends = separators(parents)
    found: list[list[str]] = []
    at = 0
    for end in ends:
        if end + 1 - at >= least:
            found.append(order[at : end + 1])
            at = end + 1
    return [*found, order[at:]] if at < len(order) else found


def nest(document: JSON, least: int = LEAST) -> JSON:
    """The manifest of one flat DAG with its sections as templates of their own; as it was where there is only one."""
    spec = document["spec"]
    dag, *templates = spec["templates"]
    tasks = {task["name"]: task for task in dag["dag"]["tasks"]}
    groups = sections({name: task.get("dependencies", []) for name, task in tasks.items()}, least)
    if len(groups) < 2:
        return document
    made, calls = [], []
    for number, group in enumerate(groups):
        inside = set(group)
        entries = [_within(tasks[name], inside) for name in group]
        made.append({"name": f"section-{number}", "dag": {"tasks": entries}})
        before = {"dependencies": [f"section-{number - 1}"]} if number else {}
        calls.append({"name": f"section-{number}", "template": f"section-{number}", **before})
    whole = {**dag, "dag": {"tasks": calls}}
    return {**document, "spec": {**spec, "templates": [whole, *made, *templates]}}


def _within(task: JSON, inside: set[str]) -> JSON:
    """A task that waits only for those of its own section; the others have ended when it begins."""
    above = [one for one in task.get("dependencies", []) if one in inside]
    rest = {key: value for key, value in task.items() if key != "dependencies"}
    return {**rest, "dependencies": above} if above else rest
