"""Needs that no node can ever meet are told when they are submitted."""

from __future__ import annotations

from typing import Any

import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.checks import unmet

GIB = 1 << 30
SMALL = m.Node(name="small", cpus=2, memory_bytes=4 * GIB)
WITH_GPU = m.Node(name="gpu", cpus=8, memory_bytes=16 * GIB, devices=[m.Device("gpu", memory_bytes=8 * GIB)])


def told(nodes: list[m.Node], *variants: dict[str, Any]) -> list[str]:
    ways = [m.Variant(**about) for about in variants]
    return [str(problem) for problem in unmet([m.Task(key="k", name="f", command=["x"], variants=ways)], nodes)]


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"cpus": 99.0}, "99 CPUs, the largest of 2 nodes has 8"),
        ({"memory_bytes": 64 * GIB}, "64.0 GiB of memory, the largest of 2 nodes has 16.0"),
        ({"gpu": 2.0}, "2 GPUs, the best of 2 nodes has 1"),
        ({"gpu": 0.5, "gpu_memory_bytes": 80 * GIB}, "1 GPU with 80.0 GiB, the best of 2 nodes has 0"),
        ({"fpga": "fir"}, "1 FPGA, the best of 2 nodes has 0"),
    ],
)
def test_what_no_node_has_is_named(needs: dict[str, Any], said: str) -> None:
    assert told([SMALL, WITH_GPU], needs) == [f"task k (f): no node can ever run it: it needs {said}"]


def test_a_payload_of_a_python_that_no_node_runs_is_named() -> None:
    call = m.Task(key="k", name="f", function="a" * 64, call=m.Blob(data=b""), python="3.9")
    nodes = [m.Node(name=name, cpus=2, memory_bytes=GIB, python=name) for name in ("3.11", "3.12")]
    assert [str(one) for one in unmet([call], nodes)] == [
        "task k (f): no node can ever run it: it needs Python 3.9, which made its payload; nodes here run 3.11, 3.12"
    ]
    assert not list(unmet([call], [*nodes, m.Node(name="3.9", cpus=2, memory_bytes=GIB, python="3.9")]))
    assert not list(unmet([call], [*nodes, SMALL]))  # it does not tell
    assert not list(unmet([m.Task(key="k", name="f", command=["x"], python="3.9")], nodes))


def test_one_way_that_fits_is_enough_and_all_needs_must_fit_one_node() -> None:
    assert told([SMALL, WITH_GPU], {"cpus": 99.0}, {"gpu": 0.25}) == []
    big = m.Node(name="big", cpus=64, memory_bytes=GIB)
    assert "at once" in told([SMALL, big], {"cpus": 32.0, "memory_bytes": 2 * GIB})[0]


def test_where_no_node_is_known_nothing_is_refused() -> None:
    assert told([], {"cpus": 99.0}) == []
