"""What an attempt's row says when it is made."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.model.profile import PowerProfile
from wattflow.sim.simulate import Simulation


def test_an_attempt_knows_its_estimated_end_and_marginal_joules() -> None:
    """10 W idle and 50 W with both cores busy: a core adds 20 W. The other node is twice as fast, its watts unknown."""
    work = tasks([8.0, 8.0, 8.0], release=[1.0, 1.0, 1.0])
    work = work.with_estimates(np.array([10.0, 10.0, np.nan]))
    known = node(2, power=PowerProfile((0.0, 2.0), (10.0, 50.0)))
    simulation = Simulation(work, nodes(known, node(1, speed=2.0)), "fifo")
    simulation.advance(until_s=1.0)
    rows = simulation.state.attempts
    by_task = {int(row.task): row for row in rows if row.task >= 0}
    assert (by_task[0].node, by_task[0].end, by_task[0].marginal_j) == (0, 11.0, pytest.approx(200.0))
    assert (by_task[1].node, by_task[1].end) == (1, 6.0) and math.isnan(by_task[1].marginal_j)
    assert (by_task[2].node, by_task[2].end) == (0, math.inf) and math.isnan(by_task[2].marginal_j)
