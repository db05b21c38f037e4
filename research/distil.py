"""Distil a short formula from the learned policy's network (``python -m research.distil``).

Rows of decisions are recorded on training streams (never those of the fold's held-out applications), and what the
network makes of them, f, is compared *within* each decision: what multiplies all prices alike decides nothing. Terms
are added one by one, each time the feature that explains most of what is left, all weights fitted anew (orthogonal
matching pursuit; Pati et al., 1993). Products of two features were tried and explain no more with as many terms. The
other heads are linear already: their largest weights stay. Numbers are rounded to two digits.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research import shipped, training
from wattflow.learn import episode, scenarios, streams
from wattflow.learn.environment import ROWS, Episode
from wattflow.live import caller_choice
from wattflow.policy import distilled, placing, weights

Floats = NDArray[np.float64]
_log = logging.getLogger(__name__)
FIRST_SEED = 9000
TERMS = {"f": 5, "h": 1, "o": 1, "n": 3, "c": 2}
"""Terms that are kept of each head."""
WISHES = ("dial", "response", "makespan")
"""What the user asks for, 0 unless he does: no terms are spent on it."""


def recorded(fold: int, count: int, tasks: int = 200) -> tuple[Floats, NDArray[np.int64]]:
    """Rows of the flagship's decisions on training streams, and the number of each row's decision."""
    rows: list[Any] = []
    allowed = training.training_applications(fold)
    out = np.zeros((ROWS, episode.WIDTH), np.float32)
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        one = Episode(scenarios.draw(seed, allowed, tasks), seed, joint=False)
        shown = one.step(caller_choice.NONE, out)
        while shown > 0:
            if shown > 1:
                rows.append(out[: min(shown, ROWS), : placing.N].astype(np.float64))
            shown = one.step(0, out)
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(some) for some in rows])


def network(theta: Floats, rows: Floats) -> Floats:
    """The place head without attention, as `wattflow.policy.learned.network` computes it."""
    first = theta[weights.PLACE : weights.PLACE + (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)
    last = theta[weights.HASTE - weights.HIDDEN : weights.HASTE]
    inside = rows @ first[:-1] + first[-1]
    hidden = inside[:, : weights.HIDDEN]
    f = inside[:, weights.HIDDEN] + (hidden / (1.0 + np.abs(hidden))) @ last
    return np.asarray(f / (1.0 + np.abs(f) / 2.0))


def within(values: Floats, decision: NDArray[np.int64]) -> Floats:
    """Values less their mean in each decision, every decision counting the same."""
    many = np.bincount(decision)[decision]
    flat = values if values.ndim == 2 else values[:, None]
    means = np.column_stack([np.bincount(decision, column) for column in flat.T])[decision] / many[:, None]
    found = (flat - means) / np.sqrt(many)[:, None]
    return found if values.ndim == 2 else found[:, 0]


def pursued(x: Floats, y: Floats, terms: int) -> tuple[list[int], Floats, float]:
    """Columns and weights of a sparse sum, and the share of y's variance that it explains."""
    chosen: list[int] = []
    fitted: Floats = np.zeros(0)
    left = y
    size = np.sqrt((x**2).sum(0)) + 1e-9
    for _ in range(terms):
        match = np.abs(x.T @ left) / size
        match[chosen] = -1.0
        chosen.append(int(match.argmax()))
        fitted = np.asarray(np.linalg.lstsq(x[:, chosen], y, rcond=None)[0], np.float64)
        left = y - x[:, chosen] @ fitted
    return chosen, fitted, 1.0 - float(left @ left) / max(1e-12, float(y @ y))


def rounded(value: float) -> float:
    """Two digits."""
    return float(f"{value:.2g}")


def distil(theta: Floats, rows: Floats, decision: NDArray[np.int64]) -> tuple[Floats, dict[str, Any]]:
    """A sparse vector of weights without hidden units, and how well it stands for the network."""
    made = np.zeros(weights.SIZE)
    f = network(theta, rows)
    chosen, fitted, explained = pursued(within(rows, decision), within(f, decision), TERMS["f"])
    distilled.place_head(made)[chosen] = [rounded(value) for value in fitted.tolist()]
    theirs = distilled.heads(theta)
    for letter, (_, ours) in distilled.heads(made).items():
        if letter != "f":
            names, head = theirs[letter]
            size = np.abs(head) * [name not in WISHES for name in (*names, "")]
            largest = np.argsort(-size, kind="stable")[: TERMS[letter]]
            ours[largest] = [rounded(value) for value in head[largest].tolist()]
    price = rows[:, placing.AROUND_N]
    same = chosen_rows(price + f, decision) == chosen_rows(price + network(made, rows), decision)
    return made, {"explained": explained, "same_choice": float(same.mean()), "formula": distilled.formula(made)}


def chosen_rows(cost: Floats, decision: NDArray[np.int64]) -> NDArray[np.int64]:
    """The cheapest row of each decision."""
    order = np.lexsort((cost, decision))
    return order[np.unique(decision[order], return_index=True)[1]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Distil the shipped weights and those of every fold; writes the files of the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=40, help="training streams that rows are recorded on")
    given = parser.parse_args(arguments)
    for fold in (-1, *range(len(streams.FOLDS))):
        theta, _ = weights.load(shipped.weights_of(fold))
        made, found = distil(theta, *recorded(fold, given.streams))
        weights.save(shipped.rule_of(fold), made, found)
        _log.info(
            "fold %d: %.0f %% of the corrections explained, %.0f %% of the choices the same\n%s",
            fold, 100 * found["explained"], 100 * found["same_choice"], found["formula"],
        )  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
