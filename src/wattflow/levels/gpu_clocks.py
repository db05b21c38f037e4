"""NVIDIA GPUs through NVML: a ceiling of the SM clock (locked clocks) and the power limit.

A clock is locked from the lowest that the card supports up to the level, so an idle card may still fall. NVML tells no
lock, only the clock that results: a lock is in force when the clock is not above it, and giving it back is lifting it.
A lock that an administrator made before is therefore lifted, too; where one is needed, use the power limit alone.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from wattflow.energy.meters import nvml
from wattflow.energy.meters.port import NoReading
from wattflow.levels.port import Kind, Knob, LevelRefused

T = TypeVar("T")
SM = 1
"""NVML's number of the clock of the multiprocessors."""
MHZ_STEP = 15.0
UNKNOWN_PROCESS = 0
MOST_PROCESSES = 1024


class Calls(Protocol):
    """The calls used here, as nvidia-ml-py spells them."""

    def nvmlInit(self) -> object: ...
    def nvmlShutdown(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...
    def nvmlDeviceGetClockInfo(self, handle: object, clock: int) -> int: ...
    def nvmlDeviceGetMaxClockInfo(self, handle: object, clock: int) -> int: ...
    def nvmlDeviceGetPowerManagementLimit(self, handle: object) -> int: ...
    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: object) -> int: ...
    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: object) -> Sequence[int]: ...
    def nvmlDeviceSetPowerManagementLimit(self, handle: object, milliwatts: int) -> object: ...
    def nvmlDeviceSetGpuLockedClocks(self, handle: object, low: int, high: int) -> object: ...
    def nvmlDeviceResetGpuLockedClocks(self, handle: object) -> object: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> Sequence[object]: ...


class NvmlActuator:
    """All GPUs that NVML shows. Raises NoReading where there are none."""

    name = "nvml"

    def __init__(self, library: Calls | None = None) -> None:
        self._nvml = library if library is not None else load_calls()
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        # nvidia-ml-py raises its own class, the ctypes driver OSError.
        except Exception as error:
            raise NoReading(f"NVML does not answer: {error}") from error
        self._knobs = [knob for i in range(count) for knob in (*self._clock(i), *self._limit(i))]

    def knobs(self) -> Sequence[Knob]:
        return self._knobs

    def read(self, knob: Knob) -> float | None:
        handle = self._handle(knob)
        if knob.kind == "clock_mhz":
            return _sane(self._ask(self._nvml.nvmlDeviceGetClockInfo, handle, SM), 1.0)
        return _sane(self._ask(self._nvml.nvmlDeviceGetPowerManagementLimit, handle), 1e-3)

    def write(self, knob: Knob, value: float | None) -> None:
        handle = self._handle(knob)
        if knob.kind == "cap_w":
            milliwatts = self._default_limit(handle) if value is None else round(value * 1e3)
            self._do(knob, self._nvml.nvmlDeviceSetPowerManagementLimit, handle, milliwatts)
        elif value is None:
            self._do(knob, self._nvml.nvmlDeviceResetGpuLockedClocks, handle)
        else:
            # Down to the lowest, so that an idle card may still save.
            self._do(knob, self._nvml.nvmlDeviceSetGpuLockedClocks, handle, round(knob.low), round(value))

    def users(self, knob: Knob) -> frozenset[int]:
        """Find the processes with work on the GPU. Where NVML does not tell, there may be any: an unknown one is."""
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle(knob))
        except Exception:
            return frozenset({UNKNOWN_PROCESS})
        # nvidia-ml-py gives objects, our driver plain numbers.
        return frozenset(int(getattr(one, "pid", one)) for one in found)  # type: ignore[call-overload]

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _handle(self, knob: Knob) -> object:
        return self._handles[int(knob.device.removeprefix("gpu-"))]

    def _clock(self, index: int) -> list[Knob]:
        high = _sane(self._ask(self._nvml.nvmlDeviceGetMaxClockInfo, self._handles[index], SM), 1.0)
        # No card runs usefully at a tenth of its clock; NVML rounds to the nearest that the card supports.
        return [] if high is None else [_knob(index, "clock_mhz", (math.ceil(high / 10), high, MHZ_STEP), False)]

    def _limit(self, index: int) -> list[Knob]:
        found = self._ask(self._nvml.nvmlDeviceGetPowerManagementLimitConstraints, self._handles[index])
        if not isinstance(found, list | tuple) or len(found) != 2:
            return []
        low, high = (_sane(value, 1e-3) for value in found)
        return [] if low is None or high is None else [_knob(index, "cap_w", (low, high, 1.0), True)]

    def _default_limit(self, handle: object) -> int:
        return int(self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))

    def _ask(self, call: Callable[..., T], *arguments: object) -> T | None:
        """Return the call's answer, or None where the card or driver does not support it."""
        try:
            return call(*arguments)
        except Exception:
            return None

    def _do(self, knob: Knob, call: Callable[..., object], *arguments: object) -> None:
        """Make a call that changes something; NVML's errors become one kind."""
        try:
            call(*arguments)
        except Exception as error:
            raise LevelRefused(f"{knob.id}: NVML refuses: {error}; {knob.who} may set it") from error


def _knob(index: int, kind: Kind, numbers: tuple[float, float, float], readable: bool) -> Knob:
    low, high, step = numbers
    return Knob(f"gpu-{index}", kind, "nvml", low, high, step, readable, "root", os.geteuid() == 0)


def _sane(value: object | None, scale: float) -> float | None:
    """Return a positive finite number, scaled; anything else that a library may answer is unknown."""
    # 0 and NaN are no answers that a device could run at.
    if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    return float(value) * scale


def load_calls() -> Calls:
    """Load nvidia-ml-py, or the driver's library; NoReading says what is missing."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        found = nvml.load_library()
        # pynvml is missing, so the other way was taken.
        assert isinstance(found, nvml.NvmlLibrary)
        return SettingDriver(found.library)


class _Process(ctypes.Structure):
    """NVML's nvmlProcessInfo_t of its second version."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class SettingDriver(nvml.NvmlLibrary):
    """NVML without nvidia-ml-py: the meter's calls, and those that set."""

    __slots__ = ()

    def nvmlDeviceGetMaxClockInfo(self, handle: object, clock: int) -> int:
        return self._number("nvmlDeviceGetMaxClockInfo", handle, ctypes.c_int(clock))

    def nvmlDeviceGetPowerManagementLimit(self, handle: object) -> int:
        return self._number("nvmlDeviceGetPowerManagementLimit", handle)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: object) -> int:
        return self._number("nvmlDeviceGetPowerManagementDefaultLimit", handle)

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: object) -> Sequence[int]:
        low, high = ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetPowerManagementLimitConstraints", handle, ctypes.byref(low), ctypes.byref(high))
        return [low.value, high.value]

    def nvmlDeviceSetPowerManagementLimit(self, handle: object, milliwatts: int) -> None:
        self._call("nvmlDeviceSetPowerManagementLimit", handle, ctypes.c_uint(milliwatts))

    def nvmlDeviceSetGpuLockedClocks(self, handle: object, low: int, high: int) -> None:
        self._call("nvmlDeviceSetGpuLockedClocks", handle, ctypes.c_uint(low), ctypes.c_uint(high))

    def nvmlDeviceResetGpuLockedClocks(self, handle: object) -> None:
        self._call("nvmlDeviceResetGpuLockedClocks", handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> Sequence[object]:
        count = ctypes.c_uint(MOST_PROCESSES)
        found = (_Process * MOST_PROCESSES)()
        # Version 3 of the call fills the second version of the structure.
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        return [found[i].pid for i in range(count.value)]
