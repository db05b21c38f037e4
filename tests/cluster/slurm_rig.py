"""A real two-node Slurm on loopback: slurmctld, munged, and two slurmd in UTS namespaces of their own.

With ``accounting`` there are slurmdbd, its MariaDB and Slurm's energy plugin for Cray's counters, too. That one reads
files in ``/sys/cray/pm_counters``; each slurmd sees, in a mount namespace, a folder of ours there: the counter is
played, everything that reads, adds, stores and tells it is real.
"""

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
{accounting}
SwitchType=switch/none
MpiDefault=none
NodeName=wfa NodeHostname=wfa NodeAddr=127.0.0.1 Port={a} CPUs=2 RealMemory=2000 State=UNKNOWN
NodeName=wfb NodeHostname=wfb NodeAddr=127.0.0.1 Port={b} CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=wfa,wfb Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""

NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge.sock
AcctGatherEnergyType=acct_gather_energy/pm_counters
AcctGatherNodeFreq=1
JobAcctGatherFrequency=task=1,energy=1"""
DBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser={user}
LogFile={folder}/dbd.log
PidFile={folder}/dbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={maria}
StorageUser=root
StorageLoc=slurm
"""
MARIA = Path("/usr/share/mysql")
COUNTERS = """
set -e
hostname {node}
mount --make-rprivate /
mkdir -p {folder}/sys-{node}
mount --rbind /sys {folder}/sys-{node}
mount -t tmpfs none /sys
for place in {folder}/sys-{node}/*; do
    mkdir /sys/$(basename $place)
    mount --rbind $place /sys/$(basename $place)
done
mkdir -p /sys/cray/pm_counters
mount --bind {folder}/counters-{node} /sys/cray/pm_counters
exec slurmd -D -N {node}
"""


def available(accounting: bool = False) -> str | None:
    """None where a rig can be made, else why not."""
    names = ["slurmctld", "slurmd", "sbatch", "munged", "unshare"]
    names += ["slurmdbd", "mariadbd", "sacct"] if accounting else []
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not here (`make cluster-tools`)"
    return None if os.geteuid() == 0 else "UTS namespaces need root"


class SlurmRig:
    """Starts and stops the daemons; ``environment`` points Slurm's commands to them."""

    def __init__(self, folder: Path, accounting: bool = False) -> None:
        self.folder, self.accounting = folder, accounting
        ports = dict(zip(("ctld", "a", "b", "dbd", "maria"), [_free_port() for _ in range(5)], strict=True))
        for name in ("state", "spool-wfa", "spool-wfb", "counters-wfa", "counters-wfb", "maria"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._ports, user = ports, getpass.getuser()
        more = ACCOUNTING.format(folder=folder, **ports) if accounting else NO_ACCOUNTING
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, user=user, accounting=more, **ports))
        (folder / "slurmdbd.conf").write_text(DBD_CONF.format(folder=folder, user=user, **ports))
        (folder / "slurmdbd.conf").chmod(0o600)
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
        if self.accounting:
            self._start_accounting()
        self._spawn("ctld", "slurmctld", "-D", "-c")
        for node in NODES:
            self.start_node(node)
        _until(lambda: self.states().count("idle") == len(NODES), f"Slurm's nodes ({self.folder}/*.log)", 60)

    def start_node(self, node: str) -> None:
        """One slurmd, under its own host name, and with counters of its own where there is accounting."""
        if self.accounting:
            self.count(node, 0.0, 0.0)
            script = COUNTERS.format(node=node, folder=self.folder)
            self._spawn(node, "unshare", "--uts", "--mount", "sh", "-c", script)
        else:
            self._spawn(node, "unshare", "--uts", "sh", "-c", f"hostname {node} && exec slurmd -D -N {node}")

    def count(self, node: str, joules: float, watts: float) -> None:
        """What a node's counter tells from now on."""
        for name, value, unit in (("energy", joules, "J"), ("power", watts, "W")):
            place = self.folder / f"counters-{node}" / name
            fresh = place.with_suffix(".new")
            fresh.write_text(f"{value:.0f} {unit} {time.time_ns() // 1000} us\n")
            fresh.rename(place)

    def _start_accounting(self) -> None:
        """MariaDB, which lets everybody in, and slurmdbd."""
        data, user = self.folder / "maria", getpass.getuser()
        tables = "".join((MARIA / f"mysql_system_tables{part}.sql").read_text() for part in ("", "_data"))
        with (self.folder / "maria-install.out").open("wb") as out:
            subprocess.run(["mariadbd", "--no-defaults", "--bootstrap", f"--datadir={data}", f"--user={user}"],
                           input=f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}".encode(), check=True, stdout=out,
                           stderr=out)  # fmt: skip
        self._spawn("maria", "mariadbd", "--no-defaults", f"--datadir={data}", f"--user={user}",
                    f"--socket={data}/maria.sock", f"--pid-file={data}/maria.pid", "--bind-address=127.0.0.1",
                    f"--port={self._ports['maria']}", "--skip-grant-tables", "--skip-name-resolve",
                    "--innodb-buffer-pool-size=32M")  # fmt: skip
        _until(lambda: _answers(self._ports["maria"]), f"MariaDB ({self.folder}/maria.out)", 60)
        self._spawn("dbd", "slurmdbd", "-D")
        _until(lambda: _answers(self._ports["dbd"]), f"slurmdbd ({self.folder}/dbd.log)", 60)
        subprocess.run(["sacctmgr", "-i", "add", "cluster", "wattflow"], env=os.environ | self.environment, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip

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


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
