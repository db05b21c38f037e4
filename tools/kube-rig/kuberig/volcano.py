"""Volcano's controllers and scheduler outside the cluster: jobs whose pods start together, placed by it or by us."""

from __future__ import annotations

import functools

from kuberig.api import JSON, Api
from kuberig.kueue import answers, established
from kuberig.parts import BY_NAME, part_dir, program
from kuberig.processes import free_ports, until_ready
from kuberig.rig import Rig

NAMESPACE = "volcano-system"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Actions and plugins as its chart ships them.
_CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""


def start(rig: Rig) -> None:
    """Installs Volcano's resource definitions and starts both programs as the administrator.

    Its admission webhook is left out: what that fills in, `job` states.
    """
    files = sorted(part_dir(BY_NAME["volcano"]).glob("*.yaml"))
    for file in files:
        rig.api.request("POST", _DEFINITIONS, file.read_bytes(), "application/yaml")
    rig.api.await_each(_DEFINITIONS, established, len(files), 60)
    rig.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, exists_ok=True)
    folder = rig.folder / "volcano"
    folder.mkdir()
    configuration = folder / "scheduler.conf"
    configuration.write_text(_CONFIGURATION)
    more = {
        "scheduler": [f"--scheduler-conf={configuration}", "--cache-dumper=false"],
        # flows are defined elsewhere, and every controller waits for the definitions of all that are on
        "controller-manager": ["--controllers=*,-sharding-controller,-jobflow-controller,-jobtemplate-controller"],
    }
    for name in ("controller-manager", "scheduler"):
        (health,) = free_ports(1)
        words = [str(program(name)), f"--kubeconfig={rig.kubeconfig}", "--leader-elect=false", "--enable-healthz"]
        words += [f"--healthz-address=127.0.0.1:{health}", "--kube-api-qps=500", "--kube-api-burst=1000"]
        process = rig.processes.start(f"volcano-{name}", [*words, *more[name]])
        until_ready(process, functools.partial(answers, health, "healthz"), 120)


def job(name: str, count: int, least: int, template: JSON) -> JSON:
    """A job of so many equal pods, of which at least so many start together."""
    task = {"name": "main", "replicas": count, "minAvailable": least, "template": template}
    spec = {
        "schedulerName": template["spec"]["schedulerName"],
        "queue": "default",
        "minAvailable": least,
        "maxRetry": 3,
        "tasks": [task],
    }
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def phase(api: Api, namespace: str, name: str) -> str:
    """How a job stands."""
    return str(api.get(f"{JOBS.format(namespace)}/{name}").get("status", {}).get("state", {}).get("phase", ""))
