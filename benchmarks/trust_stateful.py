"""Sequences of what people and machines do to a server, drawn by hypothesis, through the real commands and the SDK.

Up, down, kill -9 of anything, pauses, submissions, cancellations, a full disk, a second host, an upgrade, a backup that
is restored. After each sequence everything that was submitted has ended as it should, once, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, ClassVar

from chaos import _small_disk
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from trust_rig import WATTFLOW, _by_value, cli, kill, parent_of, processes
from trust_tally import Portion

from wattflow.model.errors import WattflowError
from wattflow.runtime.home import Home

STUCK_S = 120.0
KINDS = ("server", "agent", "writer", "zygote", "task")
STEPS = 8
SERVED = 10
"""Sequences on one place, one after the other; then all of it is ended, and nothing may be left behind."""
TWICE = "select task from attempts where outcome = 'done' group by task having count(*) > 1"


def work(key: int, seconds: float) -> int:
    import time as clock

    clock.sleep(seconds)
    return key


class Place:
    """One folder, one port, one client. A sequence that found nothing leaves it to the next, as it is: running or not,
    with a store that has a past."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wattflow-trust-"))
        self.home = Home(self.folder / "home")
        self.small_disk = _small_disk(self.home.folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.client: Any = None
        self.served = 0

    def remove(self) -> None:
        """End whatever is left there, and the folder with it."""
        for pid in processes(self.home.folder):
            kill(pid)
        if self.small_disk:
            subprocess.run(["umount", "-l", str(self.home.folder)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class House(RuleBasedStateMachine):
    """A place, and whatever happens to the processes that serve it."""

    found: ClassVar[list[str]] = []
    sequences: ClassVar[int] = 0
    left: ClassVar[Place | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.place, type(self).left = type(self).left or Place(), None
        self.folder, self.home, self.port = self.place.folder, self.place.home, self.place.port
        self.small_disk, self.known = self.place.small_disk, len(self.found)
        self.tasks: list[tuple[int, Any, bool]] = []
        self.other: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> Any:
        return self.place.client

    @initialize()
    def begin(self) -> None:
        import wattflow

        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        self._up()
        if self.client is None and self._running():
            self.place.client = wattflow.Client(self.home.url(), self.home.token("user"), name="stateful",
                                                patience="10min")  # fmt: skip

    # ---- what people do

    @rule(count=st.integers(1, 6), seconds=st.sampled_from([0.0, 0.2, 1.0]), chained=st.booleans())
    def submit(self, count: int, seconds: float, chained: bool) -> None:
        import wattflow

        if self.client is None:
            return
        self.steps.append(f"submit {count} {seconds} {chained}")
        made = wattflow.task(cpus=0.5, retries=1000)(_by_value(work))
        for _ in range(count):
            last = self.tasks[-1] if chained and self.tasks and not self.tasks[-1][2] else None
            expected = last[0] if last is not None else len(self.tasks)
            future = self.client.submit(made, last[1] if last is not None else expected, seconds)
            self.tasks.append((expected, future, False))

    @rule(which=st.integers(0, 30))
    def cancel(self, which: int) -> None:
        if not self.tasks or not self._running():
            return
        place = which % len(self.tasks)
        self.steps.append(f"cancel {place}")
        expected, future, _ = self.tasks[place]
        future.cancel()
        self.tasks[place] = (expected, future, True)

    @rule()
    def up(self) -> None:
        self.steps.append("up")
        self._up()

    @rule()
    def down(self) -> None:
        self.steps.append("down")
        done = cli(self.home.folder, "down", "--quiet")
        if done.returncode not in (0, 2):
            self._fault("odd", f"down: {done.stderr[-300:]}")
        elif self.other is None:
            self._nothing_left()

    @rule()
    def upgrade(self) -> None:
        self.steps.append("upgrade")
        cli(self.home.folder, "down", "--quiet")
        self._up("--upgrade")

    @rule()
    def restore(self) -> None:
        """Nothing happened since the backup, so nothing may be missing after it is brought back."""
        copy = self.folder / "copy"
        if copy.exists() or cli(self.home.folder, "store", "--help").returncode != 0:
            return
        self.steps.append("backup and restore")
        cli(self.home.folder, "down", "--quiet")
        for words in (("backup", str(copy)), ("restore", str(copy), "--force")):
            done = cli(self.home.folder, "store", *words)
            if done.returncode != 0:
                self._fault("odd", f"store {words[0]}: {(done.stderr or done.stdout)[-300:]}")
        self._up()

    @rule()
    def second_host(self) -> None:
        if self.other is not None or not self._running():
            return
        self.steps.append("second host")
        with (self.folder / "other.log").open("ab") as log:
            self.other = subprocess.Popen(
                [*WATTFLOW, "agent", "--server", self.home.url(), "--name", "other", "--cpus", "2", "--token-file",
                 str(self.home.token_file("agent")), "--folder", str(self.home.folder / "other")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env(),
            )  # fmt: skip

    # ---- what machines do

    @rule(kind=st.sampled_from(KINDS), which=st.integers(0, 9))
    def kill_one(self, kind: str, which: int) -> None:
        if (pid := self._one(kind, which)) is not None:
            self.steps.append(f"kill {kind}")
            kill(pid)

    @rule(kind=st.sampled_from(("server", "agent")), seconds=st.sampled_from([0.3, 4.0]))
    def pause(self, kind: str, seconds: float) -> None:
        if (pid := self._one(kind, 0)) is not None:
            self.steps.append(f"pause {kind} {seconds}")
            kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            kill(pid, signal.SIGCONT)

    @rule()
    def fill_disk(self) -> None:
        if not self.small_disk:
            return
        self.steps.append("full disk")
        filler = self.home.folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * (1 << 20))
        time.sleep(1.0)
        filler.unlink(missing_ok=True)

    # ---- what must hold

    def teardown(self) -> None:
        kept = False
        try:
            self.place.served += 1
            kept = self._judge() and self.place.served < SERVED and len(self.found) == self.known
        finally:
            type(self).sequences += 1
            if kept:
                type(self).left = self.place
            else:
                self.place.remove()

    def _judge(self) -> bool:
        """Judge what became of the tasks; says whether there is a place at all."""
        if self.client is None:
            return False
        self._up()
        if self.other is not None and self.other.poll() is not None:
            self.other = None
        end_s = time.monotonic() + STUCK_S
        for number, (expected, future, cancelled) in enumerate(self.tasks):
            self._check(number, expected, future, cancelled, end_s)
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.home.store)) as store:
            for _ in store.execute(TWICE).fetchall():
                self._fault("doubled", "a task has two attempts that ended well")
        if self.other is not None:
            self.other.terminate()
            self.other.wait(30)
        if self.place.served >= SERVED:
            self.client.shutdown(wait=False)
            cli(self.home.folder, "down", "--quiet")
            self._nothing_left()
        return True

    def _nothing_left(self) -> None:
        end_s = time.monotonic() + 15
        while (left := processes(self.home.folder)) and time.monotonic() < end_s:
            time.sleep(0.1)
        if left:
            self._fault("left behind", str(sorted(left.values())))

    def _check(self, number: int, expected: int, future: Any, cancelled: bool, end_s: float) -> None:
        try:
            if (got := future.result(max(0.1, end_s - time.monotonic()))) != expected:
                self._fault("wrong", f"task {number} returned {got!r}, not {expected}")
        except CancelledError:
            if not cancelled and not self._parent_cancelled():
                self._fault("lost", f"task {number} was cancelled by nobody")
        except TimeoutError:
            self._fault("stuck", f"task {number}: {self._why(future)}")
        except WattflowError as error:
            if not ("waits for" in str(error) or self._parent_cancelled()):
                self._fault("lost", f"task {number}: {type(error).__name__}: {error}")

    def _parent_cancelled(self) -> bool:
        return any(cancelled for _, _, cancelled in self.tasks)

    def _why(self, future: Any) -> str:
        said = cli(self.home.folder, "why", f"{self.client.workflow}/{future.key}", timeout_s=60)
        return (said.stdout or said.stderr).strip()[:300]

    def _fault(self, kind: str, what: str) -> None:
        logs = [self.home.folder / "server.log", self.home.folder / "agent.log"]
        tails = [path.read_text(errors="replace")[-400:] for path in logs if path.exists()]
        type(self).found.append(f"{kind}: {what}; steps: {' / '.join(self.steps)}; logs: {tails}")

    # ---- parts

    def _up(self, *more: str) -> None:
        if self._running():
            return
        for _ in range(2):  # whoever was killed may hold the port for a moment
            done = cli(self.home.folder, "up", "--port", self.port, "--quiet", "--cpus", "2", *more)
            if done.returncode == 0:
                return
            time.sleep(1.0)
        self._fault("odd", f"up: {done.stderr[-300:]}")

    def _running(self) -> bool:
        return self.home.server() is not None

    def _one(self, kind: str, which: int) -> int | None:
        every = processes(self.home.folder)
        roots = {pid for pid, found in every.items() if found == "agent"}
        chosen = {
            "task": [p for p, found in every.items() if found == "zygote" and parent_of(p) not in roots],
            "zygote": [p for p, found in every.items() if found == "zygote" and parent_of(p) in roots],
        }.get(kind, [p for p, found in every.items() if found == kind])
        return sorted(chosen)[which % len(chosen)] if chosen else None

    def _env(self) -> dict[str, str]:
        return os.environ | {"WATTFLOW_HOME": str(self.home.folder)}


def portion(first_seed: int, count: int, longest_s: float = 600.0) -> Portion:
    """So many sequences, or as many as fit the time; each few have a seed of their own."""
    House.found, House.sequences = [], 0
    began_s, number = time.monotonic(), first_seed
    while House.sequences < count and time.monotonic() - began_s < longest_s:
        few = settings(max_examples=min(2, count), stateful_step_count=STEPS, deadline=None, database=None,
                       phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
        kinds = len(House.found)
        run_state_machine_as_test(seed(number)(House), settings=few)  # type: ignore[no-untyped-call]
        House.found[kinds:] = [f"seed {number}: {fault}" for fault in House.found[kinds:]]
        number += 1
    if House.left is not None:
        House.left.remove()
        House.left = None
    names = ("lost", "doubled", "wrong", "stuck", "left behind", "odd")
    counts = {name: sum(f": {name}: " in fault for fault in House.found) for name in names}
    return Portion(part="stateful", seed=first_seed, took_s=time.monotonic() - began_s,
                   counts={"sequences": House.sequences, **counts}, failures=list(House.found))  # fmt: skip
