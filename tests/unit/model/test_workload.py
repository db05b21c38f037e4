"""Columns of documents, and the laws of the columns."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import File, Function, Task, Variant, Workflow
from wattflow.model.workload import UNKNOWN_RUNTIME_S, Shape, Workload


def task(id: str, runtime_s: float | None = 1.0, **more: object) -> Task:
    return Task(id, id, "f", runtime_s, **more)  # type: ignore[arg-type]


def test_columns_follow_the_documents_order() -> None:
    workload = Workload.of(Workflow("w", (task("a", 3.0), task("b", 5.0, parents=("a",)))))
    assert workload.ids == ("a", "b")
    assert workload.runtime_s.tolist() == [3.0, 5.0]
    assert workload.parents_of(1).tolist() == [0]
    assert workload.estimate_s.tolist() == [3.0, 5.0]


def test_bytes_go_with_the_edge_that_carries_them() -> None:
    files = (File("x", 10), File("y", 4), File("z", 100))
    tasks = (task("a", outputs=("x", "y")), task("b", parents=("a",), inputs=("x", "z"), outputs=()))
    workload = Workload.of(Workflow("w", tasks, files))
    assert workload.parent_bytes.tolist() == [10.0]
    assert workload.input_bytes.tolist() == [0.0, 100.0]
    assert workload.output_bytes.tolist() == [14.0, 0.0]


def test_of_two_writers_the_parent_hands_the_file_over() -> None:
    tasks = (task("a", outputs=("x",)), task("b", outputs=("x",)), task("c", parents=("a",), inputs=("x",)))
    workload = Workload.of(Workflow("w", tasks, (File("x", 7),)))
    assert workload.parent_bytes.tolist() == [7.0]
    assert workload.input_bytes.tolist() == [0.0, 0.0, 0.0]


def test_times_are_on_the_workloads_clock() -> None:
    workflow = Workflow("w", (task("a", submit_s=2.0, deadline_s=9.0), task("b")), submit_s=100.0, deadline_s=50.0)
    workload = Workload.of(workflow)
    assert workload.release_s.tolist() == [102.0, 100.0]
    assert workload.deadline_s.tolist() == [109.0, 150.0]
    assert Workload.of(Workflow("w", (task("a"),))).deadline_s.tolist() == [math.inf]


def test_functions_of_one_name_stay_apart_where_documents_differ() -> None:
    one = Workflow("1", (task("a"),), functions=(Function("f", cold_start_s=1.0),))
    two = Workflow("2", (task("a"),), functions=(Function("f", cold_start_s=2.0),))
    workload = Workload.of([one, two, one])
    starts = [workload.functions[workload.shapes[s].function].cold_start_s for s in workload.shape]
    assert starts == [1.0, 2.0, 1.0]
    assert len(workload.shapes) == 2


def test_every_problem_is_named_at_once() -> None:
    tasks = (
        task("a", -1.0),
        task("b", None),
        task("b"),
        task("c", parents=("ghost",)),
        task("d", parents=("e",)),
        task("e", parents=("d",)),
        task("f", float("nan")),
    )
    with pytest.raises(InvalidInput) as caught:
        Workload.of(Workflow("w", tasks))
    text = str(caught.value)
    for part in ("-1.0", "None", "used twice", "'ghost'", "cycle", "nan"):
        assert part in text
    assert len(caught.value.problems) == 6


def test_a_cycle_is_named_by_its_tasks_and_not_by_what_hangs_below() -> None:
    tasks = (task("a", parents=("c",)), task("b", parents=("a",)), task("c", parents=("b",)), task("d", parents=("c",)))
    with pytest.raises(InvalidInput, match="cycle") as caught:
        Workload.of(Workflow("w", tasks))
    path = str(caught.value).split("(a cycle): ")[1].split(" → ")
    assert path[0] == path[-1]
    assert set(path) == {"a", "b", "c"}
    steps = {("a", "b"), ("b", "c"), ("c", "a")}
    assert all(step in steps for step in itertools.pairwise(path))


def test_an_unknown_runtime_stands_out() -> None:
    workload = Workload.of(Workflow("w", (task("a", None), task("b", 3.0))), allow_unknown_runtimes=True)
    assert workload.runtime_s.tolist() == [UNKNOWN_RUNTIME_S, 3.0]
    assert math.isnan(workload.estimate_s[0])
    assert workload.columns["runtime_known"].tolist() == [False, True]


def test_recorded_columns_are_nan_where_unknown() -> None:
    workload = Workload.of(Workflow("w", (task("a", energy_j=5.0), task("b", machine="m"))))
    np.testing.assert_array_equal(workload.columns["energy_j"], [5.0, np.nan])
    assert workload.columns["machine"].tolist() == ["", "m"]
    assert "avg_cpu_pct" not in workload.columns


def test_children_are_the_parents_turned_round() -> None:
    tasks = (task("a"), task("b", parents=("a",)), task("c", parents=("a", "b")))
    start, child, _ = Workload.of(Workflow("w", tasks)).children()
    assert [child[start[t] : start[t + 1]].tolist() for t in range(3)] == [[1, 2], [2], []]


def test_columns_need_only_times() -> None:
    workload = Workload.of_columns("log", release_s=np.array([5.0, 2.0]), runtime_s=np.array([1.0, 0.0]))
    assert len(workload) == 2
    assert workload.workflow_submit_s.tolist() == [2.0]
    assert workload.shapes == (Shape(0, (Variant(),)),)
    assert workload.task_id(1) == "1"
    assert workload.topological_order().tolist() == [0, 1]


def test_edges_given_in_any_order() -> None:
    edges = (np.array([1, 0, 0], np.int32), np.array([2, 2, 1], np.int32))
    workload = Workload.of_columns("w", release_s=np.zeros(3), runtime_s=np.ones(3), edges=edges)
    assert [sorted(workload.parents_of(t).tolist()) for t in range(3)] == [[], [0], [0, 1]]
    assert workload.topological_order().tolist() == [0, 1, 2]


def test_an_empty_workload_is_one() -> None:
    assert len(Workload.of_columns("none", release_s=np.zeros(0), runtime_s=np.zeros(0))) == 0
