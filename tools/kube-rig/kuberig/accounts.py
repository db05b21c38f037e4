"""Who may talk to the API server: tokens, kubeconfig files, and the rights of the least-privilege scheduler."""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from kuberig.api import JSON, Api

REAL_NODES = ("real-0", "real-1")
SCHEDULER = "wattflow-scheduler"

# name of the kubeconfig -> user and groups
_USERS: dict[str, tuple[str, str]] = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("rig-controller-manager", "system:masters"),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "scheduler": (SCHEDULER, ""),
    "kwok": ("kwok", "system:masters"),
    "argo": ("argo", "system:masters"),
    **{name: (f"system:node:{name}", "system:nodes") for name in REAL_NODES},
}

_READ = ["get", "list", "watch"]
_RULES: list[JSON] = [
    {"apiGroups": [""], "resources": ["pods", "nodes", "namespaces", "services", "configmaps"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["services", "replicationcontrollers"], "verbs": _READ},
    {"apiGroups": ["apps"], "resources": ["replicasets", "statefulsets"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims", "persistentvolumes"], "verbs": _READ},
    {"apiGroups": ["storage.k8s.io"], "resources": ["*"], "verbs": _READ},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _READ},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": _READ},
    {"apiGroups": ["argoproj.io"], "resources": ["workflows", "workflowtemplates"], "verbs": _READ},
    {"apiGroups": ["argoproj.io"], "resources": ["clusterworkflowtemplates"], "verbs": _READ},
    {"apiGroups": ["wattflow.io"], "resources": ["*"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch", "update"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": [*_READ, "create", "update", "patch"]},
]


@dataclass(frozen=True, slots=True)
class Accounts:
    """The tokens of one rig, and its folder of kubeconfig files (readable by the owner alone)."""

    folder: Path
    tokens: dict[str, str] = field(default_factory=lambda: {name: secrets.token_hex(20) for name in _USERS})

    def write_tokens(self) -> Path:
        """The API server's table of tokens."""
        lines = [f'{self.tokens[name]},{user},{name},"{groups}"' for name, (user, groups) in _USERS.items()]
        return write_private(self.folder / "tokens.csv", "\n".join(lines) + "\n")

    def write_configs(self, server: str, certificate: Path) -> None:
        """One kubeconfig file per account; the admin's is also `kubeconfig`."""
        for name, token in self.tokens.items():
            write_private(self.config(name), kubeconfig(server, certificate, token))
        write_private(self.folder / "kubeconfig", kubeconfig(server, certificate, self.tokens["admin"]))

    def config(self, name: str) -> Path:
        """The kubeconfig file of an account."""
        return self.folder / f"{name}.kubeconfig"


def kubeconfig(server: str, certificate: Path, token: str) -> str:
    """A kubeconfig document (JSON, which is YAML too)."""
    authority = base64.b64encode(certificate.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "rig", "user": {"token": token}}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
        "current-context": "rig",
    }
    return json.dumps(document, indent=1)


def grant_scheduler(api: Api) -> None:
    """The rights of a second scheduler: read what it decides on, bind, report, hold its lease; nothing else."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": SCHEDULER}, "rules": _RULES}
    bound = {
        "metadata": {"name": SCHEDULER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SCHEDULER},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": SCHEDULER}],
    }
    api.create(f"{group}/clusterroles", role, exists_ok=True)
    api.create(f"{group}/clusterrolebindings", bound, exists_ok=True)


def write_private(path: Path, text: str) -> Path:
    """Writes a file that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
        file.write(text)
    return path
