"""Going on learning beside a server (`wattflow up --policy learned --learn`): a process of its own, of low priority.

Every so many finished workflows it reads the store, refits a twin of the cluster to what was recorded and fine-tunes
the weights in use on recent workflows, with older ones beside them so that they are not forgotten. A candidate is
promoted only if it wins a paired shadow test on the latest workflows, which it was not trained on; the server is then
told to use its file (``POST /v1/policy``), which its journal keeps. What comes after a promotion is replayed under the
new weights and those of before; on an alarm these come back. The server's loop has no part in any of it, and a learner
that is killed at any moment leaves whole files and the policy that is in use.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from wattflow.files.whole import write_text
from wattflow.learn import evolve
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.policy import weights
from wattflow.runtime.aside import Away
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Unreachable
from wattflow.server.history import History, finished, read_history
from wattflow.store.schema import read_store

Floats = NDArray[np.float64]
log = logging.getLogger(__name__)
NICE = 10
LOOK_S = 2.0
KEPT_ROUNDS = 100
MOST_REST = 8
"""Rounds that are left out after an alarm at the most."""


@dataclass(frozen=True, slots=True)
class LearnSettings:
    """How a server goes on learning.

    Attributes:
        every: Finished workflows between two rounds.
        recent: The latest workflows, which are trained and tested on.
        old: Workflows before these, of which some blocks are trained on beside them.
        old_blocks: How many.
        seconds: Of training in a round.
    """

    every: int = 50
    recent: int = 200
    old: int = 400
    old_blocks: int = 4
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Keep what a learner must know after a restart.

    Attributes:
        seen: Workflows that had ended at the last round, also those that the store has forgotten since.
        seen_s: When the last of them ended, by the server's clock.
        present, before: Files of weights in use and of those to go back to; empty: those that the policy came with.
        since_s: When the present ones were promoted, by the server's clock; 0 where none were, or they were taken back.
        rounds: What happened, the latest last.
        rest: Rounds in which nothing is tried, after an alarm.
        alarms: In a row, without a promotion that held in between.
    """

    seen: int = 0
    present: str = ""
    before: str = ""
    since_s: float = 0.0
    rounds: tuple[str, ...] = ()
    seen_s: float = 0.0
    rest: int = 0
    alarms: int = 0

    @classmethod
    def read(cls, home: Home) -> Standing:
        """As the last learner left it."""
        try:
            found = json.loads((folder_of(home) / "standing.json").read_text())
            return cls(**found | {"rounds": tuple(found["rounds"])})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, home: Home) -> None:
        """For the next one."""
        folder_of(home).mkdir(exist_ok=True)
        write_text(folder_of(home) / "standing.json", json.dumps(asdict(self)))


def folder_of(home: Home) -> Path:
    """Where weights that were learned here lie."""
    return home.folder / "learning"


def typed(policy: str, file: str) -> str:
    """The policy with weights of a file."""
    parts = [part for part in policy.split(":") if not part.startswith("weights=")]
    return ":".join([*parts, f"weights={file}"]) if file else policy


def present_policy(home: Home, policy: str) -> str:
    """The policy that a server starts with: promoted weights stay promoted."""
    file = Standing.read(home).present
    return typed(policy, file) if file and Path(file).is_file() else policy


class Learner:
    """One round after the other.

    Args:
        policy: As it was typed for the server, with the weights to begin with.
        switch: Tells the server which policy to use.
        now: The server's clock.
    """

    def __init__(
        self, home: Home, policy: str, switch: Callable[[str], None], now: Callable[[], float],
        settings: LearnSettings | None = None,
    ) -> None:  # fmt: skip
        if policy.split(":")[0] != "learned":
            raise InvalidInput("--learn", f"it is the policy `learned` that goes on learning, not {policy!r}")
        self.home, self.policy, self._switch, self._now = home, policy, switch, now
        self.settings = settings or LearnSettings()
        self.standing = Standing.read(home)
        self._first = _weights_of(policy)

    def weights_of(self, file: str) -> Floats:
        """Of a file, or those that the policy came with."""
        return weights.load(Path(file))[0] if file else self._first

    def round(self, history: History, seen: int, seen_s: float = 0.0) -> str:
        """Look whether the last promotion was right, then try to do better; returns what happened."""
        said = self._alarm(history) or self._rest() or self._try(history)
        rounds = (*self.standing.rounds, f"{seen} workflows: {said}")[-KEPT_ROUNDS:]
        self.stand(replace(self.standing, seen=seen, seen_s=seen_s, rounds=rounds))
        return said

    def stand(self, standing: Standing) -> None:
        """From now on, and after a restart."""
        self.standing = standing
        standing.write(self.home)

    def _alarm(self, history: History) -> str:
        """Go back where the workflows since a promotion say so; empty where they do not."""
        now = self.standing
        later = history.blocks("since", now.since_s) if now.since_s > 0.0 else []
        if not later:
            return ""
        verdict = evolve.shadow(self.weights_of(now.before), self.weights_of(now.present), evolve.tested(later))
        if not verdict.alarm:
            self.stand(replace(now, alarms=0))
            return ""
        # The server first, then the note: killed in between, the next start takes the promoted ones back again.
        self._switch(typed(self.policy, now.before))
        # Doubled with each alarm in a row: promotion and alarm must not alternate.
        rest = min(MOST_REST, 1 << now.alarms)
        self.stand(replace(now, present=now.before, before="", since_s=0.0, rest=rest, alarms=now.alarms + 1))
        return f"alarm, back to the weights of before: {verdict}"

    def _rest(self) -> str:
        """After an alarm the record is still much the same, and much the same candidate might win again.

        One round is left out, and twice as many after each alarm in a row; empty where none is.
        """
        if self.standing.rest == 0:
            return ""
        self.stand(replace(self.standing, rest=self.standing.rest - 1))
        return f"nothing tried after an alarm, {self.standing.rest} more rounds to leave out"

    def _try(self, history: History) -> str:
        """Fine-tune, test, and promote what won."""
        split_s = float(np.sort(history.submitted_s)[-self.settings.recent :][0])
        blocks = history.blocks("recent", np.nextafter(split_s, -np.inf))
        old = history.blocks("old", until_s=np.nextafter(split_s, -np.inf))
        if len(blocks) < 3:
            return f"{len(blocks)} blocks of workflows are too few yet"
        recent, held = evolve.parted(blocks)
        spread = np.linspace(0, len(old) - 1, min(len(old), self.settings.old_blocks)).astype(int)
        replayed = evolve.tested([old[i] for i in spread.tolist()], 1)
        present = self.weights_of(self.standing.present)
        tuner = evolve.FineTuner(present, recent, replayed, replace(evolve.USUAL, seed=self.standing.seen + 1))
        candidate = tuner.run(self.settings.seconds)
        verdict = evolve.shadow(present, candidate, held)
        if not verdict.promoted:
            return f"not promoted after {tuner.progress.generation} generations: {verdict}"
        base = self.standing.present or "weights that the policy came with"
        file = self._keep(candidate, evolve.card(tuner, verdict, ["live"], base))
        self._switch(typed(self.policy, file))
        self.stand(replace(self.standing, present=file, before=self.standing.present, since_s=self._now()))
        return f"promoted after {tuner.progress.generation} generations: {verdict}"

    def _keep(self, theta: Floats, card: dict[str, object]) -> str:
        """A file that is named by what is in it: a journal that names it means the same for ever."""
        folder_of(self.home).mkdir(exist_ok=True)
        path = folder_of(self.home).absolute() / f"{hashlib.sha256(theta.tobytes()).hexdigest()[:16]}.npz"
        weights.save(path, theta, card)
        return str(path)


def _weights_of(policy: str) -> Floats:
    named = [part.removeprefix("weights=") for part in policy.split(":") if part.startswith("weights=")]
    return weights.load(Path(named[-1]))[0] if named else weights.current()


def run(learner: Learner, database: sa.Engine, look_s: float = LOOK_S) -> None:
    """Rounds until the server is gone that is there now; another one has a learner of its own."""
    away, pid = Away(log, "the store"), _server_of(learner.home)
    while pid is not None and _server_of(learner.home) == pid:
        try:
            _look(learner, database)
            away.answered()
        except sa.exc.DBAPIError as error:  # a store that is restarted
            away.failed(error)
        time.sleep(look_s)


def _server_of(home: Home) -> str | None:
    about = home.server()
    return None if about is None else str(about["pid"])


def _look(learner: Learner, database: sa.Engine) -> None:
    """A round if enough has ended since the last one. What ended is known by its time: how many are kept grows no more
    where old ones are forgotten."""
    standing = learner.standing
    more, last_s = finished(database, standing.seen_s)
    if more >= learner.settings.every:
        _round(learner, database, more + (standing.seen if standing.seen_s else 0), last_s)


def _round(learner: Learner, database: sa.Engine, ended: int, last_s: float) -> None:
    try:
        history = read_history(database, learner.settings.recent + learner.settings.old)
        log.info("%d workflows: %s", ended, learner.round(history, ended, last_s))
    except Unreachable as error:
        log.warning("the next look tries again: %s", error)
    except WattflowError as error:
        log.warning("nothing learned: %s", error)
        learner.stand(replace(learner.standing, seen=ended, seen_s=last_s))


def main(arguments: list[str] | None = None) -> int:
    """Run the process that `wattflow up --learn` starts."""
    parser = argparse.ArgumentParser(prog="wattflow-learner")
    parser.add_argument("--home", required=True)
    parser.add_argument("--policy", default="learned")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    os.nice(NICE)
    home = Home.of(given.home)
    server = Connection(home.url(), home.token("operator"), home.ca())

    def switch(policy: str) -> None:
        status = server.call("GET", "/v1/status")
        # While a cap holds, weights are promoted for the time after it.
        present = str(status["cap"]["in_place_of"] or status["policy"])
        if present.split(":")[0] != "learned":
            raise InvalidInput("policy", f"the server decides by {present!r} by now, so its weights are left alone")
        server.call("POST", "/v1/policy", {"policy": policy})

    try:
        settings = LearnSettings(every=given.every, seconds=given.seconds)
        learner = Learner(
            home, given.policy, switch, lambda: float(server.call("GET", "/v1/status")["now_s"]), settings
        )
        run(learner, read_store(os.environ.get("WATTFLOW_STORE") or home.store))
    except WattflowError as error:
        log.error("the learner ends: %s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
