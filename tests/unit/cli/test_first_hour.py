"""What a newcomer types: explained policies, completion, bounds, studies, and files that are not written over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wattflow.cli import completion
from wattflow.cli.main import app
from wattflow.policy import registry

runner = CliRunner()


def wattflow(*arguments: str) -> tuple[int, str]:
    done = runner.invoke(app, list(arguments))
    return done.exit_code, done.output + (done.stderr if done.stderr_bytes else "")


@pytest.mark.parametrize("name", registry.names())
def test_every_policy_explains_its_rule_and_its_numbers(name: str) -> None:
    from wattflow.lab.show.policy_page import MEANINGS

    code, text = wattflow("policies", name)
    assert code == 0 and text.startswith(f"{name}: ")
    for number in registry.load(name).params:
        assert f"{number}=" in text and number in MEANINGS
    assert "cost of a node" in text or "order of the queue" in text or "plan, at a workflow's arrival" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    code, text = wattflow("completion", shell)
    assert code == 0 and "_WATTFLOW_COMPLETE" in text and "wattflow" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [("wattflow comp", "compare"), ("wattflow compare x.json -p fifo,hpe-d", "fifo,hpe-dial"),
     ("wattflow compare x.json -c mi", "mixed"), ("wattflow simulate monta", "montage")],
)  # fmt: skip
def test_the_shell_is_answered(words: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(completion.VARIABLE, "complete_bash")
    completion.prepare()
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = runner.invoke(app, [], env=asked, prog_name="wattflow")
    assert expected in done.output.split()


def test_the_script_works_in_a_real_bash(tmp_path: Path) -> None:
    program = tmp_path / "wattflow"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wattflow "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(wattflow completion bash)"\nCOMP_WORDS=(wattflow simu)\nCOMP_CWORD=1\n'
        '_wattflow_completion wattflow\necho "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["simulate"], done.stderr


def test_nothing_is_written_over_without_force(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    assert wattflow("generate", "chain:tasks=3", "--out", str(out))[0] == 0
    before = out.read_bytes()
    again = ("generate", "chain:tasks=4", "--out", str(out))
    code, text = wattflow(*again)
    assert code == 2 and "--force" in text and out.read_bytes() == before
    assert wattflow(*again, "--force")[0] == 0 and out.read_bytes() != before
    for command in (
        ("compare", "chain:tasks=3", "-p", "fifo", "--seeds", "1", "--report", str(out)),
        ("simulate", "chain:tasks=3", "--attempts", str(out)),
        ("policies", "--out", str(out)),
        ("demo", "--report", str(out)),
    ):
        code, text = wattflow(*command)
        assert code == 2 and "exists already" in text, command


@pytest.mark.parametrize("command", [
    ("simulate", "nothing.json", "--out"), ("simulate", "nothing.json", "--attempts"), ("run", "nothing.json", "--out"),
    ("compare", "nothing.json", "-p", "fifo", "--out"), ("compare", "nothing.json", "-p", "fifo", "--report"),
    ("convert", "nothing.json"), ("generate", "chain:tasks=3", "--out"), ("policies", "--out"),
])  # fmt: skip
def test_where_nothing_can_be_written_is_told_before_the_work(command: tuple[str, ...]) -> None:
    """Tried, not asked: /proc is a folder that gives everybody rights and takes no file."""
    code, text = wattflow(*command, "/proc/wattflow.json")
    assert code == 2 and text.startswith("error: /proc/wattflow.json: cannot be written: "), text


def test_a_name_that_is_just_not_too_long_is_written(tmp_path: Path) -> None:
    out = tmp_path / f"{'x' * 250}.json"
    assert wattflow("generate", "chain:tasks=3", "--out", str(out))[0] == 0 and out.exists()
    code, text = wattflow("generate", "chain:tasks=3", "--out", str(tmp_path / f"{'x' * 251}.json"))
    assert code == 2 and "File name too long" in text and list(tmp_path.iterdir()) == [out]


def test_a_folder_with_files_is_no_target_without_force(tmp_path: Path) -> None:
    source, target = tmp_path / "a.json", tmp_path / "wta"
    assert wattflow("generate", "chain:tasks=3", "--out", str(source))[0] == 0
    assert wattflow("convert", str(source), str(target))[0] == 0
    assert wattflow("convert", str(source), str(target))[0] == 2
    assert wattflow("convert", str(source), str(target), "--force")[0] == 0


def test_a_bound_says_what_it_costs_and_several_workloads_are_summed_up() -> None:
    code, text = wattflow(
        "compare", "chain:tasks=3", "bag:tasks=5", "-p", "heft", "--seeds", "2", "--slo", "p95_wait=10m"
    )
    assert code == 0 and "p95_wait ≤ 10m 00s, chain: kept by" in text
    assert "over 2 workloads, less than fifo by" in text


def test_a_study_prints_every_cluster_and_refuses_options_it_has_itself(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(
        'name = "one"\n[[nodes]]\nname = "n"\ncores = 4\nmemory = "8 GiB"\n'
        "power = { form = 'linear', idle_w = 10, full_w = 20 }\n"
    )
    study = tmp_path / "study.toml"
    study.write_text(
        'workloads = ["chain:tasks=3"]\nclusters = ["mixed", "one.toml"]\npolicies = ["heft"]\nseeds = 1\n'
    )
    code, text = wattflow("compare", str(study), "--report", str(tmp_path / "r.html"))
    assert code == 0 and "== mixed" in text and "== one" in text and "\nclusters\n" in text
    assert {path.name for path in tmp_path.glob("*.html")} == {"r-mixed.html", "r-one.html"}
    code, text = wattflow("compare", str(study), "-c", "mixed")
    assert code == 2 and "set in the compare file" in text
    code, text = wattflow("compare", str(study), "-o", "csv")
    assert code == 0 and {line.split(",")[0] for line in text.splitlines()[1:]} == {"mixed", "one"}


def test_two_clusters_on_the_command_line_are_both_compared() -> None:
    code, text = wattflow("compare", "chain:tasks=3", "-c", "mixed", "-c", "edge-cloud", "-p", "heft", "--seeds", "1")
    assert code == 0 and "== mixed" in text and "== edge-cloud" in text
