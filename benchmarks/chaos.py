"""Faults at random against a running server, and what must hold all the same (`make chaos`).

A server, three agents (one behind a virtual link in a network namespace) and a client that submits small tasks all
the time. Faults
are drawn from a seed: the server, an agent, a zygote or a task's own process is killed; an agent is stopped and goes
on later (an orphan
that finishes); the link is cut; the disk is full for a while; the wall clock of the server jumps. Then: every task
ended well (none
lost), no task has two committed attempts (none twice), a dead agent was noticed within 3 s and a heartbeat, and
whatever waited
had a reason.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from chaos_rig import LOST_S, Rig
from chaos_tally import Portion, recorded, sources, summed
from chaos_watch import Watch, detections

from wattflow.model.errors import WattflowError
from wattflow.runtime.connection import Connection
from wattflow.runtime.transport import Denied, Unreachable

HEARTBEAT_S = 1.0
READY_FIRST = 0.8
"""Share of faults that wait for a server that is up: one that is killed at every start does no work to lose."""


def work(key: int, seconds: float) -> int:
    import time as clock

    clock.sleep(seconds)
    return key


class Load(threading.Thread):
    """Submits tasks until told to stop, a few at a time, some of them children of others."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(daemon=True)
        self._rig = rig
        self.stop_now = threading.Event()
        self.results: dict[int, int] = {}
        self.errors: list[str] = []
        self.submitted = 0

    def run(self) -> None:
        import cloudpickle

        import wattflow

        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        draws = random.Random(7)
        plain = wattflow.task(cpus=0.5, retries=1000)(work)
        reused = wattflow.task(cpus=0.5, retries=1000, isolate=False)(work)
        client = wattflow.Client(self._rig.url, self._rig.home.token("user"), name="chaos")
        futures = []
        while not self.stop_now.is_set():
            waiting = [future for _, future in futures if not future.done()]
            for _ in range(max(0, 24 - len(waiting))):
                function = plain if draws.random() < 0.7 else reused
                key: object = self.submitted
                if draws.random() < 0.2 and futures:
                    key = futures[-1][1]
                    expected = futures[-1][0]
                else:
                    expected = self.submitted
                futures.append((expected, client.submit(function, key, draws.uniform(0, 0.4))))
                self.submitted += 1
            self.stop_now.wait(0.05)
        for number, (expected, future) in enumerate(futures):
            try:
                self.results[number] = future.result(180)
                if self.results[number] != expected:
                    self.errors.append(f"task {number} returned {self.results[number]}, not {expected}")
            except Exception as error:
                self.errors.append(f"task {number}: {type(error).__name__}: {error}")
        client.shutdown()


def without_reason(rig: Rig) -> int:
    """Waiting tasks whose `why` says nothing."""
    try:
        connection = Connection(rig.url, rig.home.token("user"), timeout_s=5)
        silent = 0
        for workflow in connection.call("GET", "/v1/workflows"):
            for task in connection.call("GET", f"/v1/workflows/{workflow['id']}/tasks?most=10000"):
                if task["state"] == "waiting":
                    silent += not connection.call("GET", f"/v1/tasks/{task['id']}/why")["why"]
        return silent
    except (Unreachable, Denied):
        return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest-s", type=float, default=1200.0, help="no fault is begun after this long")
    parser.add_argument("--record", type=Path, help="a file in which portions are added up")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the end of a block still tidies up
    folder = Path(tempfile.mkdtemp(prefix="wattflow-chaos-"))
    mounted = _small_disk(folder / "home")
    rig = Rig(folder, options.seed, mounted)
    try:
        return tell(attack(rig, options), options.record)
    finally:
        rig.stop()
        if mounted:
            subprocess.run(["umount", str(folder / "home")], check=False)
        if not os.environ.get("CHAOS_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def attack(rig: Rig, options: argparse.Namespace) -> Portion:
    began_s = time.monotonic()
    rig.start()
    _until_it_answers(rig)
    watch = Watch(rig.folder / "server.log")
    watch.start()
    load = Load(rig)
    load.start()
    silent, told = 0, 0
    while rig.kills < options.kills and time.monotonic() - began_s < options.longest_s:
        time.sleep(rig.random.uniform(0.1, 0.6))
        rig.supervise()
        if rig.random.random() < READY_FIRST:
            wait_until_ready(rig, watch)
        rig.fault()
        if rig.kills % 10 == 0 and rig.kills != told:
            told = rig.kills
            silent += without_reason(rig)
            print(f"# {rig.kills} kills, {load.submitted} tasks submitted", flush=True)
    load.stop_now.set()
    while load.is_alive():
        rig.supervise()
        load.join(0.2)
    watch.stop()
    return judged(rig, load, watch, silent, options.seed, time.monotonic() - began_s)


def wait_until_ready(rig: Rig, watch: Watch, longest_s: float = 120.0) -> None:
    """Until the latest start of the server has said that it serves."""
    end_s = time.monotonic() + longest_s
    while max(watch.ready_s, default=0.0) < rig.server_starts_s[-1] and time.monotonic() < end_s:
        rig.supervise()
        time.sleep(0.05)


def judged(rig: Rig, load: Load, watch: Watch, silent: int, seed: int, took_s: float) -> Portion:
    """What this attack found, by the client's results, the store and the server's log."""
    with contextlib.closing(sqlite3.connect(rig.home.store)) as store:
        twice = store.execute("select count(*) from (select task from attempts where outcome = 'done' group by task "
                              "having count(*) > 1)").fetchone()[0]  # fmt: skip
        stored = store.execute("select count(*) from tasks where state = 'done'").fetchone()[0]
    print(f"# ended by themselves and started again: {rig.ended_alone or 'none'}")
    print(f"# {load.submitted} tasks, {stored} done in the store")
    for error in load.errors[:10]:
        print(f"# {error}")
    found = detections(rig.killed, watch.losses, watch.joins, rig.server_starts_s, watch.ready_s)
    for loss in sorted(found, key=lambda loss: -loss.after_s)[:3]:
        print(f"# {loss}")
    return Portion(
        seed=seed, sources=sources(), kills=rig.kills, tasks=load.submitted, twice=twice, silent=silent,
        lost=load.submitted - len(load.results) + len(load.errors), losses=len(found), took_s=took_s,
        late_s=max((loss.after_s for loss in found if not loss.server_away), default=0.0),
        late_down_s=max((loss.after_s for loss in found if loss.server_away), default=0.0), faults=dict(rig.counts),
    )  # fmt: skip


def tell(portion: Portion, record: Path | None) -> int:
    """One line per figure, over all portions of the record; 1 where a rule did not hold."""
    portions = recorded(record, portion) if record is not None else [portion]
    every = summed(portions)
    print(f"# {len(portions)} portions, seeds {', '.join(str(one.seed) for one in portions)}; faults: {every.faults}")
    bad = 0
    for name, value, unit, goal, ok in (
        ("chaos_kills", every.kills, "kills", ">=300", every.kills >= 300),
        ("chaos_tasks", every.tasks, "tasks", "none", True),
        ("chaos_tasks_lost", every.lost, "tasks", "0", every.lost == 0),
        ("chaos_committed_twice", every.twice, "tasks", "0", every.twice == 0),
        ("chaos_loss_detected", every.late_s, "s", f"<={LOST_S + HEARTBEAT_S:g}", every.late_s <= LOST_S + HEARTBEAT_S),
        ("chaos_losses", every.losses, "losses", "none", True),
        ("chaos_loss_detected_server_down_meanwhile", every.late_down_s, "s", "none", True),
        ("chaos_waiting_without_reason", every.silent, "tasks", "0", every.silent == 0),
        ("chaos_took", every.took_s / 60, "min", "none", True),
    ):
        print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")
        bad += not ok and name != "chaos_kills"  # a short round is no failure, only no proof
    return 1 if bad else 0


def _until_it_answers(rig: Rig) -> None:
    end_s = time.monotonic() + 600  # the first start compiles
    while time.monotonic() < end_s:
        try:
            status = Connection(rig.url, rig.home.token("user")).call("GET", "/v1/status")
            if status["nodes"] == 3:
                return
        except (Unreachable, Denied, WattflowError):
            time.sleep(0.2)
    raise TimeoutError(f"the server does not answer; its log is in {rig.folder}")


def _small_disk(folder: Path) -> bool:
    """A disk of its own that can be full without harm to others."""
    folder.mkdir()
    if os.geteuid() != 0:
        return False
    return (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)], check=False).returncode == 0
    )


if __name__ == "__main__":
    sys.exit(main())
