"""Workloads of our own making: parametric DAG families, heavy-tailed runtimes, arrival processes, benchmarks.

from wattflow import generate
workload = generate.workload("montage", tasks=200, seed=1)
stream = generate.Recipe.parse("map-reduce:tasks=20,workflows=50,arrivals=poisson,rate=0.1").draw(seed=1)
"""

from __future__ import annotations

from wattflow.generate.benchmark import DEMOS, benchmark_workload
from wattflow.generate.laws import ARRIVALS, LAWS, Arrivals, Law
from wattflow.generate.recipe import FAMILIES, Recipe
from wattflow.model.workload import Workload

__all__ = ["ARRIVALS", "DEMOS", "FAMILIES", "LAWS", "Arrivals", "Law", "Recipe", "benchmark_workload", "workload"]


def workload(family: str, tasks: int = 100, seed: int = 0) -> Workload:
    """Draw one workflow of a family with everything else as by default; a ``Recipe`` sets the rest."""
    return Recipe(family, tasks=tasks).draw(seed)
