"""The energy commands: meters, profile, profiles, enrich."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from drawn import check_drawn
from wattflow import traces
from wattflow.cli import machine_commands, workload_commands
from wattflow.cli.screen import guarded
from wattflow.model.workflow import Machine, Task, Workflow
from wattflow.model.workload import Workload

COMMANDS: dict[str, Callable[..., None]] = {
    "meters": machine_commands.meters,
    "profile": machine_commands.profile,
    "profiles": machine_commands.profiles,
    "enrich": workload_commands.enrich,
}
CLUSTER = """
name = "two"
[[nodes]]
name = "m"
cores = 4
memory = "8 GiB"
power = { busy = [0, 1, 2], watts = [20, 60, 80], scope = "package", provenance = "measured", source = "by hand" }
[[nodes]]
name = "curve"
cores = 4
threads_per_core = 2
memory = "8 GiB"
power = { load = [0, 0.1, 1.0], watts = [20, 60, 80], scope = "package" }
"""


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    for name, command in COMMANDS.items():
        app.command(name)(guarded(command))
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any meter, whose /sys is a folder to write to."""
    for name in ("PMPROXY", "KEPLER"):
        monkeypatch.setenv(f"WATTFLOW_{name}", "http://127.0.0.1:9")
    monkeypatch.setenv("WATTFLOW_SYSFS", str(tmp_path / "sys"))
    return tmp_path / "sys"


def test_meters_says_what_is_here_and_why_the_rest_is_not(nowhere: Path) -> None:
    zone = nowhere / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in {"name": "package-0", "energy_uj": "5", "max_energy_range_uj": "99"}.items():
        (zone / name).write_text(f"{text}\n")
    result = run("meters", "-o", "json", "--seconds", "0.01")
    assert result.exit_code == 0, result.output
    text = json.dumps(json.loads(result.stdout))
    assert "package-0" in text
    assert "has no events/energy-pkg" in text or "does not exist" in text
    assert "package-0" in run("meters").stdout


def test_profile_refuses_without_a_meter(nowhere: Path, tmp_path: Path) -> None:
    result = run("profile", tmp_path / "p.json")
    assert result.exit_code == 2
    for name in ("powercap", "perf", "pcp", "kepler", "hwmon", "redfish"):
        assert name in result.stderr
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("levels", ["1,x", "0,100000"])
def test_profile_levels_that_cannot_be(tmp_path: Path, levels: str) -> None:
    result = run("profile", tmp_path / "p.json", "--virtual", "--levels", levels)
    assert result.exit_code == 2
    assert "--levels" in result.stderr or "stress-ng" in result.stderr


def test_profiles_by_name_with_provenance(tmp_path: Path) -> None:
    result = run("profiles", "7763", "-o", "json", "--plot", tmp_path / "p.svg")
    assert result.exit_code == 0, result.output
    assert "modelled" in result.stdout
    check_drawn(tmp_path / "p.svg")
    assert run("profiles", "no such machine").exit_code == 2


def recorded(folder: Path) -> Path:
    tasks = (
        Task("a", "a", "f", 10.0, machine="m", start_s=0.0, avg_cpu_pct=100.0),
        Task("b", "b", "f", 5.0, machine="m", start_s=5.0, avg_cpu_pct=100.0, parents=("a",)),
    )
    machines = (Machine("m", cores=4),)
    about = Workflow("w", tasks, machines=machines, executed_at="2026-01-01T00:00:00+00:00", makespan_s=10.0)
    traces.save(Workload.of(about), folder / "trace.json")
    (folder / "cluster.toml").write_text(CLUSTER)
    return folder / "trace.json"


def test_enrich_fills_the_fields_of_wfformat(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    result = run("enrich", trace, tmp_path / "out.json", "--nodes", tmp_path / "cluster.toml", "--error", "0.07")
    assert result.exit_code == 0, result.output
    labelled = traces.load(tmp_path / "out.json")
    assert labelled.columns["energy_j"] == pytest.approx([350.0, 150.0])
    assert labelled.columns["energy_provenance"].tolist() == ["modelled", "modelled"]
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["workflow"]["execution"]["tasks"][0]["avgPowerInW"] == pytest.approx(35.0)


def test_enrich_fills_the_columns_of_the_trace_archive(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    result = run("enrich", trace, tmp_path / "out", "--nodes", tmp_path / "cluster.toml")
    assert result.exit_code == 0, result.output
    assert traces.load(tmp_path / "out").columns["energy_j"] == pytest.approx([350.0, 150.0])


def test_load_curves_are_read_cores_first(tmp_path: Path) -> None:
    """The same points as load and as busy threads: one busy thread of the load curve wakes the package."""
    trace, cluster = recorded(tmp_path), tmp_path / "cluster.toml"
    as_busy = 'power = { busy = [0, 0.8, 8], watts = [20, 60, 80], scope = "package" }'
    for name, text in (("load", CLUSTER), ("busy", CLUSTER.replace(CLUSTER.splitlines()[-1], as_busy))):
        cluster.write_text(text.replace('name = "m"', 'name = "other"'))
        result = run("enrich", trace, tmp_path / f"{name}.json", "--nodes", cluster, "--default", "curve")
        assert result.exit_code == 0, result.output
    load, busy = (traces.load(tmp_path / f"{name}.json").columns["energy_j"].sum() for name in ("load", "busy"))
    assert load != pytest.approx(busy)


def test_enrich_without_a_curve_for_any_machine_says_so(tmp_path: Path) -> None:
    trace, cluster = recorded(tmp_path), tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER.replace('name = "m"', 'name = "other"'))
    result = run("enrich", trace, tmp_path / "out.json", "--nodes", cluster)
    assert result.exit_code == 2
    assert "its machines are m" in result.stderr
    assert run("enrich", trace, tmp_path / "out.json", "--nodes", cluster, "--default", "z").exit_code == 2
