"""A real two-node Slurm on loopback: slurmctld, munged, and two slurmd in UTS namespaces of their own."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NODES = ("wfa", "wfb")
CONF = """
ClusterName=wattflow
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser={user}
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
MinJobAge=30
KillWait=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer_batch=0
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
NodeName=wfa NodeHostname=wfa NodeAddr=127.0.0.1 Port={a} CPUs=2 RealMemory=2000 State=UNKNOWN
NodeName=wfb NodeHostname=wfb NodeAddr=127.0.0.1 Port={b} CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=wfa,wfb Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def available() -> str | None:
    """None where a rig can be made, else why not."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not here (`make cluster-tools`)"
    return None if os.geteuid() == 0 else "UTS namespaces need root"


class SlurmRig:
    """Starts and stops the daemons; ``environment`` points Slurm's commands to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = [_free_port() for _ in range(3)]
        for name in ("state", "spool-wfa", "spool-wfb"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        text = CONF.format(folder=folder, user=getpass.getuser(), ctld=ports[0], a=ports[1], b=ports[2])
        (folder / "slurm.conf").write_text(text)
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """All daemons; waits until both nodes are idle."""
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self._spawn("munged", "munged", "-F", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.sock",
                    f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/munge.log",
                    f"--seed-file={self.folder}/munge.seed")  # fmt: skip
        _until(lambda: (self.folder / "munge.sock").exists(), "munged")
        self._spawn("ctld", "slurmctld", "-D", "-c")
        for node in NODES:
            self.start_node(node)
        _until(lambda: self.states().count("idle") == len(NODES), f"Slurm's nodes ({self.folder}/*.log)", 60)

    def start_node(self, node: str) -> None:
        """One slurmd, under its own host name."""
        self._spawn(node, "unshare", "--uts", "sh", "-c", f"hostname {node} && exec slurmd -D -N {node}")

    def kill_node(self, node: str) -> None:
        """End a slurmd and everything that runs below it, as a lost machine would."""
        os.killpg(self._processes.pop(node).pid, signal.SIGKILL)
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"SLURMD_NODENAME={node}".encode() in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except OSError:
                continue

    def states(self) -> list[str]:
        """Of the nodes, as sinfo tells them."""
        done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=os.environ | self.environment, capture_output=True,
                              text=True, check=False)  # fmt: skip
        return done.stdout.split()

    def stop(self) -> None:
        """End all daemons, in reverse."""
        for name in list(self._processes)[::-1]:
            process = self._processes.pop(name)
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                command, env=os.environ | self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip


def _until(true: object, what: str, for_s: float = 30.0) -> None:
    end_s = time.monotonic() + for_s
    while not true():  # type: ignore[operator]
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not ready after {for_s:g} s")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
