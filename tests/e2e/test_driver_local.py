"""The conformance suite on the local driver."""

from __future__ import annotations

import asyncio
from pathlib import Path

from wattflow.runtime.drivers.local import LocalDriver
from wattflow.runtime.node_agent import make_agent
from wattflow.testing.check_driver import CHECKS, check_driver


def test_the_local_driver_keeps_the_contract(tmp_path: Path) -> None:
    passed = asyncio.run(
        check_driver(
            lambda objects: LocalDriver(objects, lambda transport: make_agent(transport, tmp_path / "agent")), tmp_path
        )
    )
    assert len(passed) == len(CHECKS)
