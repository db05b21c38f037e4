"""The package as it is installed: all that it needs is in it, and a home that cannot be written is no trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel would hold, in a folder of its own."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    copy = ["git", "-C", str(ROOT), "checkout-index", "-a", "-f", f"--prefix={source}/"]
    if subprocess.run(copy, capture_output=True).returncode:
        pytest.skip("needs a checkout with git: building in place would leave files in it")
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib"]
    done = subprocess.run([*build, str(folder / "site")], cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def wattflow(installed: Path, tmp_path: Path, *arguments: str) -> str:
    """A command of the installed package, in an empty folder, where neither home nor cache can be written."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WATTFLOW", "NUMBA"))}
    environment |= {"PYTHONPATH": str(installed), "HOME": "/proc/none", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "wattflow", *arguments],
        capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_designs_and_pages_ship(installed: Path, tmp_path: Path) -> None:
    assert "points" in wattflow(installed, tmp_path, "explore", "explore_small", "--plan")
    assert (installed / "wattflow" / "data" / "report" / "page.js").is_file()


@pytest.mark.slow
def test_the_dashboards_script_is_packed_and_read_all_the_same(installed: Path, tmp_path: Path) -> None:
    here = ROOT / "src" / "wattflow" / "data" / "web" / "assets"
    script = "from wattflow.lab.show import page, viewer; import sys; name = '/assets/' + sys.argv[1]; " \
        "print(len(page.page_asset('js')), viewer.page(name).status)"  # fmt: skip
    (source,) = here.glob("*.js")
    assert not list((installed / "wattflow" / "data" / "web" / "assets").glob("*.js"))
    done = subprocess.run(
        [sys.executable, "-c", script, source.name], capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert done.stdout.split() == [str(len(source.read_text(encoding="utf-8"))), "200"], done.stderr


@pytest.mark.slow
def test_research_does_not_ship(installed: Path) -> None:
    assert [path.name for path in installed.iterdir() if path.is_dir()] == ["wattflow"]
    data = installed / "wattflow" / "data"
    assert not (data / "rivals").exists() and not (data / "experiments").exists()
    assert [path.name for path in (data / "learned").iterdir()] == ["weights.npz"]


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_no_trouble(installed: Path, tmp_path: Path) -> None:
    shown = wattflow(installed, tmp_path, "compare", "bag:tasks=3", "-p", "heft", "--seeds", "1", "--report", "r.html")
    assert "heft against fifo" in shown and (tmp_path / "r.html").is_file()
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("wattflow-")]
    assert kept, "compiled code went below the temporary folder"


@pytest.mark.slow
def test_the_pages_ship_and_are_read_without_a_network(installed: Path, tmp_path: Path) -> None:
    assert (installed / "wattflow" / "data" / "pages.json.bz2").is_file()
    assert "tutorial" in wattflow(installed, tmp_path, "docs", "--list")
    wattflow(installed, tmp_path, "docs", "--out", "pages")
    assert "Run my function" in (tmp_path / "pages" / "index.html").read_text(encoding="utf-8")
