"""Objects in a real S3-compatible server (versitygw, which checks signatures) on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.store.database import StoreTrouble
from wattflow.store.objects import object_name
from wattflow.store.s3 import S3Objects

pytestmark = pytest.mark.xdist_group("runtime-s3")
SERVER = Path(os.environ.get("WATTFLOW_S3_SERVER", Path(__file__).parents[2] / "out" / "tools" / "versitygw"))
KEYS = {"AWS_ACCESS_KEY_ID": "wattflow", "AWS_SECRET_ACCESS_KEY": "only-for-this-test"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server's address and process; one bucket is a folder of its."""
    if not SERVER.exists():
        pytest.skip("needs an S3-compatible server (`make cluster-tools`, which needs Go)")
    folder = tmp_path_factory.mktemp("s3")
    (folder / "objects").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = os.environ | {"ROOT_ACCESS_KEY": "wattflow", "ROOT_SECRET_KEY": "only-for-this-test"}
    command = [str(SERVER), "--port", address, "posix", str(folder)]
    with (folder.parent / "s3.log").open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        _until_it_listens(address, process)
        yield address, process
    finally:
        process.kill()
        process.wait()


def _until_it_listens(address: str, process: subprocess.Popen[bytes]) -> None:
    host, port = address.split(":")
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"the S3 server does not listen (it ended with {process.poll()})")


def test_objects_come_back_as_they_went(server: tuple[str, subprocess.Popen[bytes]]) -> None:
    address, process = server
    url = f"s3://objects/some/place?endpoint=http://{address}"
    objects = S3Objects(url, KEYS)
    large = os.urandom(3 << 20)
    for data in (b"", b"small", large):
        name = objects.put(data)
        assert name == object_name(data) and objects.put(data) == name
        assert objects.has(name) and S3Objects(url, KEYS).get(name) == data
    absent = object_name(b"never put")
    assert not objects.has(absent)
    with pytest.raises(KeyError):
        objects.get(absent)
    with pytest.raises(InvalidInput, match="not the name"):
        objects.get("../other")
    with pytest.raises(InvalidInput, match="not taken"):
        S3Objects(url, KEYS | {"AWS_SECRET_ACCESS_KEY": "another"})
    with pytest.raises(InvalidInput, match="no such bucket"):
        S3Objects(f"s3://absent?endpoint=http://{address}", KEYS)
    process.kill()
    process.wait()
    with pytest.raises(StoreTrouble, match="does not answer"):
        objects.get(name)
