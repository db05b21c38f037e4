"""Files of any name are read and written; what cannot be read or written is one message that names it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from wattflow.cli.main import app
from wattflow.files.whole import whole_file
from wattflow.model.errors import InvalidInput

NAMES = ("a b", "ü", "new\nline", os.fsdecode(b"bad\xff"))


def wattflow(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def fine(*arguments: str | Path) -> str:
    found = wattflow(*arguments)
    assert found.exit_code == 0, (arguments, found.output, found.exception)
    return found.output


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_file_that_commands_read_and_write_may_have_an_odd_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    document = folder / f"{name}.json"
    fine("workload", "generate", "bag:tasks=3", "--out", document)
    assert "tasks" in fine("workload", "describe", document)
    for other in (folder / f"{name}.swf", folder / name):  # no ending is a folder of the Workflow Trace Archive
        fine("workload", "convert", document, other)
        assert "tasks" in fine("workload", "describe", other)
    run = folder / f"{name}.parquet"
    fine("simulate", document, "--attempts", run, "--metrics", "energy_j")
    assert "makespan" in fine("workload", "describe", run)
    for ending in ("csv", "parquet", "json"):
        fine("compare", document, "-p", "fifo", "--seeds", "1", "--out", folder / f"figures.{ending}")
    fine("compare", document, "-p", "fifo", "--seeds", "1", "--report", folder / f"{name}.html")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    found = wattflow("simulate", pipe)
    assert found.exit_code == 2 and "pipe" in found.stderr and str(pipe) in found.stderr


def test_a_table_of_no_known_format_says_where_formats_are_shown(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("task,seconds\na,3\n")
    found = wattflow("simulate", table)
    assert found.exit_code == 2 and "wattflow docs formats" in found.stderr


def test_a_disk_that_fills_up_names_the_file(tmp_path: Path) -> None:
    full = pytest.raises(InvalidInput, match=r"report\.html: cannot be written: No space left")
    with full, whole_file(tmp_path / "report.html"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "report.html"):
        (tmp_path / "nothing").read_text()
    assert not list(tmp_path.iterdir())


def test_describe_says_what_the_server_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of XDG_STATE_HOME, too; one that ended knows nothing, which is not that it knows no such workflow."""
    monkeypatch.delenv("WATTFLOW_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "server" not in wattflow("describe", "nothing").stderr
    (tmp_path / "wattflow").mkdir()
    (tmp_path / "wattflow" / "user.token").write_text("token")
    (tmp_path / "wattflow" / "server.json").write_text('{"pid": 0, "started": null}')
    told = wattflow("describe", "nothing")
    assert told.exit_code == 2 and f"no server is running ({tmp_path}/wattflow)" in told.stderr
    assert "knows no such workflow" not in told.stderr
