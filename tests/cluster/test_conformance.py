"""A slice of Kubernetes' own scheduling specs with ours as `default-scheduler`; `make test-conformance` runs all."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from kuberig import parts
from kuberig.control import Options
from kuberig.rig import CONTROL_PLANE, Rig
from under_test import unavailable


@pytest.fixture
def conformance(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    lacking = [part.name for part in parts.missing((*CONTROL_PLANE, "kwok", "conformance"))]
    if lacking:
        unavailable(f"the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import kube_conformance

    return kube_conformance


def test_every_spec_of_the_suite_is_in_the_list_once(conformance: ModuleType, tmp_path: Path) -> None:
    rig = Rig.start(Options(scheduler=False), die_with_parent=True)
    try:
        found = conformance.all_names(rig, tmp_path)
    finally:
        rig.stop()
    assert sorted(found) == sorted(one.name for one in conformance.specs())


def test_a_slice_passes_with_us_in_the_place_of_kube_scheduler(conformance: ModuleType, tmp_path: Path) -> None:
    names = [one.name for one in conformance.specs() if one.quick]
    results = conformance.play(conformance.OURS, names, tmp_path, again=True)
    states = {name: (results.get(name, {}).get("state"), results.get(name, {}).get("why")) for name in names}
    assert states == dict.fromkeys(names, ("passed", ""))
