"""Options of the measuring commands that need hardware or a cluster: what they hand on, and what they refuse."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from wattflow.cli import kube, machine_commands
from wattflow.cli.screen import guarded
from wattflow.energy import machine_facts, profiler
from wattflow.energy.cpu_profile import CpuProfile
from wattflow.energy.meters import nvml
from wattflow.kube import pod_cpu
from wattflow.kube.argo import fetch
from wattflow.model.workflow import Task, Workflow


def run(command: Any, *arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command("it")(guarded(command))
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_kube_meter_reads_the_pods_below_the_group_that_cgroup_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group, uid, usage in (("rig", "1" * 8, 2_500_000), ("other", "2" * 8, 9_000_000)):
        pod = f"pod{uid}-1234-1234-1234-123456789abc"
        folder = tmp_path / "groups" / group / "kubepods" / "burstable" / pod
        folder.mkdir(parents=True)
        (folder / "cpu.stat").write_text(f"usage_usec {usage}\n")
    monkeypatch.setattr(pod_cpu, "PodCpu", functools.partial(pod_cpu.PodCpu, root=tmp_path / "groups"))
    out = tmp_path / "cpu.json"
    done = run(kube.meter, out, "--cgroup", "/rig", "--every", "0.01", "--for", "0.02")
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text()) == {"11111111-1234-1234-1234-123456789abc": 2.5}


@pytest.mark.parametrize(("given", "said"), [([], "modelled above idle"), (["http://p:9"], "attributed by Kepler")])
def test_kube_collect_takes_the_joules_of_the_prometheus_that_it_is_given(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def watts_of(*_: object) -> Any:
        return type("Watts", (), {"profile_of": None})

    async def finished(*arguments: Any) -> Workflow:
        asked.append(arguments[-1])
        return Workflow("flow", tasks=(Task("a", "a", "a", 1.0, energy_j=5.0),), makespan_s=1.0)

    monkeypatch.setattr(fetch, "watts_of", watts_of)
    monkeypatch.setattr(fetch, "finished", finished)
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: u, user: {}}]\n"
    )
    more = ["--prometheus", *given] if given else []
    done = run(kube.collect, "flow", tmp_path / "out.json", "--kubeconfig", config, *more)
    assert done.exit_code == 0, done.output
    assert asked == [given[0] if given else ""] and f"5.0 J {said}" in done.output


def test_profile_of_a_gpu_says_that_there_is_none_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml, "_LIBRARIES", ())
    out = tmp_path / "gpu.json"
    done = run(machine_commands.profile, out, "--gpu")
    assert done.exit_code == 2 and "no NVIDIA driver library" in done.output and not out.exists()
    done = run(machine_commands.profile, out, "--gpu", "--kube", "node")
    assert done.exit_code == 2 and "leave --gpu out" in done.output


@pytest.mark.parametrize("asked", [False, True])
def test_profile_measures_interference_where_it_is_asked_for(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CpuProfile("m", "played", threads=2, cores=1)

    class Played:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self) -> CpuProfile:
            return made

        def interference(self, done: CpuProfile) -> CpuProfile:
            beside.append(done)
            return done

    beside: list[CpuProfile] = []
    monkeypatch.setattr(profiler, "Profiler", Played)
    tools: Any = (None, None)
    settings = profiler.ProfilerSettings()
    found = machine_commands._measure(tmp_path / "out.json", tools, settings, asked, None)
    assert found is made and len(beside) == int(asked) and machine_facts.topology().threads > 0
