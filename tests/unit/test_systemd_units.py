"""The units in deploy/systemd start what there is, start it again, and end all of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))


def settings(unit: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in lines}


def test_there_is_one_for_the_server_and_one_for_agents() -> None:
    assert [unit.stem for unit in UNITS] == ["wattflow-agent", "wattflow-server"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_names_commands_and_options_that_exist(unit: Path) -> None:
    from typer.main import get_command

    from wattflow.cli.main import app
    from wattflow.server.__main__ import _parser

    command = settings(unit)["ExecStart"].split()
    assert command[1:3] == ["python3", "-m"]
    if command[3] == "wattflow.server":
        known = {option for action in _parser()._actions for option in action.option_strings}
    else:
        agent = get_command(app).commands["agent"]  # type: ignore[attr-defined]
        known = {option for parameter in agent.params for option in parameter.opts}
    assert {word for word in command if word.startswith("--")} <= known


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_is_started_again_and_ended_whole(unit: Path) -> None:
    found = settings(unit)
    assert found["Restart"] in ("always", "on-failure") and found["StateDirectoryMode"] == "0700"
    assert found["KillMode"] in ("control-group", "mixed") and int(found["TimeoutStopSec"]) > 20
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
        assert str(unit) not in done.stderr, done.stderr
