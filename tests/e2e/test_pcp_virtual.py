"""Real Performance Co-Pilot over the virtual meter: pmdadenki reads the tree, pmproxy serves it, we read that."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kuberig.processes import free_row

from wattflow.energy import virtual
from wattflow.energy.meters.pcp import PcpMeter
from wattflow.energy.meters.port import NoReading, difference
from wattflow.model.profile import PowerProfile
from wattflow.runtime.machine import LoadReader, PcpLoad, load_reader

PCP = Path("/usr/lib/pcp/bin")
PMDAS = Path("/var/lib/pcp/pmdas")
PMNS = """root {
	denki
}
denki {
	rapl
}
denki.rapl {
	rate	156:0:0
	raw	156:0:1
}
"""
CURVE = PowerProfile((0.0, 1.0, 2.0), (2000.0, 5000.0, 6500.0))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("pcp"),
    pytest.mark.skipif(
        not ((PCP / "pmcd").exists() and (PMDAS / "denki" / "pmdadenki").exists()),
        reason="needs Performance Co-Pilot with pmdadenki (`make tools`)",
    ),
]


def start(command: list[str | Path], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "output").open("ab") as output:
        return subprocess.Popen([str(part) for part in command], cwd=folder, stdout=output, stderr=output)


@pytest.fixture
def pcp_over_virtual(tmp_path: Path) -> Iterator[tuple[virtual.VirtualMeter, str, str]]:
    """The virtual meter, and pmproxy's and pmcd's addresses, all by hand on loopback."""
    meter = virtual.VirtualMeter(tmp_path / "root", CURVE, virtual.of_machine(), dram_share=0.1)
    (tmp_path / "denki.pmns").write_text(PMNS)
    known = [f"/var/lib/pcp/pmns/root_{name}" for name in ("pmcd", "linux")]
    merge = [PCP / "pmnsmerge", "-f", *known, tmp_path / "denki.pmns", tmp_path / "pmns"]
    subprocess.run([str(part) for part in merge], check=True, capture_output=True)
    denki = f"{PMDAS}/denki/pmdadenki -d 156 -r {tmp_path}/root -l {tmp_path}/denki.log -U root"
    (tmp_path / "pmcd.conf").write_text(
        f"pmcd\t2\tdso\tpmcd_init\t{PMDAS}/pmcd/pmda_pmcd.so\nlinux\t60\tdso\tlinux_init\t{PMDAS}/linux/pmda_linux.so\n"
        f"denki\t156\tpipe\tbinary\t{denki}\n"
    )
    pmcd_port = free_row(2)
    pmproxy_port = pmcd_port + 1
    # Unix sockets have short names: not under pytest's long folder.
    run = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    processes = [
        start([PCP / "pmcd", "-f", "-U", "root", "-i", "127.0.0.1", "-p", str(pmcd_port), "-c", tmp_path / "pmcd.conf",
               "-n", tmp_path / "pmns", "-l", tmp_path / "pmcd.log", "-s", run / "pmcd"], tmp_path),
        start([PCP / "pmproxy", "-f", "-U", "root", "-i", "127.0.0.1", "-p", str(pmproxy_port),
               "-l", tmp_path / "pmproxy.log", "-s", run / "pmproxy"], tmp_path),
    ]  # fmt: skip
    meter.start()
    try:
        yield meter, f"http://127.0.0.1:{pmproxy_port}", f"127.0.0.1:{pmcd_port}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(10)
        meter.stop()
        shutil.rmtree(run)


def opened(url: str, hostspec: str, patience_s: float = 20.0) -> PcpMeter:
    end = time.monotonic() + patience_s
    while True:
        try:
            return PcpMeter(url, hostspec)
        except NoReading:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_joules_through_pcp_are_the_virtual_meters(pcp_over_virtual: tuple[virtual.VirtualMeter, str, str]) -> None:
    virtual_meter, url, hostspec = pcp_over_virtual
    meter = opened(url, hostspec)
    assert meter.metric in ("denki.rapl.raw", "denki.rapl.sysfs")
    assert {domain.kind for domain in meter.domains} == {"package", "dram"}
    before, truth_before_j = meter.read(), virtual_meter.truth.total_j
    # Kilowatts, so that PCP's whole joules are a fine ruler; one second of whatever the machine does.
    time.sleep(1.0)
    after, truth_after_j = meter.read(), virtual_meter.truth.total_j
    package = next(domain.name for domain in meter.domains if domain.kind == "package")
    measured_j = difference(before, after).joules[package]
    meter.close()
    # Each read may fall a step of the virtual meter (20 ms, and the scheduler's mercy) away from the truth's.
    assert measured_j == pytest.approx(truth_after_j - truth_before_j, rel=0.1)


def test_agents_read_cpu_memory_and_network_through_pcp(
    pcp_over_virtual: tuple[virtual.VirtualMeter, str, str],
) -> None:
    _, url, hostspec = pcp_over_virtual
    opened(url, hostspec).close()
    load = load_reader({"WATTFLOW_PMPROXY": url, "WATTFLOW_PMCD": hostspec})
    assert isinstance(load, PcpLoad)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass
    load.look()
    seen, kernel = load.read(12.0, "attributed", [0.5]), LoadReader().read()
    load.close()
    assert 0.0 < seen.cpu_busy <= 1.0 and seen.watts == 12.0 and seen.gpu_busy == [0.5]
    assert seen.memory_used_bytes == pytest.approx(kernel.memory_used_bytes, rel=0.2)
    assert seen.network_bytes == pytest.approx(kernel.network_bytes, rel=0.2, abs=1 << 20)


def test_without_pcp_the_kernels_files_are_read() -> None:
    assert isinstance(load_reader({"WATTFLOW_PMPROXY": f"http://127.0.0.1:{free_row(1)}"}), LoadReader)
