"""Kueue's controller outside the cluster, with its webhooks: queues, quotas and topology before any scheduler."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from kuberig import accounts
from kuberig.api import JSON, Api, ApiError
from kuberig.parts import BY_NAME, part_dir, program
from kuberig.processes import Process, free_ports, until_ready
from kuberig.rig import Rig

NAMESPACE = "kueue-system"
GROUP = "/apis/kueue.x-k8s.io/v1beta2"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVICE = re.compile(r"service:\n\s+name: webhook-service\n\s+namespace: system\n\s+path: (\S+)")
_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")


def start(rig: Rig) -> Process:
    """Installs Kueue's resource definitions and webhooks and starts it as the administrator, for Jobs and plain pods.

    No Service leads to it, so its webhooks are called on loopback; the certificates that it would make for itself are
    made here, since they must name that address.
    """
    folder = rig.folder / "kueue"
    folder.mkdir()
    authority = _certificates(folder)
    webhook, health = free_ports(2)
    address = f"https://127.0.0.1:{webhook}"
    _define(rig.api, {"url": f"{address}/convert", "caBundle": authority})
    rig.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, exists_ok=True)
    secret = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in _FILES}
    about = {"name": "kueue-webhook-server-cert", "namespace": NAMESPACE}
    rig.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": about, "data": secret})
    config = folder / "config.json"
    config.write_text(json.dumps(_config(webhook, health, folder)))
    process = rig.processes.start(
        "kueue",
        [program("kueue"), f"--config={config}", "--zap-log-level=info"],
        {"KUBECONFIG": str(rig.kubeconfig)},
    )
    # They exist before it is ready: it writes its certificate into them first.
    _webhooks(rig.api, address, authority)
    until_ready(process, lambda: answers(health, "readyz"), 120)
    return process


def _config(webhook: int, health: int, folder: Path) -> JSON:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True},
        "clientConnection": {"qps": 500, "burst": 1000},
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }


_FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def _certificates(folder: Path) -> str:
    """Writes an authority and the webhook's certificate as Kueue would; the authority's, encoded."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "rsa:2048", "-nodes")
    named = ("-addext", "subjectAltName=DNS:kueue-ca")
    openssl(
        "req", "-x509", *key, "-days", "365", "-subj", "/CN=kueue-ca", *named, "-keyout", "ca.key", "-out", "ca.crt"
    )
    names = f"subjectAltName=DNS:kueue-webhook-service.{NAMESPACE}.svc,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n"
    (folder / "names").write_text(names)
    openssl("req", *key, "-subj", "/CN=kueue", "-keyout", "tls.key", "-out", "tls.csr")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "365", "-extfile", "names")
    openssl("x509", "-req", "-in", "tls.csr", *signed, "-out", "tls.crt")
    openssl("rsa", "-traditional", "-in", "ca.key", "-out", "ca.key")  # it reads no other form of key
    for name in ("ca.key", "tls.key"):
        accounts.write_private(folder / name, (folder / name).read_text())
    return base64.b64encode((folder / "ca.crt").read_bytes()).decode()


def _define(api: Api, client: JSON) -> None:
    files = sorted(part_dir(BY_NAME["kueue"]).glob("kueue.x-k8s.io_*.yaml"))
    for file in files:
        _post(api, _DEFINITIONS, file.read_bytes())
    for name in _CONVERTED:
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        change = {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}
        api.patch(f"{_DEFINITIONS}/{name}.kueue.x-k8s.io", change)
    api.await_each(_DEFINITIONS, established, len(files), 60)


def _webhooks(api: Api, address: str, authority: str) -> None:
    text = (part_dir(BY_NAME["kueue"]) / "manifests.yaml").read_text()
    text = _SERVICE.sub(rf"url: {address}\1\n    caBundle: {authority}", text)
    for document in text.split("\n---\n"):
        kind = "mutating" if "kind: MutatingWebhookConfiguration" in document else "validating"
        named = document.replace(f"name: {kind}-webhook-configuration", f"name: kueue-{kind}-webhook-configuration")
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        _post(api, path, named.removeprefix("---\n").encode())


def _post(api: Api, path: str, text: bytes) -> None:
    try:
        api.request("POST", path, text, "application/yaml")
    except ApiError as error:
        if error.status != 409:
            raise


def answers(port: int, path: str) -> bool:
    """Tell whether a controller says on loopback that it is well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def established(definition: JSON) -> bool:
    """Tell whether objects of a definition may be made."""
    conditions = definition["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def queue(api: Api, name: str, cpu: str, flavor: JSON, namespace: str = "default") -> None:
    """Makes a flavor, a ClusterQueue with so many cores of it, and the LocalQueue that leads there, all of one name."""
    api.create(f"{GROUP}/resourceflavors", _named("ResourceFlavor", name, flavor))
    quota = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "1Ti"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quota}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    api.create(f"{GROUP}/clusterqueues", _named("ClusterQueue", name, spec))
    local = _named("LocalQueue", name, {"clusterQueue": name})
    api.create(f"{GROUP}/namespaces/{namespace}/localqueues", local)


def topology(api: Api, name: str, levels: list[str]) -> None:
    """Makes a Topology of these labels, widest first."""
    spec = {"levels": [{"nodeLabel": label} for label in levels]}
    api.create(f"{GROUP}/topologies", _named("Topology", name, spec))


def _named(kind: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
