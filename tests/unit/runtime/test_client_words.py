"""What the client refuses, it refuses where it is written, in the words of who wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wattflow
from wattflow.model.errors import InvalidInput
from wattflow.runtime.client import Client, joules
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


def test_what_is_no_function_is_refused_at_submit(client: Client) -> None:
    with pytest.raises(TypeError, match="a task is a function, not 42"):
        client.submit(42)  # type: ignore[arg-type]


def test_an_objective_that_there_is_none_of() -> None:
    with pytest.raises(InvalidInput, match="objective: 'blub' is not one of energy, response"):
        Client("http://127.0.0.1:9", "token", objective="blub")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a" * 201, None, 7])
def test_a_name_that_no_workflow_can_have(name: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^name: a workflow's is a text of 1 to 200 characters, not "):
        Client("http://127.0.0.1:9", "token", name=name)


@pytest.mark.parametrize("command", [[], "ls -l", [1], None])
def test_what_is_no_command(client: Client, command: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^command: is a list, a program and its arguments as texts, not "):
        client.run(command)


@pytest.mark.parametrize(
    ("text", "value"),
    [("50Wh", 180e3), ("50 Wh", 180e3), ("1.5kWh", 5.4e6), ("1e5", 1e5), (" .5 kJ ", 500.0), ("3.", 3.0), (7, 7.0)],
)
def test_joules_as_people_type_them(text: str | float, value: float) -> None:
    assert joules(text) == value


@pytest.mark.parametrize("text", ["", "Wh", "1 2", "five", "1eV", "nan", "-3 J", "1..2", "\u00b2 J"])
def test_what_is_no_energy(text: str) -> None:
    with pytest.raises(ValueError, match="is not an energy"):
        joules(text)


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
