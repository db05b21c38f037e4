"""Which devices are here."""

from __future__ import annotations

from pathlib import Path

from wattflow.runtime.executors.devices import DeviceExecutor


def device_executors(folder: Path) -> tuple[DeviceExecutor, ...]:
    """Executors for the GPUs and FPGAs of this machine; none where there are none."""
    del folder
    return ()
