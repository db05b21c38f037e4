"""Commands, Python and configuration on the pages, and the examples, are executed and compared with what they show.

`tests/unit/cli/test_book.py` looks at every command that a page names anywhere; here those that can be run are.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .docs_runner import ENVIRONMENT, ROOT, begins_alike, follows, matches, programs_in, run, steps_of

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md") if not path.is_symlink())
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in ["README.md", *PAGES]}
CONSOLE = [page for page, text in TEXT.items() if "```console" in text]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
RUN_ELSEWHERE = {
    "docs/driving.md": "tests/e2e/test_driving.py",
    "docs/workloads.md": "tests/unit/traces/test_trace_howto.py",
    "docs/start-run.md": "below, on a server",
    "README.md": "below, in ten lines",
}
"""Pages whose Python needs something to work on."""


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600, env=ENVIRONMENT)


@pytest.mark.slow
@pytest.mark.parametrize("page", CONSOLE)
def test_the_commands_of_a_page_do_what_it_shows(page: str, tmp_path: Path) -> None:
    steps = list(steps_of((ROOT / page).read_text(encoding="utf-8")))
    assert steps
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    programs = programs_in(tmp_path / "bin")
    for step in steps:
        code, output = run(step, tmp_path, programs)
        assert code == step.exit_code, f"$ {step.command}\n" + "\n".join(output)
        wrong = begins_alike(step.expected, output) if step.loose else follows(step.expected, output)
        assert wrong is None, f"$ {step.command}\n{wrong}"


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_prints_what_is_stored_beside_it(example: Path, tmp_path: Path) -> None:
    done = python(str(example), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    stored = tuple(example.with_suffix(".out").read_text(encoding="utf-8").splitlines())
    assert follows(stored, done.stdout.splitlines()) is None


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        assert len(block.strip().splitlines()) <= 10
        done = python("-c", block, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in TEXT if PYTHON.search(TEXT[page]) and page not in RUN_ELSEWHERE])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    done = python("-c", "\n".join(PYTHON.findall(TEXT[page])), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in TEXT if "```toml" in TEXT[page]])
def test_the_configuration_of_a_page_can_be_read(page: str) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```$", TEXT[page], re.M | re.S):
        assert tomllib.loads(block)


def test_the_scheduler_of_the_start_page_is_a_valid_one(tmp_path: Path) -> None:
    from wattflow.kube import settings

    (block,) = re.findall(r"^```toml\n(.*?)^```$", TEXT["docs/start-kubernetes.md"], re.M | re.S)
    (tmp_path / "scheduler.toml").write_text(block)
    assert settings.read(tmp_path / "scheduler.toml").mode == "shadow"


@pytest.mark.slow
@pytest.mark.xdist_group("runtime")
def test_a_function_runs_and_says_its_joules_as_the_start_page_tells(tmp_path: Path) -> None:
    page = TEXT["docs/start-run.md"]
    (code,) = PYTHON.findall(page)
    (tmp_path / "work.py").write_text(code)
    told = [line.split("#")[0].strip() for line in page.splitlines() if line.startswith("wattflow ")]
    assert told == [
        "wattflow up", "wattflow run work.py", "wattflow ps", "wattflow view", "wattflow down",
        "wattflow machine meters",
    ]  # fmt: skip
    home = {"WATTFLOW_HOME": str(tmp_path / "home")}

    def wattflow(command: str) -> str:
        words = [sys.executable, "-m", *command.split()]
        done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT | home, text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    try:
        wattflow("wattflow up --port 0")
        shown = wattflow(told[1])
        assert re.search(r"^55$", shown, re.M), shown
        assert re.search(r" J \(\S+ to \S+ J, (attributed|modelled)\)", shown), shown
        assert "session" in wattflow(told[2]) or "work" in wattflow(told[2])
        wattflow(told[5])
    finally:
        wattflow("wattflow down")


def test_the_two_commands_stand_at_the_top_of_the_readme() -> None:
    top = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:12]
    assert any(line.startswith("make demo") for line in top) and any(line.startswith("make test") for line in top)


def test_another_python_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text(f'#!/bin/sh\n{sys.executable} -c "import sys; sys.version_info = (3, 9, 1); $2"\n')
    old.chmod(0o755)
    command = ["make", "-s", f"PYTHON={old}", f"VENV={tmp_path / 'env'}", "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.returncode == 2 and "needs Python 3.11 to 3.13" in done.stderr and "3.9" in done.stderr
    assert not (tmp_path / "env").exists()


def test_lines_match_within_tolerance_and_times_per_decision_may_be_anything() -> None:
    assert matches("energy  4.30 kJ", "energy   4.31 kJ")
    assert not matches("energy  4.3 kJ", "energy  5.3 kJ")
    assert not matches("energy  4.3 kJ", "power  4.3 kJ")
    assert matches("decision  1.2 µs  7", "decision  99 µs  7")
    assert matches("wrote … tasks", "wrote 12 tasks")
    assert not matches("wrote … tasks", "read 12 tasks")


def test_loose_blocks_compare_the_first_words() -> None:
    (step,) = steps_of("<!-- any numbers: they move -->\n```console\n$ x\na 1\nb 2\n```\n")
    assert step.loose and begins_alike(step.expected, ["b 3", "", "a 9"]) is None
    assert "begins so" in (begins_alike(step.expected, ["a 1"]) or "")


def test_output_must_follow_the_page_line_by_line() -> None:
    assert follows(("a", "…", "c"), ["a", "b", "b", "c"]) is None
    assert follows(("a", "…"), ["a", "b"]) is None
    assert follows((), ["anything"]) is None
    assert "also prints" in (follows(("a",), ["a", "b"]) or "")
    assert "'nothing'" in (follows(("a", "b"), ["a"]) or "")
