"""The energy plots are written, and scopes are never mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from drawn import check_drawn
from wattflow.energy import plots
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Scope


def test_profiles_of_two_scopes_get_two_axes(tmp_path: Path) -> None:
    profiles = {
        "a": PowerProfile((0.0, 8.0), (50.0, 200.0), Scope.WALL),
        "b": PowerProfile((0.0, 4.0, 8.0), (30.0, 90.0, 110.0), Scope.PACKAGE),
    }
    path = tmp_path / "p.svg"
    plots.plot_profiles(profiles, path)
    text = path.read_text()
    assert text.count('id="axes_') == 2
    with pytest.raises(InvalidInput, match="no profile"):
        plots.plot_profiles({}, path)


def test_gpu_and_sharing(tmp_path: Path) -> None:
    points = [
        {"kind": "share", "kernel": "gemm", "share": s / 10, "watts": 100.0 + 40 * s, "windows_w": [100.0 + 40 * s] * 3}
        for s in range(1, 11)
    ]
    points.append({"kind": "idle", "kernel": None, "share": 0.0, "watts": 80.0, "windows_w": [80.0]})
    plots.plot_gpu({"points": points, "sharing": "mps"}, tmp_path / "gpu.png")
    plots.plot_sharing({"cpu": [(0, 1.0), (1, 1.1), (1, 1.2)]}, tmp_path / "share.png", "loaded threads")
    check_drawn(tmp_path / "gpu.png")
    check_drawn(tmp_path / "share.png")
