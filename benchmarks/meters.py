"""What reading a meter costs: CPU time of one read, as a share of a core at 10 reads a second.

Kernel trees are written to a folder and services answer on loopback from another process: only the reader's own CPU
time counts.

    make bench-meters
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

from wattflow.energy.meters.hwmon import HwmonMeter
from wattflow.energy.meters.kepler import KeplerMeter
from wattflow.energy.meters.pcp import PcpMeter
from wattflow.energy.meters.port import Meter, Tally
from wattflow.energy.meters.powercap import PowercapMeter

GOAL_PCT = 1.0


def serve(port: Connection) -> None:
    """Answers as pmproxy does for four packages, and as a Kepler that sees 2,000 processes."""
    page = "".join(
        f'kepler_node_package_joules_total{{mode="{mode}",package="{package}"}} {package}.5\n'
        for mode in ("idle", "dynamic")
        for package in (0, 1)
    )
    page += "".join(f'kepler_process_cpu_joules_total{{pid="{i}",zone="package"}} {i}\n' for i in range(2000))
    values = [{"instance": i, "value": 7} for i in range(4)]
    answers = {
        "/metrics": page,
        "/context": json.dumps({"context": 1}),
        "/metric": json.dumps({"metrics": [{"name": "denki.rapl.sysfs", "pmid": "1"}]}),
        "/indom": json.dumps({"instances": [{"instance": i, "name": f"{i}-package-{i}"} for i in range(4)]}),
        "/fetch": json.dumps({"values": [{"name": "denki.rapl.sysfs", "instances": values}]}),
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = next(text for name, text in answers.items() if name in self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    port.send(server.server_address[1])
    server.serve_forever()


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def trees(folder: Path) -> tuple[Path, Path]:
    """A powercap tree of two packages with four zones each, and an hwmon tree of 16 energy counters."""
    powercap, hwmon = folder / "powercap", folder / "hwmon"
    for package in range(2):
        about = {"max_energy_range_uj": "262143328850", "energy_uj": "123456789"}
        write(powercap / f"intel-rapl:{package}", name=f"package-{package}", **about)
        for number, label in enumerate(("core", "uncore", "dram")):
            write(powercap / f"intel-rapl:{package}:{number}", name=label, **about)
    counters = {f"energy{i}_input": "5000000" for i in range(16)}
    write(hwmon / "hwmon0", name="amd_energy", **counters)
    return powercap, hwmon


def cost_pct(meter: Meter, reads: int = 400) -> float:
    """Share of a core at 10 Hz, tally included."""
    tally = Tally(meter)
    begun_s = time.process_time()
    for _ in range(reads):
        tally.update()
    return (time.process_time() - begun_s) / reads * 10 * 100


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{here.recv()}"
        with tempfile.TemporaryDirectory() as folder:
            powercap, hwmon = trees(Path(folder))
            meters: list[Meter] = [PowercapMeter(powercap), HwmonMeter(hwmon)]
            costs = {meter.name: cost_pct(meter) for meter in meters}
            # The server takes one connection at a time.
            for open_meter in (PcpMeter, KeplerMeter):
                service = open_meter(url)
                meters.append(service)
                costs[service.name] = cost_pct(service)
                service.close()
            for meter in meters[:2]:
                meter.close()
    finally:
        server.kill()
        server.join()
    for name, value in costs.items():
        verdict = "ok" if value <= GOAL_PCT else "short"
        print(f"figure meter-cost-{name}-10hz {value:.3f} %core goal {GOAL_PCT:g} {verdict}")


if __name__ == "__main__":
    main()
