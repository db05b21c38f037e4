"""NVIDIA GPUs through NVML: the energy counter (millijoules since the driver was loaded) and momentary watts.

The counter exists since Volta; on older cards watts are sampled and said to be. nvidia-ml-py is used where it is
installed (extra: meters), else the driver's own library through a few ctypes calls with the same names.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s

T = TypeVar("T")
_LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib/libnvidia-ml.so.1",
)


class Nvml(Protocol):
    """The calls used here, as nvidia-ml-py spells them."""

    def nvmlInit(self) -> object: ...
    def nvmlShutdown(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...
    def nvmlDeviceGetName(self, handle: object) -> str | bytes: ...
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: object) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int: ...
    def nvmlDeviceGetClockInfo(self, handle: object, clock: int) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object) -> int: ...
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...


class NvmlMeter:
    """All GPUs that NVML shows, or those of ``indices``."""

    name = "nvml"

    def __init__(self, indices: tuple[int, ...] | None = None, library: Nvml | None = None) -> None:
        self._nvml = library if library is not None else load_library()
        try:
            self._nvml.nvmlInit()
            chosen = range(self._nvml.nvmlDeviceGetCount()) if indices is None else indices
            self._handles = {f"gpu-{i}": self._nvml.nvmlDeviceGetHandleByIndex(i) for i in chosen}
        # nvidia-ml-py raises its own class, the ctypes driver OSError: neither can be named here without
        # the other.
        except Exception as error:
            raise NoReading(f"NVML does not answer: {error}") from error
        if not self._handles:
            raise NoReading("NVML answers, but shows no GPU")
        self.domains = tuple(
            Domain(name, "gpu", counter=self._joules(handle) is not None) for name, handle in self._handles.items()
        )

    def read(self) -> Reading:
        time_s = now_s()
        joules = {d.name: self._joules(self._handles[d.name]) for d in self.domains if d.counter}
        watts = {d.name: self._watts(self._handles[d.name]) for d in self.domains if not d.counter}
        return Reading(time_s, joules, watts)

    def about(self, name: str) -> Mapping[str, object]:
        """Name, driver, limit, clock and temperature of one GPU; what NVML does not tell is None."""
        handle = self._handles[name]
        return {
            "model": _text(_or_none(self._nvml.nvmlDeviceGetName, handle)),
            "driver": _text(_or_none(self._nvml.nvmlSystemGetDriverVersion)),
            "limit_w": _scaled(_or_none(self._nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3),
            "sm_mhz": _scaled(_or_none(self._nvml.nvmlDeviceGetClockInfo, handle, 1), 1.0),
            "temperature_c": _scaled(_or_none(self._nvml.nvmlDeviceGetTemperature, handle, 0), 1.0),
        }

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _joules(self, handle: object) -> float | None:
        return _scaled(_or_none(self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle), 1e-3)

    def _watts(self, handle: object) -> float | None:
        return _scaled(_or_none(self._nvml.nvmlDeviceGetPowerUsage, handle), 1e-3)


def load_library() -> Nvml:
    """Load nvidia-ml-py, or the driver's library; NoReading says what is missing."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        pass  # it is optional: the driver's own library can do the same
    for path in _LIBRARIES:
        try:
            return NvmlLibrary(ctypes.CDLL(path))
        except OSError:
            continue
    raise NoReading("no NVIDIA driver library (libnvidia-ml.so.1) and no nvidia-ml-py; is there a GPU?")


@dataclass(slots=True)
class NvmlLibrary:
    """NVML without nvidia-ml-py: the calls above on the C library. Raises OSError with NVML's code."""

    library: ctypes.CDLL

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            raise OSError(code, f"{function} returned {code}")

    def _number(self, function: str, *arguments: object, kind: type = ctypes.c_uint) -> int:
        value = kind()
        self._call(function, *arguments, ctypes.byref(value))
        return int(value.value)

    def _string(self, function: str, *arguments: object) -> str:
        # NVML_DEVICE_NAME_V2_BUFFER_SIZE is 96; driver versions are shorter.
        buffer = ctypes.create_string_buffer(96)
        self._call(function, *arguments, buffer, ctypes.c_uint(96))
        return buffer.value.decode()

    def nvmlInit(self) -> None:
        self._call("nvmlInit_v2")

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:
        return self._number("nvmlDeviceGetCount_v2")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def nvmlDeviceGetName(self, handle: object) -> str:
        return self._string("nvmlDeviceGetName", handle)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:
        # Millijoules exceed 32 bits within a day of load.
        return self._number("nvmlDeviceGetTotalEnergyConsumption", handle, kind=ctypes.c_ulonglong)

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return self._number("nvmlDeviceGetPowerUsage", handle)

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        return self._number("nvmlDeviceGetTemperature", handle, ctypes.c_int(sensor))

    def nvmlDeviceGetClockInfo(self, handle: object, clock: int) -> int:
        return self._number("nvmlDeviceGetClockInfo", handle, ctypes.c_int(clock))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object) -> int:
        return self._number("nvmlDeviceGetEnforcedPowerLimit", handle)

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._string("nvmlSystemGetDriverVersion")


def _or_none(call: Callable[..., T], *arguments: object) -> T | None:
    """Return the call's answer, or None where the card or driver does not support it."""
    try:
        return call(*arguments)
    except Exception:
        return None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else float(value) * scale


def _text(value: object | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)
