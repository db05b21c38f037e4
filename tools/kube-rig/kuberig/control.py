"""The control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kuberig import accounts as accounts_module
from kuberig.accounts import Accounts
from kuberig.api import JSON, Api
from kuberig.parts import program
from kuberig.processes import Process, Processes, free_ports, listening, until_ready

# KWOK's nodes renew nothing (5,000 leases would cost the API server 500 writes a second), so the
# controller that declares silent nodes dead must be patient. A test of dead nodes asks for less.
PATIENT_S = 86_400


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where a started control plane answers."""

    api: Api
    scheduler_port: int


@dataclass(frozen=True, slots=True)
class Options:
    """How a control plane is started.

    Attributes:
        scheduler: Whether kube-scheduler runs beside.
        scheduler_qps: Its client limit; `None` is as shipped.
        node_grace_s: How long a node may be silent before it is declared dead.
        node_look_s: How often nodes are looked at, and taints of those that speak again are taken off.
        api_flags: More flags of the API server.
    """

    scheduler: bool = True
    scheduler_qps: float | None = None
    node_grace_s: int = PATIENT_S
    node_look_s: float = 5.0
    api_flags: tuple[str, ...] = ()


def start(folder: Path, processes: Processes, users: Accounts, options: Options) -> ControlPlane:
    """Starts etcd, API server, controller-manager and kube-scheduler and waits until all are ready."""
    etcd_port, peer_port, api_port, manager_port = free_ports(4)
    etcd = _start_etcd(folder, processes, etcd_port, peer_port)
    key = _service_account_key(folder)
    until_ready(etcd, lambda: listening(etcd_port), 20)
    server = f"https://127.0.0.1:{api_port}"
    apiserver = processes.start(
        "kube-apiserver",
        [
            program("kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={api_port}",
            f"--cert-dir={folder / 'certs'}",
            f"--token-auth-file={users.write_tokens()}",
            "--authorization-mode=Node,RBAC",
            "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",  # a loopback address is not allowed as an endpoint
            "--allow-privileged=true",
            "--profiling=false",
            *options.api_flags,
        ],
    )
    certificate = folder / "certs" / "apiserver.crt"
    until_ready(apiserver, lambda: certificate.exists() and listening(api_port), 60)
    users.write_configs(server, certificate)
    api = Api.of_kubeconfig(users.config("admin"))
    manager = _start_manager(folder, processes, users, manager_port, options)
    also = start_scheduler(folder, processes, users, options.scheduler_qps) if options.scheduler else None
    until_ready(apiserver, api.ok, 60)
    accounts_module.grant_scheduler(api)
    until_ready(manager, lambda: answers(manager_port), 60)
    if also:
        until_ready(also[0], lambda: answers(also[1]), 60)
    return ControlPlane(api, also[1] if also else 0)


def _start_etcd(folder: Path, processes: Processes, port: int, peer_port: int) -> Process:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return processes.start(
        "etcd",
        [
            program("etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
        ],
    )


def _service_account_key(folder: Path) -> Path:
    key = folder / "service-account.key"
    accounts_module.write_private(key, "")
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    return key


def _start_manager(folder: Path, processes: Processes, users: Accounts, port: int, options: Options) -> Process:
    return processes.start(
        "kube-controller-manager",
        [
            program("kube-controller-manager"),
            f"--kubeconfig={users.config('controller-manager')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'manager-certs'}",
            f"--root-ca-file={folder / 'certs' / 'apiserver.crt'}",
            f"--service-account-private-key-file={folder / 'service-account.key'}",
            "--leader-elect=false",
            f"--node-monitor-grace-period={options.node_grace_s}s",
            f"--node-monitor-period={options.node_look_s:g}s",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--concurrent-gc-syncs=4",
            "--authorization-always-allow-paths=/healthz,/metrics",
        ],
    )


def start_scheduler(
    folder: Path, processes: Processes, users: Accounts, qps: float | None = None, extenders: Sequence[JSON] = ()
) -> tuple[Process, int]:
    """Starts kube-scheduler: as shipped (50 requests a second), or with its client limit at `qps`; does not wait.

    Args:
        extenders: Entries of its configuration for programs that it asks over HTTP.

    Returns:
        The process, and the port of its `/metrics` (HTTPS).
    """
    (port,) = free_ports(1)
    connection: JSON = {"kubeconfig": str(users.config("kube-scheduler"))}
    if qps is not None:
        connection |= {"qps": qps, "burst": int(2 * qps)}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": {"leaderElect": False},
        "extenders": list(extenders),
    }
    file = folder / "kube-scheduler.json"
    file.write_text(json.dumps(config, indent=1))
    process = processes.start(
        "kube-scheduler",
        [
            program("kube-scheduler"),
            f"--config={file}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'scheduler-certs'}",
            "--authorization-always-allow-paths=/healthz,/metrics",
        ],
    )
    return process, port


def answers(port: int, path: str = "/healthz") -> bool:
    """Whether a program with a certificate of its own answers with 200 on loopback."""
    return fetch(port, path)[0] == 200


def fetch(port: int, path: str) -> tuple[int, bytes]:
    """GET on loopback without checking the certificate; status 0 when nobody answers."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
