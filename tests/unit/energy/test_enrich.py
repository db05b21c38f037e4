"""Load curves turned into P(k), and joules put into recorded workflows."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattflow.energy.enrich import BusyStretch, enrich, node_energy
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance, threads_profile
from wattflow.model.workflow import Task, Variant, Workflow
from wattflow.model.workload import Workload

CURVE = PowerProfile((0.0, 1.0, 2.0), (20.0, 60.0, 80.0))


def test_without_smt_a_straight_load_curve_stays_as_it_is() -> None:
    profile = threads_profile([(x / 10, 50 + 10 * x) for x in range(11)], cores=20)
    for k in (0.0, 5.0, 10.0, 20.0):
        assert profile.at(k) == pytest.approx(50 + 5 * k)


def test_cores_fill_before_siblings() -> None:
    # 8 cores of 2 threads; watts follow the occupied cores only.
    points = [(x / 10, 50 + 100 * (1 - (1 - x / 10) ** 2)) for x in range(11)]
    profile = threads_profile(points, cores=8, threads_per_core=2)
    assert profile.at(8.0) == pytest.approx(137.0)  # all but the siblings' 13 %
    assert profile.full_w == pytest.approx(150.0)
    # Half the cores busy (a quarter of the threads) is more than the load curve shows at 25 %.
    load_quarter_w = float(np.interp(0.25, [p[0] for p in points], [p[1] for p in points]))
    assert profile.at(4.0) > load_quarter_w


def test_the_first_busy_thread_wakes_the_package() -> None:
    points = [(0.0, 90.0), (0.1, 216.0), (0.2, 242.0), (0.5, 293.0), (1.0, 317.0)]
    profile = threads_profile(points, cores=32, threads_per_core=2)
    straight_w = 90.0 + (216.0 - 90.0) * (1 / 64) / 0.1
    assert profile.at(1.0) > straight_w + 50
    assert profile.at(0.0) == 90.0
    assert profile.at(0.5) == pytest.approx((profile.at(0.0) + profile.at(1.0)) / 2)


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=10), st.integers(1, 64), st.integers(1, 2))
@settings(max_examples=80, deadline=None)
def test_a_rising_load_curve_gives_a_rising_profile_with_its_ends(rises: list[float], cores: int, smt: int) -> None:
    watts = np.cumsum([40.0, *sorted(rises, reverse=True)])
    loads = np.linspace(0, 1, len(watts))
    profile = threads_profile(list(zip(loads.tolist(), watts.tolist())), cores, smt)
    assert profile.idle_w == pytest.approx(watts[0])
    assert profile.at(cores * smt) == pytest.approx(watts[-1])
    assert all(b >= a - 1e-6 for a, b in zip(profile.watts[:2], profile.watts[1:2]))


def test_a_curve_without_an_idle_point_is_refused() -> None:
    with pytest.raises(InvalidInput, match="load 0"):
        threads_profile([(0.1, 50.0), (1.0, 100.0)], 8)


@pytest.mark.data
@pytest.mark.parametrize("node", ["gpgnode-20", "gpgnode-22"])
def test_thread_by_thread_measurements_agree(data_dir: Path, node: str) -> None:
    with gzip.open(data_dir / "power_curves" / "ichnos_threads_x_load.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["node"] == node]
    most = max(int(row["threads"]) for row in rows)
    load = [(int(row["load_pct"]) / 100, float(row["pkg_W"])) for row in rows if int(row["threads"]) in (0, most)]
    full = {int(row["threads"]): float(row["pkg_W"]) for row in rows if row["load_pct"] == "100"}
    ours = threads_profile(sorted(load), most // 2, 2)
    straight = PowerProfile.from_load(most, sorted(load))

    def error(profile: PowerProfile) -> float:
        return float(np.mean([abs(profile.at(k) / watts - 1) for k, watts in full.items()]))

    assert error(ours) < 0.04
    assert error(ours) < error(straight) / 2


def test_watts_above_idle_are_shared_by_busy_threads() -> None:
    work = [BusyStretch("a", 0.0, 10.0, 1.0), BusyStretch("b", 5.0, 10.0, 1.0)]
    energy = node_energy(work, CURVE, 0.0, 20.0)
    assert energy.task_j == {"a": pytest.approx(5 * 40 + 5 * 30), "b": pytest.approx(150.0)}
    assert energy.idle_j == pytest.approx(400.0)
    assert energy.total_j == pytest.approx(energy.idle_j + sum(energy.task_j.values()))


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 4)), max_size=12),
    st.floats(0, 20),
    st.floats(21, 120),
)
@settings(max_examples=100, deadline=None)
def test_node_energy_always_closes(rows: list[tuple[float, float, float]], begin_s: float, end_s: float) -> None:
    work = [BusyStretch(str(i), start, start + length, threads) for i, (start, length, threads) in enumerate(rows)]
    energy = node_energy(work, CURVE, begin_s, end_s)
    assert energy.total_j == pytest.approx(energy.idle_j + sum(energy.task_j.values()), rel=1e-9, abs=1e-6)


def recorded(start_known: bool, energy_j: float | None = None) -> Workload:
    starts = (0.0, 5.0) if start_known else (None, None)
    return Workload.of(
        Workflow(
            "w",
            (
                Task("a", "a", "f", 10.0, machine="m", start_s=starts[0], avg_cpu_pct=100.0),
                Task("b", "b", "f", 5.0, (Variant(cores=1.0),), machine="m", start_s=starts[1], energy_j=energy_j),
                Task("c", "c", "f", 5.0, machine="elsewhere"),
            ),
        )
    )


def test_enriched_tasks_carry_joules_watts_provenance_and_error() -> None:
    columns = enrich(recorded(True), {"m": CURVE}, error=0.07).columns
    assert columns["energy_j"][:2] == pytest.approx([350.0, 150.0])
    assert columns["avg_power_w"][0] == pytest.approx(35.0)
    assert columns["energy_provenance"].tolist() == ["modelled", "modelled", ""]
    assert columns["energy_error"][:2].tolist() == [0.07, 0.07]
    assert np.isnan(columns["energy_j"][2])


def test_without_starts_each_task_ran_alone_and_a_guess_stays_a_guess() -> None:
    guess = PowerProfile(CURVE.busy, CURVE.watts, provenance=Provenance.GUESSED)
    columns = enrich(recorded(False), {"m": CURVE}, default=guess).columns
    assert columns["energy_j"] == pytest.approx([400.0, 200.0, 200.0])
    assert columns["energy_provenance"].tolist() == ["modelled", "modelled", "guessed"]
    assert "energy_error" not in columns


def test_measured_joules_are_kept() -> None:
    columns = enrich(recorded(True, energy_j=7.0), {"m": CURVE}).columns
    assert columns["energy_j"][:2] == pytest.approx([350.0, 7.0])
    assert columns["energy_provenance"].tolist() == ["modelled", "", ""]


@pytest.mark.data
def test_ichnos_runs_within_the_goal(data_dir: Path) -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "enrich.py"
    spec = importlib.util.spec_from_file_location("bench_enrich", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    found = bench.errors(data_dir)
    mean = {name: float(np.mean(np.abs(list(values.values())))) for name, values in found.items()}
    assert mean["threads"] <= 0.07
    assert mean["threads"] < mean["load"] < mean["line"]
