"""Names, folders and addresses that somebody else chose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattflow.model.errors import InvalidInput
from wattflow.runtime.addresses import check_listening, check_server
from wattflow.runtime.home import Home
from wattflow.runtime.messages import folder_name


@given(st.text(min_size=1, max_size=200))
def test_a_folder_of_any_name_stays_where_it_belongs(name: str) -> None:
    made = folder_name(name)
    assert len(made.encode()) <= 255 and "/" not in made and "\0" not in made and made not in ("", ".", "..")
    assert made == folder_name(name)


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
