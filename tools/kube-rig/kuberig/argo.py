"""Argo's workflow-controller, run outside the cluster against it, and what its pods need inside."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from kuberig import images
from kuberig.accounts import Accounts
from kuberig.api import JSON, Api, ApiError
from kuberig.parts import BY_NAME, part_dir, program
from kuberig.processes import Process, Processes, free_ports, listening, until_ready

NAMESPACE = "argo"
ACCOUNT = "workflow"
WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/{}/workflows"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def start(processes: Processes, users: Accounts, api: Api, requeue_s: float | None = None) -> Process:
    """Installs Argo's resource definitions and settings and starts the controller.

    Args:
        processes: Takes the started program.
        users: Accounts of the rig.
        api: The administrator's access.
        requeue_s: How long a workflow whose pods changed may wait until it is looked at again; `None` is as shipped
            (10 s, which lies between a task and the next in short workflows). Whoever sets it is in a hurry: the
            controller also puts what it wrote into its cache instead of sleeping a second after each update, makes
            no events of tasks, and logs warnings only.
    """
    _install_definitions(api)
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, exists_ok=True)
    (port,) = free_ports(1)
    hurry = requeue_s is not None
    _settings(api, port, events=not hurry)
    environment = {"LEADER_ELECTION_DISABLE": "true"}
    if hurry:
        environment |= {"DEFAULT_REQUEUE_TIME": f"{requeue_s}s", "INFORMER_WRITE_BACK": "true"}
    process = processes.start(
        "workflow-controller",
        [
            program("workflow-controller"),
            f"--kubeconfig={users.config('argo')}",
            f"--namespace={NAMESPACE}",
            f"--executor-image={images.ARGOEXEC}",
            "--executor-image-pull-policy=Never",
            "--qps=500",
            "--burst=1000",
            f"--loglevel={'warn' if hurry else 'info'}",
        ],
        environment,
    )
    until_ready(process, lambda: listening(port), 60)
    return process


def _install_definitions(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted(part_dir(BY_NAME["argo"]).glob("argoproj.io_*.yaml")):
        try:
            api.request("POST", path, file.read_bytes(), "application/yaml")
        except ApiError as error:
            if error.status != 409:
                raise
    api.await_each(path, _established, 8, 30)


def _established(definition: JSON) -> bool:
    if definition["spec"]["group"] != "argoproj.io":
        return False
    conditions = definition["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _settings(api: Api, port: int, events: bool) -> None:
    """The controller's ConfigMap. No kube-proxy runs here, so the executor is told where the API server is."""
    address = urlsplit(api.server)
    executor = {
        "imagePullPolicy": "Never",
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", "value": address.hostname},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(address.port)},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    data = {
        "executor": json.dumps(executor),
        "nodeEvents": json.dumps({"enabled": events}),
        "metricsConfig": json.dumps({"enabled": True, "path": "/metrics", "port": port, "secure": False}),
        "workflowDefaults": json.dumps({"spec": {"serviceAccountName": ACCOUNT, "hostNetwork": True}}),
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    name = "workflow-controller-configmap"
    api.delete(f"{path}/{name}")
    api.create(path, {"metadata": {"name": name}, "data": data})


def prepare_namespace(api: Api, namespace: str) -> None:
    """A namespace in which workflows may run: a service account that may report task results."""
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}, exists_ok=True)
    place = f"/namespaces/{namespace}"
    api.create(f"/api/v1{place}/serviceaccounts", {"metadata": {"name": ACCOUNT}}, exists_ok=True)
    rule = {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}
    api.create(f"{_RBAC}{place}/roles", {"metadata": {"name": ACCOUNT}, "rules": [rule]}, exists_ok=True)
    bound = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }
    api.create(f"{_RBAC}{place}/rolebindings", bound, exists_ok=True)


def submit(api: Api, namespace: str, workflow: JSON) -> str:
    """Submits a workflow and returns its name."""
    document = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", **workflow}
    return str(api.create(WORKFLOWS.format(namespace), document)["metadata"]["name"])


def await_end(api: Api, namespace: str, name: str, timeout_s: float) -> JSON:
    """Waits until a workflow has ended, well or badly, and returns it."""
    ended = ("Succeeded", "Failed", "Error")
    path = WORKFLOWS.format(namespace)
    return api.await_one(path, name, lambda found: found.get("status", {}).get("phase") in ended, timeout_s)
