"""Options that nothing else types: each reaches what it is for. And the commands below their nouns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wattflow.cli import kube, up, watch
from wattflow.cli.main import COMMANDS, FIRST, NOUNS, app
from wattflow.runtime import home
from wattflow.server import __main__ as serving

ROOT = Path(__file__).parents[3]


def typed(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_every_command_is_first_or_below_one_noun_and_both_spellings_are_one() -> None:
    below = [name for _, some in NOUNS.values() for name in some]
    assert sorted([*FIRST, *below, "completion"]) == sorted(COMMANDS)
    listed = typed("--help").split("Commands:")[1].split()
    assert set(FIRST) | set(NOUNS) <= set(listed) and "generate" not in listed and "completion" not in listed
    for noun, (_, names) in NOUNS.items():
        for name in names:
            assert typed(noun, name, "--help").replace(f"{noun} ", "", 1) == typed(name, "--help")


def test_the_page_of_commands_is_todays() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "commands.py"), "--check"], check=False)
    assert done.returncode == 0, "python tools/commands.py writes it anew"


def test_what_up_is_told_reaches_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def spawn(command: list[str], *_: object, **__: object) -> object:
        seen.append(command)
        return None

    monkeypatch.setattr(up, "_spawn", spawn)
    monkeypatch.setattr(up, "_wait_for_server", lambda *_: None)
    monkeypatch.setattr(home.Home, "url", lambda _: "http://127.0.0.1:1")
    options = {
        "--scheduler": "tcp://127.0.0.1:8786", "--partition": "long", "--suspend-command": "off {node}",
        "--resume-command": "on {node}", "--wake-on-lan": "n=00:00:00:00:00:01", "--watts-command": "watts {node}",
        "--redfish": "https://{node}-bmc", "--redfish-login": str(tmp_path / "login"),
        "--redfish-ca": str(tmp_path / "ca.pem"),
    }  # fmt: skip
    words = [word for pair in options.items() for word in pair]
    objects = str(tmp_path / "objects")
    more = ["--home", str(tmp_path / "h"), "--port", "0", "--no-agent", "--upgrade", "--objects", objects]
    typed("up", *more, *words)
    (command,) = seen
    told = serving._parser().parse_args(command[3:])
    assert told.upgrade and told.objects == objects and told.home == str(tmp_path / "h")
    for name, value in options.items():
        assert f"{name[2:].replace('-', '_')}={value}" in told.driver_option


def test_an_agent_says_what_is_wrong_with_a_duration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    said = typed("server", "agent", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token"),
                 "--keep-alive", "soon", code=2)  # fmt: skip
    assert "--keep-alive" in said and "soon" in said


@pytest.mark.parametrize(("words", "generic"), [((), True), (("--this-cpu",), False)])
def test_code_is_compiled_for_any_processor_or_for_this_one(
    words: tuple[str, ...], generic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def run(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(env)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    typed("server", "warm", str(tmp_path / "cache"), "-p", "fifo", *words)
    assert (seen[0].get("NUMBA_CPU_NAME") == "generic") is generic


def test_mechanisms_are_listed() -> None:
    assert "mechanism" in typed("lab", "frames", "--mechanisms").splitlines()[0]


@pytest.mark.data
def test_profiles_of_the_data_folder_are_listed_where_all_are_asked_for(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTFLOW_DATA", str(data_dir))
    assert len(typed("machine", "profiles", "--all")) > len(typed("machine", "profiles"))


class Server:
    """What the commands that watch ask of a server."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.log = [b"one\n", b"", b"two\n", b""]

    def call(self, _: str, path: str, __: bytes = b"") -> Any:
        self.asked.append(path)
        return [] if path == "/v1/nodes" else {"running": 1, "waiting": 2, "policy": "fifo", "trouble": ""}

    def raw(self, _: str, path: str) -> tuple[bytes, dict[str, str]]:
        self.asked.append(path)
        return self.log.pop(0), {"wattflow-over": "0" if self.log else "1"}


def test_a_server_is_looked_at_once_and_a_log_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr(watch, "connect", lambda *_: server)
    monkeypatch.setattr(watch, "find_task", lambda *_: {"id": 7})
    assert "1 running, 2 waiting, policy fifo" in typed("server", "top", "--once")
    assert typed("server", "logs", "w/t", "--attempt", "3", "--follow") == "one\ntwo\n"
    assert "/v1/tasks/7/log?number=3&offset=4" in server.asked


def test_kube_explain_is_told_where_scheduler_and_journal_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    explaining = pytest.importorskip("wattflow.kube.explaining")
    seen: list[object] = []

    async def explain(*told: object) -> str:
        await asyncio.sleep(0)
        seen.extend(told[1:])
        return "so"

    monkeypatch.setattr(explaining, "explain", explain)
    monkeypatch.setattr(kube, "_access", lambda _: None)
    words = ["kube", "explain", "work/pod", "--scheduler", "http://127.0.0.1:9", "--journal", str(tmp_path)]
    assert typed(*words) == "so\n"
    assert seen == [("work", "pod"), "http://127.0.0.1:9", tmp_path, "wattflow/wattflow"]
