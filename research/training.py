"""Train the learned policy from scratch, by the evolution strategies of `wattflow.learn.evolve`.

    python -m research.training --fold 0 --minutes 15 --out out/learned

What it is tried on changes as training goes on (`research.curriculum`), and hard scenarios are tried more often
(`research.hard_examples`). One run trains without the applications of its fold. Checkpoints hold everything to go on;
``--resume`` does.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research import curriculum
from research.curriculum import Stage
from research.hard_examples import HardExamples
from research.portfolio_judge import BarJudge
from research.recipe import SCRATCH, ScratchSettings
from wattflow.files.whole import whole_file
from wattflow.learn import scenarios
from wattflow.learn.evolve import Progress, Trainer
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge, TrialWeights
from wattflow.policy import weights

Floats = NDArray[np.float64]
_log = logging.getLogger(__name__)
FIRST_SEED = 1000
"""Training scenarios are drawn from here + 10,000 × seed + 1,000 × part on, those for choosing among checkpoints and
seeds, which all seeds share, from here + 5000 on."""
MOST_TASKS = 900
"""Larger streams are neither trained nor chosen on."""
CORE_W = 10.0
"""Watts of a busy core, assumed where joules of training are estimated."""


def start() -> Progress:
    """Begin at the heuristic: no fact counts yet."""
    return Progress.at(np.zeros(weights.SIZE))


def training_applications(fold: int) -> list[str]:
    """Applications that a fold may train on; all of them for fold −1."""
    held = scenarios.FOLDS[fold] if fold >= 0 else ()
    return [name for name in scenarios.APPLICATIONS if name not in held]


def wish(seed: int) -> TrialWeights:
    """What counts in a training scenario: energy in three of four, else a mixture, or another value of the dial."""
    rng = np.random.default_rng([seed, 37])
    if rng.random() < 3 / 4:
        return TrialWeights()
    if rng.random() < 0.4:
        return TrialWeights(wait=float(rng.choice([0.1, 0.3, 1.0])))
    response, makespan, _ = rng.dirichlet(np.ones(3)).tolist()
    return TrialWeights(response, makespan)


PLAIN = Stage("streams", curriculum.FOREVER)
"""Streams of any kind."""


def judges(
    settings: ScratchSettings, first_seed: int, count: int, mixed: bool = True, stage: Stage = PLAIN
) -> list[Judge]:
    """Scenarios with their references, drawn and simulated once; those that take long are left to judging."""
    allowed = training_applications(settings.fold)
    made: list[Judge] = []
    seed = first_seed
    while len(made) < count:
        drawn = stage.shaped(scenarios.draw(seed, allowed, round(stage.tasks * settings.tasks)), seed)
        one = judge_of(settings, drawn, seed, wish(seed) if mixed else TrialWeights())
        if len(one.trial.workload) <= MOST_TASKS and (not mixed or fit(one, settings)):
            made.append(one)
        seed += 1
    return made


def judge_of(settings: ScratchSettings, scenario: Scenario, seed: int, wished: TrialWeights) -> Judge:
    """A scenario beside what these settings measure by."""
    if not settings.bar:
        return Judge(scenario, seed, wished)
    own = bool(np.random.default_rng([seed, 71]).random() < settings.own)
    return BarJudge(scenario, seed, wished, settings.fold, own)


def fit(one: Judge, settings: ScratchSettings) -> bool:
    """Whether a scenario is worth its time in training."""
    return quick(one, settings) and teaches(one)


def quick(one: Judge, settings: ScratchSettings) -> bool:
    """Whether a simulation takes no longer than it may."""
    one.trial.run()
    began = time.thread_time()
    one.trial.run()
    return time.thread_time() - began <= settings.longest_s


def teaches(one: Judge) -> bool:
    """Whether weights matter in a scenario: where one node is as good as another, there is nothing to learn."""
    rng = np.random.default_rng([one.seed, 47])
    tries = [one.trial.run(rng.normal(0.0, 0.15, weights.SIZE)).energy_j for _ in range(2)]
    base = one.reference.energy_j
    return max(abs(joules / base - 1.0) for joules in tries) > 0.004


class ScratchTrainer(Trainer):
    """One run from scratch: stage by stage, hard scenarios more often, checkpoints to go on from."""

    settings: ScratchSettings

    def __init__(self, settings: ScratchSettings, workers: int = 1, progress: Progress | None = None) -> None:
        choosing = judges(settings, FIRST_SEED + 5000, settings.chosen_on, False)
        super().__init__(settings, progress or start(), (), choosing, workers)
        self.stage: Stage | None = None
        self.use(self._stage())

    def _stage(self) -> Stage:
        return curriculum.stage_of(self.progress.generation) if self.settings.staged else PLAIN

    def use(self, stage: Stage) -> None:
        """Begin a stage with scenarios of its own; those of before stay where it wants the same kind."""
        before, self.stage = self.stage, stage
        if before is not None and before.kind == stage.kind:
            return
        settings = self.settings
        first = FIRST_SEED + 10_000 * settings.seed + 1000 * settings.part
        self.scenarios = judges(settings, first, max(1, round(stage.pool * settings.pool)), stage=stage)
        self.hard = HardExamples(len(self.scenarios))

    def drawn(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Choose the scenarios of each direction, a share of them among the hardest."""
        assert self.stage is not None
        return self.hard.draw(rng, self.settings.directions, self.settings.tries, self.stage.hard)

    def tried(self, scenario: int, won: float, fined: float) -> None:
        """Take note of what the weights lose in a scenario."""
        self.hard.note(scenario, self.progress.price * (fined - self.scenarios[scenario].fined) - won)

    def advance(self) -> None:
        """Go on to the next stage where this one is over; every tenth generation mutants, where it has any.

        Neither mutants nor losses are in a checkpoint: a run that goes on finds them anew.
        """
        stage = self._stage()
        if stage is not self.stage:
            self.use(stage)
        elif stage.mutants and self.progress.generation % 10 == 0:
            self._mutate(stage.mutants)

    def _mutate(self, count: int) -> None:
        """Put changed copies of the hardest scenarios in the places of the easiest."""
        order = self.hard.order().tolist()
        for i in range(min(count, len(order) // 2)):
            hard = self.scenarios[order[i]]
            assert isinstance(hard.scenario, Scenario)
            changed = curriculum.mutant(hard.scenario, 100_000 * self.settings.seed + 10 * self.progress.generation + i)
            one = hard.like(changed)
            if fit(one, self.settings):
                self.scenarios[order[-1 - i]] = one
                self.hard.forget(order[-1 - i])

    def judge_again(self) -> None:
        """Measure anew what was best: it may have been so beside another flagship; the flagship itself is 0."""
        now = self.progress
        now.best_reward = self.judge(now.best)[0]
        if now.best_reward < 0.0:
            now.best, now.best_reward = start().theta, 0.0


def save(path: Path, progress: Progress, settings: ScratchSettings) -> None:
    """A checkpoint: plain arrays and JSON."""
    arrays = {name: getattr(progress, name) for name in ("theta", "first", "second", "mean", "best")}
    names = ("generation", "seconds", "cpu_s", "simulations", "best_reward", "price", "origin")
    rest = {name: getattr(progress, name) for name in names}
    with whole_file(path) as draft, draft.open("wb") as stream:
        np.savez(stream, rest=np.array(json.dumps(rest | {"settings": asdict(settings)})), **arrays)


def resume(path: Path) -> Progress:
    """A checkpoint, read again."""
    with np.load(path, allow_pickle=False) as content:
        rest: dict[str, Any] = json.loads(str(content["rest"]))
        rest.pop("settings")
        return Progress(**{name: content[name] for name in ("theta", "first", "second", "mean", "best")}, **rest)


def gone_on_from(path: Path) -> Progress:
    """The beginning of a run that goes on from weights of an earlier one, all of whose time counts."""
    theta, told = weights.load(path)
    spent = {"seconds": told["wall_s"], "cpu_s": told["cpu_s"], "simulations": told["simulations"]}
    origin = {"from": path.name, "from_generations": told["generations"], "from_gain": told["gain"]}
    return Progress.at(theta, generation=told["generations"], origin=origin, began=told["generations"], **spent)


def settings_of(path: Path) -> dict[str, Any]:
    """The settings that a checkpoint was made with."""
    with np.load(path, allow_pickle=False) as content:
        found: dict[str, Any] = json.loads(str(content["rest"]))["settings"]
        return found


def card(progress: Progress, settings: ScratchSettings) -> dict[str, Any]:
    """What the weights were made from, for their file."""
    return {
        "trainer": "evolution strategies",
        "applications": training_applications(settings.fold),
        "held_out": list(scenarios.FOLDS[settings.fold]) if settings.fold >= 0 else [],
        "clusters": "random: 2-64 nodes, 1-6 types",
        "settings": asdict(settings),
        "generations": progress.generation,
        "simulations": progress.simulations,
        "wall_s": round(progress.seconds, 1),
        "cpu_s": round(progress.cpu_s, 1),
        "joules_estimated": round(CORE_W * progress.cpu_s),
        "watts_of_a_core_assumed": CORE_W,
        "gain": progress.best_reward,
        "stages": [asdict(stage) for stage in curriculum.STAGES] if settings.staged else [],
        **progress.origin,
    }


def name_of(settings: ScratchSettings) -> str:
    """The name of a run's files."""
    return f"fold-{settings.fold}-seed-{settings.seed}" if settings.fold >= 0 else f"all-seed-{settings.seed}"


COLUMNS = ("generation", "seconds", "reward", "gain", "energy", "kept", "flagship_kept", "best", "price")


def train(
    settings: ScratchSettings,
    out: Path,
    minutes: float,
    workers: int = 1,
    again: bool = False,
    base: Path | None = None,
) -> Progress:
    """Train for so long; writes ``NAME.checkpoint.npz``, ``NAME.csv`` (the curve) and ``NAME.npz`` (the weights).

    A run goes on from its checkpoint (``again``), or from the weights of a file (``base``), or begins at the flagship.
    """
    out.mkdir(parents=True, exist_ok=True)
    name = name_of(settings)
    checkpoint = out / f"{name}.checkpoint.npz"
    went_on = again and checkpoint.is_file()
    began, cpu = time.monotonic(), cpu_seconds()
    begun = resume(checkpoint) if went_on else gone_on_from(base) if base is not None else None
    trainer = ScratchTrainer(settings, workers, begun)
    now = trainer.progress
    if begun is not None:
        trainer.judge_again()
    spent, used = now.seconds, now.cpu_s
    _log.info("%s: %d scenarios set up in %.0f s", name, settings.pool, time.monotonic() - began)
    with (out / f"{name}.csv").open("a" if went_on else "w", newline="") as stream:
        curve = csv.writer(stream)
        if not went_on:
            curve.writerow(COLUMNS)
        weights.save(out / f"{name}.npz", now.best, card(now, settings))
        while time.monotonic() - began < 60.0 * minutes:
            reward = trainer.generation()
            now.seconds, now.cpu_s = spent + time.monotonic() - began, used + cpu_seconds() - cpu
            if now.generation % 10 == 0:
                seen = trainer.compare()
                curve.writerow(
                    [now.generation, f"{now.seconds:.1f}", f"{reward:.5f}", *(f"{v:.5f}" for v in seen.values())]
                )
                stream.flush()
                save(checkpoint, now, settings)
                weights.save(out / f"{name}.npz", now.best, card(now, settings))
                _log.info(
                    "%s generation %d, %.0f s: gain %+.4f, joules %+.2f %%, kept %.2f (flagship %.2f), best %+.4f",
                    name, now.generation, now.seconds, seen["gain"], 100 * np.expm1(seen["energy"]), seen["kept"],
                    seen["flagship_kept"], seen["best"],
                )  # fmt: skip
    save(checkpoint, now, settings)
    return now


def cpu_seconds() -> float:
    """CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the folds in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--fold", type=int, default=-1, choices=range(-1, len(scenarios.FOLDS)), help="−1: hold out none"
    )
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pool", type=int, default=120)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/learned"))
    given = parser.parse_args(arguments)
    settings = replace(SCRATCH, fold=given.fold, seed=given.seed, pool=given.pool)
    train(settings, given.out, given.minutes, given.workers, given.resume)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
