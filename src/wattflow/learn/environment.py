"""The Gymnasium environment: every decision of a simulated stream is a step (extra `learn`).

    env = SchedulingEnv(lambda seed: scenarios.draw(seed, applications))
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(action)

An action is a row's number: at most `ROWS` candidates of the tasks that wait, then (``joint``) waiting and letting a
class of nodes sleep or wake; a number beyond the rows that are shown waits (and takes the first where nothing runs that
could end the wait), one beyond the action space is refused. ``info["action_mask"]`` says which rows there are; row 0 is
what the flagship would do. The reward is minus the joules since the last step over those that the
flagship needs for the whole stream; with the last step come the price of breaking the bound on waiting, and 1, so an
episode that always takes row 0 and keeps the bound returns 0.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel import jit
from wattflow.learn import episode, episode_buffers, renewing
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge
from wattflow.live import caller_choice
from wattflow.model.errors import BrokenPolicy, MissingExtra
from wattflow.policy import learned, registry
from wattflow.sim import kernel
from wattflow.sim.simulate import grow


class ThreadCrew:
    """``many`` hands, the caller's own among them; jobs should let the interpreter's lock go.

    A pool of futures takes some 30 µs for a job; here a hand waits at a lock of its own and costs a few.
    """

    def __init__(self, many: int) -> None:
        self._others = [_Hand() for _ in range(many - 1)]

    def each(self, do: Callable[[Any], Any], parts: Sequence[Any]) -> None:
        """Do every part, the first in this thread; there are no more parts than hands. An error is raised here."""
        first, *others = parts
        busy = self._others[: len(others)]
        for hand, part in zip(busy, others, strict=True):
            hand.begin(do, part)
        try:
            do(first)
        finally:
            errors = [hand.wait() for hand in busy]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """Let the hands go."""
        for hand in self._others:
            hand.begin(None, None)
        self._others = []


class _Hand:
    def __init__(self) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._job: tuple[Callable[[Any], Any] | None, Any] = (None, None)
        self._error: BaseException | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def begin(self, do: Callable[[Any], Any] | None, part: Any) -> None:
        self._job = (do, part)
        self._go.release()

    def wait(self) -> BaseException | None:
        self._done.acquire()
        return self._error

    def _work(self) -> None:
        while True:
            self._go.acquire()
            do, part = self._job
            if do is None:
                return
            self._error = None
            try:
                do(part)
            except BaseException as error:
                self._error = error
            self._done.release()


try:
    import gymnasium
    from gymnasium.error import InvalidAction, ResetNeeded
    from gymnasium.vector import AutoresetMode
except ImportError as error:  # pragma: no cover
    raise MissingExtra("the environment needs gymnasium: pip install 'wattflow[learn]'") from error

ROWS = 64
MOST = 16.0
"""Observations are within ± this. Most are within ±3; the logarithm of a queue over the cluster's threads is not."""
FIRST_SEED = 1000
"""Numbers of streams begin here: those below are for judging."""
Observation = NDArray[np.float32]
Draw = Callable[[int], Scenario]
"""A scenario by its seed."""


class Episode:
    """One stream, stopped at each decision.

    The policy below is the flagship as a setting of the learned one, whose notes the encoder reads. Unless it is
    ``priced``, the rows come in the engine's order, row 0 is nobody's choice, and nothing is held back. With ``theta``
    it is the learned policy with these weights: rows, their costs and row 0 are what it would look at and do.
    ``renews``: whether compiled code may begin it anew by itself.
    """

    def __init__(
        self, scenario: Scenario, seed: int, joint: bool, rows: int = ROWS, priced: bool = True,
        theta: NDArray[np.float64] | None = None, renews: bool = True,
    ) -> None:  # fmt: skip
        flagship = registry.load("learned", lean=0.0 if theta is None else 1.0)
        self.theta, self._renews = theta, renews and theta is None
        self.judge = Judge(scenario, seed, policy=flagship if priced else replace(flagship, score=None))
        self.joint, self.joules = joint, np.zeros(1)
        self.ask = episode_buffers.desk(self.state, rows, joint)
        self.course: renewing.Course
        self.restart()
        self.step_one, self.step_many = episode.kernels(self.state, self.world, self.ask, self.course)

    @property
    def state(self) -> Any:
        return self.judge.trial.simulation.state

    @property
    def world(self) -> Any:
        return self.judge.trial.simulation.world

    def restart(self) -> None:
        """Go back to the first event."""
        self.judge.trial.restart(self.theta)
        self.course = renewing.course(self.judge)
        self.course.standard[renewing.READY] *= self._renews
        self.ask.clear()
        self.joules[0] = 0.0

    def follow(self, theta: NDArray[np.float64]) -> None:
        """Go by these weights from now on, where it goes by weights at all."""
        self.theta = theta
        learned.use(self.state, theta)

    def step(self, chosen: int, out: Any) -> int:
        """Go to the next decision: its rows, or 0 at the end."""
        simulation = self.judge.trial.simulation
        while True:
            with np.errstate(over="ignore"):
                n = int(
                    self.step_one(
                        self.state.handle(), self.world.handle(), self.ask.handle(), simulation.functions, chosen,
                        self.joules, out,
                    )
                )  # fmt: skip
            if n != episode.GROW:
                return checked(n)
            self.grow()
            chosen = caller_choice.NONE

    def grow(self) -> None:
        """Make more room in the tables."""
        grow(self.state, self.world, self.judge.trial.simulation.options)
        self.course.standard[renewing.READY] = 0.0

    def closing_reward(self) -> float:
        """Return, at the end, the price of late seconds, on the flagship's scale."""
        with np.errstate(over="ignore"):
            kernel.settle(self.state.handle(), self.world.handle())
        return 1.0 - self.judge.penalty(self.judge.trial.result())


def checked(n: int) -> int:
    """Return the number of rows, unless it says that something is wrong."""
    if n == episode.BAD:
        raise BrokenPolicy("a cost is no number")
    if n == episode.STUCK:
        raise BrokenPolicy("every task waits and nothing will happen any more: wake a node, or place a task")
    return n


class SchedulingEnv(gymnasium.Env[Any, Any]):
    """One stream at a time; each reset draws another."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, draw: Draw, joint: bool = False, rows: int = ROWS) -> None:
        self._draw, self._joint, self._rows = draw, joint, rows
        self.observation_space = gymnasium.spaces.Box(-MOST, MOST, (rows, episode.WIDTH), np.float32)
        self.action_space = gymnasium.spaces.Discrete(rows)
        self._out = np.zeros((rows, episode.WIDTH), np.float32)
        self._episode: Episode | None = None
        self._shown = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a stream and run to its first decision."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(1000, 1_000_000))
        self._episode = Episode(self._draw(number), number, self._joint, self._rows)
        self._out[:] = 0.0
        self._shown = self._episode.step(caller_choice.NONE, self._out)
        return self._seen(), self._info()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out a row (or wait) and run to the next decision."""
        if self._episode is None or self._shown == 0:
            raise ResetNeeded("there is no decision open: call reset() first")
        if not self.action_space.contains(action):
            raise InvalidAction(f"{action!r} is no action: give a whole number from 0 to {self._rows - 1}")
        before = float(self._episode.joules[0])
        chosen = int(action) if int(action) < self._shown else self._waits()
        self._shown = self._episode.step(chosen, self._out)
        used = float(self._episode.joules[0]) - before
        reward = -used / self._episode.judge.reference.energy_j
        if self._shown == 0:
            self._out[:] = 0.0
            reward += self._episode.closing_reward()
        return self._seen(), reward, self._shown == 0, False, self._info()

    def _waits(self) -> int:
        """Wait, unless nothing runs that could end it: then the first row."""
        assert self._episode is not None
        return caller_choice.NONE if int(self._episode.state.counts.running[0]) > 0 else 0

    def _seen(self) -> Observation:
        seen = self._out.copy()
        seen[min(self._shown, self._rows) :] = 0.0
        return np.clip(seen, -MOST, MOST)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return rows that there are (the name that sb3-contrib's MaskablePPO asks for)."""
        return np.arange(self._rows) < max(1, self._shown)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks()}


class SchedulingVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Many streams, one compiled call for a step of all; where one ends, the next begins in the same step.

    Streams are drawn by number: ``reset(seed=s)`` begins with s, s + 1, …, and the next in a place, after an end or a
    ``reset()`` without a seed, is as many further on as there are places. So what comes depends on the first seed and
    the actions alone.

    Args:
        features: Whether rows are described; without, observations have no rows.
        priced: Whether row 0 is the flagship's choice. Without, rows come in the engine's order.
        plays: How often a stream is played before another takes its place; None: for ever, in compiled code alone.
            To draw one takes some 0.1 s, as long as some thousand steps.
        theta: Weights of the learned policy, which then stands in the flagship's place.
        copy: Whether observations and masks are copies. Without, the next step writes over them.
        threads: Over how many threads a step is spread; by default as many as there are cores, at most one for each
            eight streams. Streams do not depend on it.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self, draw: Draw, count: int, rows: int = ROWS, features: bool = True, joint: bool = False,
        priced: bool = True, threads: int | None = None, plays: int | None = 1,
        theta: NDArray[np.float64] | None = None, copy: bool = False,
    ) -> None:  # fmt: skip
        if not jit.COMPILED:
            raise RuntimeError("the vector environment needs compiled code; use SchedulingEnv")
        self.num_envs, self._rows, self._joint, self._priced = count, rows, joint, priced
        self.single_observation_space = gymnasium.spaces.Box(-MOST, MOST, (rows, episode.WIDTH), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(rows)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, count)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, count)
        self._draw, self._plays, self._theta, self._copy = draw, plays, theta, copy
        self.episodes: list[Episode] = []
        self._numbers, self._played = FIRST_SEED + np.arange(count) - count, np.zeros(count, np.int64)
        self._last_seen = np.zeros((rows if features else 0, episode.WIDTH), np.float32)
        self._out = np.zeros((count, rows if features else 0, episode.WIDTH), np.float32)
        self.shown, self._joules = np.zeros(count, np.int64), np.zeros(count)
        self._mask = np.zeros((count, rows), np.bool_)
        many = min(count // 8, len(os.sched_getaffinity(0))) if threads is None else threads
        self._threads = min(count, max(1, many))
        self._crew = ThreadCrew(self._threads)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw new streams, each run to its first decision; without a seed those that come next."""
        if seed is None:
            self._numbers += self.num_envs
        else:
            self._numbers[:] = FIRST_SEED + seed + np.arange(self.num_envs)
        self.episodes = [self._drawn(i) for i in range(self.num_envs)]
        self._addresses()
        self._joules[:] = 0.0
        self.shown[:] = 0
        self._mask[:] = False
        self._out[:] = 0.0
        self._advance(np.full(self.num_envs, caller_choice.NONE, np.int64))
        return self._shared(self._out), {"action_mask": self._shared(self._mask)}

    def _drawn(self, i: int) -> Episode:
        """Draw the stream of a place's number, before its first event."""
        number, renews = int(self._numbers[i]), self._plays is None
        self._played[i] = 0
        return Episode(self._draw(number), number, self._joint, self._rows, self._priced, self._theta, renews)

    def follow(self, theta: NDArray[np.float64]) -> None:
        """Put other weights in the flagship's place, from the next decision on (an environment that was given some)."""
        self._theta = theta
        for one in self.episodes:
            one.follow(theta)

    def close_extras(self, **kwargs: Any) -> None:
        """Let the threads go."""
        self._crew.close()

    def _addresses(self) -> None:
        self._held = [
            (e.state.handle(), e.world.handle(), e.ask.handle(), e.judge.trial.simulation.functions, e.course.handle())
            for e in self.episodes
        ]
        at = [
            (e.state.address, e.world.address, e.ask.address, e.judge.trial.simulation.functions.address,
             e.course.address)
            for e in self.episodes
        ]  # fmt: skip
        self._at = np.ascontiguousarray(np.array(at, np.int64).T)

    def _advance(self, chosen: NDArray[np.int64], count: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Make so many decisions of each, from the second on by the first row; what they brought, how many ended."""
        reward, ended = np.empty(self.num_envs), np.zeros(self.num_envs, np.int64)
        left, turn = np.full(self.num_envs, count), np.zeros(1, np.int64)

        def step_some(held: Any) -> None:
            self.episodes[0].step_many(
                *held, self._at, turn, chosen, left, self.shown, self._joules, reward, ended,
                self._mask, self._out,
            )  # fmt: skip

        self._crew.each(step_some, self._held[: self._threads])
        while self.shown.min() < 0:
            brought = reward.copy()
            for i in np.flatnonzero(self.shown < 0).tolist():
                brought[i] += self._mend(i, ended)
            if left.any():
                turn[0] = 0
                self._crew.each(step_some, self._held[: self._threads])
                brought += reward
            reward = brought
        return reward, ended

    def _mend(self, i: int, ended: NDArray[np.int64]) -> float:
        """Give an episode more room, or begin it anew where compiled code could not; the reward that comes of it."""
        one, status, reward = self.episodes[i], int(self.shown[i]), 0.0
        if status != episode.END:
            before = float(self._joules[i])
            if status == episode.GROW:
                one.grow()
            else:
                checked(status)
            one.joules[0] = before
            self.shown[i] = one.step(caller_choice.NONE, self._out[i])
            reward = (before - float(one.joules[0])) / one.judge.reference.energy_j
            if self.shown[i] == 0:
                reward += one.closing_reward()
                ended[i] += 1
                status = episode.END
        if status == episode.END:
            one = self._next(i)
            self.shown[i] = one.step(caller_choice.NONE, self._out[i])
        self._joules[i] = one.joules[0]
        self._mask[i] = np.arange(self._rows) < self.shown[i]
        self._out[i, self.shown[i] :] = 0.0
        self._addresses()
        return reward

    def _next(self, i: int) -> Episode:
        """Begin what follows an episode that ended: the same stream again, or another."""
        self._played[i] += 1
        if self._plays is not None and self._played[i] >= self._plays:
            self._numbers[i] += self.num_envs
            self.episodes[i] = self._drawn(i)
        else:
            self.episodes[i].restart()
        return self.episodes[i]

    def _allowed(self, actions: Any) -> NDArray[np.int64]:
        """Return the actions, as the compiled code reads them.

        Raises:
            ResetNeeded: Nothing is open yet.
            InvalidAction: Not one whole number of the action space for each stream.
        """
        if not self.episodes:
            raise ResetNeeded("there is no decision open: call reset() first")
        chosen = np.ascontiguousarray(actions)
        whole = chosen.shape == (self.num_envs,) and chosen.dtype.kind in "iu"
        if not whole or chosen.min() < 0 or chosen.max() >= self._rows:
            raise InvalidAction(
                f"actions are {self.num_envs} whole numbers, one for each stream, from 0 to {self._rows - 1}; these "
                f"have the shape {chosen.shape} and type {chosen.dtype}"
                + (f", from {chosen.min()} to {chosen.max()}" if whole else "")
            )
        return chosen.astype(np.int64, copy=False)

    def _shared(self, table: Any) -> Any:
        return table.copy() if self._copy else table

    def _final(self, over: NDArray[np.bool_]) -> dict[str, Any]:
        """Return what the ended ones saw last, as Gymnasium wants it of SAME_STEP: no rows."""
        seen = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(over).tolist():
            seen[i] = self._last_seen.copy()
        mask = np.zeros_like(self._mask)
        mask[over, 0] = True
        info = {"action_mask": mask, "_action_mask": over}
        return {"final_obs": seen, "_final_obs": over, "final_info": info, "_final_info": over}

    def step(self, actions: Any) -> tuple[Observation, NDArray[np.float64], Any, Any, dict[str, Any]]:
        """Make one choice of each; what is beyond its rows waits, as in `SchedulingEnv`."""
        reward, ended = self._advance(self._allowed(actions))
        over, info = ended > 0, {"action_mask": self._shared(self._mask)}
        if over.any():
            info |= self._final(over)
        return self._shared(self._out), reward, over, np.zeros(self.num_envs, bool), info

    def play(self, decisions: int) -> tuple[Observation, NDArray[np.float64], NDArray[np.int64], dict[str, Any]]:
        """Make so many decisions of each stream by its first row, all in compiled code.

        Streams that are taken to different points first do not all begin and end together, and what is learned from
        them is less alike. Returns what is seen then, the rewards' sums, how many episodes ended, and the mask.
        """
        reward, ended = self._advance(self._allowed(np.zeros(self.num_envs, np.int64)), decisions)
        return self._shared(self._out), reward, ended, {"action_mask": self._shared(self._mask)}
