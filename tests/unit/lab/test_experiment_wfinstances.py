"""Recorded against simulated makespans: machines, cores and pins as recorded, and the fit of what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.papers import overheads, recorded_replay, wfinstances
from research.papers.recorded_replay import Replay
from wattflow import traces
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.model.workflow import File, Machine, Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.sim import simulate

TWO = (Machine("a", 2), Machine("b", 2))


def task(id: str, runtime_s: float, machine: str | None = None, **facts) -> Task:
    return Task(id, id, "f", runtime_s, machine=machine, **facts)


def instance(tasks: list[Task], machines: tuple[Machine, ...] = TWO, makespan_s: float | None = 100.0) -> Workflow:
    return Workflow("w", tuple(tasks), (File("big", 1250),), machines, makespan_s=makespan_s)


def replayed(tmp_path: Path, document: Workflow, bandwidth: float = 125.0) -> Replay | None:
    path = tmp_path / "w.json.gz"
    traces.save(Workload.of(document), path)
    return recorded_replay.replay(path, "app", bandwidth)


def test_tasks_run_where_they_were_recorded(tmp_path: Path) -> None:
    # Four tasks of 10 s on two machines of two cores: all at once if free, two rounds if all were on one machine.
    found = replayed(tmp_path, instance([task(str(i), 10.0, "a") for i in range(4)]))
    assert found is not None
    assert (found.simulated_s, found.free_s, found.pinned, found.cores) == (20.0, 10.0, 4, 4)
    assert found.error == pytest.approx(-0.8)


def test_unmapped_tasks_may_go_anywhere(tmp_path: Path) -> None:
    found = replayed(tmp_path, instance([task("0", 10.0, "a"), *(task(str(i), 10.0) for i in range(1, 4))]))
    assert found is not None
    assert (found.simulated_s, found.pinned) == (10.0, 1)


def test_cores_by_count_then_by_use() -> None:
    assert recorded_replay.cores_of(task("a", 1.0)) == 1.0
    assert recorded_replay.cores_of(task("a", 1.0, avg_cpu_pct=40.0)) == 1.0
    assert recorded_replay.cores_of(task("a", 1.0, avg_cpu_pct=170.0)) == 1.7
    assert recorded_replay.cores_of(task("a", 1.0, avg_cpu_pct=170.0, variants=(Variant(cores=4.0),))) == 4.0


def test_a_task_asks_for_no_more_than_its_machine_has() -> None:
    document = instance([task("0", 10.0, "a", variants=(Variant(cores=9.0, memory_bytes=1 << 60),))])
    cluster = recorded_replay.recorded_cluster(document, 1e9)
    workload = recorded_replay.recorded_work(document, cluster)
    assert simulate(workload, cluster, recorded_replay.RECORDED).makespan_s == 10.0


def test_chain_data_and_zero_runtimes(tmp_path: Path) -> None:
    first = task("0", 10.0, "a", inputs=("big",))
    chain = [first, task("1", 0.0, "a", parents=("0",)), task("2", 5.0, "a", parents=("1",))]
    found = replayed(tmp_path, instance(chain))
    assert found is not None
    # 1,250 bytes at 125 bytes a second come before the first task.
    assert (found.chain, found.zero, found.simulated_s, found.data_s) == (3, 1, 15.0, 25.0)
    assert found.moved_gb == pytest.approx(1.25e-6)


def test_without_a_recorded_makespan_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert replayed(tmp_path, instance([task("0", 1.0, "a")], makespan_s=None)) is None


def rows(chain_s: float, task_s: float, gb_s: float) -> list[Replay]:
    """Instances whose recorded makespans follow a line exactly."""
    found = []
    for number, (chain, tasks, gb) in enumerate(
        [(3, 10, 7.0), (3, 80, 2.0), (5, 40, 30.0), (9, 300, 1.0), (4, 7, 9.0)]
    ):
        recorded = 50.0 + chain_s * chain + task_s * tasks + gb_s * gb
        found.append(
            Replay(f"f{number}", "wms/app", tasks, chain, gb, 60.0, 4, 0, tasks, recorded, 50.0, 51.0, 49.0)
        )  # fmt: skip
    return found


@pytest.mark.parametrize(("task_s", "gb_s"), [(2.0, 0.0), (0.0, 8.0)])
def test_fit_finds_the_terms_and_which_they_are(task_s: float, gb_s: float) -> None:
    found = overheads.fit(rows(3.0, task_s, gb_s), 1.25e7)
    assert (found.chain_s, found.task_s, found.gb_s) == pytest.approx((3.0, task_s, gb_s), abs=1e-9)
    assert found.error < 1e-9
    assert found.left_out == pytest.approx([one.recorded_s for one in rows(3.0, task_s, gb_s)])


def test_a_link_that_is_too_slow_is_not_believed() -> None:
    assert overheads.fit(rows(3.0, 0.0, 800.0), 1.25e7).gb_s == 0.0


def test_terms_are_never_negative() -> None:
    faster = [replace(one, recorded_s=40.0) for one in rows(0.0, 0.0, 0.0)]
    found = overheads.fit(faster, 1.25e7)
    assert (found.chain_s, found.task_s, found.gb_s) == (0.0, 0.0, 0.0)


def test_few_instances_join_those_of_their_system() -> None:
    some = [*rows(1.0, 1.0, 0.0), replace(rows(1.0, 1.0, 0.0)[0], application="wms/other")]
    assert {name: len(group) for name, group in overheads.grouped(some, 4).items()} == {"wms/app": 5, "wms": 1}


def test_outcome_has_tables_figures_and_a_picture(tmp_path: Path) -> None:
    some = rows(3.0, 2.0, 0.0)
    groups = {"wms/app": some, "few": some[:1]}
    found = wfinstances.outcome(groups, {"wms/app": overheads.fit(some, 1.25e7)}, 61.0)
    lines = [str(figure) for figure in found.figures]
    assert lines[0] == "figure wfinstances_replayed 6 files goal none ok"
    assert lines[-1] == "figure wfinstances_s 61 s goal ≤60 short"
    errors = [abs(one.error) for one in [*some, some[0]]]
    assert found.figures[1].value == pytest.approx(100 * float(np.median(errors)))
    assert [row[0] for row in found.sheets[0].rows] == ["wms/app", "few"]
    assert found.sheets[1].rows[0][1:4] == ("3.0", "2.0", "–")
    found.pictures["makespans"](tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_settings_are_read_strictly() -> None:
    problems = Problems()
    wfinstances.read(StrictTable({"fit_from": 2}, "", problems))
    assert "at least 4" in problems.listed()[0].what


def test_hello_world_lacks_what_pegasus_adds(data_dir: Path) -> None:
    path = data_dir / "wfinstances" / "helloworld" / "helloworld-chain-5-chameleon.json.gz"
    found = recorded_replay.replay(path, "helloworld", 1.25e9)
    assert found is not None
    assert (found.tasks, found.chain, found.recorded_s) == (5, 5, 661.0)
    assert found.error == pytest.approx(-0.24, abs=0.01)
