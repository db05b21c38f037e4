"""The GPU profiler's plan, fit and file, on a pretend device; the real one is measured by scripts/h200_profile.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from wattflow.energy import gpu_profile
from wattflow.energy.gpu_load import LoadFailed, LoadResult, LoadSpec, Mps, Program, RunningLoad
from wattflow.energy.meters.nvml import NvmlMeter
from wattflow.energy.meters.port import NoReading, Reading
from wattflow.model.errors import InvalidInput


def bent_w(share: float) -> float:
    """80 W idle, 600 W per share up to 45 %, 150 W per share beyond."""
    return 80.0 + 600.0 * min(share, 0.45) + 150.0 * max(0.0, share - 0.45)


class Device:
    """A GPU whose clock, power and throughput are known."""

    def __init__(self) -> None:
        self.now_s, self.joules, self.busy, self.shares = 0.0, 0.0, 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.joules += seconds * bent_w(min(1.0, sum(self.shares)))

    # NVML, as nvidia-ml-py spells it.
    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        return index

    def nvmlDeviceGetName(self, handle: object) -> bytes:
        return b"Pretend"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:
        return round(self.joules * 1000)

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return 100_000

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        return 40

    def nvmlDeviceGetClockInfo(self, handle: object, clock: int) -> int:
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object) -> int:
        return 700_000

    def nvmlSystemGetDriverVersion(self) -> str:
        return "1.2.3"


class PretendLoad:
    def __init__(self, device: Device, spec: LoadSpec) -> None:
        self.device, self.spec, self.running = device, spec, True
        self.begun_s = device.now_s
        self.beside = sum(device.shares)
        device.shares.append(spec.share * spec.duty)
        if spec.kernel == "fma" and spec.share == 0.2:
            self.stop()
            raise LoadFailed("no memory left")

    def finish(self, timeout_s: float = 60.0) -> LoadResult:
        rate = 100.0 * self.spec.share / (1.0 + 0.2 * self.beside)
        seconds = self.spec.rounds / rate if self.spec.rounds else self.spec.seconds
        self.device.sleep(max(0.0, self.begun_s + seconds - self.device.now_s))
        self.stop()
        return LoadResult(round(rate * seconds), seconds, seconds * self.spec.duty)

    def stop(self) -> None:
        if self.running:
            self.device.shares.remove(self.spec.share * self.spec.duty)
            self.running = False


def profiled(deadline_s: float = 1e9) -> tuple[Mapping[str, object], list[str]]:
    device, saved = Device(), list[str]()
    # The pretend device answers like the library, so the meter itself is the real one.
    meter = NvmlMeter(library=device)
    profiler = gpu_profile.GpuProfiler(
        meter,
        Program(Path("gpu_load"), ("gemm", "fma", "mem")),
        lambda program: Mps(active=False, reason="pretend"),
        lambda document: saved.append(json.dumps(document)),
        gpu_profile.GpuProfileSettings(deadline_s=deadline_s, repeats=2),
        start_load=lambda program, spec, mps: PretendLoad(device, spec),  # type: ignore[arg-type, return-value]
        clock=lambda: device.now_s,
        sleep=device.sleep,
    )
    return profiler.measure(), saved


@pytest.fixture
def device_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings carry the pretend device's clock."""
    monkeypatch.setattr(NvmlMeter, "read", lambda self: _stamped(self), raising=True)


def _stamped(meter: NvmlMeter) -> Reading:
    device = meter._nvml
    return Reading(device.now_s, {"gpu-0": device.joules}, {})  # type: ignore[attr-defined]


@pytest.mark.usefixtures("device_clock")
def test_the_plan_measures_every_share_and_keeps_what_failed_as_a_note() -> None:
    document, saved = profiled()
    shares, windows = gpu_profile.by_share(document, "gemm")
    assert shares == [tenth / 10 for tenth in range(1, 11)]
    assert [float(np.mean(w)) for w in windows] == pytest.approx([bent_w(share) for share in shares], rel=1e-6)
    assert gpu_profile.idle_w(document) == pytest.approx(80.0)
    assert gpu_profile.by_share(document, "fma")[0] == [s for s in shares if s != 0.2]
    assert sum("no memory left" in note for note in document["notes"]) == 2  # type: ignore[attr-defined]
    assert len(saved) > 60
    profile = gpu_profile.device_profile(document)
    assert profile.at(0.45) == pytest.approx((bent_w(0.4) + bent_w(0.5)) / 2, rel=1e-6)
    assert profile.provenance == "measured"


@pytest.mark.usefixtures("device_clock")
def test_interference_is_runtime_beside_a_rising_load() -> None:
    document, _ = profiled()
    rows = [row for row in document["interference"] if row["kernel"] == "gemm"]  # type: ignore[attr-defined]
    beside = {round(row["co_share"], 3): row["runtime_s"] for row in rows if row["share"] == 0.3}
    assert sorted(beside) == list(gpu_profile.CO_SHARES)
    assert beside[0.7] / beside[0.0] == pytest.approx(1.14, rel=0.01)


@pytest.mark.usefixtures("device_clock")
def test_time_that_is_up_is_said() -> None:
    document, _ = profiled(deadline_s=40.0)
    assert any("time is up" in note for note in document["notes"])  # type: ignore[attr-defined]


def test_the_knee_is_found_with_an_interval_that_holds_it() -> None:
    generator = np.random.default_rng(3)
    shares = [tenth / 10 for tenth in range(1, 11)]
    windows = [list(bent_w(share) + generator.normal(0, 3.0, 8)) for share in shares]
    found = gpu_profile.knee(shares, windows)
    assert found.low <= 0.45 <= found.high
    assert abs(found.share - 0.45) < 0.05
    assert found.gain > 0.9
    assert found.before_w > 3 * found.after_w


def test_a_straight_line_has_no_knee_to_speak_of() -> None:
    shares = [tenth / 10 for tenth in range(1, 11)]
    generator = np.random.default_rng(3)
    windows = [list(100 + 300 * share + generator.normal(0, 5.0, 8)) for share in shares]
    assert gpu_profile.knee(shares, windows).high - gpu_profile.knee(shares, windows).low > 0.2


def test_too_few_shares_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 4"):
        gpu_profile.knee([0.1, 0.5, 1.0], [[1.0]] * 3)


def test_a_gpu_without_a_counter_shows_watts_instead() -> None:
    device = Device()

    def refuse(handle: object) -> int:
        raise RuntimeError("not supported")

    device.nvmlDeviceGetTotalEnergyConsumption = refuse  # type: ignore[method-assign]
    meter = NvmlMeter(library=device)
    assert [domain.counter for domain in meter.domains] == [False]
    reading = meter.read()
    assert (reading.joules, reading.watts) == ({}, {"gpu-0": 100.0})
    assert meter.about("gpu-0")["limit_w"] == 700.0


def test_nvml_without_a_gpu_says_so() -> None:
    device = Device()
    device.nvmlDeviceGetCount = lambda: 0  # type: ignore[method-assign]
    with pytest.raises(NoReading, match="no GPU"):
        NvmlMeter(library=device)


def program(folder: Path, body: str) -> Program:
    path = folder / "gpu_load"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return Program(path, ("fma",))


def test_a_load_reports_its_work_and_gets_its_share(tmp_path: Path) -> None:
    done = '{"rounds": 7, "seconds": 2.0, "busy_s": 1.0, "round_s": 0.1}'
    echo = f"echo READY; echo $* $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE > {tmp_path}/seen; echo '{done}'"
    built = program(tmp_path, echo)
    result = RunningLoad(built, LoadSpec("fma", 0.3, 2.0, 7, 0.5), Mps()).finish()
    assert (result.rounds, result.rounds_per_s) == (7, 3.5)
    assert (tmp_path / "seen").read_text().split() == ["fma", "2", "7", "0.5", "0.3"]
    RunningLoad(built, LoadSpec("fma", 0.3, 2.0), Mps(folder=tmp_path, active=True)).finish()
    assert (tmp_path / "seen").read_text().split() == ["fma", "2", "0", "1", "1", "30"]


@pytest.mark.parametrize("body", ["echo oh no >&2; exit 1", "echo READY; echo oh no >&2; exit 1"])
def test_a_load_that_breaks_says_why(tmp_path: Path, body: str) -> None:
    with pytest.raises(LoadFailed, match="oh no"):
        RunningLoad(program(tmp_path, body), LoadSpec("fma"), Mps()).finish()


def test_the_h200_that_was_measured() -> None:
    document = gpu_profile.shipped()["h200"]
    assert document["sharing"] == "mps"
    profile = gpu_profile.device_profile(document)
    assert profile.provenance == "measured"
    assert profile.idle_w == pytest.approx(79.9, abs=0.1)
    assert max(profile.watts) <= 700.0
    product = gpu_profile.knee(*gpu_profile.by_share(document, "gemm"))
    assert product.flattens
    assert product.low <= 0.47 <= product.high
    assert not gpu_profile.knee(*gpu_profile.by_share(document, "fma")).flattens
