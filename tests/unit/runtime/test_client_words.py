"""What the client refuses, it refuses where it is written, in the words of who wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wattflow
from wattflow.model.errors import InvalidInput
from wattflow.runtime.client import Client
from wattflow.runtime.task import TaskFunction


def work() -> None:
    pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client that never sends."""
    made = Client.__new__(Client)
    monkeypatch.setattr(made, "_check_open", lambda: None, raising=False)
    monkeypatch.setattr(made, "_submit", lambda *_, **__: pytest.fail("it was submitted"), raising=False)
    return made


@pytest.mark.parametrize("retries", [10**30, 1001, -1, 0.5, "2"])
def test_retries_out_of_range(client: Client, retries: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^retries: .* is not a whole number of 0 to 1000$"):
        wattflow.task(retries=retries)
    with pytest.raises(InvalidInput, match="0 to 1000"):
        client.run(["true"], retries=retries)


def test_the_most_retries_are_taken() -> None:
    made = wattflow.task(retries=1000)(work)
    assert isinstance(made, TaskFunction) and made.retries == 1000


def test_an_unknown_need_lists_all_that_there_are() -> None:
    with pytest.raises(TypeError, match=r"has no blub; it has .*cpus.*timeout, retries"):
        wattflow.task(blub=1)


def test_a_program_lists_its_own_options_and_is_no_empty_list(client: Client) -> None:
    with pytest.raises(TypeError, match=r"has no timeout; it has .*cpus.*timeout_s, retries, environment"):
        client.run(["true"], timeout=5)
    with pytest.raises(InvalidInput, match="command: is empty"):
        client.run([])


def test_what_is_no_function_is_refused_at_submit(client: Client) -> None:
    with pytest.raises(TypeError, match="a task is a function, not 42"):
        client.submit(42)  # type: ignore[arg-type]


def test_an_objective_that_there_is_none_of() -> None:
    with pytest.raises(InvalidInput, match="objective: 'blub' is not one of energy, response"):
        Client("http://127.0.0.1:9", "token", objective="blub")  # type: ignore[arg-type]


def test_the_environment_names_server_and_token_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its token goes to no server that the script names itself."""
    (tmp_path / "user.token").write_text("its own\n")
    (tmp_path / "given").write_text("given\n")
    asked: list[tuple[str, str]] = []

    def connect(self: Client) -> None:
        asked.append((self._server, self._token))
        raise ConnectionError

    monkeypatch.setattr(Client, "_connect", connect)
    for variable, value in (("HOME", tmp_path), ("SERVER", "http://127.0.0.1:9"), ("TOKEN_FILE", tmp_path / "given")):
        monkeypatch.setenv(f"WATTFLOW_{variable}", str(value))
    for arguments in ((), (None, "typed"), ("http://127.0.0.1:8",), ("http://127.0.0.1:8", "typed")):
        with pytest.raises(ConnectionError):
            Client(*arguments)
    nine, eight = "http://127.0.0.1:9", "http://127.0.0.1:8"
    assert asked == [(nine, "given"), (nine, "typed"), (eight, "its own"), (eight, "typed")]
