"""Named power profiles, held against the tables and measured points that they come from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from wattflow.clusters import list_profiles, resolve_profile
from wattflow.clusters.profiles import find_profile, ichnos_nodes
from wattflow.files.data_folder import open_text
from wattflow.model.errors import UnknownName
from wattflow.model.profile import Provenance, Scope


def test_what_ships_is_permissive_and_says_where_it_is_from() -> None:
    profiles = list_profiles()
    assert len(profiles) > 50
    assert {profile.licence for profile in profiles} == {"Apache-2.0", "MIT"}
    assert all(profile.source and profile.about for profile in profiles)
    assert all(0 < profile.idle_w <= profile.full_w for profile in profiles)
    assert {profile.scope for profile in profiles if profile.name.startswith("ichnos:")} == {Scope.PACKAGE}


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'ichnos:gpgnode-04/powersave'"):
        find_profile("ichnos:gpgnode-04/powersafe")


def test_a_profile_is_fitted_to_the_nodes_threads() -> None:
    curve = resolve_profile("ccf:epyc-7702p-dl325", 48, 2)
    assert curve.busy == (0.0, 1.0, 48.0, 96.0)
    assert (curve.at(0), curve.at(48), curve.at(96)) == (70.3, pytest.approx(70.3 + 0.87 * 153.7), pytest.approx(224.0))
    assert curve.provenance == Provenance.MODELLED
    assert "Apache-2.0" in curve.source


def test_ichnos_watts_follow_the_line_between_the_measured_ends() -> None:
    watts, provenance = ichnos_nodes()["gpgnode-04"].curves["performance"]
    assert (watts[0], watts[-1]) == (47.143, 112.493)
    assert watts[5] == pytest.approx(0.6349 * 50 + 56.9456)
    assert provenance == Provenance.MODELLED
    assert ichnos_nodes()["clusterb"].curves["default"][1] == Provenance.GUESSED


def test_ichnos_cores_add_up_to_the_data_sheets_tdp() -> None:
    tdp = {name: node.tdp_w for name, node in ichnos_nodes().items()}
    assert (tdp["gpgnode-04"], tdp["gpgnode-22"], tdp["server"]) == (2 * 95, 2 * 185, 35)
    assert tdp["gcpn1"] is None


def table(path: Path) -> list[dict[str, str]]:
    with open_text(path) as file:
        return list(csv.DictReader(file))


@pytest.mark.data
def test_the_shipped_extract_agrees_with_its_table(data_dir: Path) -> None:
    rows = (Path(__file__).parents[3] / "src/wattflow/data/profiles/ccf_servers.csv").read_text().splitlines()
    shipped = [row.split(",")[:2] for row in rows if not row.startswith(("#", "name"))]
    assert len(shipped) == 18
    whole = {row[""]: row for row in table(data_dir / "power_curves" / "specpower_idle_and_full_2026-03.csv.gz")}
    for name, number in shipped:
        ends = (float(whole[number][f"avg. watts @ {end}"]) for end in ("active idle", "100%"))
        assert find_profile(f"ccf:{name}").watts == tuple(ends)


@pytest.mark.data
@pytest.mark.parametrize("node", ["gpgnode-13", "gpgnode-14", "gpgnode-15", "gpgnode-22"])
@pytest.mark.parametrize("governor", ["performance", "powersave"])
def test_ichnos_models_are_near_the_measured_points(node: str, governor: str, data_dir: Path) -> None:
    rows = table(data_dir / "power_curves" / "cpu_power_curves.csv.gz")
    points = sorted(
        (float(row["load_pct"]), float(row["power_W"]))
        for row in rows
        if (row["system"], row["setting"]) == (node, governor) and row["source"] != "specpower_ssj2008"
    )
    model = find_profile(f"ichnos:{node}/{governor}")
    off = [abs(a - b) / b for a, (_, b) in zip(model.watts, points, strict=True)]
    assert sum(off) / len(off) < 0.08
    assert max(off) < 0.13
