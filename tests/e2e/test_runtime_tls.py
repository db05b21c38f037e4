"""A server that speaks TLS: its own machine's clients and agents know its certificate, strangers do not pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wattflow
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Unreachable

pytestmark = [
    pytest.mark.xdist_group("runtime-tls"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl (`make tools`)"),
]


def cli(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wattflow.cli", *args]
    env = {**os.environ, "WATTFLOW_HOME": str(home)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def test_work_runs_over_tls_and_plain_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, key, certificate = tmp_path / "home", tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                    "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)  # fmt: skip
    started = cli(home, "up", "--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key))
    assert started.returncode == 0, started.stderr
    try:
        monkeypatch.setenv("WATTFLOW_HOME", str(home))
        url = Home.of().url()
        assert url.startswith("https://")
        with wattflow.Client(name="tls") as client:
            assert client.submit(sum, [1, 2, 3]).result(300) == 6
        assert "tls" in cli(home, "ps").stdout
        token = Home.of().token("user")
        for server in (url, url.replace("https", "http")):  # an unknown certificate, and none at all
            with pytest.raises(Unreachable):
                Connection(server, token, timeout_s=10).call("GET", "/v1/status")
    finally:
        ended = cli(home, "down")
    assert ended.returncode == 0, ended.stderr
