"""What every policy does is what it did; `make golden` writes the text anew after a change on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.policies import NAMES, lines

GOLDEN = (Path(__file__).parent / "policies.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_does_what_it_did(name: str) -> None:
    assert list(lines(name)) == [line for line in GOLDEN if line.startswith(f"{name} | ")], "on purpose? `make golden`"
