"""Proximal policy optimisation for the scheduling environment, in JAX with optax (extra `learn`).

    python -m wattflow.learn.ppo --minutes 5 --out out/ppo

Schulman et al., Proximal policy optimization algorithms, arXiv:1707.06347. One small network looks at every row by
itself; a softmax over the rows that are shown chooses, and the mean over rows gives the value. Row 0 is the flagship's
choice and starts with a lead of `LEAD` in its logit, so training begins near the heuristic. Rows are padded once, to
the environment's number of rows.
"""

from __future__ import annotations

import argparse
import csv
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wattflow.files.whole import whole_file
from wattflow.learn import episode, evolve, scenarios
from wattflow.learn.environment import SchedulingVectorEnv
from wattflow.model.errors import MissingExtra

try:
    import jax
    import jax.numpy as jnp
    import optax
except ImportError as error:  # pragma: no cover
    raise MissingExtra("this trainer needs jax and optax: pip install 'wattflow[learn]'") from error

_log = logging.getLogger(__name__)
LEAD = 4.0
HIDDEN = 32


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """The usual numbers of PPO."""

    fold: int = -1
    seed: int = 1
    count: int = 16
    rows: int = 32
    steps: int = 128
    epochs: int = 3
    parts: int = 4
    rate: float = 3e-4
    discount: float = 1.0
    trace: float = 0.97
    clip: float = 0.2
    entropy: float = 0.003
    tasks: int = 300


class Batch(NamedTuple):
    """Steps of all streams, time first."""

    seen: Any
    mask: Any
    action: Any
    log_p: Any
    value: Any
    reward: Any
    ended: Any


def start(key: Any) -> dict[str, Any]:
    """Small random weights; the last layers are zeros, so at first only the lead counts."""
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (episode.WIDTH, HIDDEN)) / np.sqrt(episode.WIDTH),
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(second, (HIDDEN, HIDDEN)) / np.sqrt(HIDDEN),
        "b2": jnp.zeros(HIDDEN),
        "row": jnp.zeros(HIDDEN),
        "value": jnp.zeros(HIDDEN),
        "bias": jnp.zeros(()),
    }


def network(theta: dict[str, Any], seen: Any, mask: Any) -> tuple[Any, Any]:
    """Logits of the rows, −1e9 for those that are not there, and the value."""
    inside = jnp.tanh(seen @ theta["w1"] + theta["b1"])
    inside = jnp.tanh(inside @ theta["w2"] + theta["b2"])
    logits = inside @ theta["row"]
    logits = logits.at[..., 0].add(LEAD)
    there = mask[..., None]
    pooled = (inside * there).sum(-2) / jnp.maximum(1.0, there.sum(-2))
    return jnp.where(mask, logits, -1e9), pooled @ theta["value"] + theta["bias"]


@jax.jit
def act(theta: dict[str, Any], key: Any, seen: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Draw an action for each stream."""
    logits, value = network(theta, seen, mask)
    action = jax.random.categorical(key, logits)
    return action, jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0], value


def loss(theta: dict[str, Any], part: Any, clip: float, entropy: float) -> Any:
    """Clipped surrogate, value error and entropy."""
    seen, mask, action, old, gain, target = part
    logits, value = network(theta, seen, mask)
    log_p = jax.nn.log_softmax(logits)
    ratio = jnp.exp(jnp.take_along_axis(log_p, action[:, None], 1)[:, 0] - old)
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    surrogate = jnp.minimum(ratio * gain, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * gain).mean()
    disorder = -(jnp.exp(log_p) * jnp.where(mask, log_p, 0.0)).sum(-1).mean()
    return -surrogate + 0.5 * ((value - target) ** 2).mean() - entropy * disorder


def gains(batch: Batch, last: Any, discount: float, trace: float) -> Any:
    """Generalised advantage estimates, from the last step back."""
    found = np.zeros_like(batch.reward)
    after, running = np.asarray(last), np.zeros(batch.reward.shape[1])
    for t in range(len(batch.reward) - 1, -1, -1):
        goes_on = 1.0 - batch.ended[t]
        surprise = batch.reward[t] + discount * after * goes_on - batch.value[t]
        running = surprise + discount * trace * goes_on * running
        found[t], after = running, batch.value[t]
    return found


class Trainer:
    """Streams, network and optimiser."""

    def __init__(self, settings: PpoSettings) -> None:
        self.settings = settings
        allowed = evolve.training_applications(settings.fold)
        self.env = SchedulingVectorEnv(
            lambda seed: scenarios.draw(seed, allowed, settings.tasks), settings.count, settings.rows
        )
        self.key = jax.random.PRNGKey(settings.seed)
        self.key, first = jax.random.split(self.key)
        self.theta = start(first)
        self.optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(settings.rate))
        self.memory = self.optimiser.init(self.theta)
        seen, info = self.env.reset(seed=10_000 * settings.seed)
        self.seen, self.mask = seen.copy(), info["action_mask"].copy()
        self._slope = jax.jit(jax.value_and_grad(lambda t, p: loss(t, p, settings.clip, settings.entropy)))

    def collect(self) -> tuple[Batch, Any]:
        """Play on in all streams."""
        rows: list[tuple[Any, ...]] = []
        for _ in range(self.settings.steps):
            self.key, now = jax.random.split(self.key)
            action, log_p, value = (np.asarray(x) for x in act(self.theta, now, self.seen, self.mask))
            seen, reward, ended, _, info = self.env.step(action)
            rows.append((self.seen, self.mask, action, log_p, value, reward, ended.astype(np.float64)))
            self.seen, self.mask = seen.copy(), info["action_mask"].copy()
        _, last = network(self.theta, self.seen, self.mask)
        return Batch(*(np.stack(column) for column in zip(*rows, strict=True))), last

    def update(self) -> float:
        """One round: play, then a few passes over what was seen; returns the mean reward of a step."""
        batch, last = self.collect()
        gain = gains(batch, last, self.settings.discount, self.settings.trace)
        flat = [np.concatenate(np.asarray(x)) for x in (batch.seen, batch.mask, batch.action, batch.log_p)]
        flat += [np.concatenate(gain), np.concatenate(gain + batch.value)]
        count = len(flat[0])
        rng = np.random.default_rng([self.settings.seed, int(batch.action.sum())])
        for _ in range(self.settings.epochs):
            for some in np.array_split(rng.permutation(count), self.settings.parts):
                _, slope = self._slope(self.theta, tuple(jnp.asarray(x[some]) for x in flat))
                change, self.memory = self.optimiser.update(slope, self.memory)
                self.theta = optax.apply_updates(self.theta, change)
        return float(batch.reward.mean())


def save(path: Path, theta: dict[str, Any]) -> None:
    """Weights as plain arrays."""
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in theta.items()}
    with whole_file(path) as draft, draft.open("wb") as stream:
        np.savez(stream, **arrays)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train for some minutes; writes ``ppo.npz`` and the curve ``ppo.csv``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fold", type=int, default=-1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/ppo"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(PpoSettings(fold=given.fold, seed=given.seed))
    began = time.monotonic()
    with (given.out / "ppo.csv").open("w", newline="", encoding="utf-8") as stream:
        curve = csv.writer(stream)
        curve.writerow(["round", "seconds", "reward"])
        number = 0
        while time.monotonic() - began < 60.0 * given.minutes:
            reward, number = trainer.update(), number + 1
            curve.writerow([number, f"{time.monotonic() - began:.1f}", f"{reward:.7f}"])
            _log.info("round %d, %.0f s: reward of a step %.6f", number, time.monotonic() - began, reward)
            save(given.out / "ppo.npz", trainer.theta)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
