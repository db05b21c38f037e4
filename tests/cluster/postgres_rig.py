"""A PostgreSQL server of the tests' own, in a folder of its own, on loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa


def _program(name: str) -> str | None:
    found = [shutil.which(name), *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    return next((path for path in found if path), None)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of our own in a folder of its own, on loopback."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("needs PostgreSQL's initdb and postgres (`make cluster-tools`)")
    folder = Path(tempfile.mkdtemp(prefix="wattflow-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL does not run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    env = {**os.environ, "LC_ALL": "C"}
    make = [initdb, "-D", str(data), "-U", "wattflow", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*as_user, *make], check=True, env=env, capture_output=True)
    command = [*as_user, postgres, "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", str(folder)]
    with (Path(tempfile.gettempdir()) / f"{folder.name}.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    while True:
        assert process.poll() is None, "postgres ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"postgresql://wattflow@127.0.0.1:{port}/postgres"
    process.send_signal(signal.SIGINT)
    process.wait(30)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty(url: str) -> str:
    """A database of its own on the same server."""
    name = f"w{uuid.uuid4().hex}"
    server = sa.create_engine(_driver(url), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    server.dispose()
    return url.rsplit("/", 1)[0] + f"/{name}"


def _driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")
