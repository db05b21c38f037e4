"""`wattflow levels` on a played tree, typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.cli.main import app
from wattflow.clusters.toml_file import parse_cluster
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.holder import Holder


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTFLOW_SYSFS", str(tmp_path / "sys"))
    monkeypatch.setenv("WATTFLOW_LEVELS", str(tmp_path / "notes"))
    monkeypatch.setattr("wattflow.levels.function_profile.IDLE_S", 0.01)
    return play_sysfs(tmp_path / "sys")


def typed(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_list_shows_ranges_rights_and_holders(tree: Path) -> None:
    holder = Holder(find_actuators(), notes_folder(), watched=False)
    holder.set("package-0.cap_w", 100.0)
    rows = {row["knob"]: row for row in json.loads(typed("levels", "list", "-o", "json"))["rows"]}
    assert rows["cpu-policy0.clock_mhz"]["low"] == 800.0 and rows["cpu-policy0.clock_mhz"]["here"] == "yes"
    assert rows["package-0.cap_w"]["now"] == 100.0 and "100 W" in rows["package-0.cap_w"]["held by"]


def test_off_gives_back_what_others_hold_and_allows_nothing(tree: Path) -> None:
    holder = Holder(find_actuators(), notes_folder(), watched=False)
    holder.set("cpu-policy0.clock_mhz", 1200.0)
    assert "given back: cpu-policy0.clock_mhz" in typed("levels", "off")
    assert ceiling_khz(tree) == FULL_KHZ and "levels are off" in typed("levels", "list")
    assert "levels are on" in typed("levels", "on") and "levels are off" not in typed("levels", "list")


def test_a_machine_without_knobs_says_so(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTFLOW_SYSFS", str(tmp_path / "none"))
    assert "no clock and no limit can be set" in typed("levels", "list")
    out = str(tmp_path / "f.json")
    assert "no clock can be set" in typed("levels", "profile", "--function", "f", "--out", out, "true", code=2)


COUNTING = """
import os, pathlib, sys
root = pathlib.Path(os.environ["WATTFLOW_SYSFS"])
khz = int((root / "devices/system/cpu/cpufreq/policy0/scaling_max_freq").read_text())
counter = root / "class/powercap/intel-rapl:0/energy_uj"
counter.write_text(str(int(counter.read_text()) + 1_000_000 + khz))
"""


def test_profile_runs_a_command_at_a_few_clocks_and_leaves_them_as_before(tree: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "work.py", tmp_path / "f.json"
    script.write_text(COUNTING)
    words = ("levels", "profile", "--function", "f", "--out", str(out), "--device", "cpu", "--runs", "3")
    shown = typed(*words, "--", sys.executable, "-S", "-E", str(script))
    assert "wrote" in shown and ceiling_khz(tree) == FULL_KHZ
    row = next(line for line in shown.splitlines() if "for a cluster file: " in line).partition("file: ")[2]
    node = f'name = "x"\n[[nodes]]\nname = "n"\ncores = 1\nmemory = 1\ndevices = [{{ kind = "gpu", {row} }}]\n'
    levels = parse_cluster(node, "x.toml").nodes[0].devices[0].levels
    assert levels is not None and levels.cost("f", 1) is not None and levels.values[0] == 3600.0
    runs = json.loads(out.read_text())["runs"]
    assert runs[0]["level"] == 3600.0 and len({run["level"] for run in runs}) == len(runs) <= 3
    assert runs[0]["joules"] == pytest.approx(4.6, abs=0.01), "at full clock the ceiling is as the kernel has it"
    assert "exists already" in typed(*words, "--", "true", code=2)
    typed(*words, "--force", "--", sys.executable, "-S", "-E", str(script))


def test_a_command_that_fails_leaves_no_file_and_no_clock(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.json"
    shown = typed("levels", "profile", "--function", "f", "--out", str(out), "--device", "cpu", "false", code=2)
    assert "ended with exit code 1" in shown and not out.exists() and ceiling_khz(tree) == FULL_KHZ
    wrong = typed("levels", "profile", "--function", "f", "--out", str(out), "--device", "gpu-3", "true", code=2)
    assert "there are: cpu" in wrong
    assert "is empty" in typed("levels", "profile", "--function", " ", "--out", str(out), "true", code=2)


def test_functions_of_a_script_have_a_document_each_and_one_row_together(tree: Path, tmp_path: Path) -> None:
    """Like `wattflow run` finds them: with modules beside the script, and without its main part."""
    (tmp_path / "beside.py").write_text(f"def work():\n    exec({COUNTING!r})\n")
    script = tmp_path / "tasks.py"
    script.write_text(
        "from beside import work\n"
        "def copy(times=1):\n    work()\n"
        "def fft():\n    work()\n"
        "def sized(n):\n    pass\n"
        "if __name__ == '__main__':\n    raise SystemExit('the main part')\n"
    )
    words = ("levels", "profile", "--device", "cpu", "--runs", "2", "--out", str(tmp_path / "profiles"))
    shown = typed(*words, f"{script}:copy", f"{script}:fft")
    assert ceiling_khz(tree) == FULL_KHZ and shown.count("wrote") == 2
    documents = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "profiles").iterdir()}
    assert {name: one["function"] for name, one in documents.items()} == {"copy": "copy", "fft": "fft"}
    row = next(line for line in shown.splitlines() if "for a cluster file: " in line).partition("file: ")[2]
    node = f'name = "x"\n[[nodes]]\nname = "n"\ncores = 1\nmemory = 1\ndevices = [{{ kind = "gpu", {row} }}]\n'
    levels = parse_cluster(node, "x.toml").nodes[0].devices[0].levels
    assert levels is not None and [one.function for one in levels.functions] == ["copy", "fft"]
    assert "--force" in typed(*words, f"{script}:copy", f"{script}:fft", code=2)
    assert "is a file" in typed(*words[:-1], str(script), f"{script}:copy", f"{script}:fft", code=2)
    assert "is read by this command" in typed(*words[:-1], str(script), "--force", f"{script}:fft", code=2)
    assert "folder" in typed(*words[:-1], str(tmp_path), "--force", f"{script}:fft", code=2)
    one = typed(*words[:-1], str(tmp_path / "fft.json"), f"{script}:fft")
    assert "fft.json" in one and (tmp_path / "fft.json").is_file()


def test_functions_that_cannot_be_called_are_one_message(tree: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "tasks.py", tmp_path / "out"
    script.write_text("def a(n):\n    pass\ndef b(*, n):\n    pass\ndef c():\n    pass\nd = c\n")
    broken = tmp_path / "broken.py"
    broken.write_text("def a(:\n")
    words = ("levels", "profile", "--device", "cpu", "--out", str(out))
    for given, said in (
        ([f"{script}:a"], "a needs arguments"), ([f"{script}:b"], "b needs arguments"),
        ([f"{script}:d"], "defines no function 'd'; it has: a, b, c"), ([f"{broken}:a"], "is no script of Python"),
        (["copy"], "is no FILE.py:FUNCTION"), ([f"{script}:"], "is no FILE.py:FUNCTION"),
        ([str(tmp_path / "none.py:f")], "none.py"), ([f"{script}:c", f"{script}:c"], "two of the functions"),
    ):  # fmt: skip
        shown = typed(*words, *given, code=2)
        assert said in shown and len(shown.strip().splitlines()) == 1, shown
    assert not out.exists()
