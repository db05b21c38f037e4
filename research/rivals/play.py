"""Let a rival decide a whole stream: the simulator's own run of it, stopped at each decision."""

from __future__ import annotations

import numpy as np

from research.portfolio import Result
from research.rivals.agent import Agent
from wattflow.learn import episode
from wattflow.learn.environment import Episode
from wattflow.learn.scenarios import Scenario
from wattflow.live import caller_choice


def open_stream(agent: Agent, scenario: Scenario, seed: int) -> Episode:
    """A scenario ready to be decided by an agent, as often as one likes."""
    return Episode(scenario, seed, agent.joint, agent.shown)


def roll(agent: Agent, stream: Episode) -> Result:
    """The stream from its first event to its last, always by what the agent thinks best."""
    stream.restart()
    seen = np.zeros((1, agent.shown, episode.WIDTH), np.float32)
    shown = np.array([stream.step(caller_choice.NONE, seen[0])])
    while shown[0] > 0:
        row = agent.choose(seen, shown, [stream.ask])
        shown[0] = stream.step(int(row[0]), seen[0])
    stream.closing_reward()
    return stream.judge.trial.result()
