"""Quantities and what a pod takes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from wattflow.kube import accounting, quantity
from wattflow.model.errors import InvalidInput

from .making import node, pod


@pytest.mark.parametrize(
    ("text", "value"),
    [("1500m", "1.5"), ("2Gi", str(2 * 2**30)), ("1e3", "1000"), (".5", ".5"), ("1E", "1e18"), ("3u", "3e-6")],
)  # fmt: skip
def test_quantities_are_exact(text: str, value: str) -> None:
    assert quantity.exact(text) == Decimal(value)


def test_quantities_round_up() -> None:
    assert (quantity.milli("1n"), quantity.whole("0.1"), quantity.whole("100m"), quantity.milli("0.25")) == (
        1,
        1,
        1,
        250,
    )
    assert quantity.whole("0") == 0


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1.2.3", "1mi", "0x10"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a number with a suffix"):
        quantity.exact(text)


def container(name: str, cpu: str, **more: object) -> dict[str, object]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}} | more


def test_init_containers_count_as_the_most_that_starting_needs() -> None:
    p = pod(containers=[container("a", "1"), container("b", "1")], initContainers=[container("i", "3")])
    assert accounting.pod_requests(p)["cpu"] == 3000


def test_sidecars_run_beside_and_below_later_init_containers() -> None:
    p = pod(
        containers=[container("a", "1")],
        initContainers=[container("i", "2"), container("s", "500m", restartPolicy="Always"), container("j", "2")],
    )
    assert accounting.pod_requests(p)["cpu"] == 2500


def test_overhead_is_added_and_zero_is_left_out() -> None:
    p = pod(containers=[container("a", "1")], overhead={"cpu": "250m", "memory": "0"})
    assert accounting.pod_requests(p) == {"cpu": 1250, "pods": 1}


def test_resize_counts_the_largest_until_it_is_infeasible() -> None:
    status = {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}
    p = pod(containers=[container("a", "3")], status=status)
    assert accounting.pod_requests(p)["cpu"] == 3000
    infeasible = status | {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
    p = pod(containers=[container("a", "3")], status=infeasible)
    assert accounting.pod_requests(p)["cpu"] == 2000


def test_pod_level_requests_stand_in_place_of_the_sum() -> None:
    p = pod(containers=[container("a", "1")], resources={"requests": {"cpu": "2", "example.com/x": "4"}})
    assert accounting.pod_requests(p) == {"cpu": 2000, "pods": 1}


def test_extended_resources_count_on_pods_and_nodes() -> None:
    p = pod(containers=[{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}}}])
    assert accounting.pod_requests(p) == {"nvidia.com/gpu": 2, "hugepages-2Mi": 4 * 2**20, "pods": 1}
    n = node(allocatable={"nvidia.com/gpu": "4", "ephemeral-storage": "1k"})
    assert accounting.node_allocatable(n) == {
        "cpu": 4000, "memory": 8 * 2**30, "pods": 110, "nvidia.com/gpu": 4, "ephemeral-storage": 1000,
    }  # fmt: skip
