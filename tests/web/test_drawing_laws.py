"""Laws of the page's drawing on random runs: pixels against a plain look, buckets against lengths, areas as joules."""

from __future__ import annotations

import json
import subprocess

import pytest

from .node import WEB, need_node


@pytest.mark.parametrize("seed", [1, 2])
def test_pixels_buckets_and_areas_are_what_the_bars_and_watts_say(seed: int) -> None:
    command = [need_node(), str(WEB / "tests" / "laws.mjs"), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-1500:]
    assert json.loads(done.stdout)["pixels"] > 50_000
