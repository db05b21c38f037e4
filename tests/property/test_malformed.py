"""Malformed inputs for every command: an answer or one message, never a traceback.

The same inputs in every run; WATTFLOW_FUZZ=1 draws others. `make test` feeds each command 30 of them, `make malformed`
200 (WATTFLOW_CALLS). A call starts from one that works, then something in it is spoilt: a byte, a number, a key of a
file, or the value of an option. Inputs are small, and a call that takes more than two minutes counts as hanging.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

from wattflow.cli.main import COMMANDS, app

EXAMPLE = Path(__file__).parents[2] / "examples" / "kepler-nx12-platform.model"
CALLS = int(os.environ.get("WATTFLOW_CALLS", "30"))
HANG_S = 120
SEED = time.time_ns() if os.environ.get("WATTFLOW_FUZZ") else 20

WFFORMAT = json.dumps({
    "name": "x", "schemaVersion": "1.5",
    "workflow": {
        "specification": {"tasks": [
            {"name": "a", "id": "a", "parents": [], "children": ["b"], "inputFiles": ["f"], "outputFiles": []},
            {"name": "b", "id": "b", "parents": ["a"], "children": []},
        ], "files": [{"id": "f", "sizeInBytes": 10}]},
        "execution": {"makespanInSeconds": 3, "executedAt": "2020-01-01T00:00:00Z", "tasks": [
            {"id": "a", "runtimeInSeconds": 1, "coreCount": 1, "machines": ["epyc"]},
            {"id": "b", "runtimeInSeconds": 2, "memoryInBytes": 100},
        ], "machines": [{"nodeName": "epyc", "cpu": {"coreCount": 4}}]},
    },
})  # fmt: skip
SWF = "; a log\n" + "".join(f"{i} {i} -1 5 2 -1 -1 2 9 100 1 1 1 1 1 1 -1 -1\n" for i in range(1, 4))
NEXTFLOW = (
    "task_id,process,name,status,cpus,memory,submit,start,complete,realtime,%cpu\n"
    "1,A,A (1),COMPLETED,2,1 GB,1700000000000,1700000001000,1700000009000,3m 2s,99%\n"
)
TASKS = "task,machine,size,runtime_s\n" + "".join(f"t{i % 2},m,{i + 1}e6,{i + 2}\n" for i in range(12))
CLUSTER = """name = "c"
[[nodes]]
name = "n"
count = 2
cores = 4
memory = "8 GiB"
power = { form = "linear", idle_w = 10, full_w = 50 }
sleep = { watts = 2, wake = "10s" }
[[nodes.devices]]
kind = "gpu"
memory = "1 GiB"
"""
STUDY = 'workloads = ["bag:tasks=3"]\nclusters = ["mixed"]\npolicies = ["fifo"]\nseeds = 1\nslo = ["p95_wait=1m"]\n'
DESIGN = """name = "d"
policies = ["fifo+least-loaded"]
workloads = ["skewed:tasks=20"]
seeds = 1
[[frames]]
use = "hash"
[every_frame]
stealing = [false, { hosts = 4, label = "s" }]
"""
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: "t"}}]
"""
SCHEDULER = 'scheduler_name = "wattflow"\npolicy = "fifo"\n'

NASTY = [
    "", " ", "nan", "inf", "-inf", "-1", "0", "1e400", "1e308", "-0.5", "9" * 30, "abc", "=", ":", ",", ",,", "a=b",
    "a:b=c", "../..", "/", "/dev/null", ".", "-", "--", "💥", "\u0663", "x" * 5000, "\n", "\t;", "%s", "{}", "None",
    "true", "1,2", "[1]", "fifo:", "fifo:=", ":x=1", "fifo:queue=", "bag:tasks=-1", "bag:tasks=1e9", "demo:", "demo:x",
    "montage:tasks=nan", "http://", "file:///etc/passwd", "\x7f", "ccf:", "a.py:b", "x.toml", "x.json",
]  # fmt: skip
NUMBERS = [
    "-1",
    "0",
    "1e308",
    "-1e308",
    "1e-320",
    "NaN",
    "Infinity",
    "9" * 40,
    '"x"',
    "null",
    "true",
    "[]",
    "{}",
    "1.5",
    '""',
    "1e30",
]


def spoilt(text: str, draw: random.Random) -> bytes:
    """The file with one to three things wrong with it."""
    data = text.encode()
    for _ in range(draw.randint(1, 3)):
        data = draw.choice(FAULTS)(data, draw)
    return data


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _byte(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + bytes([draw.randrange(256)]) + data[at + draw.randint(0, 1) :]


def _number(data: bytes, draw: random.Random) -> bytes:
    """Another value for one of the numbers."""
    starts = [i for i, byte in enumerate(data) if chr(byte).isdigit() and (i == 0 or not chr(data[i - 1]).isalnum())]
    if not starts:
        return data
    at = draw.choice(starts)
    end = at
    while end < len(data) and (chr(data[end]).isalnum() or data[end : end + 1] == b"."):
        end += 1
    return data[:at] + draw.choice(NUMBERS).encode() + data[end:]


def _word(data: bytes, draw: random.Random) -> bytes:
    """A word gone, doubled or strange."""
    words = data.split(b" ")
    at = draw.randrange(len(words))
    words[at] = draw.choice([b"", words[at] * 2, draw.choice(NASTY).encode(), b"\xff\xfe", b"\x00"])
    return b" ".join(words)


def _line(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    return b"\n".join([*lines[:at], *draw.choice([[], [lines[at]] * 2, [b"[" * 500], [b","]]), *lines[at + 1 :]])


FAULTS: list[Callable[[bytes, random.Random], bytes]] = [_cut, _byte, _number, _number, _number, _word, _line]


class Maker:
    """Makes one call after another in a folder of its own."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder, self.draw, self.count = folder, random.Random(f"{SEED}{seed}"), 0

    def file(self, name: str, text: str) -> str:
        """A spoilt file; now and then it is missing, empty, or a folder."""
        self.count += 1
        path = self.folder / f"{self.count}-{name}"
        kind = self.draw.random()
        if kind < 0.04:
            return str(path)
        if kind < 0.08:
            path.mkdir()
            return str(path)
        path.write_bytes(b"" if kind < 0.12 else spoilt(text, self.draw))
        return str(path)

    def good(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def out(self, *endings: str) -> str:
        self.count += 1
        return str(self.folder / f"out-{self.count}{self.draw.choice([*endings, '', '.xyz'])}")

    def nasty(self) -> str:
        return self.draw.choice(NASTY)

    def options(self, *names: str) -> list[str]:
        """One to three options with values that make no sense."""
        chosen = [self.draw.choice(names) for _ in range(self.draw.randint(1, 3))]
        return [part for name in chosen for part in (name, self.nasty())]

    def trace(self) -> str:
        name, text = self.draw.choice(
            [("w.json", WFFORMAT), ("w.json", WFFORMAT), ("log.swf", SWF), ("t.csv", NEXTFLOW)]
        )
        return self.file(name, text)


SIM = ("--cluster", "--seed", "--queue", "--round-s", "--sleep-after", "--runtime-error", "--power-error", "--metrics",
       "--estimates", "-o", "--out", "--policy")  # fmt: skip


def compare(make: Maker) -> list[str]:
    if make.draw.random() < 0.3:
        return ["compare", make.file("study.toml", STUDY)]
    if make.draw.random() < 0.4:
        return ["compare", "bag:tasks=3", "-p", "fifo", "--seeds", "1",
                *make.options("--slo", "--jitter", "-b", "--metrics", "-c", "--report", "--queue")]  # fmt: skip
    return ["compare", make.trace(), "-p", make.draw.choice(["fifo", "heft", make.nasty()]), "--seeds", "1"]


def simulate(make: Maker) -> list[str]:
    if make.draw.random() < 0.5:
        return ["simulate", make.trace(), "-c", make.draw.choice(["mixed", make.file("c.toml", CLUSTER)])]
    return ["simulate", "bag:tasks=3", *make.options(*SIM)]


def describe(make: Maker) -> list[str]:
    return [
        "describe",
        make.draw.choice([make.trace(), make.nasty()]),
        *make.draw.choice([[], make.options("--seed", "-o", "--out")]),
    ]


def generate(make: Maker) -> list[str]:
    keys = ("tasks", "workflows", "runtime", "mean", "cv", "arrivals", "rate", "cores", "memory", "file", make.nasty())
    family = make.draw.choice(["bag", "montage", "layered", "map-reduce", make.nasty()])
    pairs = ",".join(f"{make.draw.choice(keys)}={make.nasty()}" for _ in range(make.draw.randint(1, 3)))
    return [
        "generate",
        f"{family}:{pairs}",
        "--out",
        make.out(".json", ".swf"),
        *make.draw.choice([[], make.options("--seed")]),
    ]


def docs(make: Maker) -> list[str]:
    return ["docs", make.draw.choice(["index", make.nasty()]),
            *make.draw.choice([["--list"], ["--text"], ["--out", make.out("")], ["--out", make.nasty()]])]  # fmt: skip


def convert(make: Maker) -> list[str]:
    return ["convert", make.trace(), make.out(".json", ".swf", ".parquet")]


def enrich(make: Maker) -> list[str]:
    nodes = make.draw.choice(["mixed", make.file("c.toml", CLUSTER), make.nasty()])
    return ["enrich", make.trace(), make.out(".json"), "--nodes", nodes,
            *make.draw.choice([["--default", "epyc"], make.options("--default", "--error")])]  # fmt: skip


def fit(make: Maker) -> list[str]:
    source = make.draw.choice([make.file("t.csv", TASKS), make.trace(), make.nasty()])
    return [
        "fit",
        source,
        make.out(".model"),
        *make.draw.choice([[], ["--also", make.nasty()]]),
    ]


def predict(make: Maker) -> list[str]:
    model = make.draw.choice([str(EXAMPLE), make.file("m.model", "{}" * 20), make.nasty()])
    counters = "bpf_cpu_time_us,cache_miss,cpu_cycles,cpu_instructions\n1,2,3,4\n5,6,7,8\n"
    source = make.draw.choice([make.file("u.csv", counters), make.file("t.csv", TASKS), make.nasty()])
    return ["predict", model, source, *make.draw.choice([[], make.options("--level", "--out")])]


def learn(make: Maker) -> list[str]:
    source = make.draw.choice([make.trace(), make.nasty()])
    more = make.draw.choice([[], make.options("--attempts", "--from", "-c", "--seconds", "--seed")])
    return ["learn", source, "--out", make.out(".npz"), "--seconds", "0", *more]


def explore(make: Maker) -> list[str]:
    return [
        "explore",
        make.file("d.toml", DESIGN),
        "--plan",
        *make.draw.choice([[], make.options("--workers", "--out")]),
    ]


def clusters(make: Maker) -> list[str]:
    return ["clusters", make.draw.choice([make.file("c.toml", CLUSTER), make.file("c.toml", CLUSTER), make.nasty()])]


def frames(make: Maker) -> list[str]:
    return ["frames", make.draw.choice([make.nasty(), make.file("f.toml", 'use = "hash"\nname = "x"\n')])]


def policies(make: Maker) -> list[str]:
    return ["policies", make.nasty(), *make.draw.choice([[], make.options("-o", "--out")])]


def profiles(make: Maker) -> list[str]:
    return ["profiles", make.nasty(), *make.draw.choice([[], make.options("-o", "--out", "--plot")])]


def run(make: Maker) -> list[str]:
    return [
        "run",
        make.file("w.json", WFFORMAT),
        *make.options("--server", "--token-file", "--retries", "--out", "--objective"),
    ]


def profile(make: Maker) -> list[str]:
    """Never a call that would measure: one of the numbers is always out of range."""
    return ["profile", make.out(".json"), "--window-s", "0", *make.options("--levels", "--warm-s", "--tolerance")]


def served(command: str, *needed: str) -> Callable[[Maker], list[str]]:
    """Commands of a server that is not there."""

    def made(make: Maker) -> list[str]:
        return [
            command,
            *(make.nasty() for _ in needed),
            *make.options("--server", "--token-file", "--home", "-o", "--nonsense"),
        ]

    return made


def up(make: Maker) -> list[str]:
    """Never one that starts: no driver has such a name."""
    more = (
        "--home",
        "--host",
        "--port",
        "--policy",
        "--cluster",
        "--store",
        "--keep",
        "--tls-cert",
        "--cpus",
        "--fpgas",
    )
    return ["up", "--driver", make.nasty() + "x", *make.draw.choice([[], make.options(*more)])]


def down(make: Maker) -> list[str]:
    return ["down", *make.options("--home", "--home", "--home", "--nonsense")]


def agent(make: Maker) -> list[str]:
    """Never one that joins: the token lies in no such file."""
    server = make.draw.choice(["http://127.0.0.1:9", make.nasty()])
    more = ("--name", "--cpus", "--memory", "--folder", "--preload", "--gpu-sharing", "--ca")
    return ["agent", "--server", server, "--token-file", make.nasty(), *make.draw.choice([[], make.options(*more)])]


def demo(make: Maker) -> list[str]:
    """Never one that runs: no policy has such a name."""
    return ["demo", "-p", make.nasty() + "x", *make.draw.choice([[], make.options("--seeds", "--report", "--workers")])]


def warm(make: Maker) -> list[str]:
    return ["warm", make.draw.choice([make.out(""), make.nasty()]), "-p", make.nasty() + "x"]


def meters(make: Maker) -> list[str]:
    return ["meters", *make.options("--seconds", "--seconds", "-o", "--out")]


def bounds(make: Maker) -> list[str]:
    nodes = ["-c", make.draw.choice(["mixed", make.file("c.toml", CLUSTER), make.nasty()])]
    if make.draw.random() < 0.5:
        return ["bounds", make.trace(), "-p", "heft", "--evaluations", "10", *nodes]
    return [
        "bounds",
        "bag:tasks=3",
        "--evaluations",
        "10",
        *make.options("--slack", "--seed", "--evaluations", "-p", "-o", "--out", "-c"),
    ]


def kube(make: Maker) -> list[str]:
    """Never one that reaches a cluster: there is none where the files say."""
    reached = ["--kubeconfig", make.file("kubeconfig", KUBECONFIG)]
    path = make.file("s.toml", SCHEDULER)
    return [
        "kube",
        *make.draw.choice([
            ["scheduler", "--config", path, "--check", *reached],
            ["scheduler", "--check", *make.options("--policy", "--config", "--kubeconfig"), *reached],
            [make.nasty()], ["explain", make.nasty(), *reached], ["status", *reached],
            ["collect", make.nasty(), make.out(".json"), *reached],
            ["meter", make.out(".json"), "--for", "0.01", *make.options("--every", "--every", "--nonsense")],
            ["scheduler", "--check", "--frame", make.nasty(), *make.options("--placer", "--port"), *reached],
            [make.draw.choice(["enable", "disable"]), make.nasty(), "--selector", make.nasty(), *reached],
            ["savings", *make.options("--scheduler", "--release"), *reached],
            ["profiles", *make.options("--prometheus", "--days"), *reached],
            ["register", "--server", make.nasty(), "--token-file", make.nasty(), "--folder", make.nasty(), *reached],
            ["register", "--server", make.nasty(), "--token-file", path, "--folder", make.out("pods"),
             *make.options("--claim", "--host-path", "--node-selector"), *reached],
        ]),
    ]  # fmt: skip


MAKERS: dict[str, Callable[[Maker], list[str]]] = {
    "compare": compare, "simulate": simulate, "describe": describe, "generate": generate, "convert": convert,
    "enrich": enrich, "fit": fit, "predict": predict, "learn": learn, "explore": explore, "clusters": clusters,
    "frames": frames, "policies": policies, "profiles": profiles, "run": run,
    "profile": profile, "kube": kube, "docs": docs,
    "ps": served("ps"), "logs": served("logs", "TASK"), "cancel": served("cancel", "ID"), "nodes": served("nodes"),
    "why": served("why", "TASK"), "top": served("top"), "down": down, "up": up, "agent": agent, "demo": demo,
    "view": served("view", "ID"), "report": served("report"), "audit": served("audit"),
    "warm": warm, "meters": meters, "bounds": bounds, "completion": lambda make: ["completion", make.nasty()],
}  # fmt: skip


def test_every_command_has_a_maker() -> None:
    assert {*COMMANDS, "kube"} == set(MAKERS)


@pytest.fixture
def hang() -> Iterator[None]:
    """A call that never ends fails instead of holding everything up."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError("the call hangs")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(MAKERS))
def test_no_malformed_input_ends_in_a_traceback(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hang: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATTFLOW_HOME", str(tmp_path / "home"))
    make, runner, refusals = Maker(tmp_path, command), CliRunner(), 0
    faults: list[str] = []
    for _ in range(CALLS):
        arguments = MAKERS[command](make)
        signal.alarm(HANG_S)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = runner.invoke(app, arguments, prog_name="wattflow")
        signal.alarm(0)
        broken = done.exception is not None and not isinstance(done.exception, SystemExit)
        if broken or done.exit_code not in (0, 1, 2) or "Traceback" in done.output:
            where = traceback.extract_tb(done.exc_info[2])[-1] if done.exc_info and done.exc_info[2] else ""
            faults.append(f"{[a[:60] for a in arguments]}: {done.exit_code} {done.exception!r:.200} at {where}")
        refusals += done.exit_code != 0
    assert not faults, "\n".join(faults)
    assert refusals >= CALLS / 4, "the inputs are hardly malformed"
