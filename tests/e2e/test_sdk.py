"""The first ten minutes of the SDK: the promises of `concurrent.futures`, scripts, and what goes wrong at first."""

from __future__ import annotations

import concurrent.futures as cf
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wattflow
from wattflow.runtime.client import TaskFailed
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.payload import RemoteTraceback

from .test_runtime import cli

pytestmark = pytest.mark.xdist_group("runtime")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sdk")
    started = cli(folder, "up", "--port", "0", "--cpus", "2")
    assert started.returncode == 0, started.stderr
    yield folder
    assert cli(folder, "down").returncode == 0


@pytest.fixture
def client(home: Path) -> Iterator[wattflow.Client]:
    place = Home.of(home)
    with wattflow.Client(place.url(), place.token("user")) as made:
        yield made


@pytest.fixture
def released(client: wattflow.Client, tmp_path: Path) -> Iterator[Path]:
    """A file that tasks wait for; there at the test's end at the latest, or closing the client would wait for ever."""
    path = tmp_path / "released"
    yield path
    path.touch()


def script(home: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """A user's script, run by Python itself."""
    (folder / "main.py").write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, timeout=120,
                          check=False, env=os.environ | {"WATTFLOW_HOME": str(home)})  # fmt: skip


def power(base: int, exponent: int) -> int:
    return base**exponent


def until_released(path: str) -> str:
    """Run for as long as a test needs it to, however slow the machine is."""
    while not Path(path).exists():
        time.sleep(0.02)
    return "released"


class Counter:
    """A callable with a state."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        return self.count


class Odd(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.both = (first, second)


def raise_odd() -> None:
    raise Odd(1, 2)  # this very line


def die() -> None:
    os._exit(3)


def test_arguments_by_place_and_by_name_and_maps_in_chunks(client: wattflow.Client) -> None:
    assert client.submit(power, 2, exponent=8).result(60) == 256
    expected = list(map(power, range(7), range(7)))
    for chunksize in (1, 3, 7, 50):
        assert list(client.map(power, range(7), range(7), chunksize=chunksize, timeout=60)) == expected
    with pytest.raises(ValueError, match="chunksize"):
        client.map(power, [1], [1], chunksize=0)


def test_the_error_of_one_item_comes_in_its_turn(client: wattflow.Client) -> None:
    results = client.map(divmod, [1, 1, 1], [2, 0, 3])
    assert next(results) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_no_callable_and_no_result_is_kept(client: wattflow.Client) -> None:
    held = Counter()
    gone = weakref.ref(held)
    client.submit(held).result(60)
    del held
    gc.collect()
    assert gone() is None
    first = client.submit(Counter)
    result = weakref.ref(first.result(60))
    del first
    gc.collect()
    assert result() is None


def test_a_callable_that_changed_is_sent_as_it_is_now(client: wattflow.Client) -> None:
    counter = Counter()
    assert client.submit(counter).result(60) == 0
    counter.count = 5
    assert client.submit(counter).result(60) == 5


def test_waiting_for_the_first_the_first_error_and_all(client: wattflow.Client, released: Path) -> None:
    quick, slow = client.submit(power, 2, 2), client.submit(until_released, str(released))
    done, left = cf.wait([quick, slow], return_when=cf.FIRST_COMPLETED, timeout=60)
    assert (done, left) == ({quick}, {slow})
    bad = client.submit(divmod, 1, 0)
    done, _ = cf.wait([bad, slow], return_when=cf.FIRST_EXCEPTION, timeout=60)
    assert bad in done
    released.touch()
    assert set(cf.as_completed([slow, slow, quick, bad], timeout=60)) == {slow, quick, bad}
    with pytest.raises(TimeoutError):
        client.submit(time.sleep, 1).result(0.01)


def test_running_is_what_has_a_node(client: wattflow.Client, released: Path) -> None:
    futures = [client.submit(until_released, str(released)) for _ in range(4)]
    end_s = time.monotonic() + 60
    while sum(future.running() for future in futures) != 2:
        assert time.monotonic() < end_s
    assert not futures[-1].running()
    released.touch()
    cf.wait(futures, 60)
    assert not any(future.running() for future in futures)


def test_closing_gives_up_what_waits_and_lets_finish_what_runs(home: Path) -> None:
    place = Home.of(home)
    client = wattflow.Client(place.url(), place.token("user"))
    futures = [client.submit(time.sleep, 1.0) for _ in range(30)]
    end_s = time.monotonic() + 60
    while not any(future.running() for future in futures):
        assert time.monotonic() < end_s
    client.shutdown(cancel_futures=True)
    ended = [future for future in futures if not future.cancelled()]
    assert len(ended) < 20 and ended
    assert all(future.done() and future.exception() is None for future in ended)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        client.submit(power, 1, 1)
    client.shutdown()  # twice is once


def test_an_exception_arrives_with_its_arguments_and_its_traceback(client: wattflow.Client) -> None:
    error = client.submit(raise_odd).exception(60)
    assert isinstance(error, Odd) and error.both == (1, 2) and str(error) == "1 and 2"
    assert isinstance(error.__cause__, RemoteTraceback) and "this very line" in str(error.__cause__)
    lost = client.submit(die).exception(60)
    assert isinstance(lost, TaskFailed) and "ended with 3" in str(lost)


def test_what_cannot_be_sent_is_told_at_submit_and_hurts_nobody(client: wattflow.Client) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError):
        client.submit(power, lock)
    with pytest.raises(TypeError):
        client.submit(lambda: lock)
    with pytest.raises(wattflow.InvalidInput, match="cpus"):
        client.submit(wattflow.task(cpus=-1)(power), 1, 1)
    with pytest.raises(wattflow.InvalidInput):
        client.run(["echo", "\udcff"])
    odd = client.submit(wattflow.task(cpus=1)(eval("lambda: 1")))
    assert odd.result(60) == 1  # and `with` ends: nothing is waited for that was never sent


def test_one_task_that_the_server_refuses_fails_alone(client: wattflow.Client) -> None:
    before = [client.submit(power, 2, n) for n in range(3)]
    bad = client.submit(wattflow.task(gpu=1.5)(power), 1, 1)
    after = [client.submit(power, 3, n) for n in range(3)]
    child = client.submit(power, bad, 1)
    assert [future.result(60) for future in before + after] == [1, 2, 4, 1, 3, 9]
    with pytest.raises(wattflow.WattflowError, match="whole GPUs"):
        bad.result(60)
    with pytest.raises(wattflow.WattflowError, match="not in the workflow"):
        child.result(60)


@pytest.mark.parametrize(
    ("needs", "said"), [({"cpus": 99}, "99 CPUs"), ({"gpu": 1}, "GPU"), ({"memory": "900 TiB"}, "memory")]
)
def test_needs_that_no_node_can_meet_are_told_at_once(
    client: wattflow.Client, needs: dict[str, Any], said: str
) -> None:
    assert client.submit(power, 1, 1).result(60) == 1  # the node is here
    with pytest.raises(wattflow.WattflowError, match=said):
        client.submit(wattflow.task(**needs)(power), 1, 1).result(20)


def test_a_script_that_ends_without_closing_loses_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "def shout(text):\n    return loud(text)\ndef loud(text):\n    return text.upper()\n"
    )
    done = script(home, tmp_path, """
        import time, wattflow, beside
        client = wattflow.Client()
        def later(text):
            time.sleep(0.5)
            return beside.shout(text)
        client.submit(later, "apple").add_done_callback(lambda future: print(future.result(), flush=True))
    """)  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("APPLE\n", "", 0)
    (tmp_path / "main.py").write_text(
        "import sys, wattflow, beside\nwith wattflow.Client() as client:\n"
        "    print(client.submit(beside.shout, 'pear').result(), len(sys.argv))\n"
    )
    ran = cli(home, "run", str(tmp_path / "main.py"))
    assert ran.stdout == "PEAR 1\n", ran.stderr


@pytest.mark.parametrize(("line", "told"), [
    ("raise BrokenPipeError(32, 'mine')", "BrokenPipeError: [Errno 32] mine"),
    ("open('nowhere')", "FileNotFoundError: [Errno 2] No such file or directory: 'nowhere'"),
    ("wattflow.Client().submit(time.sleep, 2).result(timeout=0.1)", "TimeoutError"),
    ("wattflow.Client().submit(lambda: open('far')).result()", "RemoteTraceback"),
])  # fmt: skip
def test_what_a_script_does_not_catch_is_told_as_python_tells_it(
    home: Path, tmp_path: Path, line: str, told: str
) -> None:
    (tmp_path / "main.py").write_text(f"import time\n\nimport wattflow\n\n{line}\n")
    ran = cli(home, "run", str(tmp_path / "main.py"))
    assert ran.returncode == 1 and "Traceback (most recent call last)" in ran.stderr and told in ran.stderr, ran.stderr
    assert "main.py" in ran.stderr


def test_a_script_is_given_the_server_that_run_was_told(home: Path, tmp_path: Path) -> None:
    place, elsewhere = Home.of(home), tmp_path / "elsewhere"
    (tmp_path / "main.py").write_text(
        "import os, wattflow\nos.chdir('/')\n"
        "with wattflow.Client() as client:\n    print(client.submit(abs, -3).result())\n"
    )
    token = os.path.relpath(place.token_file("user"))
    ran = cli(elsewhere, "run", str(tmp_path / "main.py"), "--server", place.url(), "--token-file", token)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("3\n", "", 0)
    assert not elsewhere.exists()


def test_submitting_after_the_interpreter_ended(home: Path, tmp_path: Path) -> None:
    done = script(home, tmp_path, """
        import atexit
        @atexit.register
        def last():
            try:
                client.submit(id, None)
            except RuntimeError as error:
                print(error)
        import wattflow
        client = wattflow.Client()
        assert client.submit(abs, -42).result() == 42
    """)  # fmt: skip
    assert done.stdout == "cannot schedule new futures after interpreter shutdown\n", done.stderr


def test_ps_shows_joules(client: wattflow.Client, home: Path) -> None:
    def burn() -> None:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass

    energy = client.submit(burn).energy(60)
    assert energy.joules > 0
    import json

    listed = json.loads(cli(home, "ps", "-o", "json").stdout)["rows"]
    mine = next(row for row in listed if row["id"] == client.workflow)
    assert mine["energy_j"] == pytest.approx(energy.joules, rel=0.2)
    rows = json.loads(cli(home, "ps", client.workflow, "-o", "json").stdout)["rows"]
    assert rows[0]["energy_j"] == pytest.approx(energy.joules, rel=0.2)
    assert "energy" in cli(home, "ps").stdout


def test_a_graph_of_dask_runs_here(client: wattflow.Client) -> None:
    dask = pytest.importorskip("dask")
    delayed = dask.delayed
    with dask.config.set(scheduler=client):
        parts = [delayed(power)(n, 2) for n in range(5)]
        assert delayed(sum)(parts).compute() == 30
        assert dask.compute(parts[1], [parts[2], 7]) == (1, [4, 7])
        with pytest.raises(ZeroDivisionError):
            delayed(divmod)(1, 0).compute()


def test_batches_of_joblib_run_here(client: wattflow.Client) -> None:
    joblib = pytest.importorskip("joblib")
    from wattflow.runtime import joblib_backend

    joblib_backend.register()
    with joblib.parallel_config("wattflow", client=client, n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(power)(n, 2) for n in range(8)) == [n * n for n in range(8)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in range(2))
    assert client.submit(power, 2, 3).result(60) == 8  # the client given stays open


def test_two_clients_with_unlike_objectives_are_served_at_the_same_time(home: Path, tmp_path: Path) -> None:
    place, released = Home.of(home), tmp_path / "released"
    with wattflow.Client(place.url(), place.token("user"), objective="energy") as first:
        open_task = first.submit(until_released, str(released))
        try:
            with wattflow.Client(place.url(), place.token("user"), objective="makespan") as second:
                assert list(second.map(abs, [-1, -2, -3], timeout=120)) == [1, 2, 3]
                assert not open_task.done()
            policy = Connection(place.url(), place.token("user")).call("GET", "/v1/status")["policy"]
            assert policy == "weighted"
        finally:
            released.touch()
        assert open_task.result(120) == "released"
