"""Finished workflows as documents, CPU times from control groups."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from wattflow.kube import objects
from wattflow.kube.argo.collect import collect
from wattflow.kube.argo.graph import Graph
from wattflow.kube.pod_cpu import PodCpu
from wattflow.model.profile import PowerProfile, Provenance
from wattflow.traces import wfformat, wfformat_write

from .making import node

WORKFLOW = yaml.safe_load("""
metadata: {name: wf}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: leaf}
      - {name: maybe, template: leaf, when: "x", dependencies: [a]}
      - {name: fan, template: leaf, withParam: "{{tasks.a.outputs.result}}", dependencies: [maybe]}
      - {name: end, template: leaf, dependencies: [fan]}
  - {name: leaf, container: {image: x}}
""")


def ran(name: str, start: int, end: int, where: str = "n", uid: str = "") -> objects.Pod:
    raw = {
        "metadata": {
            "name": name, "uid": uid or name,
            "annotations": {"workflows.argoproj.io/node-name": f"wf.{name}"},
        },
        "spec": {"nodeName": where, "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {
            "startedAt": f"2026-01-01T00:00:{start:02d}Z", "finishedAt": f"2026-01-01T00:00:{end:02d}Z"}}}]},
    }  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(raw), type=objects.Pod)


def test_tasks_that_ran_with_energy_shared_by_cpu_time() -> None:
    pods = [ran("a", 0, 10), ran("fan(0:x)", 10, 20), ran("fan(1:y)", 10, 20), ran("end", 20, 20)]
    curve = PowerProfile((0, 2, 4), (100, 140, 160))
    cpu_s = {"a": 10.0, "fan(0:x)": 10.0, "fan(1:y)": 5.0, "end": 2.0}
    found = collect(WORKFLOW, Graph.of(WORKFLOW), pods, {"n": node("n")}, lambda one: curve, cpu_s)
    tasks = {task.id: task for task in found.tasks}
    assert {id: task.parents for id, task in tasks.items()} == {
        "a": (), "fan(0)": ("a",), "fan(1)": ("a",), "end": ("fan(0)", "fan(1)"),
    }  # fmt: skip
    assert tasks["a"].energy_j == pytest.approx(200) and tasks["a"].energy_provenance is Provenance.MODELLED
    # 1.5 threads busy: 30 W above idle for 10 s, two thirds and one third of it
    assert tasks["fan(0)"].energy_j == pytest.approx(200) and tasks["fan(1)"].energy_j == pytest.approx(100)
    assert tasks["end"].runtime_s == 0.5, "two CPU seconds on four threads take at least half a second"
    assert (found.makespan_s, tasks["fan(1)"].machine, tasks["fan(1)"].start_s) == (20.5, "n", 10.0)
    assert tasks["fan(1)"].avg_cpu_pct == pytest.approx(50)
    assert wfformat.validate(wfformat_write.to_json(found)) == ()


def test_unknown_power_is_unknown_and_retries_are_all_charged() -> None:
    pods = [ran("a(0)", 0, 10, uid="u0"), ran("a(1)", 10, 15, uid="u1")]
    graph = Graph.of(WORKFLOW)
    found = collect(WORKFLOW, graph, pods, {"n": node("n")}, lambda one: None, {})
    (task,) = found.tasks
    assert task.energy_j is None and task.runtime_s == 5.0
    curve = PowerProfile((0, 2), (100, 140))
    (task,) = collect(WORKFLOW, graph, pods, {"n": node("n")}, lambda one: curve, {}).tasks
    assert task.energy_j == pytest.approx(300)


@pytest.mark.parametrize("version", [1, 2])
def test_cpu_seconds_stay_when_the_group_is_gone(tmp_path: Path, version: int) -> None:
    uid = "12345678-1234-1234-1234-123456789abc"
    if version == 1:
        folder = tmp_path / "cpuacct" / "rig" / "kubepods" / "burstable" / f"pod{uid}"
        file, text = "cpuacct.usage", "2500000000"
    else:
        name = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        folder = tmp_path / "rig" / "kubepods.slice" / "kubepods-burstable.slice" / name
        file, text = "cpu.stat", "nr 1\nusage_usec 2500000\n"
    folder.mkdir(parents=True)
    (folder / file).write_text(text)
    meter = PodCpu("/rig", tmp_path)
    meter.scan()
    assert meter.seconds == {uid: 2.5}
    (folder / file).unlink()
    meter.scan()
    assert meter.seconds == {uid: 2.5}
