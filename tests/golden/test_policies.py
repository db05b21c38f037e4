"""What every settled policy does is what it did; `policies.py > policies.txt` renews the text after a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.policies import SETTLED, lines

GOLDEN = (Path(__file__).parent / "policies.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", SETTLED)
def test_a_policy_does_what_it_did(name: str) -> None:
    assert list(lines(name)) == [line for line in GOLDEN if line.startswith(f"{name} | ")]
