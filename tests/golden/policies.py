"""What every policy does on the sample states, as text; `make golden` writes it anew after a change on purpose.

One line per policy and sample: the node of each task's last attempt, sums of starts, ends and joules, and the costs it
gave in the middle of its run, weighted by their places. The slow search is left to tests of its own, and so is the
rule that is made anew with the learned policy's weights.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from wattflow.engine.tables import UNKNOWN_COST
from wattflow.model.run import Run
from wattflow.policy import registry, weights
from wattflow.policy.base import Policy
from wattflow.sim import simulate
from wattflow.testing import sample_states
from wattflow.testing.check_policy import costs_of, looks
from wattflow.testing.sample_states import Sample

SEARCHING = ("nsga2", "distilled", "planned")
NAMES = tuple(name for name in (*registry.names(), *registry.ALIASES) if name not in SEARCHING)
"""Not those that search (uncompiled it takes minutes), nor names of what is another policy now; the other names of 0.1
too, which must decide as they did."""


def lines(name: str) -> Iterator[str]:
    """A policy's lines, one per sample; the learned one with weights drawn here, whatever it was taught last."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.npz"
        weights.save(path, np.random.default_rng(3).normal(0.0, 0.5, weights.SIZE), {"about": "drawn"})
        with mock.patch.dict(os.environ, {weights.ENVIRONMENT: str(path)}):
            yield from _lines(name)


def _lines(name: str) -> Iterator[str]:
    policy = registry.load(name)
    for sample in sample_states():
        run = simulate(sample.workload, sample.cluster, policy, seed=1)
        yield f"{name} | {sample.name} | {_placed(run)} | {_costs(policy, sample)}"


def _placed(run: Run) -> str:
    nodes = np.full(len(run.workload), -1)
    nodes[run.attempts["task"]] = run.attempts["node"]
    weight = np.arange(1, len(nodes) + 1)
    starts, ends = float(run.start_s_by_task() @ weight), float(run.end_s_by_task() @ weight)
    joules = float(run.energy_j.sum(axis=0) @ np.arange(1, run.energy_j.shape[1] + 1))
    return f"{''.join(map(str, nodes.tolist()))} starts {starts:.9g} ends {ends:.9g} joules {joules:.9g}"


def _costs(policy: Policy, sample: Sample) -> str:
    if policy.score is None:
        return "no costs"
    total, never = 0.0, 0
    for number, look in enumerate(looks(policy, sample), 1):
        costs, _ = costs_of(policy, look)
        known = costs < UNKNOWN_COST / 2  # it would drown all others
        total += number * float(costs[known] @ np.arange(1, len(costs) + 1)[known])
        never += int((~known).sum())
    return f"costs {total:.9g}, {never} unknown or never"


if __name__ == "__main__":
    for each in NAMES:
        for line in lines(each):
            sys.stdout.write(line + "\n")
