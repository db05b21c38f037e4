"""The cluster that a test runs against, and what happens without one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kuberig.api import Api
from kuberig.rig import Rig

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


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

    def grant_folder(self, folder: str) -> None:
        """The rights of a folder of deploy/, exactly those, for our scheduler's account."""
        group = "/apis/rbac.authorization.k8s.io/v1"
        self.api.create("/api/v1/namespaces", {"metadata": {"name": "wattflow"}}, exists_ok=True)
        for one in yaml.safe_load_all((DEPLOY / folder / "rbac.yaml").read_text()):
            space = f"/namespaces/{one['metadata']['namespace']}" if "namespace" in one["metadata"] else ""
            if "subjects" in one:
                group_name = "rbac.authorization.k8s.io"
                one["subjects"] = [{"kind": "User", "apiGroup": group_name, "name": "wattflow-scheduler"}]
            self.api.create(f"{group}{space}/{one['kind'].lower()}s", one, exists_ok=True)
