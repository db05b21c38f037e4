"""The cluster that a test runs against, and what happens without one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from kuberig.api import Api
from kuberig.rig import Rig

REQUIRED = os.environ.get("WATTFLOW_REQUIRE_CLUSTER") == "1"


def unavailable(reason: str) -> None:
    """Skips, or fails where a cluster is required."""
    if REQUIRED:
        pytest.fail(f"WATTFLOW_REQUIRE_CLUSTER=1, and {reason}")
    pytest.skip(reason)


@dataclass(frozen=True)
class Cluster:
    """A cluster under test; `rig` is there when it is ours."""

    api: Api
    kubeconfig: Path
    rig: Rig | None

    def own(self) -> Rig:
        """The rig; without one, the test that needs it skips."""
        if self.rig is None:
            unavailable("this test needs the rig, and KUBECONFIG names another cluster")
        assert self.rig is not None
        return self.rig
