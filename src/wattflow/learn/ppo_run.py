"""A run of PPO: checkpoints, the curve as CSV and picture, the best weights, and these beside others in the end."""

from __future__ import annotations

import argparse
import csv
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.files.whole import whole_file
from wattflow.learn import curves, evolve, streams, validation
from wattflow.learn.ppo import Floats, PpoSettings, Trainer
from wattflow.learn.trial import Judge, beyond
from wattflow.model.errors import InvalidInput
from wattflow.policy import weights

import jax  # isort: skip

_log = logging.getLogger("wattflow.learn.ppo")
COLUMNS = ("round", "seconds", "decisions", "reward", "loss", "gain", "energy", "kept", "best")


@dataclass(slots=True)
class Progress:
    """What a run has beside its trainer: time spent, the curve, and the best weights with their gain."""

    best: Floats
    gain: float
    seconds: float = 0.0
    cpu_s: float = 0.0
    curve: list[list[float]] = field(default_factory=list)


class Run:
    """Training in a folder. Without ``again`` it begins anew, else where its checkpoint is."""

    def __init__(self, trainer: Trainer, choosing: Sequence[Judge], out: Path, again: bool = False) -> None:
        self.trainer, self.choosing, self.out = trainer, choosing, out
        out.mkdir(parents=True, exist_ok=True)
        s = trainer.settings
        self.name = f"ppo-fold-{s.fold}-seed-{s.seed}" if s.fold >= 0 else f"ppo-all-seed-{s.seed}"
        self.checkpoint = out / f"{self.name}.checkpoint.npz"
        if again and self.checkpoint.is_file():
            self.progress = self._read()
        elif self.checkpoint.is_file():
            raise InvalidInput(
                str(self.checkpoint), "is of an earlier run: --resume goes on, another --out begins anew"
            )
        else:
            self.progress = Progress(trainer.weights, 0.0)
            self._compare(0.0, 0.0)
            self.save()

    def train(self, minutes: float, rounds: int | None = None) -> None:
        """So long, or so many rounds in all; a round that was begun is ended."""
        now = self.progress
        began, spent = time.monotonic(), now.seconds
        cpu, used = evolve.cpu_seconds(), now.cpu_s
        while time.monotonic() - began < 60.0 * minutes and (rounds is None or self.trainer.number < rounds):
            reward, error = self.trainer.round()
            now.seconds, now.cpu_s = spent + time.monotonic() - began, used + evolve.cpu_seconds() - cpu
            if self.trainer.number % self.trainer.settings.every == 0:
                self._compare(reward, error)
            else:
                _log.info("round %d, %.0f s: reward %+.6f", self.trainer.number, now.seconds, reward)
            self.save()

    @property
    def decisions(self) -> int:
        """Of all streams so far."""
        s = self.trainer.settings
        return self.trainer.number * s.turns * s.steps * s.count

    def _compare(self, reward: float, error: float) -> None:
        """The weights of now on the scenarios kept for choosing, by the rule of evolution; the best are kept."""
        now, theta = self.progress, self.trainer.weights
        gain, energy, kept = beyond([(one, one.trial.run(theta)) for one in self.choosing])
        if gain > now.gain or not now.curve:
            now.best, now.gain = theta, gain
        number = self.trainer.number
        now.curve.append([number, now.seconds, self.decisions, reward, error, gain, energy, kept, now.gain])
        _log.info(
            "%s round %d, %.0f s, %d decisions: reward %+.6f, gain %+.4f, joules %+.2f %%, kept %.2f, best %+.4f",
            self.name, number, now.seconds, self.decisions, reward, gain, 100 * np.expm1(energy), kept, now.gain,
        )  # fmt: skip

    def save(self) -> None:
        """Checkpoint, curve and the best weights, each whole or not at all."""
        t, now = self.trainer, self.progress
        leaves = jax.tree.leaves((t.theta, t.memory, t.key))
        arrays: dict[str, Any] = {f"leaf-{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        rest = {"round": t.number, "settings": asdict(t.settings)}
        rest |= {name: getattr(now, name) for name in ("gain", "seconds", "cpu_s", "curve")}
        with whole_file(self.checkpoint) as draft, draft.open("wb") as stream:
            np.savez(stream, rest=np.array(json.dumps(rest)), best=now.best, base=t.base, **arrays)
        with whole_file(self.out / f"{self.name}.csv") as draft, draft.open("w", newline="") as text:
            table = csv.writer(text)
            table.writerow(COLUMNS)
            table.writerows([f"{v:.7g}" for v in row] for row in now.curve)
        weights.save(self.out / f"{self.name}.npz", now.best, self.card())

    def _read(self) -> Progress:
        """The trainer as it was when the checkpoint was written."""
        t = self.trainer
        with np.load(self.checkpoint, allow_pickle=False) as content:
            rest: dict[str, Any] = json.loads(str(content["rest"]))
            if rest["settings"] != asdict(t.settings):
                raise InvalidInput(str(self.checkpoint), "is of a run with other settings; name another --out")
            leaves, shape = jax.tree.flatten((t.theta, t.memory, t.key))
            found = [jax.numpy.asarray(content[f"leaf-{i}"]) for i in range(len(leaves))]
            t.theta, t.memory, t.key = jax.tree.unflatten(shape, found)
            t.base, t.number = content["base"], int(rest["round"])
            return Progress(content["best"], rest["gain"], rest["seconds"], rest["cpu_s"], rest["curve"])

    def card(self) -> dict[str, Any]:
        """What the weights were made from."""
        s, now = self.trainer.settings, self.progress
        return {
            "trainer": "PPO",
            "applications": evolve.training_applications(s.fold),
            "held_out": list(streams.FOLDS[s.fold]) if s.fold >= 0 else [],
            "clusters": "random: 2-64 nodes, 1-6 types",
            "settings": asdict(s),
            "generations": self.trainer.number,
            "decisions": self.decisions,
            "wall_s": round(now.seconds, 1),
            "cpu_s": round(now.cpu_s, 1),
            "joules_estimated": round(evolve.CORE_W * now.cpu_s),
            "watts_of_a_core_assumed": evolve.CORE_W,
            "gain": now.gain,
        }

    def draw(self) -> None:
        """The curve as a picture."""
        curves.draw(self.out / f"{self.name}.png", [self.out / f"{self.name}.csv"])


def choosing(settings: PpoSettings) -> list[Judge]:
    """The scenarios on which evolution compares its checkpoints too."""
    kind = evolve.EvolutionSettings(fold=settings.fold, tasks=settings.tasks)
    return evolve.judges(kind, evolve.FIRST_SEED + 5000, settings.chosen_on, False)


def validate(path: Path, fold: int, count: int, workers: int) -> None:
    """The weights of a file beside the shipped ones and the flagship, on scenarios that nobody has seen."""
    names = (path.stem, "shipped", "flagship")
    shipped = weights.load(weights.shipped(f"fold-{fold}" if fold >= 0 else "weights"))[0]
    every = (weights.load(path)[0], shipped, np.zeros(weights.SIZE))
    found = validation.validated({fold: [validation.Entry(theta, {}) for theta in every]}, count, workers=workers)[fold]
    for i, name in enumerate(names):
        saves, lead = found.saves(i, 2), found.lead(i, 2)
        _log.info(
            "%s on %d scenarios: %+.2f ± %.2f %% of the flagship's joules saved, bound kept %.3f, score %+.2f ± %.2f",
            name, len(found.saved), 100 * saves[0], 100 * saves[1], found.kept[:, i].mean(), 100 * lead[0],
            100 * lead[1],
        )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Train for some minutes, or judge what was trained."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of every accelerator that is not there
    parser = argparse.ArgumentParser(prog="python -m wattflow.learn.ppo", description=__doc__)
    parser.add_argument("--fold", type=int, default=-1, choices=range(-1, len(streams.FOLDS)), help="−1: hold out none")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, help="in all; the minutes end it sooner")
    parser.add_argument("--seed", type=int, default=1, help="from 1 on")
    parser.add_argument("--from", type=Path, dest="base", metavar="FILE", help="weights to begin with")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--out", type=Path, default=Path("out/ppo"))
    parser.add_argument("--validate", type=Path, metavar="FILE", help="only judge these weights on unseen scenarios")
    parser.add_argument("--scenarios", type=int, default=100, help="of --validate")
    parser.add_argument("--workers", type=int, default=2, help="processes of --validate")
    given = parser.parse_args(arguments)
    if given.seed < 1:
        parser.error("--seed: streams of the seeds below 1 are for judging; give 1 or more")
    try:
        if given.validate is not None:
            validate(given.validate, given.fold, given.scenarios, given.workers)
            return
        base = None if given.base is None else weights.load(given.base)[0]
        if base is not None and len(base) != weights.SIZE:
            raise InvalidInput(str(given.base), "has attention, which PPO does not train; give weights without it")
        settings = PpoSettings(fold=given.fold, seed=given.seed)
        run = Run(Trainer(settings, base), choosing(settings), given.out, given.resume)
        run.train(given.minutes, given.rounds)
        run.draw()
    except InvalidInput as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        _log.info("ended; --resume goes on from the last round")
