"""Options that nothing else types: each reaches what it is for; no option is without a line and a test. And nouns."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from wattflow.cli import account_commands, kube, kube_operator, machine_commands, run_command, server_commands, up
from wattflow.cli.main import COMMANDS, FIRST, NOUNS, app
from wattflow.model.errors import InvalidInput
from wattflow.runtime import home
from wattflow.runtime.executors import privileges
from wattflow.server import __main__ as serving

ROOT = Path(__file__).parents[3]


def typed(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.slow
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


def test_every_option_has_a_line_on_the_page_and_something_that_types_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    commands = importlib.import_module("commands")
    assert not commands.unsaid(), "an option without help says nothing on the page of commands"
    assert not commands.untested(), "each option is typed by a test, a benchmark, make or an example; else it goes"


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("dask", {"--scheduler": "tcp://127.0.0.1:8786"}),
        ("slurm", {"--partition": "long", "--clocks-mhz": "2600,1800", "--gpu-clocks-mhz": "1980,1300",
                   "--watts": "90,400", "--gpu-watts": "80,700"}),
        ("simulated", {"--cluster": "mixed"}),
        ("agents", {
            "--suspend-command": "off {node}", "--resume-command": "on {node}",
            "--wake-on-lan": "n=00:00:00:00:00:01", "--watts-command": "watts {node}",
            "--redfish": "https://{node}-bmc", "--redfish-login": "login", "--redfish-ca": "ca.pem",
        }),
    ],
)  # fmt: skip
def test_what_up_is_told_reaches_the_server(
    driver: str, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def spawn(command: list[str], *_: object, **__: object) -> object:
        seen.append(command)
        return None

    monkeypatch.setattr(up, "_spawn", spawn)
    monkeypatch.setattr(up, "_wait_for_server", lambda *_: None)
    monkeypatch.setattr(home.Home, "url", lambda _: "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    words = [word for pair in options.items() for word in pair]
    objects = str(tmp_path / "objects")
    more = ["--home", "./-dash", "--port", "0", "--no-agent", "--upgrade", "--objects", objects, "--driver", driver]
    more += ["--log", "json", "--keep-journal", "3MiB"]
    typed("up", *more, *words)
    (command,) = seen
    told = serving._parser().parse_args(command[4:])
    assert told.upgrade and told.objects == objects and told.home == str(tmp_path / "-dash")
    assert told.log == "json" and told.keep_journal_bytes == 3 << 20
    for name, value in options.items():
        assert f"{name[2:].replace('-', '_')}={value}" in told.driver_option
    seen.clear()
    for other in {"dask", "slurm", "simulated", "agents"} - {driver}:
        said = typed("up", "--home", "other", "--port", "0", "--driver", other, *words[:2], code=2)
        assert said.startswith(f"error: {words[0]}: is of --driver {driver}; the driver here is {other}")
    assert not seen and not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "clocks", ["", "2600", "2600,2600", "1300,1980", "2600,x", "nan,1", "inf,1", "2600,-1", "2600,0"]
)
def test_clocks_that_no_job_could_ask_for_are_one_message(clocks: str, tmp_path: Path) -> None:
    for option in ("--clocks-mhz", "--gpu-clocks-mhz"):
        said = typed("up", "--home", str(tmp_path / "h"), "--driver", "slurm", f"{option}={clocks}", code=2)
        assert said.startswith(f"error: {option}: {clocks!r} is not MHZ,MHZ") and len(said.splitlines()) == 1
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize("watts", ["", "90", "400,90", "90,x", "nan,1", "1,inf", "-1,2", "0,0", "1,2,3"])
def test_watts_that_no_node_could_draw_are_one_message(watts: str, tmp_path: Path) -> None:
    for option in ("--watts", "--gpu-watts"):
        said = typed("up", "--home", str(tmp_path / "h"), "--driver", "slurm", f"{option}={watts}", code=2)
        assert said.startswith(f"error: {option}: {watts!r} is not IDLE,FULL") and len(said.splitlines()) == 1


WRONG = [("--gpu-sharing", "foo", "time-slice"), ("--cpus", "1e9", "at most 100000"), ("--cpus", "nan", "above 0"),
         ("--preload", "cloudpickle,nosuchmodule", "nosuchmodule"), ("--preload", ".x", "'.x'"),
         ("--tasks-as", "podman:", "needs an image")]  # fmt: skip


@pytest.mark.parametrize(("option", "value", "said"), WRONG)
def test_an_agent_that_could_never_start_is_refused_before_its_server(
    option: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_spawn", lambda *_, **__: pytest.fail("something was started"))
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    alone = ("server", "agent", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token"))
    for command in (("up", "--home", str(tmp_path / "home"), "--port", "0"), alone):
        told = typed(*command, option, value, code=2)
        assert told.startswith(f"error: {option}: ") and said in told
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("none", [("--no-agent",), ("--driver", "simulated")])
def test_options_of_an_agent_that_is_not_started_are_refused(none: tuple[str, ...], tmp_path: Path) -> None:
    for option in (("--cpus", "2"), ("--gpu-sharing", "mps"), ("--fpgas", "1"), ("--preload", "json")):
        told = typed("up", "--home", str(tmp_path / "home"), *none, *option, code=2)
        assert told.startswith(f"error: {option[0]}: is of the agent") and not (tmp_path / "home").exists()


def test_an_agent_says_what_memory_it_can_offer(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    for memory, why in (("lots", "not a size"), ("0", "above 0"), ("1e30", "at most")):
        said = typed("server", "agent", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token"),
                     "--memory", memory, code=2)  # fmt: skip
        assert said.startswith("error: --memory: ") and why in said


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
    monkeypatch.setattr(server_commands, "connect", lambda *_: server)
    monkeypatch.setattr(server_commands, "find_task", lambda *_: {"id": 7})
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
    monkeypatch.setattr(kube, "find_access", lambda _: None)
    words = ["kube", "explain", "work/pod", "--scheduler", "http://127.0.0.1:9", "--journal", str(tmp_path)]
    assert typed(*words) == "so\n"
    assert seen == [("work", "pod"), "http://127.0.0.1:9", tmp_path, "wattflow/wattflow"]


class Answers:
    """A server that writes down what it is asked and answers with what it was given."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[tuple[object, ...]]()

    def call(self, *asked: object) -> Any:
        self.asked.append(asked)
        return self.answers.pop(0)


def test_limits_are_sent_as_they_were_typed_and_none_takes_one_away(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Answers({"mode": "hard", "share": 2.0})
    monkeypatch.setattr(account_commands, "connect", lambda *_: server)
    words = ["--mode", "hard", "--waiting", "9", "--share", "2", "--priority", "-1", "--running", "none"]
    typed("account", "set", "project", "climate", *words)
    wanted = {"mode": "hard", "waiting": 9, "share": 2.0, "priority": -1, "running": None}
    assert server.asked == [("PATCH", "/v1/accounts/project/climate", wanted)]
    for priority in ("1001", "-1001", "9" * 20):
        told = CliRunner().invoke(app, ["account", "set", "user", "eve", "--priority", priority])
        assert told.exit_code == 2 and "1000" in told.stderr and "--priority" in told.stderr


def test_a_report_is_of_the_month_that_was_asked_for_and_the_audit_begins_behind_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Answers([], {}, [{"sequence": 8, "at_s": 0.0, "who": "eve", "action": "run", "about": "w"}], [])
    monkeypatch.setattr(account_commands, "connect", lambda *_: server)
    assert "nothing was used in 2026-02" in typed("report", "--month", "2026-02", "--by", "project")
    assert "eve" in typed("server", "audit", "--after", "7")
    paths = [path for _, path, *_ in server.asked]
    assert paths == [
        "/v1/usage?by=project&month=2026-02", "/v1/status", "/v1/audit?after=7&most=1000",
        "/v1/audit?after=8&most=1000",
    ]  # fmt: skip


def test_who_stops_waiting_for_a_workflow_hears_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "connect", lambda *_: None)
    monkeypatch.setattr(run_command, "_submit", lambda *_: "w-7")
    monkeypatch.setattr(run_command, "_wait", stopped)
    (tmp_path / "w.json").write_text("{}")
    found = CliRunner().invoke(app, ["run", str(tmp_path / "w.json")])
    assert found.exit_code == 130 and "w-7 goes on at the server; `wattflow server cancel w-7` ends it" in found.output


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--by", "nonsense", "allowed are user, project, function"), ("--month", "2026-13", "as in 2026-03")],
)
def test_a_report_by_or_of_what_is_not_there_is_refused_before_a_server_is_asked(
    option: str, value: str, said: str
) -> None:
    found = CliRunner().invoke(app, ["report", option, value])
    assert found.exit_code == 2 and said in found.output and found.output.startswith(f"error: {option}")


def test_a_token_says_whose_budget_pays_and_for_which_node_it_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"token": "secret", "id": "t1", "name": "n7", "role": "agent", "project": "climate", "node": "node-7",
            "expires_s": None, "revoked_s": None}  # fmt: skip
    server = Answers(made)
    monkeypatch.setattr(account_commands, "connect", lambda *_: server)
    said = typed("token", "create", "n7", "--role", "agent", "--project", "climate", "--node", "node-7")
    assert said.startswith("secret\n")
    wanted = {"name": "n7", "role": "agent", "project": "climate", "node": "node-7"}
    assert server.asked == [("POST", "/v1/tokens", wanted)]


def test_an_agent_passes_the_variables_that_were_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []

    def choose(*told: object) -> None:
        seen.append(told)
        raise InvalidInput("here", "enough was seen")

    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setattr(privileges, "choose", choose)
    words = ["server", "agent", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token")]
    assert "enough was seen" in typed(*words, "--tasks-as", "self", "--pass-env", "TERM,LANG", code=2)
    assert seen == [("self", ("TERM", "LANG"))]


def test_kubes_commands_are_told_where_leases_are_and_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    seen: list[tuple[object, ...]] = []

    class Cluster:
        access = "here"

        def __init__(self, where: object) -> None: ...

        async def __aenter__(self) -> Cluster:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def call(self, method: str, path: str, body: object, content: str) -> None:
            seen.append((method, path))
            raise InvalidInput("here", "enough was seen")

    def noted(answer: Any) -> Any:
        async def note(client: object, *words: object) -> Any:
            seen.append(words)
            return answer

        return note

    fitted = SimpleNamespace(node="n7", found=SimpleNamespace(curve="curve"))
    monkeypatch.setattr(kube_operator, "find_access", lambda _: None)
    monkeypatch.setattr("wattflow.kube.client.Client", Cluster)
    monkeypatch.setattr("wattflow.kube.claims.expired", noted({"n7": "gone"}))
    monkeypatch.setattr("wattflow.kube.taint_writer.drop_taint", noted(True))
    monkeypatch.setattr("wattflow.kube.curves.fitted", noted([fitted]))
    monkeypatch.setattr("wattflow.kube.curves.told", lambda one, now_s: one.node)
    monkeypatch.setattr("wattflow.kube.curves.write_profile", noted(None))
    typed("kube", "sleep", "off", "--lease-namespace", "ours", code=2)
    typed("kube", "claims", "--release-expired", "--silent", "60", "--lease-namespace", "ours")
    assert typed("kube", "profiles", "--prometheus", "http://127.0.0.1:9", "--days", "2", "--write") == "n7\n"
    assert seen[0] == ("PATCH", "/api/v1/namespaces/ours")
    assert seen[1][:2] == ("ours", 60.0) and seen[2:] == [
        ("n7", "wattflow.io/claimed", "gone"),
        ("http://127.0.0.1:9", 2.0),
        ("n7", "curve"),
    ]


@pytest.mark.parametrize("words", [(), ("--interference",)])
def test_a_machine_is_measured_beside_a_load_where_that_was_asked(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def measure(*told: object) -> None:
        seen.append(told[3])
        raise InvalidInput("here", "enough was seen")

    monkeypatch.setattr(machine_commands, "_meter", lambda *_: (None, None))
    monkeypatch.setattr(machine_commands, "_measure", measure)
    assert "enough was seen" in typed("machine", "profile", str(tmp_path / "p.json"), "--virtual", *words, code=2)
    assert seen == [bool(words)]


def test_profiles_of_levels_need_levels(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "token").chmod(0o600)
    said = typed("server", "agent", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token"),
                 "--level-profile", "copy.json", code=2)  # fmt: skip
    assert "without --levels none is set here" in said
