"""Escape codes of names never reach a terminal, whoever prints them."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from wattflow.cli.live import show
from wattflow.cli.options import OutputForm
from wattflow.cli.screen import CleanStream, as_it_is, clean, clean_output, console, guarded
from wattflow.model.errors import InvalidInput

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\u202e\x9b31m\ud800"


@given(st.text())
def test_clean_text_has_no_controls_and_plain_text_stays(text: str) -> None:
    made = clean(text)
    assert made.encode() is not None  # whatever it was, it can be encoded
    assert not any(ord(letter) < 32 and letter not in "\t\r\n" for letter in made) and "\x1b" not in made
    assert clean(made) == made
    assert not text.isprintable() or made == text


def test_everything_that_a_command_prints_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    @guarded
    def command() -> None:
        typer.echo(EVIL)
        print(EVIL)
        show([{"name": EVIL}], ("name",), OutputForm.table, None, "")
        table = Table(EVIL, title=EVIL)
        table.add_row(EVIL)
        console().print(table)
        raise InvalidInput(EVIL, EVIL)

    with pytest.raises(typer.Exit):
        command()
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err and "\x9b" not in told.out and "\u202e" not in told.out + told.err
    assert told.out.count(r"\x1b]0;owned") >= 4 and r"\x1b" in told.err


def test_a_users_own_program_prints_what_it_likes(capsys: pytest.CaptureFixture[str]) -> None:
    with clean_output(), as_it_is():
        print("\x1b[1mbold\x1b[0m")
    assert capsys.readouterr().out == "\x1b[1mbold\x1b[0m\n"


def test_lines_of_tables_for_programs_stay_as_they_are() -> None:
    below = io.StringIO(newline="")
    stream = CleanStream(below)
    stream.write("a,b\r\n1,2\r\n")
    assert below.getvalue() == "a,b\r\n1,2\r\n"
    with pytest.raises(TypeError):
        stream.write(b"x")  # type: ignore[arg-type]


@pytest.mark.slow
def test_on_a_real_terminal(tmp_path: Path) -> None:
    """A file whose name has escape codes, named in an error on a terminal."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "wattflow.cli", "describe", f"{tmp_path}/\x1b]0;owned\x07x.json"]
    done = subprocess.run(command, stdout=child, stderr=child, stdin=subprocess.DEVNULL, check=False)
    os.close(child)
    told = os.read(parent, 65536)
    os.close(parent)
    assert done.returncode == 2 and b"\x1b]0" not in told and rb"\x1b]0;owned" in told
