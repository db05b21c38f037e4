"""The first stage of training: weights that choose as annealing does (``python -m wattflow.learn.imitation``).

On single workflows and small batches annealing (`wattflow.plan.annealing`) knows everything and finds fewer joules
within the flagship's makespan. Its schedule is followed decision by decision in the environment; rows are described by
the policy's own encoder, and the row that annealing takes is the right answer. Softmax regression on the logarithm of
the flagship's price + f then fits f: its linear part and what the hidden units count for (where these look is left to
evolution). A decision in which annealing's node is not among the rows teaches nothing, and the flagship's row is taken.

Nodes that are alike have no names of their own: a node of annealing's is the first fitting one of its kind that nobody
else was.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files.whole import whole_file
from wattflow.learn import scenarios, streams
from wattflow.learn.scenarios import Scenario
from wattflow.live import wanted
from wattflow.model.workload import Workload
from wattflow.plan import annealing
from wattflow.policy import placing, weights

if TYPE_CHECKING:
    from wattflow.learn.environment import Episode

Floats = NDArray[np.float64]
_log = logging.getLogger(__name__)
FIRST_SEED = 60_000
EVALUATIONS = 30_000
MOST_TASKS = 120
WORTH = 0.01
"""Schedules that save less than this share of the flagship's joules teach nothing."""
WARMTH = 0.1
"""Of the softmax: a price 10 % higher is e times less likely."""
PARTS = ("rows", "price", "decision", "right", "application")
STEPS, RATE, DECAY = 300, 0.05, 1e-3


@dataclass(frozen=True, slots=True)
class Lessons:
    """Rows of decisions.

    Attributes:
        rows: Features of every row.
        price: Logarithm of the flagship's price.
        decision: Number of the row's decision.
        right: Whether annealing takes it.
        application: Number of the application in `streams.APPLICATIONS`.
        cpu_s: What it took to find them.
    """

    rows: Floats
    price: Floats
    decision: NDArray[np.int64]
    right: NDArray[np.bool_]
    application: NDArray[np.int64]
    cpu_s: float

    def of(self, applications: Sequence[str]) -> Lessons:
        """Only those of some applications."""
        known = np.isin(self.application, [streams.APPLICATIONS.index(name) for name in applications])
        number = np.unique(self.decision[known], return_inverse=True)[1].astype(np.int64)
        parts = (self.rows[known], self.price[known], number, self.right[known], self.application[known])
        return Lessons(*parts, self.cpu_s)


def save(path: Path, lessons: Lessons) -> None:
    """Plain arrays."""
    arrays = {name: getattr(lessons, name) for name in (*PARTS, "cpu_s")}
    with whole_file(path) as draft, draft.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load(path: Path) -> Lessons:
    """Lessons of a file."""
    with np.load(path, allow_pickle=False) as found:
        parts = {name: found[name] for name in PARTS}
        return Lessons(**parts, cpu_s=float(found["cpu_s"]))


class Teacher:
    """Says which row of a decision is annealing's."""

    def __init__(self, workload: Workload, schedule: annealing.Schedule, game: annealing.Game) -> None:
        offered, shape = game.offered, workload.shape
        option = schedule.option - offered.first[shape]
        self._node, self._cls = schedule.node.tolist(), offered.cls[schedule.node].tolist()
        self._origin, self._level = (option // offered.levels).tolist(), (option % offered.levels).tolist()
        self._is: dict[int, int] = {}
        """Nodes of the schedule as nodes of the episode."""

    def row(self, episode: Episode, shown: int) -> int:
        """Its number, −1 where it is not shown."""
        state = episode.state
        node_cls, variants = state.nodes["cls"], state.variants
        first = -1
        for r in range(shown):
            row = episode.ask.rows[r]
            task, node, variant = int(row["task_row"]), int(row["node_row"]), variants[int(row["variant"])]
            if int(variant["frequency"]) != self._level[task] or int(variant["origin"]) != self._origin[task]:
                continue
            meant = self._is.get(self._node[task])
            if meant == node:
                return r
            fresh = meant is None and node not in self._is.values() and int(node_cls[node]) == self._cls[task]
            if fresh and first < 0:
                first = r
        if first >= 0:
            row = episode.ask.rows[first]
            self._is[self._node[int(row["task_row"])]] = int(row["node_row"])
        return first


def taught(application: str, seed: int) -> Iterator[tuple[Floats, Floats, int]]:
    """Decisions of one small batch: features, logarithms of prices, and the row that is right."""
    from wattflow.learn.environment import ROWS, Episode
    from wattflow.learn.episode import WIDTH

    rng = np.random.default_rng([seed, 61])
    files = streams.instances_of(application)
    stream = streams.Stream(application, files, float(rng.choice(streams.LOADS)), int(rng.integers(1, 4)))
    cluster = scenarios.random_cluster(rng, f"lesson-{seed}")
    scenario = Scenario(f"{application}-lesson-{seed}", cluster, stream)
    if len(scenario.draw(seed)) > MOST_TASKS:
        scenario = replace(scenario, stream=replace(stream, workflows=1))
    workload = scenario.draw(seed)
    episode = Episode(scenario, seed, joint=False)
    reference = episode.judge.reference
    found = annealing.anneal(workload, cluster, reference.makespan_s, evaluations=EVALUATIONS, seed=seed)
    if found.schedule is None or found.energy_j > (1.0 - WORTH) * reference.energy_j:
        return
    teacher = Teacher(workload, found.schedule, annealing.Game(workload, cluster))
    out = np.zeros((ROWS, WIDTH), np.float32)
    shown = episode.step(wanted.NONE, out)
    while shown > 0:
        shown = min(shown, ROWS)
        right = teacher.row(episode, shown)
        price = np.array([float(row["price"]) for row in episode.ask.rows[:shown]])
        if right >= 0 and shown > 1 and np.isfinite(price).all() and price.min() > 0.0:
            yield out[:shown, : placing.N].astype(np.float64), np.log(price), right
        shown = episode.step(max(0, right), out)


def lessons(each: int, seconds: float = np.inf) -> Lessons:
    """So many batches of each application, or as many as the time allows."""
    began = time.process_time()
    found: list[tuple[Any, ...]] = []
    number = 0
    for turn in range(each):
        for which, application in enumerate(streams.APPLICATIONS):
            if time.process_time() - began > seconds:
                break
            for rows, price, right in taught(application, FIRST_SEED + 100 * which + turn):
                size = len(price)
                found.append((rows, price, np.full(size, number), np.arange(size) == right, np.full(size, which)))
                number += 1
    parts = {name: np.concatenate(part) for name, part in zip(PARTS, zip(*found, strict=True), strict=True)}
    return Lessons(**parts, cpu_s=time.process_time() - began)


def basis(theta: Floats, rows: Floats) -> Floats:
    """What f is linear in: the features, a bias, and the hidden units as they look."""
    first = theta[weights.PLACE : weights.PLACE + (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)
    hidden = rows @ first[:-1, : weights.HIDDEN] + first[-1, : weights.HIDDEN]
    return np.column_stack([rows, np.ones(len(rows)), hidden / (1.0 + np.abs(hidden))])


def likely(lessons_: Lessons, f: Floats) -> Floats:
    """How likely each row is to be taken."""
    score = -(lessons_.price + f) / WARMTH
    most = np.full(int(lessons_.decision.max()) + 1, -np.inf)
    np.maximum.at(most, lessons_.decision, score)
    weight = np.exp(score - most[lessons_.decision])
    return np.asarray(weight / np.bincount(lessons_.decision, weight)[lessons_.decision])


def fitted(theta: Floats, lessons_: Lessons) -> tuple[Floats, float, float]:
    """Weights that choose as annealing does; its share of the decisions before and after."""
    x = basis(theta, lessons_.rows)
    many = int(lessons_.decision.max()) + 1
    w, first, second = np.zeros(x.shape[1]), np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for step in range(1, STEPS + 1):
        g = x @ w
        f = g / (1.0 + np.abs(g) / 2.0)
        wrong = (likely(lessons_, f) - lessons_.right) / WARMTH / (1.0 + np.abs(g) / 2.0) ** 2
        slope = -(x.T @ wrong) / many + DECAY * w
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        w = w - RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    made = theta.copy()
    head = made[weights.PLACE : weights.PLACE + (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)
    head[:, weights.HIDDEN] = w[: placing.N + 1]
    made[weights.HASTE - weights.HIDDEN : weights.HASTE] = w[placing.N + 1 :]
    g = x @ w
    agreed = [agreement(lessons_, f) for f in (np.zeros(len(g)), g / (1.0 + np.abs(g) / 2.0))]
    return made, agreed[0], agreed[1]


def agreement(lessons_: Lessons, f: Floats) -> float:
    """The share of decisions in which the cheapest row is annealing's."""
    order = np.lexsort((lessons_.price + f, lessons_.decision))
    cheapest = order[np.unique(lessons_.decision[order], return_index=True)[1]]
    return float(lessons_.right[cheapest].mean())


def weaker(theta: Floats, share: float) -> Floats:
    """The same corrections, by a share."""
    made = theta.copy()
    made[weights.PLACE : weights.PLACE + (placing.N + 1) * weights.WIDTH].reshape(-1, weights.WIDTH)[
        :, weights.HIDDEN
    ] *= share
    made[weights.HASTE - weights.HIDDEN : weights.HASTE] *= share
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Find lessons and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=6, help="batches of each application")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=Path("out/learned/lessons.npz"))
    given = parser.parse_args(arguments)
    made = lessons(given.each, given.seconds)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    save(given.out, made)
    _log.info("%d rows of %d decisions in %.0f s", len(made.rows), made.decision.max() + 1, made.cpu_s)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
