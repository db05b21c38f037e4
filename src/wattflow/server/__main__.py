"""`python -m wattflow.server`: the server's own process; `wattflow up` starts it with a bound socket."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import socket
import sys
import threading
from pathlib import Path

from wattflow.model.errors import WattflowError
from wattflow.runtime import logs
from wattflow.runtime.compile_notice import SERVER_COMPILES, on_compiling
from wattflow.runtime.drivers import registry
from wattflow.runtime.drivers.base import Site
from wattflow.runtime.home import Home
from wattflow.runtime.tidying import share_arenas
from wattflow.server.settings import ServerSettings, listen
from wattflow.store.s3 import open_objects
from wattflow.store.writing import WritingProcess

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop; 2 when the server cannot start."""
    options = _parser().parse_args(argv)
    if options.driver != "local":  # whose tasks are forked here, with this mask
        os.umask(0o077)
    logs.set_up(options.log, logging.INFO)
    settings = ServerSettings(
        home=Home.of(options.home), policy=options.policy, store=options.store,
        objects=options.objects, host=options.host,
        port=options.port, keep_s=options.keep_s, upgrade=options.upgrade, tls_cert=options.tls_cert,
        tls_key=options.tls_key, clear_text=options.clear_text, standby=options.standby,
        keep_journal_bytes=options.keep_journal_bytes, carbon_g_per_kwh=options.carbon, cap=options.cap,
    )  # fmt: skip
    share_arenas()  # before the first thread
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
        told = dict(one.split("=", 1) for one in options.driver_option)
        driver = registry.make(options.driver, Site(objects, settings.home.folder, told))
        serve(settings, driver, listener, objects, writing)


def _start_writing(settings: ServerSettings) -> WritingProcess | None:
    """The process that commits, for a store in a file of this machine."""
    store = str(settings.store or settings.home.store)
    return None if "://" in store else WritingProcess(Path(store).absolute(), settings.standby)


def _load_engine(policy: str) -> None:
    """Load the engine's compiled code, and what it loads at a first use, while the HTTP half, which has nothing in
    common with it, is imported."""
    from wattflow.live import Engine
    from wattflow.runtime.compile_notice import rehearse

    on_compiling(lambda: log.warning("%s", SERVER_COMPILES))
    with contextlib.suppress(Exception):  # whatever is wrong with the policy is told where it is used
        rehearse(Engine(policy))


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
    parser.add_argument("--cap", type=Path)
    parser.add_argument("--log", choices=logs.FORMS)
    return parser


if __name__ == "__main__":
    gc.disable()  # all that is loaded now stays; `serve` collects once and goes on as usual
    sys.exit(main())
