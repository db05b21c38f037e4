"""What was typed wrong is said in one message, with exit code 2, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from wattflow.cli import run_command
from wattflow.cli.main import app
from wattflow.frames import library
from wattflow.lab.explore.design import bundled
from wattflow.policy import registry
from wattflow.runtime.connection import Connection


def wattflow(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="wattflow")


def refused(*arguments: object) -> str:
    """The message of a call that must fail as bad input."""
    result = wattflow(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith(("error: ", "Usage: "))
    return result.stderr


ONE_JOB = "{} 0 1 {} {} -1 -1 {} 10 -1 1 1 1 -1 1 1 -1 -1\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text("; a log\n" + ONE_JOB.format(1, 5, 1, 1) + ONE_JOB.format(2, 5, 1, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize("command", [("convert",), ("enrich", "--nodes", "mixed")])
def test_an_input_is_never_written_over(command: tuple[str, ...], log: Path) -> None:
    before = log.read_bytes()
    assert "name another file" in refused(command[0], log, log, *command[1:])
    assert log.read_bytes() == before


def test_compare_refuses_to_report_onto_its_trace(log: Path) -> None:
    before = log.read_bytes()
    assert "name another file" in refused("compare", log, "-p", "fifo", "--report", log)
    assert log.read_bytes() == before


def test_a_run_is_never_written_over_its_workflow(log: Path) -> None:
    before = log.read_bytes()
    assert "name another file" in refused("run", log, "--out", log)
    assert "waited for" in refused("run", log, "--detach", "--out", log.with_suffix(".parquet"))
    assert log.read_bytes() == before


@pytest.mark.parametrize(("policy", "said"), [("heft", "it plans ahead"), ("power-cap:watts=900", "it keeps a cap")])
def test_what_cannot_be_shielded_is_refused_by_name(policy: str, said: str, log: Path) -> None:
    message = refused("simulate", log, "-c", "mixed", "-p", f"{policy}:shield=kubernetes")
    assert policy.partition(":")[0] in message and said in message and "Traceback" not in message


@pytest.mark.parametrize("data", [bytes(range(256)), b"print(1)\0", b"# coding: nothing\n"])
def test_what_is_no_text_is_no_script(data: bytes, tmp_path: Path) -> None:
    """Told in one line as of a workflow, and before a server is asked for."""
    (tmp_path / "bin.py").write_bytes(data)
    assert "is no Python script" in refused("run", tmp_path / "bin.py", "--home", tmp_path / "none")


@pytest.mark.parametrize("option", [("--objective", "nonsense"), ("--retries", "7"), ("--detach",)])
def test_what_a_script_cannot_be_given_is_refused_by_name(option: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("print('it ran')")
    said = refused("run", tmp_path / "some.py", *option, "--home", tmp_path / "none")
    assert said.startswith(f"error: {option[0]}: is of a workflow") and "it ran" not in said


def test_a_script_is_told_of_a_server_without_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_command, "FIRST_LOOK_S", 0.0)
    for states, said in (((), "the server has no node"), (("down",), "all 1 nodes are down"), (("up", "down"), "")):
        rows = [{"state": state} for state in states]
        server = SimpleNamespace(patiently=lambda *_, rows=rows: rows)
        run_command._wait_for_node(cast(Connection, server), False)
        told = capsys.readouterr().err
        assert told.startswith(said) and bool(told) == bool(said)


@pytest.mark.parametrize(
    ("retries", "bound"), [("-1", " 0\n"), ("1001", " 1000\n"), ("99999999999999999999", " 1000\n")]
)
def test_retries_beyond_what_a_server_takes(retries: str, bound: str, log: Path) -> None:
    told = refused("run", log, "--retries", retries)
    assert "--retries" in told and told.endswith(bound)


def test_a_server_with_a_driver_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    assert "did you mean 'slurm'" in refused("up", "--home", tmp_path / "home", "--driver", "slurmx")
    assert not (tmp_path / "home").exists()


def test_a_frames_file_is_printed_as_it_is() -> None:
    for name in library.frame_names():
        assert wattflow("frames", name, "--toml").stdout == library.frame_text(name)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("compare", "bag:tasks=3", "-p", ""), "names no policy"),
        (("compare", "bag:tasks=3", "-p", "fifo,,heft"), "empty name"),
        (("simulate", "bag:tasks=3", "-c", "mixed", "-c", "hpe"), "given 2 times"),
        (("simulate", "bag:tasks=3", "--seed", 1 << 63), "2^63"),
        (("bounds", "bag:tasks=3", "--seed", 1 << 63), "2^63"),
        (("agent", "--server", "head:8765", "--token-file", "/dev/null"), "holds no token"),
        (("compare", "bag:tasks=3", "-p", "fifo", "--seeds", 10**9), "more than 10,000"),
        (("simulate", "bag:tasks=100000000"), "fit into memory"),
        (("simulate", "bag:tasks=3", "--runtime-error", "inf"), "spread"),
        (("simulate", "bag:tasks=3", "--power-error", "nan"), "--power-error"),
        (("profiles", "--plot", "x.xyz"), ".svg"),
        (("simulate", "bag:tasks=3", "-p", "fifo:nope=1"), "its keys are"),
        (("simulate", "bag:tasks=3", "-p", "fifo:sleep=soon"), "needs a number"),
        (("simulate", "bag:tasks=3", "-p", "fifo:queue=fast"), "skip, strict"),
        (("simulate", "bag:tasks=3", "-p", "absent.py:mine"), "no such file"),
        (("simulate", "bag:tasks=3", "-p", "zzzz"), "wattflow,"),
    ],
)
def test_bad_options(arguments: tuple[object, ...], says: str) -> None:
    assert says in refused(*arguments)


def test_explore_refuses_a_file_as_its_folder(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine", encoding="utf-8")
    design = bundled(Path("explore_small"))
    assert "name a folder" in refused("explore", design, "--out", taken)
    assert taken.read_text(encoding="utf-8") == "mine"


def test_a_log_without_a_usable_job_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(ONE_JOB.format(1, -5, 1, 1), encoding="utf-8")
    assert "negative run time" in refused("simulate", path)


def test_a_job_wider_than_the_cluster_is_not_the_policys_fault(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(ONE_JOB.format(1, 5, 2000, 2000), encoding="utf-8")
    message = refused("simulate", path, "-p", "fifo")
    assert "2,000 parts" in message
    assert "policy" not in message


@pytest.mark.parametrize(("field", "says"), [('"coreCount": 1e30', "beyond any machine"), ("", "number of seconds")])
def test_numbers_beyond_reason(tmp_path: Path, field: str, says: str) -> None:
    path = tmp_path / "w.json"
    seconds = "1" if field else "1e300"
    path.write_text(
        '{"name": "x", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [{"name": "a", "id": "a", '
        '"children": [], "parents": []}], "files": []}, "execution": {"makespanInSeconds": 1, "executedAt": '
        '"2020-01-01T00:00:00Z", "tasks": [{"id": "a", "runtimeInSeconds": '
        + seconds + (f", {field}" if field else "") + "}]}}}",
        encoding="utf-8",
    )  # fmt: skip
    assert says in refused("simulate", path)


def test_idle_watts_above_full_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'name = "c"\n[[nodes]]\nname = "a"\ncount = 1\ncores = 4\nmemory = "8GiB"\n'
        "power = { form = \"linear\", idle_w = 300, full_w = 100 }\n",
        encoding="utf-8",
    )  # fmt: skip
    assert "swapped" in refused("simulate", "bag:tasks=3", "-c", path)


def test_a_policy_as_typed_is_a_row_of_its_own(tmp_path: Path) -> None:
    own = tmp_path / "my.py"
    own.write_text(
        "from wattflow.policy import policy, view\n\n\n@policy('thrifty', compiled=False)\n"
        "def mine(state, task, variant, out):\n    '''The first that fits.'''\n    out[:] = range(out.size)\n",
        encoding="utf-8",
    )
    typed = f"fifo:sleep=600,carbon-delay:delay_s=60,{own}:mine,{own}:thrifty"
    result = wattflow("compare", "bag:tasks=6", "-p", typed, "--seeds", 1, "-o", "csv")
    assert result.exit_code == 0, result.output
    for name in typed.split(","):
        assert name in result.stdout


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("learned:lean=-1", "lean = -1 is out of range; it is 0 to 2"), ("learned:lean=7", "it is 0 to 2"),
        ("learned:energy=-3", "energy = -3 is out of range"),
        ("learned:response=inf", "response = inf is out of range"),
        ("learned:energy=0", "one of energy, response, makespan, cost, utilisation must be above 0"),
        ("learned:wait=-1", "wait = -1 is out of range; it is at least 0"), ("wattflow:late=-1", "late = -1 is out"),
        ("learned:lean=3", "it is 0 to 2"), ("planned:load=0.5", "wattflow has no 'load'"),
        ("rehearsed:load=0.5", "wattflow has no 'load'"),
    ],
)  # fmt: skip
def test_a_dial_has_limits(typed: str, says: str) -> None:
    message = refused("simulate", "chain:tasks=4", "-p", typed)
    assert says in message and typed.partition(":")[0] in message


def test_dials_are_judged_together_and_within_their_limits() -> None:
    found = registry.load("learned:energy=0:response=1:lean=2:wait=inf:margin=-0.2")
    assert (found.params["energy"], found.params["response"], found.params["lean"]) == (0.0, 1.0, 2.0)


def test_a_recipe_with_colons_between_its_keys_says_what_to_write() -> None:
    assert "write tasks=20,workflows=24" in refused("simulate", "montage:tasks=20:workflows=24")
    assert "'x' is no whole number" in refused("simulate", "montage:tasks=x")


def test_too_short_a_record_teaches_nothing_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "candidate.npz"
    assert "at least 3" in refused("learn", "chain:tasks=4", "--out", out, "--seconds", 0)
    assert "give one for each" in refused("learn", "chain:tasks=4", "--attempts", "a", "--attempts", "b", "--out", out)
    assert not out.exists()
