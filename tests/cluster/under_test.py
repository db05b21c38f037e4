"""The cluster that a test runs against, and what happens without one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from kuberig.api import Api
from kuberig.rig import Rig


def unavailable(reason: str) -> None:
    """Skips, which fails where nothing may skip (WATTFLOW_REQUIRE=1)."""
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

    def grant(self, name: str, *resources: str, verb: str = "patch") -> None:
        """One right more for our scheduler's account: to patch these resources, as an overlay of deploy/ gives it."""
        group, api = "rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": [""], "resources": list(resources), "verbs": [verb]}
        self.api.create(f"{api}/clusterroles", {"metadata": {"name": name}, "rules": [rule]}, exists_ok=True)
        role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
        who = {"kind": "User", "apiGroup": group, "name": "wattflow-scheduler"}
        body = {"metadata": {"name": name}, "roleRef": role, "subjects": [who]}
        self.api.create(f"{api}/clusterrolebindings", body, exists_ok=True)
