"""Names where objects are wanted: a trace's file, a recipe's text, a cluster's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload

if TYPE_CHECKING:
    from wattflow.generate.jitter import Drawable
    from wattflow.generate.recipe import Recipe

Name = str | os.PathLike[str]


def source_of(named: Name) -> Workload | Recipe:
    """A file, or the recipe of a generated workload (``family:key=value,…`` or the name of a bundled one)."""
    from wattflow import traces
    from wattflow.generate import DEMOS, FAMILIES
    from wattflow.generate.recipe import Recipe

    text = os.fspath(named)
    # A file first: a name may be both.
    if Path(text).exists():
        loaded: Workload = traces.load(text)
        return loaded
    if text.startswith("demo:") and text[5:] in DEMOS:
        return DEMOS[text[5:]]
    if text.partition(":")[0] in FAMILIES:
        return Recipe.parse(text)
    if "/" not in text and "." not in text:
        names = ", ".join((*FAMILIES, *(f"demo:{name}" for name in DEMOS)))
        raise InvalidInput(text, f"is neither a file nor a generated workload; the families are {names}")
    raise InvalidInput(text, "no such file")


def drawn(workload: Workload | Drawable | Name, seed: int) -> Workload:
    """Return a workload as it is, read from its file, or drawn with the seed."""
    if isinstance(workload, str | os.PathLike):
        workload = source_of(workload)
    return workload if isinstance(workload, Workload) else workload.draw(seed)


def cluster_of(cluster: Cluster | Name) -> Cluster:
    """Return a cluster as it is, or by its preset's name or its file."""
    if isinstance(cluster, Cluster):
        return cluster
    from wattflow.clusters import load_cluster

    loaded: Cluster = load_cluster(os.fspath(cluster))
    return loaded
