"""`python -m wattflow.server`: the server's own process; `wattflow up` starts it with a bound socket."""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import logging
import os
import socket
import sys
import threading
from pathlib import Path

from wattflow.model.errors import WattflowError
from wattflow.runtime import json_logs
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.home import Home
from wattflow.runtime.power_hooks import PowerHook
from wattflow.server.settings import ServerSettings, listen
from wattflow.store.objects import Objects, open_objects
from wattflow.store.writing import WritingProcess


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop; 2 when the server cannot start."""
    options = _parser().parse_args(argv)
    if options.driver != "local":  # whose tasks are forked here, with this mask
        os.umask(0o077)
    json_logs.set_up(options.log, logging.INFO)
    settings = ServerSettings(
        home=Home.of(options.home), policy=options.policy, store=options.store,
        objects=options.objects, host=options.host,
        port=options.port, keep_s=options.keep_s, upgrade=options.upgrade, tls_cert=options.tls_cert,
        tls_key=options.tls_key, clear_text=options.clear_text, standby=options.standby,
        keep_journal_bytes=options.keep_journal_bytes, carbon_g_per_kwh=options.carbon,
    )  # fmt: skip
    writing: WritingProcess | None = None
    try:
        settings.home.make()
        writing = _start_writing(settings)  # it gets ready on another core while this process loads what it needs
        _serve(settings, options, writing)
    except (WattflowError, OSError) as error:  # a full disk, a folder that cannot be written: told, not thrown
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 (what `wattflow up` passes on)
        return 2
    finally:
        if writing is not None:
            writing.close()
    return 0


def _serve(settings: ServerSettings, options: argparse.Namespace, writing: WritingProcess | None) -> None:
    import wattflow.live  # noqa: F401 (before the thread: two that import the same may wait for each other)

    loading = threading.Thread(target=_load_engine, args=(settings.policy,), daemon=True)
    loading.start()
    from wattflow.server.known_store import check_objects
    from wattflow.server.serve import serve

    loading.join()  # two threads that load the same code would both compile it where it is not cached
    with socket.socket(fileno=options.fd) if options.fd is not None else listen(settings) as listener:
        place = settings.objects or settings.home.objects
        check_objects(settings.home, place)
        objects = open_objects(place)
        driver = make_driver(options.driver, options.driver_option, settings, objects)
        serve(settings, driver, listener, objects, writing)


def _start_writing(settings: ServerSettings) -> WritingProcess | None:
    """The process that commits, for a store in a file of this machine."""
    store = str(settings.store or settings.home.store)
    return None if "://" in store else WritingProcess(Path(store).absolute(), settings.standby)


def _load_engine(policy: str) -> None:
    """Load the engine's compiled code, and what it loads at a first use, while the HTTP half, which has nothing in
    common with it, is imported."""
    from wattflow.live import Engine
    from wattflow.runtime.first_use import rehearse

    with contextlib.suppress(Exception):  # whatever is wrong with the policy is told where it is used
        rehearse(Engine(policy))


def make_driver(name: str, given: list[str], settings: ServerSettings, objects: Objects) -> Driver:
    """A driver by name, with its own options (``key=value``)."""
    options = dict(one.split("=", 1) for one in given)
    if name == "agents":
        from wattflow.runtime.drivers.agents import AgentsDriver

        return AgentsDriver(float(options.get("lost_after_s", 3.0)), _power_hook(options))
    if name == "local":
        from wattflow.runtime.drivers.local import LocalDriver
        from wattflow.runtime.executors import privileges
        from wattflow.runtime.node_agent import make_agent

        apart = privileges.choose(os.environ.get("WATTFLOW_TASKS_AS", "auto"))
        logging.getLogger(__name__).warning("%s", apart.about)
        folder = settings.home.folder / "agent"
        lineage = f"local-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]}"
        return LocalDriver(objects, lambda transport: make_agent(transport, folder, privileges=apart, lineage=lineage))
    if name == "simulated":
        from wattflow.clusters import load_cluster
        from wattflow.runtime.drivers.simulated import SimulatedDriver

        cluster = load_cluster(options.get("cluster", "mixed"))
        return SimulatedDriver(objects, cluster, settings.home.folder / "simulated")
    if name == "slurm":
        from wattflow.runtime.drivers.slurm import SlurmDriver

        return SlurmDriver(objects, Path(options.get("folder", str(settings.home.folder / "slurm"))),
                           options.get("partition"))  # fmt: skip
    if name == "dask":
        from wattflow.runtime.drivers.dask import DaskDriver

        return DaskDriver(objects, options["scheduler"])
    raise WattflowError(f"no driver named {name!r}; there are agents, local, slurm, dask and simulated")


def _power_hook(options: dict[str, str]) -> PowerHook | None:
    """What puts machines to sleep, where something does."""
    from wattflow.runtime.power_hooks import CommandHook, WakeOnLan

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


def _redfish(options: dict[str, str]) -> PowerHook:
    from wattflow.runtime.redfish_power import RedfishHook

    if any(name in options for name in ("suspend_command", "resume_command", "wake_on_lan")):
        raise WattflowError("--redfish both puts machines to sleep and wakes them; leave the other ways out")
    if "redfish_login" not in options:
        raise WattflowError("--redfish needs --redfish-login FILE, a private file with one line USER:PASSWORD")
    ca = options.get("redfish_ca")
    return RedfishHook(options["redfish"], Path(options["redfish_login"]), Path(ca) if ca else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wattflow-server")
    parser.add_argument("--home")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--policy", default="least-energy")
    parser.add_argument("--store", default=os.environ.get("WATTFLOW_STORE"))
    parser.add_argument("--objects")
    parser.add_argument("--driver", default="agents")
    parser.add_argument("--driver-option", action="append", default=[])
    parser.add_argument("--keep-s", type=float, default=30 * 86400.0)
    parser.add_argument("--keep-journal-bytes", type=int, default=256 << 20)
    parser.add_argument("--upgrade", action="store_true")
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--clear-text", action="store_true")
    parser.add_argument("--carbon", type=float)
    parser.add_argument("--log", choices=json_logs.FORMS)
    return parser


if __name__ == "__main__":
    gc.disable()  # all that is loaded now stays; `serve` collects once and goes on as usual
    sys.exit(main())
