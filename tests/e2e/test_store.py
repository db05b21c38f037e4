"""A server's store through the command line: backed up while it works, lost, put back, broken and mended."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wattflow
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home

large = eval("lambda n: bytes([n]) * 200_000")  # above what rides in messages: an object
later = eval("lambda data, s: (__import__('time').sleep(s), len(data))[1]")


def cli(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"WATTFLOW_HOME": str(home), "COLUMNS": "200"}
    command = [sys.executable, "-m", "wattflow.cli", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def good(home: Path, *args: str) -> str:
    done = cli(home, *args)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    good(folder, "up", "--port", "0", "-p", "fifo", "--cpus", "2")
    yield folder
    if Home.of(folder).server() is not None:
        good(folder, "down")


def client(home: Path) -> wattflow.Client:
    place = Home.of(home)
    return wattflow.Client(place.url(), place.token("user"))


def states(home: Path) -> dict[str, str]:
    place = Home.of(home)
    rows = Connection(place.url(), place.token("operator")).call("GET", "/v1/workflows")
    return {row["name"]: row["state"] for row in rows}


def test_backup_while_it_works_loss_restore_check_and_mend(home: Path, tmp_path: Path) -> None:
    place, backup = Home.of(home), tmp_path / "backup"
    with client(home) as first:
        data = first.submit(large, 7)
        ends = [first.submit(later, data, 0.05) for _ in range(20)]
        assert ends[0].result(60) == 200_000
        said = good(home, "store", "backup", str(backup))  # work goes on meanwhile
        assert "objects are in" in said
        assert {end.result(60) for end in ends} == {200_000}
    with client(home) as second:
        assert second.submit(later, b"x", 0.0).result(60) == 1
    good(home, "store", "check")
    good(home, "down")

    for path in home.glob("store.db*"):
        path.unlink()
    gone = cli(home, "up", "--port", "0")
    assert gone.returncode == 2 and "is gone or was emptied" in gone.stderr and "store restore" in gone.stderr
    assert not place.store.exists()

    assert "rows and" in good(home, "store", "restore", str(backup))
    good(home, "up", "--port", "0", "-p", "fifo")
    assert len(states(home)) == 1  # what came after the backup is not in it; what was open goes on and ends
    refused = cli(home, "store", "restore", str(backup), "--replace")
    assert refused.returncode == 2 and "another server" in refused.stderr
    with client(home) as third:
        assert third.submit(large, 9).result(60) == bytes([9]) * 200_000
    good(home, "down")
    _break_and_mend(home, place)


def _break_and_mend(home: Path, place: Home) -> None:
    with sqlite3.connect(place.store) as store:
        store.execute("DELETE FROM journal WHERE sequence = 4")
    store.close()
    broken = cli(home, "up", "--port", "0")
    assert broken.returncode == 2 and "entry 4 is missing" in broken.stderr, broken.stderr
    checked = cli(home, "store", "check")
    assert checked.returncode == 1 and "entry 4 is missing" in checked.stdout
    assert "open tasks are in the new journal" in good(home, "store", "check", "--mend", "-p", "fifo")
    good(home, "up", "--port", "0", "-p", "fifo")
    with client(home) as last:
        assert last.submit(later, b"xy", 0.0).result(60) == 2


def test_a_damaged_result_is_made_again_by_the_task_that_made_it(home: Path) -> None:
    objects = Home.of(home).objects
    with client(home) as made:
        data = made.submit(large, 3)
        assert data.result(60)[:1] == b"\x03"
        (path,) = [one for one in objects.glob("??/*") if one.stat().st_size >= 200_000]
        path.write_bytes(b"damage")
        assert made.submit(later, data, 0.0).result(60) == 200_000
    assert path.stat().st_size >= 200_000


def test_a_folder_of_objects_that_is_gone_is_named(home: Path) -> None:
    good(home, "down")
    place = Home.of(home)
    place.objects.rename(home / "elsewhere")
    gone = cli(home, "up", "--port", "0")
    assert gone.returncode == 2 and "objects is gone" in gone.stderr
    (home / "elsewhere").rename(place.objects)
    good(home, "up", "--port", "0")
