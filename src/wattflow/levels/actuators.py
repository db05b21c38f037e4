"""Which actuators are here, and where settings in force are noted."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from wattflow.energy.meters.port import NoReading
from wattflow.levels import sysfs
from wattflow.levels.gpu_clocks import NvmlActuator
from wattflow.levels.port import Actuator


def find_actuators(environment: Mapping[str, str] = os.environ) -> tuple[Actuator, ...]:
    """Find every actuator of this machine that has a knob; WATTFLOW_SYSFS says where the kernel's files are."""
    root = Path(environment.get("WATTFLOW_SYSFS", "/sys"))
    found: list[Actuator] = [sysfs.powercap(root), sysfs.cpufreq(root), sysfs.amdgpu(root)]
    with contextlib.suppress(NoReading):
        found.insert(0, NvmlActuator())
    return tuple(one for one in found if one.knobs())


def notes_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Find the folder of notes: one for the machine, so that two agents see each other. WATTFLOW_LEVELS names another.

    Settings do not outlast a reboot, and neither do these folders.
    """
    named = environment.get("WATTFLOW_LEVELS")
    if named:
        return Path(named)
    run = Path("/run")
    # /run is for root's agents; others have a folder of their own, and cannot set most knobs anyway.
    if os.access(run, os.W_OK):
        return run / "wattflow-levels"
    return Path(tempfile.gettempdir()) / f"wattflow-levels-{os.getuid()}"
