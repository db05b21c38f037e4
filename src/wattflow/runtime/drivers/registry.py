"""All drivers by name, ours and those that other packages bring. A driver's code is imported when it is made.

An entry point of ``wattflow.drivers`` is a callable that takes a `Site` and gives a `base.Driver`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from wattflow.levels.clock_grid import read_clocks, read_watts
from wattflow.levels.power_hooks import PowerHook
from wattflow.model import plugins
from wattflow.model.errors import WattflowError, unknown_name
from wattflow.runtime.drivers.base import Driver, Site

log = logging.getLogger(__name__)


def names() -> list[str]:
    """Every driver that `wattflow up --driver` takes."""
    return [*_OURS, *plugins.names(plugins.DRIVERS, _OURS)]


def check(name: str) -> None:
    """Raise UnknownName for a driver that is not there."""
    if name not in names():
        raise unknown_name("driver", name, names())


def make(name: str, site: Site) -> Driver:
    """A driver by name, not started yet."""
    check(name)
    maker: Callable[[Site], Driver] = _OURS.get(name) or plugins.load(plugins.DRIVERS, name)
    return maker(site)


def _agents(site: Site) -> Driver:
    from wattflow.runtime.drivers.agents import AgentsDriver

    return AgentsDriver(float(site.options.get("lost_after_s", 3.0)), _power_hook(site.options))


def _local(site: Site) -> Driver:
    from wattflow.runtime.drivers.local import LocalDriver
    from wattflow.runtime.executors import privileges
    from wattflow.runtime.node_agent import make_agent

    apart = privileges.choose(os.environ.get("WATTFLOW_TASKS_AS", "auto"))
    log.warning("%s", apart.about)
    folder = site.folder / "agent"
    lineage = f"local-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]}"
    return LocalDriver(site.objects, lambda transport: make_agent(transport, folder, privileges=apart, lineage=lineage))


def _simulated(site: Site) -> Driver:
    from wattflow.clusters import load_cluster
    from wattflow.runtime.drivers.simulated import SimulatedDriver

    return SimulatedDriver(site.objects, load_cluster(site.options.get("cluster", "mixed")), site.folder / "simulated")


STATED: Mapping[str, Callable[[str], Sequence[float]]] = {
    "clocks_mhz": partial(read_clocks, "--clocks-mhz"),
    "watts": partial(read_watts, "--watts"),
    "gpu_clocks_mhz": partial(read_clocks, "--gpu-clocks-mhz"),
    "gpu_watts": partial(read_watts, "--gpu-watts"),
}
"""How what an operator states of Slurm's nodes is read, by the names of its options."""


def _slurm(site: Site) -> Driver:
    from wattflow.runtime.drivers.slurm import SlurmDriver, Stated

    told = {name: list(read(text)) for name, read in STATED.items() if (text := site.options.get(name)) is not None}
    nodes = Stated(told.get("clocks_mhz", ()), told.get("watts", ()))
    gpus = Stated(told.get("gpu_clocks_mhz", ()), told.get("gpu_watts", ()))
    folder = Path(site.options.get("folder", str(site.folder / "slurm")))
    return SlurmDriver(site.objects, folder, site.options.get("partition"), nodes, gpus if gpus != Stated() else None)


def _dask(site: Site) -> Driver:
    from wattflow.runtime.drivers.dask import DaskDriver

    if "scheduler" not in site.options:
        raise WattflowError("the Dask driver needs the address of its cluster: --scheduler tcp://host:port")
    return DaskDriver(site.objects, site.options["scheduler"])


_OURS: Mapping[str, Callable[[Site], Driver]] = {
    "agents": _agents,
    "local": _local,
    "slurm": _slurm,
    "dask": _dask,
    "simulated": _simulated,
}


def _power_hook(options: Mapping[str, str]) -> PowerHook | None:
    """Make the hook that puts machines to sleep, where one is asked for."""
    from wattflow.levels.power_hooks import CommandHook, WakeOnLan

    suspend, resume, lan = (options.get(name) for name in ("suspend_command", "resume_command", "wake_on_lan"))
    if "redfish" in options:
        return _redfish(options)
    if suspend is None:
        if resume is not None or lan is not None:
            raise WattflowError("waking needs a way to put machines to sleep, too: --suspend-command")
        return None
    if lan is not None:
        return WakeOnLan(suspend, _pairs("--wake-on-lan", lan), watts=options.get("watts_command"))
    if resume is None:
        raise WattflowError("machines that sleep must be woken: --resume-command or --wake-on-lan")
    return CommandHook(suspend, resume, options.get("watts_command"))


def _pairs(option: str, text: str) -> dict[str, str]:
    """``node=value,node=value``."""
    found = dict(one.partition("=")[::2] for one in text.split(","))
    if not all(found) or not all(found.values()):
        raise WattflowError(f"{option}: {text!r} is not NODE=VALUE,NODE=VALUE")
    return found


def _redfish(options: Mapping[str, str]) -> PowerHook:
    from wattflow.levels.redfish_power import RedfishHook

    if any(name in options for name in ("suspend_command", "resume_command", "wake_on_lan")):
        raise WattflowError("--redfish both puts machines to sleep and wakes them; leave the other ways out")
    if "redfish_login" not in options:
        raise WattflowError("--redfish needs --redfish-login FILE, a private file with one line USER:PASSWORD")
    ca = options.get("redfish_ca")
    return RedfishHook(options["redfish"], Path(options["redfish_login"]), Path(ca) if ca else None)
