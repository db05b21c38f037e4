"""A real S3 server (versitygw, which checks every signature): objects come and go, and a whole server runs on it."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from kuberig import parts
from kuberig.processes import free_ports
from under_test import unavailable

from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.store.s3 import open_objects


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over a folder with one bucket, `bucket`; its keys are in the environment."""
    if parts.missing(("versitygw",)):
        unavailable("the rig lacks versitygw (`make kube-rig`)")
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("s3")
    (folder / "bucket").mkdir()
    keys = {"AWS_ACCESS_KEY_ID": "us", "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16)}
    environment = os.environ | {"ROOT_ACCESS_KEY": "us", "ROOT_SECRET_KEY": keys["AWS_SECRET_ACCESS_KEY"]}
    words = [parts.program("versitygw"), "--port", f"127.0.0.1:{port}", "posix", "--nometa", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    before = {name: os.environ.get(name) for name in keys}
    os.environ.update(keys)
    try:
        _await(f"http://127.0.0.1:{port}/", process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < ends:
        try:
            urlopen(url, timeout=2)
        except HTTPError:
            return  # it answers; without keys it refuses
        except URLError:
            time.sleep(0.05)
    raise RuntimeError(f"the S3 server does not answer: {log.read_text()[-2000:]}")


def test_objects_come_and_go(endpoint: str) -> None:
    store = open_objects(f"s3://bucket/deep/down?endpoint={endpoint}")
    large = os.urandom(3 << 20)
    names = [store.put(data) for data in (b"", b"small", large, b"small")]
    assert names[1] == names[3] and [store.get(name) for name in names] == [b"", b"small", large, b"small"]
    assert store.has(names[0]) and not store.has("0" * 64)
    with pytest.raises(KeyError):
        store.get("0" * 64)
    other = open_objects(f"s3://bucket/elsewhere?endpoint={endpoint}")
    assert not other.has(names[0])


def test_many_threads_share_it(endpoint: str) -> None:
    store = open_objects(f"s3://bucket?endpoint={endpoint}")
    data = [os.urandom(1000 + i) for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(store.put, data))
        assert list(pool.map(store.get, names)) == data


def test_wrong_keys_and_a_missing_bucket_are_told(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="no such bucket"):
        open_objects(f"s3://nowhere?endpoint={endpoint}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises((InvalidInput, WattflowError), match="may not use it") as told:
        open_objects(f"s3://bucket?endpoint={endpoint}")
    assert "wrong" not in str(told.value)
