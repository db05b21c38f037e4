"""Laws of meters: a counter only rises, whatever its range; nothing that a file or service says breaks a reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattflow.energy.meters import kepler, redfish
from wattflow.energy.meters.port import Domain, Reading, Tally
from wattflow.energy.meters.powercap import PowercapMeter

ON_DISK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def zone(root: Path, range_uj: int) -> Path:
    folder = root / "intel-rapl:0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (folder / "energy_uj").write_text("0\n")
    return folder / "energy_uj"


@given(st.integers(1000, 10**12), st.lists(st.floats(0.0, 0.999), min_size=1, max_size=20), st.floats(0.0, 0.999))
@ON_DISK
def test_what_a_wrapping_counter_rose_by(tmp_path: Path, range_uj: int, steps: list[float], begin: float) -> None:
    file = zone(tmp_path, range_uj)
    total_uj = int(begin * range_uj)
    file.write_text(f"{total_uj}\n")
    meter = PowercapMeter(tmp_path)
    first = meter.read().joules["package-0"]
    last, risen_uj = first, 0
    for step in steps:
        risen_uj += int(step * range_uj)
        file.write_text(f"{(total_uj + risen_uj) % range_uj}\n")
        now = meter.read().joules["package-0"]
        assert now is not None
        assert last is not None
        assert now >= last
        last = now
    meter.close()
    assert first is not None
    assert last is not None
    assert last - first == pytest.approx(risen_uj * 1e-6, abs=1e-3)


@given(st.binary(max_size=70))
@ON_DISK
def test_no_content_of_a_file_breaks_the_reader(tmp_path: Path, content: bytes) -> None:
    file = zone(tmp_path, 1000)
    meter = PowercapMeter(tmp_path)
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    value = meter.read().joules["package-0"]
    meter.close()
    assert value is None or isinstance(value, float)


@given(
    st.text(max_size=300),
    st.sampled_from(["", "kepler_node_package_joules_total{", 'kepler_node_cpu_joules_total{zone="x"} ']),
)
@settings(max_examples=150, deadline=None)
def test_no_page_breaks_kepler(text: str, head: str) -> None:
    assert all(isinstance(value, float) for value in kepler.node_joules(head + text).values())


documents = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Reading", "PowerControl", "PowerConsumedWatts", "EnergykWh", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["EnergyJoules", "EnergykWh", "PowerWatts", "PowerControl"]), documents, max_size=4)
)
@settings(max_examples=150, deadline=None)
def test_no_page_breaks_redfish(document: dict[str, object]) -> None:
    assert all(value is None or isinstance(value, float) for value in redfish.energy_and_watts(document))


class Played:
    """A meter of sampled watts that gives these readings one after the other."""

    name, domains = "played", (Domain("wall", "wall", counter=False),)

    def __init__(self, readings: list[Reading]) -> None:
        self._readings = iter(readings)

    def read(self) -> Reading:
        return next(self._readings)

    def close(self) -> None:
        return None


@given(st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 500.0)), min_size=1, max_size=15))
@settings(max_examples=80, deadline=None)
def test_constant_or_not_sampled_watts_integrate_between_their_bounds(rows: list[tuple[float, float]]) -> None:
    time_s, readings = 0.0, []
    for step_s, watts in rows:
        readings.append(Reading(time_s, {}, {"wall": watts}))
        time_s += step_s
    tally = Tally(Played(readings))
    for _ in rows[1:]:
        tally.update()
    energy = tally.energy()
    joules, drawn = energy.joules["wall"], [row[1] for row in rows]
    assert joules is not None
    assert min(drawn) * energy.seconds - 1e-6 <= joules <= max(drawn) * energy.seconds + 1e-6
