"""Names, folders and addresses that somebody else chose."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wattflow
from wattflow.model.errors import InvalidInput
from wattflow.runtime.addresses import check_listening, check_server, segment
from wattflow.runtime.home import Home
from wattflow.runtime.messages import Submission, folder_name, pack, workflow_id
from wattflow.server import known_store
from wattflow.server.serve import open_tokens
from wattflow.server.tokens import Tokens
from wattflow.store.schema import open_store


@given(st.text(min_size=1, max_size=200))
def test_a_folder_of_any_name_stays_where_it_belongs(name: str) -> None:
    made = folder_name(name)
    assert len(made.encode()) <= 255 and "/" not in made and "\0" not in made and made not in ("", ".", "..")
    assert made == folder_name(name)


@given(st.text(min_size=1, max_size=300))
def test_an_id_of_any_name_is_taken_and_survives_a_path(name: str) -> None:
    made = workflow_id(name)
    taken = msgspec.msgpack.decode(pack(Submission(workflow=made)), type=Submission).workflow
    assert taken == unquote(segment(made)) and segment(made).isascii()
    assert not set(segment(name)) & set(" /?#&=\n") and "%25" in segment("%")


def test_every_name_in_a_path_of_cli_or_sdk_is_quoted() -> None:
    package = Path(wattflow.__file__).parent
    plain = {"number", "attempt", "fence", "offset", "after", "last", "PAGE", "wait_s:g", "what", "blob.object"}
    files = [*(package / "cli").glob("*.py"), package / "runtime" / "client.py"]
    paths = [path for file in files for path in re.findall(r'f"(/v1/[^"]*)"', file.read_text(encoding="utf-8"))]
    assert len(paths) > 10
    for path in paths:
        held = {one for one in re.findall(r"{([^}]*)}", path) if not one.startswith(("segment(", "int(", "find_task("))}
        assert held <= plain, path


def test_dots_are_no_way_out(tmp_path: Path) -> None:
    for name in ("..", ".", "...", "é" * 200, "a\udce9"):
        path = (tmp_path / folder_name(name)).resolve()
        assert path.parent == tmp_path.resolve()
        path.mkdir()
    assert folder_name("montage 1") == "montage 1"


def test_a_home_is_its_owners_alone_also_one_that_was_not(tmp_path: Path) -> None:
    place = Home(tmp_path / "home")
    place.folder.mkdir(mode=0o755)
    for name in ("store.db", "operator.token", "server.log"):
        (place.folder / name).write_text("x")
        (place.folder / name).chmod(0o644)
    (place.folder / "objects").mkdir(mode=0o755)
    place.make()
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in place.folder.iterdir()} == {0}
    assert os.access(place.folder / "objects", os.X_OK)


def test_somebodys_own_folder_is_refused_before_anything_of_it_changes(tmp_path: Path) -> None:
    """`--home .` and `--home ""` are typed soon; so is a folder of programs, which would run no more."""
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    for path in (script, tmp_path):
        path.chmod(0o755)
    with pytest.raises(InvalidInput, match=r"holds run\.sh, which is no server's: name an empty folder"):
        Home.of(tmp_path).make()
    assert {path.stat().st_mode & 0o777 for path in (script, tmp_path)} == {0o755}
    (tmp_path / "store.db").touch(0o644)  # one that a server was started in before
    Home.of(tmp_path).make()
    assert script.stat().st_mode & 0o777 == 0o755 and (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600


def test_a_home_is_the_same_folder_wherever_its_commands_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Home.of("home").folder == tmp_path / "home"


@pytest.mark.parametrize("damage", [b"\xff\xfe\0", b"[1]", b'{"pid":', b""])
def test_damage_in_a_home_is_told_with_the_file(damage: bytes, tmp_path: Path) -> None:
    place = Home(tmp_path)
    place.tokens.write_bytes(damage)
    place.server_file.write_bytes(damage)
    place.store_note.write_bytes(damage)
    place.token_file("user").write_bytes(b"\xff" + damage)
    database = open_store(place.store)
    for call, file in (
        (place.server, "server.json"), (place.addresses, "server.json"),
        (lambda: known_store.identity_of(place), "store.json"),
        (lambda: Tokens(database).adopt_file(place.tokens), "tokens.json"), (lambda: place.token("user"), "user.token"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=rf"{file}: is (damaged: .*delete it|not UTF-8)"):
            call()
    place.tokens.unlink()
    assert open_tokens(place, database).knows(place.token("user"))  # a start makes a home's own anew


@pytest.mark.parametrize("server", ["http://head:8765", "http://10.0.0.1:1", "http://[fe80::1]:2"])
def test_a_token_does_not_travel_in_the_clear(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATTFLOW_CLEAR_TEXT", raising=False)
    with pytest.raises(InvalidInput, match="in the clear"):
        check_server(server)
    check_server(server.replace("http:", "https:"))
    monkeypatch.setenv("WATTFLOW_CLEAR_TEXT", "1")
    check_server(server)


def test_a_server_listens_in_the_clear_on_loopback_only() -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3", "head"):
        with pytest.raises(InvalidInput, match="--clear-text"):
            check_listening(host, tls=False, allowed=False)
        check_listening(host, tls=True, allowed=False)
        check_listening(host, tls=False, allowed=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_listening(host, tls=False, allowed=False)
        check_server(f"http://{'[::1]' if ':' in host else host}:8765")
