"""A server that cannot start says why in one line."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from wattflow.cli import up
from wattflow.server import __main__ as server


def test_a_full_disk_at_the_start_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(settings: object, driver: object, listener: socket.socket, objects: object) -> None:
        listener.close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "server.json")

    monkeypatch.setattr(server, "_load_engine", lambda *_: None)
    monkeypatch.setattr("wattflow.server.serve.serve", full)
    assert server.main(["--home", str(tmp_path / "home")]) == 2
    told = capsys.readouterr().err
    assert "No space left on device" in told and "Traceback" not in told


def test_a_server_that_could_not_even_write_its_log_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up._why_silent(tmp_path) == "it said nothing"
    monkeypatch.setattr(up.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert "is full (0 bytes are free)" in up._why_silent(tmp_path)
