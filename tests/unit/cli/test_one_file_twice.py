"""Two commands that write one new file at the same time: neither result is lost, and the later one says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wattflow.cli.screen import check_target
from wattflow.files.whole import tell_of_races
from wattflow.model.errors import InvalidInput
from wattflow.traces.source import write_atomic

# What a command does: it looks first, works for a while, and writes then.
COMMAND = """
import sys
from pathlib import Path
from wattflow.cli.screen import guarded
from wattflow.cli.screen import chosen_form, deliver

def command():
    out = Path(sys.argv[1])
    form = chosen_form(None, out, "--force" in sys.argv)
    print("working", flush=True)
    sys.stdin.readline()
    deliver([{"who": sys.argv[2]}], form, out, {})
    out.with_suffix(f".{sys.argv[2]}").write_text("the second file")

try:
    guarded(command)()
except BaseException as error:
    sys.exit(getattr(error, "exit_code", 1))
"""


def raced(out: Path, *more: str) -> list[tuple[int, str]]:
    """Exit codes and messages of two processes, both of which have found the file free before either writes it."""
    both = [
        subprocess.Popen([sys.executable, "-c", COMMAND, str(out), who, *more], text=True, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for who in ("one", "two")
    ]  # fmt: skip
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "working\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=60)[1] for process in both]
    return [(process.returncode, said) for process, said in zip(both, told, strict=True)]


@pytest.mark.slow
def test_of_two_that_race_both_results_are_kept(tmp_path: Path) -> None:
    for turn in range(3):
        out = tmp_path / f"run{turn}.csv"
        (first, _), (second, said) = sorted(raced(out))
        assert (first, second) == (0, 2), said
        other = tmp_path / f"run{turn}-1.csv"
        assert f"{out}: was written by another command meanwhile; this one's result is in {other}" in said
        assert sorted(path.read_text() for path in (out, other)) == ["who\none\n", "who\ntwo\n"]
        assert all((tmp_path / f"run{turn}.{who}").exists() for who in ("one", "two")), "what else they had to write"
        assert not list(tmp_path.glob(".*")), "no draft is left"


def test_who_forces_writes_over(tmp_path: Path) -> None:
    out = tmp_path / "run.csv"
    assert [code for code, _ in raced(out, "--force")] == [0, 0]
    assert out.read_text() in ("who\none\n", "who\ntwo\n") and len(list(tmp_path.glob("*.csv"))) == 1


def test_a_trace_is_written_over_nothing_either(tmp_path: Path) -> None:
    out = tmp_path / "trace.json.gz"
    check_target(False, out)
    out.write_text("somebody else's")
    write_atomic(out, b"")
    with pytest.raises(InvalidInput, match=r"trace\.json\.gz: was written by another .* this one's result is in"):
        tell_of_races()
    tell_of_races()  # told once
    assert out.read_text() == "somebody else's" and (tmp_path / "trace.json-1.gz").exists()
