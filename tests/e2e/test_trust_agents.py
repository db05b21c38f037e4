"""What people and machines do to a running server and its agents; each was once the end of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kuberig.processes import free_row

import wattflow
from wattflow.runtime import processes
from wattflow.runtime.home import Home
from wattflow.runtime.processes import lock_file

from .test_runtime import cli

pytestmark = pytest.mark.xdist_group("runtime")
slowly = eval("lambda s, x: (__import__('time').sleep(s), x)[1]")  # of no module: travels by value
surrogate = eval("lambda: open('/no/such/caf\\udce9')")
nul = eval("lambda: int('a\\0b')")


class Place:
    """A server on a port of its own, that can be started there again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, Home.of(folder)
        self.port = str(free_row(1))

    def up(self, *more: str) -> None:
        started = cli(self.folder, "up", "--port", self.port, *more)
        assert started.returncode == 0, started.stderr

    def client(self) -> wattflow.Client:
        return wattflow.Client(self.home.url(), self.home.token("user"))

    @property
    def server(self) -> int:
        about = self.home.server()
        assert about is not None
        return int(str(about["pid"]))

    @property
    def agent(self) -> int:
        until(lambda: processes.marked(lock_file(self.folder / "agent")) is not None)
        return int(json.loads(lock_file(self.folder / "agent").read_text())["pid"])

    def lost(self) -> int:
        return (self.folder / "server.log").read_text().count(" is lost: ")

    def left(self) -> list[str]:
        """Commands of processes that name this folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in command and str(os.getpid()) != path.parent.name and "pytest" not in command:
                found.append(command)
        return found


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.05)


def numbers(futures: list[Any]) -> list[list[int]]:
    return [[attempt["number"] for attempt in future.attempts()] for future in futures]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("trust"))
    made.up()
    yield made
    ended = cli(made.folder, "down")
    assert ended.returncode == 0, ended.stderr
    until(lambda: made.left() == [])


def test_poison_fails_alone(place: Place) -> None:
    agent = place.agent
    with place.client() as client:
        bad = [client.submit(poison) for poison in (surrogate, nul)]
        wide = client.submit(wattflow.task(cpus=64)(slowly), 0, 1)
        assert client.submit(slowly, 0, 1).result(60) == 1
        with pytest.raises(OSError, match="caf"):
            bad[0].result(60)
        with pytest.raises(ValueError, match="int"):
            bad[1].result(60)
        wide.cancel()
    assert place.agent == agent and place.lost() == 0


def test_heft_and_a_task_that_no_node_can_take(place: Place) -> None:
    server = place.server
    with wattflow.Client(place.home.url(), place.home.token("user"), objective="makespan") as client:
        wide = client.submit(wattflow.task(cpus=64)(slowly), 0, 1)
        assert client.submit(slowly, 0, 2).result(60) == 2
        wide.cancel()
    assert place.server == server


def test_a_server_that_was_paused_loses_nobody(place: Place) -> None:
    before = place.lost()
    with place.client() as client:
        futures = [client.submit(slowly, 6, n) for n in range(2)]
        until(lambda: all(future.attempts() for future in futures))
        os.kill(place.server, signal.SIGSTOP)
        time.sleep(5)
        os.kill(place.server, signal.SIGCONT)
        assert [future.result(60) for future in futures] == [0, 1]
        assert numbers(futures) == [[1], [1]] and place.lost() == before


def test_an_agent_that_was_cut_off_goes_on_with_what_it_runs(place: Place, tmp_path: Path) -> None:
    before = place.lost()
    once = eval("lambda path: (open(path, 'a').write('x'), __import__('time').sleep(7), 5)[2]")
    with place.client() as client:
        future = client.submit(once, str(tmp_path / "begun"))
        until(lambda: (tmp_path / "begun").exists())
        agent = place.agent
        os.kill(agent, signal.SIGSTOP)
        until(lambda: place.lost() == before + 1)
        os.kill(agent, signal.SIGCONT)
        assert future.result(60) == 5 and (tmp_path / "begun").read_text() == "x"
        assert [attempt["outcome"] for attempt in future.attempts()] == ["node_lost", "done"]


def test_up_after_a_killed_server_goes_on_with_the_agent_that_is_there(place: Place) -> None:
    agent = place.agent
    with place.client() as client:
        futures = [client.submit(slowly, 6, n) for n in range(2)]
        until(lambda: all(future.attempts() for future in futures))
        os.kill(place.server, signal.SIGKILL)
        place.up()
        assert [future.result(60) for future in futures] == [0, 1]
        assert numbers(futures) == [[1], [1]] and place.agent == agent


def test_an_agent_that_is_killed_with_its_zygote_leaves_nothing_and_comes_back(place: Place, tmp_path: Path) -> None:
    script = f"echo $$ >> {tmp_path}/pids; (setsid sleep 300 & echo $! >> {tmp_path}/pids); sleep 300"
    with place.client() as client:
        future = client.submit(eval("__import__('subprocess').run"), ["sh", "-c", script])
        until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        agent = place.agent
        zygotes = [int(pid) for pid in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]
        os.kill(agent, signal.SIGSTOP)
        for pid in (*zygotes, agent):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(processes.started(pid) for pid in pids))
        until(lambda: place.agent != agent)
        future.cancel()
        assert client.submit(slowly, 0, 3).result(60) == 3


def test_a_second_agent_in_the_same_folder_or_of_the_same_name_says_so(place: Place, tmp_path: Path) -> None:
    args = ("agent", "--server", place.home.url(), "--token-file", str(place.home.token_file("agent")), "--folder")
    same = cli(place.folder, *args, str(place.folder / "agent"))
    assert same.returncode == 2 and "an agent works here already" in same.stderr
    before = place.lost()
    other = cli(place.folder, *args, str(tmp_path))
    assert other.returncode == 2 and "give this one another --name" in other.stderr
    assert place.lost() == before and len(other.stderr.splitlines()) <= 3


def test_a_stale_server_file_is_nobody(tmp_path: Path) -> None:
    """The number that a killed server had is a stranger's now."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        about = {"pid": stranger.pid, "started": "another boot:1", "url": "http://127.0.0.1:1"}
        for name in ("server.json", "agent.pid", "learner.pid"):
            (tmp_path / name).write_text(json.dumps(about))
        ended = cli(tmp_path, "down")
        assert ended.returncode == 2 and "no server is running here" in ended.stderr
        assert stranger.poll() is None
        stranger.kill()


def test_down_ends_a_server_that_hangs_and_an_agent_without_keeper(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.up()
    os.kill(json.loads((tmp_path / "agent.pid").read_text())["pid"], signal.SIGKILL)
    assert place.agent
    os.kill(place.server, signal.SIGSTOP)
    ended = cli(tmp_path, "down")
    assert ended.returncode == 0, ended.stderr
    until(lambda: place.left() == [], 5)
