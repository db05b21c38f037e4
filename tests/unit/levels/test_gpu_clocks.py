"""NVML's knobs on a played driver library: through nvidia-ml-py, through ctypes, and after a SIGKILL."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattflow.levels.gpu_clocks import NvmlActuator, SettingDriver
from wattflow.levels.holder import Holder
from wattflow.levels.port import LevelRefused

from .test_holder import setter, until

CLOCK, LIMIT = "gpu-0.clock_mhz", "gpu-0.cap_w"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc (`make tools` has it with Verilator)")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).parent / "played_nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", str(source), "-o", str(target)], check=True)
    return target


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gpu"
    path.write_text("700000 0 0 0\n")
    os.environ["PLAYED_NVML"] = str(path)  # getenv of the library sees putenv's, not a dictionary's
    monkeypatch.setenv("PLAYED_NVML", str(path))
    return path


@pytest.fixture
def holder(library: Path, state: Path, tmp_path: Path) -> Iterator[Holder]:
    made = Holder([NvmlActuator(SettingDriver(ctypes.CDLL(str(library))))], tmp_path / "notes", watched=False)
    yield made
    made.close()


def numbers(state: Path) -> list[int]:
    return [int(word) for word in state.read_text().split()]


def test_clock_and_limit_are_listed_with_their_ranges(holder: Holder) -> None:
    assert [(knob.id, knob.low, knob.high, knob.readable) for knob in holder.knobs] == [
        (CLOCK, 198, 1980.0, False), (LIMIT, 200.0, 700.0, True),
    ]  # fmt: skip


def test_both_are_set_read_back_and_given_back(holder: Holder, state: Path) -> None:
    assert holder.set(CLOCK, 1305.0).seen == 1305.0
    assert holder.set(LIMIT, 400.0).seen == 400.0
    assert numbers(state)[:2] == [400_000, 1305]
    assert sorted(holder.give_back_all()) == [LIMIT, CLOCK]
    assert numbers(state)[:2] == [700_000, 0]


def test_a_limit_that_an_administrator_set_is_what_comes_back(holder: Holder, state: Path) -> None:
    state.write_text("500000 0 0 0\n")
    holder.set(LIMIT, 400.0)
    holder.give_back(LIMIT)
    assert numbers(state)[0] == 500_000


def test_a_foreign_process_keeps_its_gpu(holder: Holder, state: Path) -> None:
    state.write_text("700000 0 1 0\n")
    with pytest.raises(LevelRefused, match="process 1 of somebody else"):
        holder.set(CLOCK, 1305.0)
    state.write_text(f"700000 0 {os.getpid()} 0\n")
    holder.set(CLOCK, 1305.0)


def test_a_lock_that_is_ignored_is_noticed(holder: Holder, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattflow.levels.holder.SETTLE_S", 0.0)
    state.write_text("700000 0 0 1\n")
    with pytest.raises(LevelRefused, match="1305 MHz was ignored: 1980 MHz is read back"):
        holder.set(CLOCK, 1305.0)
    assert numbers(state)[1] == 0


def test_a_card_that_forgets_its_lock_is_told_and_held_no_more(holder: Holder, state: Path) -> None:
    holder.set(CLOCK, 1305.0)
    state.write_text("700000 0 0 0\n")  # a reset of the driver
    assert holder.check() == {CLOCK: "it is 1980 MHz now, not 1305 MHz"}
    assert holder.check() == {} and not holder.notes.all() and numbers(state) == [700_000, 0, 0, 0]


class Nonsense(SettingDriver):
    """A card whose answers are no numbers from some time on."""

    __slots__ = ("failed",)
    failed: bool

    def nvmlDeviceGetClockInfo(self, handle: object, clock: int) -> int:
        return math.nan if self.failed else super().nvmlDeviceGetClockInfo(handle, clock)  # type: ignore[return-value]

    def nvmlDeviceGetPowerManagementLimit(self, handle: object) -> int:
        return math.nan if self.failed else super().nvmlDeviceGetPowerManagementLimit(handle)  # type: ignore[return-value]

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: object) -> list[int]:
        return [math.nan, math.nan] if self.failed else [200_000, 700_000]  # type: ignore[list-item]


def test_nan_of_nvml_is_no_answer_and_leaves_nothing_behind(
    library: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattflow.levels.holder.SETTLE_S", 0.0)
    calls = Nonsense(ctypes.CDLL(str(library)))
    calls.failed = False
    holder = Holder([NvmlActuator(calls)], tmp_path / "notes", watched=False)
    holder.set(LIMIT, 400.0)
    calls.failed = True
    # Held: told, and given back to what it was.
    assert holder.check() == {LIMIT: "it cannot be read any more"}
    for knob, told in ((CLOCK, "nothing is read back"), (LIMIT, "cannot be read")):
        with pytest.raises(LevelRefused, match=told):
            holder.set(knob, 1305.0 if knob == CLOCK else 400.0)
    assert numbers(state)[:2] == [700_000, 0] and not holder.notes.all()
    # From the first moment on: nothing that could be set.
    assert [knob.id for knob in NvmlActuator(calls).knobs()] == [CLOCK]


def test_the_watchdog_lifts_a_lock_after_sigkill(library: Path, state: Path, tmp_path: Path) -> None:
    environment = {
        "LD_LIBRARY_PATH": str(library.parent), "PLAYED_NVML": str(state), "WATTFLOW_SYSFS": str(tmp_path / "none"),
        "WATTFLOW_LEVELS": str(tmp_path / "notes"),
    }  # fmt: skip
    process, _ = setter(environment, f"{CLOCK}=1305", f"{LIMIT}=400")
    assert numbers(state)[:2] == [400_000, 1305]
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not list((tmp_path / "notes").glob("*.json")))
    assert numbers(state)[:2] == [700_000, 0]
