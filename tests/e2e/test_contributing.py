"""The recipes of CONTRIBUTING.md, followed as they stand: the blocks become a package that is checked as ours is,
tested, and found by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:python|toml)\n# (?P<path>\S+)\n(?P<code>.*?)^```$", re.M | re.S)
WORKFLOW = """{"name": "w", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [
  {"name": "a", "id": "a", "parents": [], "children": [], "inputFiles": [], "outputFiles": []}]},
  "execution": {"makespanInSeconds": 1, "executedAt": "2020-01-01T00:00:00Z", "machines": [], "tasks": [
  {"id": "a", "runtimeInSeconds": 1, "command": {"program": "sh", "arguments": ["-c", "echo it ran"]}}]}}}"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("contributing")]


def blocks() -> dict[str, str]:
    """Code of the page by the file it belongs into."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {match["path"]: match["code"] for match in BLOCK.finditer(page)}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page as a project, and installed below ``site``."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("extra")
    for path, code in {**blocks(), "src/wattflow_extra/__init__.py": "", "src/wattflow_extra/py.typed": ""}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(code, encoding="utf-8")
    site, setup = folder / "site", [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q"]
    site.mkdir()
    for step in (["build_py", "--build-lib", str(site)], ["egg_info", "--egg-base", str(site)]):
        done = subprocess.run([*setup, *step], cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    return folder


def run(package: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in the package's folder, with the package installed."""
    path = os.pathsep.join([str(package / "site"), str(ROOT / "src")])
    variables = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **environment}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=package, env=variables, capture_output=True, text=True, timeout=600
    )


def wattflow(package: Path, *arguments: str, **environment: str) -> str:
    done = run(package, "wattflow", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_every_recipe_has_its_file_and_its_test() -> None:
    assert sum(path.startswith("src/") for path in blocks()) == 4
    assert sum(path.startswith("tests/") for path in blocks()) == 4


@pytest.mark.parametrize("check", ["ruff format --check", "ruff check"])
def test_the_package_passes_our_own_lint(package: Path, check: str) -> None:
    done = run(package, *check.split(), "--config", str(ROOT / "pyproject.toml"), "--no-cache", "src", "tests")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_passes_strict_type_checks(package: Path) -> None:
    path = os.pathsep.join([str(package / "src"), str(ROOT / "src")])
    done = run(package, "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent", "src", "tests",
               MYPYPATH=path)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_packages_own_tests_pass(package: Path) -> None:
    done = run(package, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr


def test_policy_meter_and_format_are_found_by_name(package: Path) -> None:
    assert "coolest" in wattflow(package, "policies")
    assert "coolest" in wattflow(package, "simulate", "bag:tasks=3", "-p", "coolest")
    battery = package / "sys" / "class" / "power_supply" / "BAT0"
    battery.mkdir(parents=True)
    (battery / "power_now").write_text("12500000\n")
    shown = wattflow(package, "machine", "meters", WATTFLOW_SYSFS=str(package / "sys"))
    assert re.search(r"battery\s+battery\s+wall\s+sampled watts", shown), shown
    (package / "run.log").write_text("# stopwatch\n1.5\n2.5\n")
    assert "2 tasks, stopwatch" in wattflow(package, "workload", "convert", "run.log", "laps.json")


def test_a_server_runs_on_the_packages_driver(package: Path) -> None:
    (package / "w.json").write_text(WORKFLOW)
    home = {"WATTFLOW_HOME": str(package / "home")}
    try:
        up = wattflow(package, "up", "--driver", "shell", "--driver-option", "cpus=1", "--port", "0", **home)
        assert "driver shell" in up
        wattflow(package, "run", "w.json", **home)
        assert "it ran" in wattflow(package, "server", "logs", "1", **home)
    finally:
        run(package, "wattflow", "down", **home)


def test_a_package_that_cannot_be_loaded_harms_nobody_else(package: Path, tmp_path: Path) -> None:
    about = tmp_path / "broken-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    groups = {"wattflow.policies": "nope", "wattflow.traces": "nope", "wattflow.meters": "nope"}
    lines = [f"[{group}]\n{name} = nowhere.at_all:X\nfifo = nowhere:X\n" for group, name in groups.items()]
    (about / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    (package / "one.log").write_text("1 0 -1 5 2 -1 -1 2 9 100 1 1 1 1 1 1 -1 -1\n")
    assert "swf" in wattflow(package, "workload", "convert", "one.log", "one.json", PYTHONPATH=path)
    listed = wattflow(package, "policies", PYTHONPATH=path)
    assert "nowhere.at_all:X cannot be loaded" in listed and "least-energy" in listed
    assert "cannot be loaded" in wattflow(package, "machine", "meters", PYTHONPATH=path)
    asked = run(package, "wattflow", "simulate", "bag:tasks=3", "-p", "nope", PYTHONPATH=path)
    assert asked.returncode == 2 and "nope of broken" in asked.stderr and "Traceback" not in asked.stderr
