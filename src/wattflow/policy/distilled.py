"""distilled: the flagship with a short formula in place of the network that `learned` has.

The network's corrections were watched on training streams and the few terms kept that explain most of them
(`research/distil.py`); no hidden unit is left, so the rule can be read and argued with. As in `learned`, corrections
are softly held within e^±2, ``lean`` = 0 is the flagship, and everything else is the flagship's. The features are
explained in docs/learned.md; each is relative, and about 1 in size. O(candidates × attempts on a node).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.policy import learned, placing, weights
from wattflow.policy.base import Policy

ORDER = ("long path", "on path", "slack", "due", "wide", "response", "makespan")
DOZE = (
    "queue", "busy", "asleep", "merit", "all idle", "response", "makespan", "load of late", "wake over paths", "spare",
)  # fmt: skip
CLASS = ("merit", "threads", "size", "idle watts", "break-even", "wake", "few", "sleep watts")
"""Names of the features of the order, sleep and class heads, as `placing.AROUND` and `placing.CANDIDATE` are."""


def path() -> Path:
    """Find the file in the package, made of the shipped weights."""
    return Path(str(files("wattflow") / "data" / "distilled" / "rule.npz"))


def place_head(theta: Any) -> Any:
    """Return the linear part of the place head: a weight for each feature, then the bias."""
    # A row for each feature: the weights of the hidden units, then that of the linear part (`learned.gather`).
    return theta[weights.PLACE : weights.HASTE][: (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)[
        :, weights.HIDDEN
    ]


def heads(theta: Any) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return names and weights of each head, the bias last."""
    return {
        "f": ((*placing.AROUND, *placing.CANDIDATE), place_head(theta)),
        "h": (placing.AROUND, theta[weights.HASTE : weights.ORDER]),
        "o": (ORDER, theta[weights.ORDER : weights.DOZE]),
        "n": (DOZE, theta[weights.DOZE : weights.SLEEP]),
        "c": (CLASS, theta[weights.SLEEP : weights.SIZE]),
    }


MEANINGS = {
    "f": "price of a candidate × e^f",
    "h": "likely seconds until a busy node has room × e^h",
    "o": "latest start + o × critical path",
    "n": "an idle node's seconds before sleep × e^2n",
    "c": "and those of its class × e^1.5c",
}


def formula(theta: Any) -> str:
    """Return the rule as text; heads without a term are left out."""
    lines = []
    for letter, (names, values) in heads(theta).items():
        text = _sum((*names, ""), values)
        if text:
            lines.append(f"    {MEANINGS[letter]},\n      {letter} = {text}")
    return "\n".join(lines)


def _sum(names: Sequence[str], values: Any) -> str:
    found = sorted(zip(np.asarray(values).tolist(), names, strict=True), key=lambda pair: -abs(pair[0]))
    parts = [
        f"{'−' if value < 0 else '+'} {abs(value):g}{' · ' if name else ''}{name}" for value, name in found if value
    ]
    return " ".join(parts).removeprefix("+ ")


def score(state, task, variant, out):
    """Multiply the flagship's price by e^f, f the sum above; with ``wait`` = ∞ the flagship's own."""
    learned.fill_costs(state, task, variant, out)


def with_rule(theta: Any) -> Policy:
    """Return the policy with the rule of a vector of weights without hidden units."""
    return replace(
        learned.LEARNED,
        name="distilled",
        summary="the flagship, corrected by a short formula distilled from the learned policy",
        score=score,
        prepare=functools.partial(learned.prepare, theta=theta),
        ready=None,
    )


RULE = weights.load(path())[0]
DISTILLED = with_rule(RULE)
__doc__ = f"{__doc__}\n{formula(RULE)}\n"
