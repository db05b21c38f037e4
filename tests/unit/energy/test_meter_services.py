"""Meters that are services or other kernel trees: perf events, PCP, Kepler, hwmon, Redfish, replay, and the probe."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import pytest

from wattflow.energy.meters import kepler, probe, redfish
from wattflow.energy.meters.hwmon import HwmonMeter
from wattflow.energy.meters.pcp import PcpMeter
from wattflow.energy.meters.perf_pmu import PerfMeter, _cpus
from wattflow.energy.meters.port import Domain, NoReading, difference, node_j
from wattflow.energy.meters.powercap import PowercapMeter
from wattflow.model.errors import MissingMeter, UnknownName

Answer = Callable[[str], tuple[int, str]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Start a server on loopback that answers by a function of the path; gives its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class Pmproxy:
    """Answers like pmproxy 6 does, for the metric names of old and new versions."""

    def __init__(self, metric: str, values: list[int], expire_after: int = 10**9) -> None:
        self.metric, self.values, self.contexts, self.fetches = metric, iter(values), 0, 0
        self.expire_after = expire_after

    def __call__(self, path: str) -> tuple[int, str]:
        if path.startswith("/pmapi/context"):
            self.contexts, self.fetches = self.contexts + 1, 0
            return 200, json.dumps({"context": self.contexts})
        if "/metric" in path:
            asked = path.split("names=")[1].split(",")
            rows = [{"name": n, "pmid": "1"} if n == self.metric else {"name": n, "success": False} for n in asked]
            return 200, json.dumps({"metrics": rows})
        if "/indom" in path:
            return 200, json.dumps({
                "instances": [{"instance": 1, "name": "0-dram"}, {"instance": 0, "name": "0-package-0"}],
            })  # fmt: skip
        self.fetches += 1
        if self.fetches > self.expire_after:
            return 404, json.dumps({"message": "unknown context identifier", "success": False})
        values: list[dict[str, object]] = [{"instance": 0, "value": next(self.values)}, {"instance": 1, "value": 4}]
        return 200, json.dumps({"values": [{"name": self.metric, "instances": values}]})


def test_meters_of_other_packages_find_the_sources_by_the_name_of_before() -> None:
    assert probe.Places is probe.MeterSources


@pytest.mark.parametrize("metric", ["denki.rapl.raw", "denki.rapl.sysfs", "denki.rapl.msr"])
def test_pcp_reads_old_and_new_names(serve: Callable[[Answer], str], metric: str) -> None:
    meter = PcpMeter(serve(Pmproxy(metric, [100, 130])))
    assert meter.metric == metric
    assert meter.domains == (Domain("0-package-0", "package"), Domain("0-dram", "dram"))
    energy = difference(meter.read(), meter.read())
    assert energy.joules == {"0-package-0": 30.0, "0-dram": 0.0}
    meter.close()


def test_pcp_keeps_its_context_and_takes_another_when_it_expired(serve: Callable[[Answer], str]) -> None:
    proxy = Pmproxy("denki.rapl.raw", [1, 2, 3, 4, 5, 6], expire_after=3)
    meter = PcpMeter(serve(proxy))
    values = [meter.read().joules["0-package-0"] for _ in range(5)]
    assert values == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert proxy.contexts == 2
    meter.close()


def test_a_pcp_counter_that_falls_is_unknown_unless_its_range_is_given(serve: Callable[[Answer], str]) -> None:
    unknown = PcpMeter(serve(Pmproxy("denki.rapl.raw", [900, 50, 60])))
    assert [unknown.read().joules["0-package-0"] for _ in range(3)] == [900.0, None, None]
    known = PcpMeter(serve(Pmproxy("denki.rapl.raw", [900, 50, 60])), range_j=1000.0)
    assert [known.read().joules["0-package-0"] for _ in range(3)] == [900.0, 1050.0, 1060.0]
    unknown.close()
    known.close()


def test_pcp_without_denki_says_so(serve: Callable[[Answer], str]) -> None:
    with pytest.raises(NoReading, match="is the denki agent installed"):
        PcpMeter(serve(Pmproxy("kernel.all.load", [])))


def test_pcp_without_pmcd_says_what_pmproxy_said(serve: Callable[[Answer], str]) -> None:
    with pytest.raises(NoReading, match="no pmcd there"):
        PcpMeter(serve(lambda path: (400, '{"message": "no pmcd there", "success": false}')))


OLD_KEPLER = """
# TYPE kepler_node_package_joules_total counter
kepler_node_package_joules_total{instance="n",mode="dynamic",package="0",source="intel_rapl"} 10.5
kepler_node_package_joules_total{instance="n",mode="idle",package="0",source="intel_rapl"} 100
kepler_node_dram_joules_total{instance="n",mode="idle",package="0",source="intel_rapl"} 7
kepler_container_package_joules_total{container_name="a",mode="dynamic"} 3
"""
NEW_KEPLER = """
kepler_node_cpu_joules_total{node_name="n",path="/sys/class/powercap/intel-rapl:0",zone="package"} 5000.25
kepler_node_cpu_joules_total{node_name="n",path="/sys/class/powercap/intel-rapl:0:1",zone="dram"} 1e3
kepler_node_cpu_active_joules_total{node_name="n",path="/sys/class/powercap/intel-rapl:0",zone="package"} 20
kepler_node_cpu_watts{node_name="n",zone="package"} 33
"""


def test_kepler_old_and_new_pages() -> None:
    assert kepler.node_joules(OLD_KEPLER) == {("package-0", "package"): 110.5, ("dram-0", "dram"): 7.0}
    assert kepler.node_joules(NEW_KEPLER) == {
        ("package:intel-rapl:0", "package"): 5000.25,
        ("dram:intel-rapl:0:1", "dram"): 1000.0,
    }


def test_kepler_over_http(serve: Callable[[Answer], str]) -> None:
    meter = kepler.KeplerMeter(serve(lambda path: (200, OLD_KEPLER)))
    assert node_j(meter.read().joules, meter.domains) == 117.5
    meter.close()
    with pytest.raises(NoReading, match="no kepler_node"):
        kepler.KeplerMeter(serve(lambda path: (200, "up 1\n")))


def test_a_service_that_goes_away_reads_none_and_its_counter_bridges_the_hole(serve: Callable[[Answer], str]) -> None:
    proxy, up = Pmproxy("denki.rapl.raw", [100, 150]), [True]
    meter = PcpMeter(serve(lambda path: proxy(path) if up[0] else (503, "gone")))
    page = kepler.KeplerMeter(serve(lambda path: (200, OLD_KEPLER) if up[0] else (503, "gone")))
    before = meter.read()
    up[0] = False
    assert meter.read().joules == {"0-package-0": None, "0-dram": None}
    assert page.read().joules == {"package-0": None, "dram-0": None}
    up[0] = True
    assert difference(before, meter.read()).joules["0-package-0"] == 50.0
    meter.close()
    page.close()


def test_redfish_prefers_a_counter_and_falls_back_to_watts(serve: Callable[[Answer], str]) -> None:
    pages = {
        "/redfish/v1/Chassis": {
            "Members": [{"@odata.id": "/redfish/v1/Chassis/a"}, {"@odata.id": "/redfish/v1/Chassis/b"}]
        },
        "/redfish/v1/Chassis/a/EnvironmentMetrics": {"EnergykWh": {"Reading": 2.0}, "PowerWatts": {"Reading": 180}},
        "/redfish/v1/Chassis/b/Power": {"PowerControl": [{"PowerConsumedWatts": 210}]},
    }
    url = serve(lambda path: (200, json.dumps(pages[path])) if path in pages else (404, "none"))
    meter = redfish.RedfishMeter(url, "root:calvin")
    assert [(d.name, d.counter) for d in meter.domains] == [("chassis-a", True), ("chassis-b", False)]
    reading = meter.read()
    assert reading.joules == {"chassis-a": 7.2e6}
    assert reading.watts == {"chassis-b": 210.0}
    meter.close()


def test_a_redfish_page_with_half_its_supplies_unknown_is_unknown() -> None:
    page = {"PowerControl": [{"PowerConsumedWatts": 210}, {"PowerConsumedWatts": None}]}
    assert redfish.energy_and_watts(page) == (None, None)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_hwmon_counters_before_watts_and_no_unknown_chip(tmp_path: Path) -> None:
    write(tmp_path / "hwmon0", name="amd_energy", energy1_input="5000000", energy1_label="Ecore000",
          energy2_input="9000000", energy2_label="Esocket0")  # fmt: skip
    write(tmp_path / "hwmon1", name="power_meter", power1_average="123000000")
    write(tmp_path / "hwmon2", name="ina3221", power1_input="1")
    meter = HwmonMeter(tmp_path)
    reading = meter.read()
    assert reading.joules == {"hwmon0/amd_energy/Ecore000": 5.0, "hwmon0/amd_energy/Esocket0": 9.0}
    assert reading.watts == {"hwmon1/power_meter/power1": 123.0}
    assert node_j(reading.joules, meter.domains) == 9.0
    meter.close()
    with pytest.raises(NoReading, match="it has nothing"):
        HwmonMeter(tmp_path / "elsewhere")


def test_the_perf_folder_alone_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "power" / "events").mkdir(parents=True)
    with pytest.raises(NoReading, match="has no events/energy-pkg"):
        PerfMeter(tmp_path)


def test_perf_reads_a_real_kernel_event_through_a_pretend_folder(tmp_path: Path) -> None:
    # The kernel's software PMU (type 1, event 0: CPU clock in ns) stands in for RAPL: the same call, a real counter.
    write(tmp_path / "power", type="1", cpumask="0")
    write(tmp_path / "power" / "events", **{"energy-pkg": "event=0x00", "energy-pkg.scale": "1e-9"})
    try:
        meter = PerfMeter(tmp_path)
    except NoReading as refusal:
        pytest.skip(f"this kernel refuses perf events: {refusal}")
    before = meter.read()
    total = sum(i * i for i in range(200_000))
    energy = difference(before, meter.read())
    assert total > 0
    assert energy.joules["package-0"] == pytest.approx(energy.seconds, rel=0.5, abs=0.02)
    meter.close()


def test_cpumask_lists() -> None:
    assert _cpus("0,18") == [0, 18]
    assert _cpus("0-2,7\n") == [0, 1, 2, 7]


def nowhere(folder: Path) -> probe.MeterSources:
    closed = "http://127.0.0.1:9"
    return probe.MeterSources(folder, closed, "localhost", closed)


def test_without_any_meter_every_reason_is_in_one_error(tmp_path: Path) -> None:
    with pytest.raises(MissingMeter) as caught:
        probe.open_node_meter(nowhere(tmp_path))
    for name in probe.NODE_METERS:
        assert f"  {name}: " in str(caught.value)
    assert probe.find_node_meter(nowhere(tmp_path)) is None


def test_the_first_meter_that_opens_is_used(tmp_path: Path) -> None:
    write(tmp_path / "class" / "powercap" / "intel-rapl:0", name="package-0", energy_uj="1", max_energy_range_uj="9")
    write(tmp_path / "class" / "hwmon" / "hwmon0", name="power_meter", power1_average="1")
    meter = probe.open_node_meter(nowhere(tmp_path))
    assert isinstance(meter, PowercapMeter)
    meter.close()
    findings = {finding.name: finding for finding in probe.try_all(nowhere(tmp_path))}
    assert findings["hwmon"].meter is not None
    assert findings["perf"].meter is None
    for finding in findings.values():
        if finding.meter is not None:
            finding.meter.close()


def test_a_sensor_of_a_device_alone_is_not_the_node(tmp_path: Path) -> None:
    write(tmp_path / "class" / "hwmon" / "hwmon0", name="amdgpu", power1_average="1")
    with pytest.raises(MissingMeter, match="devices only"):
        probe.open_node_meter(nowhere(tmp_path))


def test_an_unknown_meter_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="powercap"):
        probe.try_meter("powercp")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl (`make tools`)")
def test_a_password_goes_only_to_a_controller_whose_certificate_is_known(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                    "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)  # fmt: skip
    heard: list[str | None] = []

    class Controller(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["authorization"])
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Controller)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"https://127.0.0.1:{server.server_port}"
    try:
        unknown = probe.try_meter("redfish", probe.MeterSources(redfish_url=url, redfish_user="root:calvin"))
        assert "certificate verify failed" in unknown.reason and heard == []
        known = probe.MeterSources(redfish_url=url, redfish_user="root:calvin", redfish_ca=str(certificate))
        assert "not a JSON object" in probe.try_meter("redfish", known).reason and len(heard) == 1
    finally:
        server.shutdown()
        server.server_close()
    clear = probe.try_meter("redfish", probe.MeterSources(redfish_url="http://bmc.example", redfish_user="root:calvin"))
    assert "in the clear" in clear.reason
