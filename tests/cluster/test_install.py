"""docs/install.md typed as a whole on an empty cluster: from nothing to a saving shown in shadow mode, on, back, off.

`make test-install` builds the image first and names it in WATTFLOW_IMAGE; without that this file is not collected.
Every command of the page is typed as it stands, but for the names that the page leaves open and those listed here with
the reason.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kuberig import parts
from kuberig.api import JSON
from kuberig.kwok import Shape
from kuberig.node import RealNode, _ctr
from kuberig.rig import Rig
from our_scheduler import SOURCES
from under_test import DEPLOY

import wattflow
from wattflow.kube.power import name_as_label

PAGE = DEPLOY.parent / "docs" / "install.md"
ARCHIVE = Path(os.environ.get("WATTFLOW_IMAGE", ""))
LEFT_OUT = {
    "pip install": "the tests' own environment has it",
    "make image": "built before the clock starts: once for all clusters of an operator",
    "skopeo copy": "there is no registry; the archive goes to the node itself",
    "kubectl label namespace": "pods of the rig use their node's network, which the class restricted forbids",
    "kubectl create namespace": "kustomize is the other way to install",
    "kubectl -n wattflow create secret": "kustomize is the other way to install",
    "kubectl apply -k": "kustomize is the other way to install",
    "--prometheus": "there is no Prometheus; tests/unit/kube plays one",
    "redfish": "there is no board controller; tests/unit/kube/test_actuators.py plays one",
}
GOAL_S = 300


def commands(text: str) -> list[str]:
    """The commands of a page, in its order; a here-document is one with what it holds."""
    found: list[str] = []
    for block in re.findall(r"```\n(.*?)```", text, re.S):
        lines = block.splitlines()
        while lines:
            line = lines.pop(0)
            ends = re.search(r"<<'(\w+)'", line)
            while ends and not line.endswith(f"\n{ends[1]}"):
                line += "\n" + lines.pop(0)
            found.append(line if ends else line.split("   #")[0].strip())
    return [one for one in found if one]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig.start(die_with_parent=True)
    try:
        yield rig
    finally:
        rig.stop()


@pytest.fixture(scope="module")
def shell(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(rig, tmp_path_factory.mktemp("home"))


class Shell:
    """A terminal of somebody who follows the page; the folder is the repository."""

    def __init__(self, rig: Rig, home: Path) -> None:
        (home / ".local/bin").mkdir(parents=True)
        tools = home / "tools"
        tools.mkdir()
        (tools / "helm").symlink_to(parts.program("helm"))
        path = f"{home}/.local/bin:{tools}:{Path(os.sys.executable).parent}:{os.environ['PATH']}"  # type: ignore[attr-defined]
        self.env = os.environ | {"HOME": str(home), "PATH": path, "KUBECONFIG": str(rig.kubeconfig)}
        self.env |= {"PYTHONPATH": str(SOURCES)}

    def type(self, command: str) -> str:
        """Type one command; what it prints."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=DEPLOY.parent, env=self.env, capture_output=True, text=True, timeout=300
        )
        print(f"$ {command}\n{done.stdout[-1500:]}{done.stderr[-600:] if done.returncode else ''}", flush=True)
        assert done.returncode == 0, (command, done.stderr[-3000:])
        return done.stdout


def give_network(rig: Rig) -> None:
    """What every other cluster has and the rig lacks: pods reach the API server only over the node's own network.

    There is one such network, so the Deployment has one pod that is replaced, not rolled.
    """
    server = urlsplit(rig.api.server)
    env = [f"Object.spec.template.spec.containers.env{{name: '{name}', value: '{value}'}}" for name, value in
           (("KUBERNETES_SERVICE_HOST", server.hostname), ("KUBERNETES_SERVICE_PORT", server.port))]  # fmt: skip
    at = "/spec/template/spec"
    patches = [
        "JSONPatch{op: 'replace', path: '/spec/strategy', value: Object.spec.strategy{type: 'Recreate'}}",
        "JSONPatch{op: 'replace', path: '/spec/replicas', value: 1}",
        f"JSONPatch{{op: 'add', path: '{at}/hostNetwork', value: true}}",
        f"JSONPatch{{op: 'add', path: '{at}/nodeSelector', value: {{'node.wattflow.io/class': 'real'}}}}",
        f"JSONPatch{{op: 'add', path: '{at}/containers/0/env', value: [{', '.join(env)}]}}",
        f"JSONPatch{{op: 'add', path: '{at}/containers/0/ports/0/hostPort', value: 10359}}",
    ]
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    expression = f"[{', '.join(patches)}]"
    spec: JSON = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    version = "v1" if rig.api.ok("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies") else "v1beta1"
    base = f"/apis/admissionregistration.k8s.io/{version}"
    api = {"apiVersion": f"admissionregistration.k8s.io/{version}", "metadata": {"name": "rig-network"}}
    rig.api.create(f"{base}/mutatingadmissionpolicies", api | {"kind": "MutatingAdmissionPolicy", "spec": spec})
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "wattflow"}}}
    binding = {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "rig-network", "matchResources": where}}
    rig.api.create(f"{base}/mutatingadmissionpolicybindings", api | binding)


def load(node: RealNode) -> None:
    """The image as if it came from the registry REGISTRY = localhost/wattflow."""
    node.load(ARCHIVE)
    name = f"localhost/wattflow/wattflow:{wattflow.__version__}"
    done = _ctr(node, "images", "tag", "localhost/wattflow/wattflow:test", name)
    assert done.returncode == 0 or "already exists" in done.stderr, done.stderr


def plain(name: str) -> JSON:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}}
    spec = {"containers": [container], "nodeSelector": {"type": "kwok"}}
    return {"metadata": {"name": name, "labels": {"class": "batch"}}, "spec": spec}


def bound(found: JSON) -> bool:
    return bool(found["spec"].get("nodeName"))


def test_the_page_as_it_stands(rig: Rig, shell: Shell) -> None:
    load(rig.start_real_node())
    label = "wattflow.io/power-profile"
    kinds = [("hungry", "ccf:xeon-8480-rx2540"), ("frugal", "ccf:epyc-9654p-dl325")]
    rig.add_kwok_nodes(4, [Shape(name, cpu="8", labels={label: name_as_label(of)}) for name, of in kinds])
    give_network(rig)
    pods = "/api/v1/namespaces/team-a/pods"
    rig.api.create("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    rig.api.await_one("/api/v1/namespaces/team-a/serviceaccounts", "default", lambda _: True, 60)
    unused = dict(LEFT_OUT)
    began_s, shown_s = time.monotonic(), None
    for command in commands(PAGE.read_text()):
        left_out = next((text for text in LEFT_OUT if text in command), None)
        if left_out is not None:
            unused.pop(left_out, None)
            continue
        command = command.replace("REGISTRY", "localhost/wattflow")
        if (
            "helm uninstall" in command
            or "helm install" in command
            or "helm upgrade" in command
            or "rollback" in command
        ):
            shell.type(command)
            if "uninstall" not in command:
                shell.type("kubectl -n wattflow rollout status deployment/wattflow-scheduler --timeout=240s")
            if "helm install" in command:
                rig.api.create_many(pods, [plain(f"before{i}") for i in range(8)])
                rig.api.await_each(pods, bound, 8, 60)
        elif command.endswith("savings"):
            said = shell.type(command)
            for _ in range(100):
                if re.search(r"\b[1-9]\d* pods compared", said):
                    break
                said = shell.type(command)
            assert "would have saved" in said
            shown_s = time.monotonic() - began_s
        elif "explain" in command:
            shell.type(command.replace("POD", placed(rig, pods)))
        else:
            shell.type(command)
    assert not unused, f"not on the page any more: {unused}"
    assert shown_s is not None
    print(f"figure operator_install_typed {shown_s:.0f} s goal ≤{GOAL_S} {'ok' if shown_s <= GOAL_S else 'short'}")
    assert not rig.api.items("/apis/apps/v1/namespaces/wattflow/deployments"), "removed"


def placed(rig: Rig, pods: str) -> str:
    """A pod of the class that our scheduler has placed: policies take effect a while after they were written."""
    for turn in range(600):
        name = f"batch-{turn}"
        if rig.api.create(pods, plain(name))["spec"]["schedulerName"] == "wattflow":
            rig.api.await_one(pods, name, bound, 120)
            return name
        rig.api.delete(f"{pods}/{name}", 0)
        time.sleep(0.2)
    raise AssertionError("no pod asked for wattflow")


def test_every_command_of_the_page_is_read(shell: Shell) -> None:
    found = commands(PAGE.read_text())
    assert any(one.startswith("cat > shadow.yaml") and one.endswith("\nEND") for one in found)
    for one in found:
        shlex.split(one.split("<<")[0])
