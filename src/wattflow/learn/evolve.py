"""Evolution strategies for the learned policy: no gradients, no framework, all in the compiled simulator.

    python -m wattflow.learn.evolve --fold 0 --minutes 15 --out out/learned

Salimans et al., Evolution strategies as a scalable alternative to reinforcement learning, arXiv:1703.03864: weights are
moved along random directions, each tried forwards and backwards (antithetic pairs) on the same scenarios and seeds, so
what is hard about a scenario cancels; the differences of the rewards weigh the directions, and Adam takes the step.
Every direction is tried on few scenarios of a large pool: many directions teach more than many trials of one.

What it is tried on changes as training goes on (`wattflow.learn.stages`), and hard scenarios are tried more often
(`wattflow.learn.hardship`). One run trains without the applications of its fold. Checkpoints hold everything to go on;
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files.whole import whole_file
from wattflow.learn import imitation, scenarios, stages, streams
from wattflow.learn.bar import BarJudge
from wattflow.learn.hardship import Hardship
from wattflow.learn.recipe import SCRATCH as SCRATCH
from wattflow.learn.recipe import EvolutionSettings as EvolutionSettings
from wattflow.learn.scenarios import Scenario
from wattflow.learn.stages import Stage
from wattflow.learn.trial import Judge, Wish, beyond
from wattflow.policy import attending, placing, weights

Floats = NDArray[np.float64]
_log = logging.getLogger(__name__)
FIRST_SEED = 1000
"""Training scenarios are drawn from here + 10,000 × seed + 1,000 × part on, those for choosing among checkpoints and
seeds, which all seeds share, from here + 5000 on."""
DEARER, CHEAPER = 1.25, 0.93
"""How the price of fines changes."""
SHARES = (0.1, 0.25, 0.5, 1.0)
"""How much of what was imitated is tried as a start."""
MOST_TASKS = 900
"""Larger streams are neither trained nor chosen on."""
CORE_W = 10.0
"""Watts of a busy core, assumed where joules of training are estimated."""


LOOKS = 1
"""Hidden units look in the same random directions at first, whatever the seed: so means over seeds are of one kind."""
LATER = 2.0
"""How much more later generations count in the mean over the way (Shamir and Zhang, arXiv:1212.1824)."""


@dataclass(slots=True)
class Progress:
    """Everything that a run needs to go on.

    ``mean`` is a running mean of ``theta``, less noisy than its steps; ``price`` the multiplier of the fines.
    """

    theta: Floats
    first: Floats
    second: Floats
    mean: Floats
    generation: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    simulations: int = 0
    best: Floats = field(default_factory=lambda: np.zeros(weights.SIZE))
    best_reward: float = 0.0
    price: float = 2.0
    origin: dict[str, Any] = field(default_factory=dict)
    """What training began with, where that was not the flagship."""
    began: int = 0
    """The generation from which on the mean is taken."""


def start(seed: int = LOOKS, net: str = "mlp") -> Progress:
    """The heuristic: hidden units (and attention) look in random directions and count for nothing yet."""
    theta = np.zeros(weights.SIZES[net])
    rng = np.random.default_rng([seed, 29])
    first = theta[weights.PLACE : weights.PLACE + placing.N * weights.WIDTH].reshape(placing.N, weights.WIDTH)
    first[:, : weights.HIDDEN] = rng.normal(0.0, 0.4, (placing.N, weights.HIDDEN))
    if net == "attention":
        theta[weights.ATTEND : weights.ATTEND + attending.OUT] = rng.normal(0.0, 0.4, attending.OUT)
    return Progress(theta, np.zeros_like(theta), np.zeros_like(theta), theta.copy(), best=theta.copy())


def training_applications(fold: int) -> list[str]:
    """Applications that a fold may train on; all of them for fold −1."""
    held = streams.FOLDS[fold] if fold >= 0 else ()
    return [name for name in streams.APPLICATIONS if name not in held]


def wish(seed: int) -> Wish:
    """What counts in a training scenario: energy in three of four, else a mixture, or another value of the dial."""
    rng = np.random.default_rng([seed, 37])
    if rng.random() < 3 / 4:
        return Wish()
    if rng.random() < 0.4:
        return Wish(wait=float(rng.choice([0.1, 0.3, 1.0])))
    response, makespan, _ = rng.dirichlet(np.ones(3)).tolist()
    return Wish(response, makespan)


PLAIN = Stage("streams", stages.FOREVER)
"""Streams of any kind."""


def judges(
    settings: EvolutionSettings, first_seed: int, count: int, mixed: bool = True, stage: Stage = PLAIN
) -> list[Judge]:
    """Scenarios with their references, drawn and simulated once; those that take long are left to judging."""
    allowed = training_applications(settings.fold)
    made: list[Judge] = []
    seed = first_seed
    while len(made) < count:
        drawn = stage.shaped(scenarios.draw(seed, allowed, round(stage.tasks * settings.tasks)), seed)
        one = judge_of(settings, drawn, seed, wish(seed) if mixed else Wish())
        if len(one.trial.workload) <= MOST_TASKS and (not mixed or fit(one, settings)):
            made.append(one)
        seed += 1
    return made


def judge_of(settings: EvolutionSettings, scenario: Scenario, seed: int, wished: Wish) -> Judge:
    """A scenario beside what these settings measure by."""
    if not settings.bar:
        return Judge(scenario, seed, wished)
    own = bool(np.random.default_rng([seed, 71]).random() < settings.own)
    return BarJudge(scenario, seed, wished, settings.fold, own)


def fit(one: Judge, settings: EvolutionSettings) -> bool:
    """Whether a scenario is worth its time in training."""
    return quick(one, settings) and teaches(one)


def quick(one: Judge, settings: EvolutionSettings) -> bool:
    """Whether a simulation takes no longer than it may."""
    one.trial.run()
    began = time.thread_time()
    one.trial.run()
    return time.thread_time() - began <= settings.longest_s


def teaches(one: Judge) -> bool:
    """Whether weights matter in a scenario: where one node is as good as another, there is nothing to learn."""
    rng = np.random.default_rng([one.seed, 47])
    theta = start(1).theta
    tries = [one.trial.run(theta + rng.normal(0.0, 0.15, weights.SIZE)).energy_j for _ in range(2)]
    base = one.reference.energy_j
    return max(abs(joules / base - 1.0) for joules in tries) > 0.004


def movable(warm: bool, size: int = weights.SIZE) -> Floats:
    """Which weights training moves: at first not what the hidden units look at (random directions do for a start)."""
    mask = np.ones(size)
    if warm:
        mask[weights.ATTEND : weights.ATTEND + attending.OUT] = 0.0
        first = mask[weights.PLACE : weights.PLACE + (placing.N + 1) * weights.WIDTH]
        first.reshape(placing.N + 1, weights.WIDTH)[:, : weights.HIDDEN] = 0.0
    return mask


class Trainer:
    """One run of training."""

    def __init__(self, settings: EvolutionSettings, workers: int = 1, progress: Progress | None = None) -> None:
        self.settings = settings
        self.progress = progress or start(LOOKS, settings.net)
        self.size = len(self.progress.theta)
        self.pool = ThreadPoolExecutor(workers)
        self.use(self._stage())
        self.choosing = judges(settings, FIRST_SEED + 5000, settings.chosen_on, False)
        self.flagship_kept = float(np.mean([one.keeps(one.reference) for one in self.choosing]))

    def _stage(self) -> Stage:
        return stages.stage_of(self.progress.generation) if self.settings.staged else PLAIN

    def use(self, stage: Stage, scenarios: Sequence[Judge] = ()) -> None:
        """Begin a stage, with these scenarios or with its own; those of before stay where it wants the same kind."""
        before: Stage | None = getattr(self, "stage", None)
        self.stage = stage
        if before is not None and before.kind == stage.kind:
            return
        settings = self.settings
        first = FIRST_SEED + 10_000 * settings.seed + 1000 * settings.part
        count = max(1, round(stage.pool * settings.pool))
        self.scenarios = list(scenarios) or judges(settings, first, count, stage=stage)
        self.hardship = Hardship(len(self.scenarios))

    def generation(self) -> float:
        """Try all directions and take a step; returns the mean reward of the trials."""
        now, settings = self.progress, self.settings
        rng = np.random.default_rng([settings.seed, now.generation, 31])
        ways = rng.normal(0.0, 1.0, (settings.directions, self.size))
        ways *= movable(now.generation < settings.warm, self.size)
        chosen = self.hardship.draw(rng, settings.directions, settings.tries, self.stage.hard)

        def pair(i: int) -> Floats:
            """What both ways won and were fined, for each scenario."""
            some = [self.scenarios[s] for s in chosen[i].tolist()]
            ahead, back = (now.theta + sign * settings.sigma * ways[i] for sign in (1.0, -1.0))
            return np.array([(one.parts(ahead), one.parts(back)) for one in some])

        tried = np.array(list(self.pool.map(pair, range(settings.directions))))
        most = settings.most
        won, fined = np.moveaxis(np.clip(tried[:, :, 0] - tried[:, :, 1], -most, most), -1, 0)
        slope = (won - now.price * fined).mean(axis=1) @ ways / (2.0 * settings.sigma * settings.directions)
        for scenario, parts in zip(chosen.ravel().tolist(), tried.mean(axis=2).reshape(-1, 2).tolist(), strict=True):
            fined_more = parts[1] - self.scenarios[scenario].fined
            self.hardship.note(scenario, now.price * fined_more - parts[0])
        self._step(slope)
        now.generation += 1
        now.simulations += 2 * tried.shape[0] * tried.shape[1]
        self._advance()
        return float((tried[..., 0] - tried[..., 1]).mean())

    def imitate(self, lessons: imitation.Lessons) -> None:
        """Begin as annealing would choose, by as much of it as does best where checkpoints are compared, if any."""
        now = self.progress
        known = lessons.of(training_applications(self.settings.fold))
        made, before, after = imitation.fitted(now.theta, known)
        tried = {share: imitation.weaker(made, share) for share in SHARES}
        gains = {share: self.judge(theta)[0] for share, theta in tried.items()}
        used = max(gains, key=lambda share: gains[share])
        now.origin = {
            "imitation_decisions": int(known.decision.max()) + 1,
            "imitation_agreed": [round(before, 3), round(after, 3)],
            "imitation_gains": {str(share): round(gain, 4) for share, gain in gains.items()},
            "imitation_used": used if gains[used] > 0.0 else 0.0,
        }
        if gains[used] > 0.0:
            now.theta = tried[used]
            now.mean, now.best, now.best_reward = now.theta.copy(), now.theta.copy(), gains[used]

    def _advance(self) -> None:
        """The next stage where this one is over; every tenth generation mutants, where it has any.

        Neither mutants nor losses are in a checkpoint: a run that goes on finds them anew.
        """
        stage = self._stage()
        if stage is not self.stage:
            self.use(stage)
        elif stage.mutants and self.progress.generation % 10 == 0:
            self._mutate(stage.mutants)

    def _mutate(self, count: int) -> None:
        """Changed copies of the hardest scenarios take the places of the easiest."""
        order = self.hardship.order().tolist()
        for i in range(min(count, len(order) // 2)):
            hard = self.scenarios[order[i]]
            assert isinstance(hard.scenario, Scenario)
            changed = stages.mutant(hard.scenario, 100_000 * self.settings.seed + 10 * self.progress.generation + i)
            one = hard.like(changed)
            if fit(one, self.settings):
                self.scenarios[order[-1 - i]] = one
                self.hardship.forget(order[-1 - i])

    def _step(self, slope: Floats) -> None:
        """Uphill: Adam, or a plain step."""
        now, t = self.progress, self.progress.generation + 1
        mask = movable(now.generation < self.settings.warm, self.size)
        if not self.settings.adam:
            now.theta = now.theta + mask * (self.settings.rate * slope - self.settings.decay * now.theta)
            share = (1.0 + LATER) / (t - now.began + LATER)
            now.mean = now.mean + share * (now.theta - now.mean)
            return
        now.first = 0.9 * now.first + 0.1 * slope
        now.second = 0.99 * now.second + 0.01 * slope**2
        mean, spread = now.first / (1.0 - 0.9**t), now.second / (1.0 - 0.99**t)
        step = self.settings.rate * mean / (np.sqrt(spread) + 1e-8)
        now.theta = now.theta + mask * (step - self.settings.decay * now.theta)
        now.mean = 0.95 * now.mean + 0.05 * now.theta

    def judge(self, theta: Floats) -> tuple[float, float, float]:
        """Gain, log-ratio of joules and share within the bound on the scenarios kept for choosing."""
        found = list(self.pool.map(lambda one: one.trial.run(theta), self.choosing))
        return beyond(list(zip(self.choosing, found, strict=True)))

    def judge_again(self) -> None:
        """What was best may have been so beside another flagship: measure it anew; the flagship itself is 0."""
        now = self.progress
        now.best_reward = self.judge(now.best)[0]
        if now.best_reward < 0.0:
            now.best, now.best_reward = start(LOOKS, self.settings.net).theta, 0.0

    def compare(self) -> dict[str, float]:
        """The mean weights on the scenarios kept for choosing, and a new price of fines.

        The price rises while the bound is kept in fewer scenarios than the flagship keeps it in, and falls slowly
        otherwise. Checkpoints are compared as the portfolio's settings are: a hundredth of the scenarios more within
        the bound is worth a per cent of joules.

        Returns:
            ``gain``: that sum, beyond the flagship's; ``energy``: log-ratio of joules; ``kept``, ``flagship_kept``:
            shares of scenarios within the bound; ``best``: the best gain so far; ``price``.
        """
        now = self.progress
        gain, energy, kept = self.judge(now.mean)
        # A mean over the way is less noisy than the comparison: the best of many of them would be the luckiest.
        if gain > now.best_reward or not self.settings.adam:
            now.best, now.best_reward = now.mean.copy(), gain
        dearer = DEARER if kept < self.flagship_kept else CHEAPER
        now.price = float(np.clip(now.price * dearer, *self.settings.prices))
        return {
            "gain": gain,
            "energy": energy,
            "kept": kept,
            "flagship_kept": self.flagship_kept,
            "best": now.best_reward,
            "price": now.price,
        }


def save(path: Path, progress: Progress, settings: EvolutionSettings) -> None:
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
    zeros = np.zeros_like(theta)
    spent = {"seconds": told["wall_s"], "cpu_s": told["cpu_s"], "simulations": told["simulations"]}
    origin = {"from": path.name, "from_generations": told["generations"], "from_gain": told["gain"]}
    return Progress(
        theta, zeros.copy(), zeros.copy(), theta.copy(), told["generations"], best=theta.copy(), origin=origin,
        began=told["generations"], **spent,
    )  # fmt: skip


def settings_of(path: Path) -> dict[str, Any]:
    """The settings that a checkpoint was made with."""
    with np.load(path, allow_pickle=False) as content:
        found: dict[str, Any] = json.loads(str(content["rest"]))["settings"]
        return found


def card(progress: Progress, settings: EvolutionSettings) -> dict[str, Any]:
    """What the weights were made from, for their file."""
    return {
        "trainer": "evolution strategies",
        "applications": training_applications(settings.fold),
        "held_out": list(streams.FOLDS[settings.fold]) if settings.fold >= 0 else [],
        "clusters": "random: 2-64 nodes, 1-6 types",
        "settings": asdict(settings),
        "generations": progress.generation,
        "simulations": progress.simulations,
        "wall_s": round(progress.seconds, 1),
        "cpu_s": round(progress.cpu_s, 1),
        "joules_estimated": round(CORE_W * progress.cpu_s),
        "watts_of_a_core_assumed": CORE_W,
        "gain": progress.best_reward,
        "stages": [asdict(stage) for stage in stages.STAGES] if settings.staged else [],
        **progress.origin,
    }


def name_of(settings: EvolutionSettings) -> str:
    """The name of a run's files."""
    return f"fold-{settings.fold}-seed-{settings.seed}" if settings.fold >= 0 else f"all-seed-{settings.seed}"


COLUMNS = ("generation", "seconds", "reward", "gain", "energy", "kept", "flagship_kept", "best", "price")


def train(
    settings: EvolutionSettings, out: Path, minutes: float, workers: int = 1, again: bool = False,
    lessons: Path | None = None, base: Path | None = None,
) -> Progress:  # fmt: skip
    """Train for so long; writes ``NAME.checkpoint.npz``, ``NAME.csv`` (the curve) and ``NAME.npz`` (the weights).

    A run goes on from its checkpoint (``again``), or from the weights of a file (``base``), or begins at the flagship,
    with what annealing teaches (``lessons``) where that helps.
    """
    out.mkdir(parents=True, exist_ok=True)
    name = name_of(settings)
    checkpoint = out / f"{name}.checkpoint.npz"
    went_on = again and checkpoint.is_file()
    began, cpu = time.monotonic(), cpu_seconds()
    begun = resume(checkpoint) if went_on else gone_on_from(base) if base is not None else None
    trainer = Trainer(settings, workers, begun)
    now = trainer.progress
    if begun is not None:
        trainer.judge_again()
    elif lessons is not None:
        trainer.imitate(imitation.load(lessons))
        _log.info("%s: %s", name, now.origin)
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
    parser.add_argument("--fold", type=int, default=-1, choices=range(-1, len(streams.FOLDS)), help="−1: hold out none")
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
