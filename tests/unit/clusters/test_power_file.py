"""A node's watts from `wattflow profile` or from a meter's CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattflow.clusters import load_cluster
from wattflow.model.cluster import Node
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance, Scope

PROFILE: dict[str, Any] = {
    "version": 1, "kind": "cpu", "node": "n7", "meter": "powercap", "scope": "package",
    "points": [{"k": 0, "busy": 0.1, "watts": 50.0}, {"k": 2, "busy": 2.1, "watts": 90.0},
               {"k": 4, "busy": 4.1, "watts": 110.0}],
}  # fmt: skip
CSV = "time,load_pct,watts\n0,0,40\n1,1,42\n2,50,80\n3,51,82\n4,100,120\n"


def node(folder: Path, power: str) -> Node:
    path = folder / "c.toml"
    path.write_text(f'name = "c"\n[[nodes]]\nname = "n"\ncores = 4\nmemory = "8 GiB"\npower = {power}\n')
    return load_cluster(path).nodes[0]


def test_the_file_of_the_profiler(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(json.dumps(PROFILE))
    power = node(tmp_path, '"node.json"').power
    assert power is not None and power.watts == (50.0, 90.0, 110.0)
    assert power.busy == pytest.approx((0.0, 2.0, 4.0))
    assert power.scope is Scope.PACKAGE and power.provenance is Provenance.MEASURED and "n7" in power.source


def test_the_csv_of_a_meter_by_load_is_averaged_and_read_cores_first(tmp_path: Path) -> None:
    (tmp_path / "meter.csv").write_text(CSV)
    power = node(tmp_path, '"meter.csv"').power
    assert power is not None and power.scope is Scope.WALL and power.provenance is Provenance.MODELLED
    assert power.idle_w == 41.0 and power.watts[-1] == pytest.approx(120.0)
    package = node(tmp_path, '{ file = "meter.csv", scope = "package" }').power
    assert package is not None and package.scope is Scope.PACKAGE


def test_the_csv_of_a_meter_by_busy_threads_is_measured(tmp_path: Path) -> None:
    (tmp_path / "meter.csv").write_text("busy,power_w\n0,40\n2,70\n4,100\n4,102\n")
    power = node(tmp_path, '"meter.csv"').power
    assert power is not None and power.provenance is Provenance.MEASURED
    assert power.busy == (0.0, 2.0, 4.0) and power.watts == (40.0, 70.0, 101.0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "time,watts\n0,1\n"), ("b.csv", "load,watts\n0.5,80\n1,90\n"), ("c.csv", "load,watts\n0,x\n1,2\n"),
        ("d.csv", "load,watts\n0,10\n7,20\n"), ("e.csv", ""), ("f.json", "{}"), ("g.json", "[1"), ("h.json", "3"),
        ("i.json", json.dumps({**PROFILE, "points": [PROFILE["points"][0], {"k": 9, "busy": 9, "watts": 200}]})),
        ("j.json", json.dumps({**PROFILE, "points": [{"k": 1, "busy": 1, "watts": 1}]})), ("k.csv", "busy,watts\n0,\n"),
    ],
)  # fmt: skip
def test_what_is_no_power_file_is_refused_with_its_place(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=r"nodes\[0\].power"):
        node(tmp_path, f'"{name}"')


def test_a_missing_power_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.json"):
        node(tmp_path, '"none.json"')
