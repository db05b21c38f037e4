"""Cluster files: every key, and every mistake told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattflow.clusters import read_cluster, write_cluster
from wattflow.clusters.toml_file import parse_cluster
from wattflow.files.strict_table import StrictTable, bandwidth_bytes_per_s
from wattflow.model.cluster import Cluster, Faults, Frequency, Network, Series, Serverless, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance, Scope
from wattflow.model.units import GIB

FULL = """
name = "full"
about = "every key once"
storage = { bandwidth = "2 GB/s", latency = "1ms", zone_latency = "5ms", energy_j_per_byte = 1e-9 }

[zones.north]
pue = 1.3
carbon = { step = "30min", values = [100, 200.5] }
price = 0.2

[zones.south]
carbon = { csv = "south.csv", column = "g", start = "2024-01-01T01:00", length = "2h" }
price = { series = "eia:ERCO", length = "1d" }

[templates.base]
cores = 4
memory = "8 GiB"
zone = "north"
power = { form = "cubic", idle_w = 10, full_w = 50, scope = "package", provenance = "guessed", source = "x" }

[[nodes]]
name = "a"
template = "base"
count = 2
threads_per_core = 2
smt_slowdown = 1.4
allocatable_cores = 7.5
speed = 1.5
function_speed = { fft = 3, "odd name" = 0.5 }
architecture = "aarch64"
features = ["sve"]
tdp_w = 65
network = { bandwidth = "10 Gbit/s", latency = "2ms" }
frequencies = [{ speed = 1.0, power = 1.0 }, { speed = 0.5, power = 0.2 }]
sleep = { watts = 2, wake = "30s", enter = "5s", wake_w = 40, after = "5min" }
keep_alive = "1h"
cold_start_factor = 2.0
serverless = { burst = 10, ramp_per_s = 2, time_limit = "15min", price_per_core_s = 1e-5, price_per_call = 1e-7 }
faults = { mtbf = "2d", repair = "1h", notice = "30s" }
price_per_hour = 1.25
embodied_kg = 900
lifetime_years = 5

[[nodes]]
name = "b"
cores = 8
memory = "16 GB"
zone = "south"
power = { load = [0, 0.5, 1], watts = [20, 60, 70], scope = "package", provenance = "measured" }

[[nodes.devices]]
kind = "gpu"
model = "T4"
count = 2
memory = "16 GB"
sharing = "time-slice"
slots = 4
speed = 0.5
interference = 0.2
tdp_w = 70
power = { idle_w = 10, full_w = 70 }

[[nodes.devices]]
kind = "fpga"
reconfigure = "2s"
power = { idle_w = 30, full_w = 110 }

[[nodes.devices]]
kind = "gpu"
sharing = "mig"
power = { share = [0, 0.3, 1], watts = [5, 50, 60], provenance = "measured", source = "nvml" }

[[nodes]]
name = "c"
template = "base"
power = { busy = [0, 1, 4], watts = [5, 9, 11], scope = "package" }
"""

SOUTH = "time,h,g\n2024-01-01T00:00,0,10\n2024-01-01T01:00,0,20\n2024-01-01T02:00,0,30\n2024-01-01T03:00,0,40\n"


@pytest.fixture
def full(tmp_path: Path) -> Cluster:
    (tmp_path / "south.csv").write_text(SOUTH)
    (tmp_path / "full.toml").write_text(FULL)
    return read_cluster(tmp_path / "full.toml")


def test_nodes_are_expanded_from_templates_and_counts(full: Cluster) -> None:
    assert [node.name for node in full.nodes] == ["a-0", "a-1", "b", "c"]
    first = full.nodes[0]
    assert (first.cores, first.threads, first.request_cores) == (4, 8, 7.5)
    assert (first.memory_bytes, first.zone, first.architecture) == (8 * GIB, "north", "aarch64")
    assert first.function_speed == {"fft": 3.0, "odd name": 0.5}
    assert first.sleep == Sleep(2, 30, 5, 40, 300)
    assert first.serverless == Serverless(10, 2, 900, 1e-5, 1e-7)
    assert first.faults == Faults(2 * 86400, 3600, 30)
    assert first.frequencies == (Frequency(), Frequency(0.5, 0.2))
    assert first.network == Network(1.25e9, 2e-3)
    assert (first.keep_alive_s, first.price_per_hour, first.embodied_kg, first.lifetime_years) == (3600, 1.25, 900, 5)
    assert full.storage == Network(2e9, 1e-3, 5e-3, 1e-9)


def test_power_is_read_in_each_way(full: Cluster) -> None:
    form, load, points = (full.nodes[i].power for i in (0, 2, 3))
    assert form is not None and load is not None and points is not None
    assert form.at(4) == pytest.approx(10 + 40 / 8)
    assert (form.scope, form.provenance, form.source) == (Scope.PACKAGE, Provenance.GUESSED, "x")
    assert (load.busy, load.provenance) == ((0, 1, 4, 8), Provenance.MODELLED)
    assert points.watts == (5, 9, 11)


def test_devices_are_read_with_their_default_shapes(full: Cluster) -> None:
    first, second, fpga, mig = full.nodes[2].devices
    assert first == second
    assert (first.sharing, first.slots, first.memory_bytes) == ("time-slice", 4, 16_000_000_000)
    assert first.power.at(0.45) == first.power.at(1) == 70  # a GPU is flat above 45 %
    assert fpga.power.at(0.5) == 70  # an FPGA is a straight line
    assert fpga.reconfigure_s == 2
    assert (mig.sharing, mig.power.at(0.3), mig.power.source) == ("mig", 50, "nvml")


def test_zones_have_series_from_values_files_and_names(full: Cluster) -> None:
    north, south = full.zones
    assert north.carbon == Series(1800, (100, 200.5))
    assert (north.pue, north.price.values, north.carbon_known, north.price_known) == (1.3, (0.2,), True, True)
    assert south.carbon == Series(3600, (20, 30))
    assert len(south.price.values) == 24


def test_a_written_file_reads_back_the_same(full: Cluster, tmp_path: Path) -> None:
    write_cluster(full, tmp_path / "again.toml")
    assert read_cluster(tmp_path / "again.toml") == full
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.toml", "full.toml", "south.csv"]


NODE = '[[nodes]]\nname = "n"\ncores = 4\nmemory = "1 GiB"\n'


@pytest.mark.parametrize(
    ("text", "where", "told"),
    [
        ("abuot = 1", "abuot", "did you mean 'about'"),
        ("[zones.z]\npeu = 1.2", "zones.z.peu", "did you mean 'pue'"),
        ("[zones.z]\npue = 0.2", "zones.z", "pue must be at least 1"),
        ("[zones.z]\ncarbon = 'eia:CISA'", "zones.z.carbon", "did you mean 'eia:CISO'"),
        ("[zones.z]\ncarbon = { csv = 'none.csv' }", "zones.z.carbon", "is not a file"),
        ("[zones.z]\ncarbon = { values = [1], csv = 'x' }", "zones.z.carbon", "exactly one of"),
        ("[zones.z]\nprice = []", "zones.z.price", "must be a table"),
        (NODE + "spede = 2", "nodes[1].spede", "did you mean 'speed'"),
        (NODE + "speed = 0", "nodes[1]", "speed must be more than 0"),
        (NODE + "speed = 'fast'", "nodes[1].speed", "must be a number"),
        (NODE + "speed = nan", "nodes[1].speed", "must be a number"),
        (NODE + "speed = true", "nodes[1].speed", "must be a number"),
        (NODE + "threads_per_core = 1.5", "nodes[1].threads_per_core", "whole number"),
        (NODE + "threads_per_core = 99999999", "nodes[1].cores", "more than 1,000,000"),
        (NODE + "count = 0", "nodes[1].count", "must be 1"),
        (NODE + "template = 'none'", "nodes[1].template", "no template named"),
        (NODE + "keep_alive = 'long'", "nodes[1].keep_alive", "is not a duration"),
        (NODE + "features = 'avx'", "nodes[1].features", "list of texts"),
        (NODE + "sleep = { wake = '3s' }", "nodes[1].sleep", "needs 'watts'"),
        (NODE + "sleep = 3", "nodes[1].sleep", "must be a table"),
        (NODE + "devices = 3", "nodes[1].devices", "array of tables"),
        (NODE + "devices = [{ kind = 'tpx' }]", "nodes[1].devices[0].kind", "allowed: gpu, fpga"),
        (NODE + "devices = [{ model = 'x' }]", "nodes[1].devices[0]", "needs 'kind'"),
        (NODE + "devices = [{ kind = 'gpu', sharing = 'msp' }]", "nodes[1].devices[0].sharing", "did you mean 'mps'"),
        (NODE + "devices = [{ kind = 'gpu', power = { share = [0.2], watts = [1] } }]",
         "nodes[1].devices[0].power", "start at share 0"),
        (NODE + "power = 'ccf:epyc-7702p-dl32'", "nodes[1].power", "did you mean 'ccf:epyc-7702p-dl325'"),
        (NODE + "power = { idle_w = 1 }", "nodes[1].power", "exactly one of"),
        (NODE + "power = { form = 'linaer', idle_w = 1, full_w = 2 }", "nodes[1].power.form", "did you mean 'linear'"),
        (NODE + "power = { form = 'linear', idle_w = 1 }", "nodes[1].power", "needs 'full_w'"),
        (NODE + "power = { form = 'linear', idle_w = -1, full_w = 2 }", "nodes[1].power", "not negative"),
        (NODE + "power = { load = [0, 100], watts = [1, 2] }", "nodes[1].power", "divide percentages"),
        (NODE + "power = { busy = [0, 4], watts = [1] }", "nodes[1].power", "as many"),
        (NODE + "power = { busy = [0, 'x'], watts = [1, 2] }", "nodes[1].power.busy", "list of finite numbers"),
        (NODE + "power = { busy = [0, 99], watts = [1, 2] }", "nodes[1].power", "has 4 hardware threads"),
        (NODE + "power = { busy = [0], watts = [1], unit = 'W' }", "nodes[1].power.unit", "unknown key"),
        (NODE + "network = { bandwidth = '10 apples/s' }", "nodes[1].network.bandwidth", "is not a size"),
        (NODE + "memory_gb = 3", "nodes[1].memory_gb", "did you mean 'memory'"),
        ("[templates.t]\ncoers = 3", "templates.t.coers", "did you mean 'cores'"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(text: str, where: str, told: str, tmp_path: Path) -> None:
    good = '[[nodes]]\nname = "first"\ncores = 1\nmemory = 0\n'
    head = 'name = "x"\n'
    if not text.startswith("["):
        head, text = f"{head}{text}\n", ""
    with pytest.raises(InvalidInput) as caught:
        parse_cluster(head + good + text, "file.toml", tmp_path)
    assert any(problem.where == where and told in problem.what for problem in caught.value.problems), caught.value


def test_all_mistakes_are_told_at_once() -> None:
    text = 'name = 3\n[zones.z]\npue = "x"\n[[nodes]]\ncores = 1\n[[nodes]]\nname = "b"\ncors = 2\nmemory = "?"\n'
    with pytest.raises(InvalidInput) as caught:
        parse_cluster(text, "file.toml")
    places = [problem.where for problem in caught.value.problems]
    assert places == ["name", "zones.z.pue", "nodes[0]", "nodes[0]", "nodes[1]", "nodes[1].memory", "nodes[1].cors"]
    assert "7 problems" in str(caught.value)


def test_a_mistake_in_a_template_is_told_once_and_there() -> None:
    text = 'name = "x"\n[templates.t]\ncores = 2\nmemory = 0\nsleep = { watt = 3, wake = "1s" }\n'
    text += "".join(f'[[nodes]]\nname = "{name}"\ntemplate = "t"\n' for name in "abc")
    with pytest.raises(InvalidInput) as caught:
        parse_cluster(text, "file.toml")
    assert {problem.where for problem in caught.value.problems} == {"templates.t.sleep", "templates.t.sleep.watt"}
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "x"', "at least one [[nodes]]"),
        ('name = "x"\nnodes = []', "at least one [[nodes]]"),
        ("name = ", "is not TOML"),
        ('name = "x"\n' + NODE + NODE, "names must differ"),
        ('name = "x"\n' + NODE + 'zone = "mars"', "mars"),
        ('name = "x"\n[zones.a]\n' + NODE, "default"),
    ],
)
def test_a_file_that_is_no_cluster_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cluster(text, "file.toml")
    assert told in str(caught.value)


def test_wall_and_package_watts_do_not_meet_in_one_cluster() -> None:
    curve = "power = {{ form = 'linear', idle_w = 1, full_w = 2, scope = '{}' }}\n"
    text = 'name = "x"\n' + NODE + curve.format("wall") + NODE.replace('"n"', '"m"') + curve.format("package")
    with pytest.raises(InvalidInput, match="different scope"):
        parse_cluster(text, "file.toml")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_cluster(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_cluster(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10 Gbit/s", 1.25e9), ("100 Mbit/s", 1.25e7), ("800 bit/s", 100.0), ("1.25 GB/s", 1.25e9), (5, 5.0)],
)
def test_bandwidths(text: str | int, expected: float) -> None:
    assert bandwidth_bytes_per_s(text) == expected


@pytest.mark.parametrize("text", ["10", "10 Gbit", "x bit/s", "bit/s", "/s"])
def test_bad_bandwidths(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        bandwidth_bytes_per_s(text)


def test_every_key_is_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    finish = StrictTable.finish

    def collect(table: StrictTable) -> None:
        asked.update(table.asked)
        finish(table)

    monkeypatch.setattr(StrictTable, "finish", collect)
    (tmp_path / "south.csv").write_text(SOUTH)
    parse_cluster(FULL, "full", tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert {key for key in asked if f"`{key}`" not in page} == set()


def test_the_example_of_the_page_is_a_cluster() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text(encoding="utf-8")
    cluster = parse_cluster(page.partition("```toml\n")[2].partition("```")[0], "docs/clusters.md")
    assert [node.name for node in cluster.nodes] == ["thrifty-0", "thrifty-1", "thrifty-2", "thrifty-3", "gpu"]
