"""The desk of an environment: what is known of variants before the first decision."""

from __future__ import annotations

from reference.hand import node, nodes, tasks
from wattflow.learn import episode_buffers
from wattflow.model.cluster import Frequency
from wattflow.model.profile import PowerProfile
from wattflow.sim.simulate import Simulation


def test_a_lower_frequency_follows_and_is_slower_and_a_faster_one_only_follows() -> None:
    levels = (Frequency(1.0, 1.0), Frequency(0.8, 0.6))
    clocked = node(4, power=PowerProfile((0.0, 4.0), (10.0, 50.0)), frequencies=levels)
    state = Simulation(tasks([3.0]), nodes(clocked), "wattflow").state
    assert episode_buffers.desk(state, 4).follows.tolist()[:2] == [0, episode_buffers.SLOWER]
    state.frequency_speed[:, 1] = 1.5
    assert episode_buffers.desk(state, 4).follows.tolist()[:2] == [0, episode_buffers.FOLLOWS]
