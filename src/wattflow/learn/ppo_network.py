"""The learned policy's place head in JAX, as PPO trains it: a softmax over the rows of a decision, and a critic.

The policy takes the row with the least cost, price × e^f + what the task takes from others. Here a row is drawn with a
chance that falls with that cost, by its power −1 / `TEMPERATURE`; f is the same function of the same features and
weights (`wattflow.policy.learned`), so what is trained is what is served.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wattflow.model.errors import MissingExtra
from wattflow.policy import placing, weights
from wattflow.policy.learned import MOST

try:
    import jax
    import jax.numpy as jnp
    import optax  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise MissingExtra("this trainer needs jax and optax: pip install 'wattflow[learn]'") from error

TEMPERATURE = 0.05
"""A row that is 5 % dearer is drawn 2.6 times as rarely."""
LEAST = 1e-6
"""What others lose counts as at least this share of a cost; also, costs are told apart from there on."""
CRITIC = 32
PLACE = slice(weights.PLACE, weights.HASTE)
"""The place head among the policy's weights."""
_ROWS = (placing.N + 1) * weights.WIDTH


class Look(NamedTuple):
    """Open decisions: features of their rows, logarithms of prices and of what others lose, and which rows there are.

    Prices are over the decision's least cost. The first axes are those of the decisions, then come the rows.
    """

    features: Any
    price: Any
    taken: Any
    mask: Any


def correction(place: Any, features: Any) -> Any:
    """f of each row: a linear part and hidden units, softly held within ±MOST."""
    table = place[:_ROWS].reshape(placing.N + 1, weights.WIDTH)
    sums = features @ table[:-1] + table[-1]
    inside = sums[..., : weights.HIDDEN]
    f = sums[..., weights.HIDDEN] + (inside / (1.0 + jnp.abs(inside))) @ place[_ROWS:]
    return f / (1.0 + jnp.abs(f) / MOST)


def logits(place: Any, look: Look) -> Any:
    """Of each row; −1e9 for those that are not there."""
    cost = jnp.logaddexp(look.price + correction(place, look.features), look.taken)
    return jnp.where(look.mask, -cost / TEMPERATURE, -1e9)


def start_critic(key: Any) -> dict[str, Any]:
    """Random features of a decision that count for nothing yet."""
    many = 2 * placing.N + 1
    return {
        "in": jax.random.normal(key, (many, CRITIC)) / np.sqrt(many),
        "bias": jnp.zeros(CRITIC),
        "out": jnp.zeros(CRITIC),
    }


def value(critic: dict[str, Any], look: Look) -> Any:
    """What is still to come, from the first row, the mean of all rows and their number."""
    there = look.mask[..., None]
    many = there.sum(-2)
    mean = (look.features * there).sum(-2) / jnp.maximum(1, many)
    seen = jnp.concatenate([look.features[..., 0, :], mean, jnp.log1p(many)], -1)
    return jnp.tanh(seen @ critic["in"] + critic["bias"]) @ critic["out"]


@jax.jit
def act(theta: Any, key: Any, look: Look) -> tuple[Any, Any, Any, Any]:
    """Draw a row of each decision: (row, logarithm of its chance, value, the look as training needs it).

    ``look.taken`` comes as the logarithm of the whole cost, and goes as that of what others lose.
    """
    place, critic = theta["place"], theta["critic"]
    ours = jnp.exp(look.price + correction(place, look.features))
    whole = jnp.exp(look.taken)
    look = look._replace(taken=jnp.log(jnp.maximum(whole - ours, LEAST * whole)))
    chances = jax.nn.log_softmax(logits(place, look))
    row = jax.random.categorical(key, chances)
    return row, jnp.take_along_axis(chances, row[:, None], 1)[:, 0], value(critic, look), look


def loss(theta: Any, part: Any, clip: float) -> Any:
    """Clipped surrogate and the critic's error; ``part`` is (look, row, its chance then, gain, what came)."""
    look, row, old, gain, came = part
    chances = jax.nn.log_softmax(logits(theta["place"], look))
    ratio = jnp.exp(jnp.take_along_axis(chances, row[:, None], 1)[:, 0] - old)
    surrogate = jnp.minimum(ratio * gain, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * gain).mean()
    return -surrogate + 0.5 * ((value(theta["critic"], look) - came) ** 2).mean()
