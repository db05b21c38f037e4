"""Train one rival for some minutes; the weights that did best on scenarios kept for choosing are written.

Those scenarios are the ones that checkpoints of the learned policy are chosen on, and the rule is the same: a hundredth
of them more within the bound is worth a per cent of joules. Nothing of the held-out applications is seen.
"""

from __future__ import annotations

import csv
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from research import training
from research.rivals import files, play
from research.rivals.agent import Agent
from research.rivals.arena import Arena
from research.rivals.deep_q import DeepQ, DeepQSettings
from research.rivals.kernel_network import KernelNetwork
from research.rivals.policy_gradient import GradientSettings, PolicyGradient
from research.rivals.q_placement import QPlacement
from wattflow.learn import scenarios
from wattflow.learn.environment import Episode
from wattflow.learn.trial import beyond

_log = logging.getLogger(__name__)
COLUMNS = ("seconds", "steps", "reward", "gain", "energy", "kept")


@dataclass(frozen=True, slots=True)
class Job:
    """What to train, and how.

    Attributes:
        count: Streams at once.
        tasks: Tasks of a stream, about.
        chosen_on: Scenarios on which checkpoints are compared.
        looks: Comparisons in the whole time.
        renewals: How often other streams are drawn in it.
    """

    rival: str
    fold: int = -1
    seed: int = 1
    count: int = 32
    tasks: int = 300
    chosen_on: int = 40
    looks: int = 8
    renewals: int = 8


def trainer_of(agent: Agent, arena: Arena, seed: int) -> PolicyGradient | DeepQ:
    """The papers' own: deep Q learning, PPO for the kernel network, plain actor–critic for the selector."""
    if isinstance(agent, QPlacement):
        return DeepQ(arena, DeepQSettings(), seed)
    if isinstance(agent, KernelNetwork):
        return PolicyGradient(arena, GradientSettings(), seed)
    return PolicyGradient(arena, GradientSettings(steps=16, passes=1, parts=1), seed)


def choosing(agent: Agent, job: Job) -> list[Episode]:
    """Scenarios for choosing, without the held-out applications."""
    allowed = training.training_applications(job.fold)
    first = training.FIRST_SEED + 5000
    drawn = ((scenarios.draw(seed, allowed, job.tasks), seed) for seed in range(first, first + 10 * job.chosen_on))
    small = ((scenario, seed) for scenario, seed in drawn if len(scenario.draw(seed)) <= training.MOST_TASKS)
    return [play.open_stream(agent, *next(small)) for _ in range(job.chosen_on)]


def gain(agent: Agent, kept_for: list[Episode]) -> tuple[float, float, float]:
    """Beyond the flagship: share within the bound less log-ratio of joules; and both by themselves."""
    return beyond([(one.judge, play.roll(agent, one)) for one in kept_for])


def train(job: Job, out: Path, minutes: float) -> Path:
    """Train and write ``NAME.npz`` and its curve ``NAME.csv``; returns the first."""
    began, cpu = time.monotonic(), time.process_time()
    agent: Agent = files.RIVALS[job.rival].start(job.seed)
    kept_for = choosing(agent, job)
    allowed = training.training_applications(job.fold)
    arena = Arena(agent, lambda number: scenarios.draw(number, allowed, job.tasks), job.seed, job.count)
    trainer = trainer_of(agent, arena, job.seed)
    name, most = files.file_name(job.rival, job.fold), -np.inf
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.npz"
    due = np.linspace(0.0, 60.0 * minutes, job.looks + 1)[1:].tolist()
    renew = np.linspace(0.0, 60.0 * minutes, job.renewals + 1)[1:-1].tolist()
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
        curve = csv.writer(stream)
        curve.writerow(COLUMNS)
        while due:
            reward = trainer.round()
            spent = time.monotonic() - began
            if spent >= due[0]:
                due = [at for at in due if at > spent]
                found, energy, kept = gain(agent, kept_for)
                curve.writerow([f"{spent:.1f}", arena.steps, *(f"{v:.5f}" for v in (reward, found, energy, kept))])
                stream.flush()
                _log.info(
                    "%s %.0f s, %d steps: gain %+.3f, joules %+.1f %%, kept %.2f",
                    name, spent, arena.steps, found, 100.0 * np.expm1(energy), kept,
                )  # fmt: skip
                if found > most:
                    most = found
                    agent.card = card(job, arena.steps, spent, time.process_time() - cpu, found)
                    files.save(path, agent)
            if renew and spent >= renew[0]:
                renew = [at for at in renew if at > spent]
                arena.renew()
    return path


def card(job: Job, steps: int, wall_s: float, cpu_s: float, found: float) -> dict[str, object]:
    """What the weights were made from."""
    return {
        "held_out": list(scenarios.FOLDS[job.fold]) if job.fold >= 0 else [],
        "job": asdict(job),
        "steps": steps,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "joules_estimated": round(training.CORE_W * cpu_s),
        "watts_of_a_core_assumed": training.CORE_W,
        "gain": found,
    }
