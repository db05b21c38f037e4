"""A real node: kubelet, containerd and runc, in a folder, cgroup and ports of its own. Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from kuberig import cgroups, images, kwok
from kuberig.accounts import Accounts
from kuberig.api import Api
from kuberig.parts import program
from kuberig.processes import Processes, free_ports, until_ready

_CNI = Path("/usr/lib/cni")


class NoRealNode(RuntimeError):
    """This machine cannot carry a real node; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class RealNode:
    """Where a real node keeps its things."""

    name: str
    folder: Path

    @property
    def cgroup(self) -> str:
        """The group under which all its pods live. The rig's folder has a name of its own, and so has this."""
        return f"{self.folder.parent.name}-{self.name}"

    @property
    def socket(self) -> Path:
        """containerd's socket."""
        return self.folder / "containerd.sock"

    def cpu_seconds(self, uid: str) -> float | None:
        """CPU seconds of one pod so far, by its uid."""
        return cgroups.cpu_seconds(self.cgroup, uid)

    def logs(self, namespace: str, pod: str, uid: str) -> dict[str, str]:
        """What each container of a pod has written, without the runtime's prefixes."""
        found: dict[str, str] = {}
        for file in sorted((self.folder / "logs" / f"{namespace}_{pod}_{uid}").glob("*/*.log")):
            lines = [line.split(" ", 3)[-1] for line in file.read_text(errors="replace").splitlines()]
            found[file.parent.name] = "\n".join(lines)
        return found

    def load(self, archive: Path) -> None:
        """Give the node an image that stands in an OCI archive."""
        done = _ctr(self, "images", "import", "--local", "--snapshotter", "native", str(archive))
        if done.returncode:
            raise NoRealNode(f"containerd did not take the image in {archive.name}: {done.stderr.strip()}")


def why_not() -> str | None:
    """Why this machine cannot carry a real node, or `None` when it can."""
    if os.geteuid() != 0:
        return "a real node needs root"
    lacking = [name for name in ("runc", "busybox") if shutil.which(name) is None]
    if not (_CNI / "loopback").exists():
        lacking.append("containernetworking-plugins")
    return f"not installed: {', '.join(lacking)} (`make kube-rig` installs them where apt can)" if lacking else None


def start(folder: Path, processes: Processes, users: Accounts, api: Api, name: str, with_argo: bool = True) -> RealNode:
    """Starts containerd and kubelet, loads the images, and waits until the node is ready."""
    reason = why_not()
    if reason:
        raise NoRealNode(reason)
    node = RealNode(name, folder / name)
    node.folder.mkdir()
    _start_containerd(node, processes)
    for image in images.images(with_argo):
        _load(node, image)
    _start_kubelet(node, processes, users)
    api.await_one("/api/v1/nodes", name, kwok.is_ready, 60)
    return node


def _start_containerd(node: RealNode, processes: Processes) -> None:
    config = node.folder / "containerd.toml"
    config.write_text(_containerd_config(node))
    (node.folder / "cni").mkdir(exist_ok=True)
    network = {"cniVersion": "1.0.0", "name": "rig", "plugins": [{"type": "loopback"}]}
    (node.folder / "cni" / "10-rig.conflist").write_text(json.dumps(network))
    process = processes.start(f"containerd-{node.name}", [program("containerd"), f"--config={config}"])
    until_ready(process, lambda: _ctr(node, "version").returncode == 0, 30)


def _containerd_config(node: RealNode) -> str:
    cri = 'plugins."io.containerd.cri.v1'
    return f"""version = 3
root = "{node.folder}/root"
state = "{node.folder}/state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing"]
[grpc]
address = "{node.socket}"
[ttrpc]
address = "{node.socket}.ttrpc"
[{cri}.images"]
snapshotter = "native"
[{cri}.images".pinned_images]
sandbox = "{images.PAUSE}"
[{cri}.runtime"]
restrict_oom_score_adj = true
[{cri}.runtime".containerd]
default_runtime_name = "runc"
[{cri}.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{program("containerd-shim-runc-v2")}"
snapshotter = "native"
[{cri}.runtime".containerd.runtimes.runc.options]
BinaryName = "{shutil.which("runc")}"
SystemdCgroup = false
[{cri}.runtime".cni]
bin_dirs = ["{_CNI}"]
conf_dir = "{node.folder}/cni"
"""


def _ctr(node: RealNode, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(program("ctr")), "--address", str(node.socket), "--namespace", "k8s.io", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def _load(node: RealNode, image: images.Image) -> None:
    archive = node.folder / "image.tar"
    images.write_archive(image, archive)
    node.load(archive)
    archive.unlink()


def _start_kubelet(node: RealNode, processes: Processes, users: Accounts) -> None:
    cgroups.make(node.cgroup)
    port, health = free_ports(2)
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "cgroupsPerQOS": True,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "podLogsDir": str(node.folder / "logs"),
        "resolvConf": "",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "maxPods": 200,
    }
    file = node.folder / "kubelet.json"
    file.write_text(json.dumps(config, indent=1))
    process = processes.start(
        f"kubelet-{node.name}",
        [
            program("kubelet"),
            f"--config={file}",
            f"--kubeconfig={users.config(node.name)}",
            f"--root-dir={node.folder / 'kubelet'}",
            f"--cert-dir={node.folder / 'certs'}",
            f"--hostname-override={node.name}",
            "--node-labels=node.wattflow.io/class=real",
            "--v=1",
        ],
    )
    until_ready(process, lambda: (node.folder / "kubelet").is_dir(), 30)


def switch_off(node: RealNode, processes: Processes) -> None:
    """Ends kubelet, every container, containerd and the shims, as when a machine loses its power; its disk stays."""
    kubelet = processes.find(f"kubelet-{node.name}")
    if kubelet:
        processes.stop(kubelet)
    containerd = processes.find(f"containerd-{node.name}")
    if containerd:
        for task in _ctr(node, "tasks", "list", "--quiet").stdout.split():
            _ctr(node, "tasks", "delete", "--force", task)
        processes.stop(containerd)
    _end_shims(node)


def switch_on(node: RealNode, processes: Processes, users: Accounts) -> None:
    """Starts a node anew that was switched off, with its images and under its old name; does not wait for its word."""
    _start_containerd(node, processes)
    _start_kubelet(node, processes, users)


def stop(node: RealNode, processes: Processes) -> None:
    """Switches it off and takes its mounts and its cgroup away."""
    switch_off(node, processes)
    _unmount(node.folder)
    cgroups.remove(node.cgroup)


def _end_shims(node: RealNode) -> None:
    """Ends the shims that are left: they carry this node's socket among their arguments, and nobody else's do."""
    sign = str(node.socket).encode()
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        left = [pid for pid in map(_pid_of, Path("/proc").glob("[0-9]*")) if sign in _command(pid)]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _pid_of(folder: Path) -> int:
    return int(folder.name)


def _command(pid: int) -> bytes:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
    return command if b"containerd-shim" in command.split(b"\0")[0] else b""


def _unmount(folder: Path) -> None:
    table = Path("/proc/self/mounts").read_text().splitlines()
    mounted = [line.split()[1] for line in table if line.split()[1].startswith(f"{folder}/")]
    for point in sorted(mounted, key=len, reverse=True):
        subprocess.run(["umount", "--lazy", point], capture_output=True)
