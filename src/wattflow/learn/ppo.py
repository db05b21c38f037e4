"""Proximal policy optimisation of the learned policy's place head, in JAX with optax (extra `learn`).

    python -m wattflow.learn.ppo --minutes 10 --out out/ppo      # then -p learned:weights=out/ppo/ppo-all-seed-1.npz
    python -m wattflow.learn.ppo --minutes 10 --out out/ppo --resume

Schulman et al., Proximal policy optimization algorithms, arXiv:1707.06347. The environment is that of the policy with
the weights of the moment: rows are drawn by their cost (`ppo_network`), rewards are joules over the flagship's. Rows
are padded once, to the environment's number of rows. The other heads stay as they were, at 0 or as in the file of
``--from``.

A round draws new streams and plays them on for some turns, with a few passes of Adam after each. All of a round follows
from the seed and its number, so a run that goes on from a checkpoint is the run that did not stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattflow.learn import evolve, scenarios
from wattflow.learn.environment import Draw, SchedulingVectorEnv
from wattflow.learn.even_pay import SCALE, EvenPay
from wattflow.learn.ppo_network import PLACE, Look, act, loss, start_critic, value
from wattflow.policy import placing

# After `ppo_network`, which says what to install where they are missing.
import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import optax  # isort: skip

Floats = NDArray[np.float64]
APART = 10_000
"""Streams of a seed begin at so many times it: far from those for choosing and for validation."""
ENDS = 8
"""Numbers of streams that a round may use up in each place."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """The usual numbers of PPO.

    Attributes:
        count: Streams at once.
        rows: Rows of a decision, at most.
        steps: Decisions of each stream in a turn.
        turns: Turns of a round, on the same streams or those that follow them.
        plays: How often a stream is played before another takes its place.
        place, critic: Adam's steps. A correction of 0.05 changes a chance 2.6 times, so the first are short.
        epochs, parts: Passes over what was seen in a turn, and steps of Adam in each.
        tasks: Tasks of a stream, about.
        every: Rounds between two comparisons.
        chosen_on: Scenarios for these.
    """

    fold: int = -1
    seed: int = 1
    count: int = 16
    rows: int = 32
    steps: int = 128
    turns: int = 8
    plays: int = 2
    epochs: int = 3
    parts: int = 4
    place: float = 5e-4
    critic: float = 1e-3
    discount: float = 0.995
    trace: float = 0.95
    clip: float = 0.2
    tasks: int = 300
    every: int = 5
    chosen_on: int = 60


class Batch(NamedTuple):
    """Steps of all streams, time first."""

    look: Look
    row: Any
    chance: Any
    value: Any
    reward: Any
    ended: Any


def gains(batch: Batch, last: Any, discount: float, trace: float) -> Any:
    """Generalised advantage estimates, from the last step back (arXiv:1506.02438)."""
    found = np.zeros_like(batch.reward)
    after, running = np.asarray(last), np.zeros(batch.reward.shape[1])
    for t in range(len(batch.reward) - 1, -1, -1):
        goes_on = 1.0 - batch.ended[t]
        surprise = batch.reward[t] + discount * after * goes_on - batch.value[t]
        running = surprise + discount * trace * goes_on * running
        found[t], after = running, batch.value[t]
    return found


def prices(env: SchedulingVectorEnv, rows: int) -> tuple[Any, Any]:
    """Logarithms of the rows' prices and costs, over the least cost of each decision; 0 where there is no row."""
    price, cost = np.zeros((env.num_envs, rows), np.float32), np.zeros((env.num_envs, rows), np.float32)
    for i, (one, n) in enumerate(zip(env.episodes, env.shown.tolist(), strict=True)):
        table = one.ask.rows[:n]
        whole = np.maximum(table["cost"], 1e-9)
        least = whole.min()
        price[i, :n] = np.log(np.maximum(table["price"], 1e-9) / least)
        cost[i, :n] = np.log(whole / least)
    return price, cost


class Trainer:
    """Streams, networks and optimiser. ``base``: all weights of the policy to begin with."""

    def __init__(self, settings: PpoSettings, base: Floats | None = None, draw: Draw | None = None) -> None:
        self.settings = settings
        self.base = evolve.start().theta if base is None else base
        allowed = evolve.training_applications(settings.fold)
        self.env = SchedulingVectorEnv(
            draw or (lambda number: scenarios.draw(number, allowed, settings.tasks)),
            settings.count, settings.rows, plays=settings.plays, theta=self.base,
        )  # fmt: skip
        self.pay = EvenPay(self.env)
        self.key, first = jax.random.split(jax.random.PRNGKey(settings.seed))
        self.theta: dict[str, Any] = {
            "place": jnp.asarray(self.base[PLACE], jnp.float32),
            "critic": start_critic(first),
        }
        adam = {name: optax.adam(getattr(settings, name)) for name in self.theta}
        self.optimiser = optax.multi_transform(adam, {name: name for name in self.theta})
        self.memory = self.optimiser.init(self.theta)
        self.number = 0
        self._descend = jax.jit(self._descended)

    @property
    def weights(self) -> Floats:
        """All weights of the policy, as a file has them."""
        found = self.base.copy()
        found[PLACE] = np.asarray(self.theta["place"], np.float64)
        return found

    def round(self) -> tuple[float, float]:
        """New streams, some turns on them; returns the mean reward of a step and the last loss."""
        s = self.settings
        self.env.follow(self.weights)
        self.seen, info = self.env.reset(seed=APART * s.seed + ENDS * s.count * self.number)
        self.mask = info["action_mask"]
        self.pay.begin()
        rng = np.random.default_rng([s.seed, self.number, 83])
        rewards = []
        for _ in range(s.turns):
            self.env.follow(self.weights)  # what is open now was still offered by the weights before
            batch, last = self._collect()
            error = self._learn(batch, gains(batch, last, s.discount, s.trace), rng)
            rewards.append(batch.reward.mean())
        self.number += 1
        return float(np.mean(rewards)) / SCALE, error

    def _look(self) -> Look:
        """The open decisions; the whole cost stands where `act` puts what others lose."""
        return Look(self.seen[:, :, : placing.N].copy(), *prices(self.env, self.settings.rows), self.mask.copy())

    def _collect(self) -> tuple[Batch, Any]:
        """Play on in all streams."""
        steps: list[Batch] = []
        for _ in range(self.settings.steps):
            self.key, now = jax.random.split(self.key)
            row, chance, worth, look = jax.device_get(act(self.theta, now, self._look()))
            self.seen, reward, ended, _, info = self.env.step(row)
            self.mask = info["action_mask"]
            reward = SCALE * self.pay.spread(reward, ended)
            steps.append(Batch(look, row, chance, worth, reward, ended.astype(np.float64)))
        last = value(self.theta["critic"], self._look())
        return jax.tree.map(lambda *column: np.stack(column), *steps), last

    def _learn(self, batch: Batch, gain: Any, rng: np.random.Generator) -> float:
        """A few passes over what was seen; returns the last loss."""
        came = gain + batch.value
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        whole = (batch.look, batch.row, batch.chance, gain.astype(np.float32), came.astype(np.float32))
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), whole)
        error = 0.0
        for _ in range(self.settings.epochs):
            for some in np.array_split(rng.permutation(gain.size), self.settings.parts):
                part = jax.tree.map(lambda x, some=some: x[some], flat)
                self.theta, self.memory, error = self._descend(self.theta, self.memory, part)
        return float(error)

    def _descended(self, theta: Any, memory: Any, part: Any) -> tuple[Any, Any, Any]:
        error, slope = jax.value_and_grad(loss)(theta, part, self.settings.clip)
        change, memory = self.optimiser.update(slope, memory)
        return optax.apply_updates(theta, change), memory, error


if __name__ == "__main__":
    from wattflow.learn.ppo_run import main

    main()
