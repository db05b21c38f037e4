"""Named power profiles: shipped ones, and those of the data folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from wattflow.clusters import list_profiles, resolve_profile
from wattflow.clusters.ichnos import ichnos_nodes
from wattflow.clusters.profiles import find_profile
from wattflow.model.errors import MissingData, UnknownName
from wattflow.model.profile import Provenance, Scope


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATTFLOW_DATA", str(tmp_path))


@pytest.mark.usefixtures("no_data")
def test_what_ships_is_permissive_and_says_where_it_is_from() -> None:
    profiles = list_profiles()
    assert len(profiles) > 50
    assert {profile.licence for profile in profiles} == {"Apache-2.0", "MIT"}
    assert all(profile.shipped and profile.source and profile.about for profile in profiles)
    assert all(0 < profile.idle_w <= profile.full_w for profile in profiles)
    assert {profile.scope for profile in profiles if profile.name.startswith("ichnos:")} == {Scope.PACKAGE}


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("name", ["spec:68", "turbostat:gpgnode-13/performance", "ccf:428"])
def test_what_does_not_ship_names_the_missing_folder(name: str) -> None:
    with pytest.raises(MissingData, match="WATTFLOW_DATA"):
        find_profile(name)


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


@pytest.mark.data
@pytest.mark.usefixtures("data_dir")
def test_the_shipped_extract_agrees_with_the_data_folder() -> None:
    rows = (Path(__file__).parents[3] / "src/wattflow/data/profiles/ccf_servers.csv").read_text().splitlines()
    shipped = [row.split(",")[:2] for row in rows if not row.startswith(("#", "name"))]
    assert len(shipped) == 18
    for name, row in shipped:
        assert find_profile(f"ccf:{name}").watts == find_profile(f"ccf:{row}").watts


@pytest.mark.data
@pytest.mark.usefixtures("data_dir")
def test_the_data_folder_adds_spec_and_turbostat_curves() -> None:
    profiles = list_profiles()
    families = Counter(profile.name.partition(":")[0] for profile in profiles)
    assert (families["spec"], families["turbostat"]) == (619, 14)
    assert families["ccf"] > 1000
    for profile in profiles:
        assert profile.for_node(4, 2).busy[-1] == 8
        assert profile.shipped or profile.year is not None


@pytest.mark.data
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("node", ["gpgnode-13", "gpgnode-14", "gpgnode-15", "gpgnode-22"])
@pytest.mark.parametrize("governor", ["performance", "powersave"])
def test_ichnos_models_are_near_the_measured_points(node: str, governor: str) -> None:
    model, measured = find_profile(f"ichnos:{node}/{governor}"), find_profile(f"turbostat:{node}/{governor}")
    off = [abs(a - b) / b for a, b in zip(model.watts, measured.watts, strict=True)]
    assert sum(off) / len(off) < 0.08
    assert max(off) < 0.13
