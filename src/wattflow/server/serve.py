"""A server process: the house is opened, the application runs on uvicorn until it is told to stop."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import sqlalchemy as sa

from wattflow.files.whole import write_text
from wattflow.model.errors import WattflowError
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.home import Home
from wattflow.runtime.recovery import restore
from wattflow.server.app import House, make_app
from wattflow.server.settings import ServerSettings
from wattflow.server.tokens import HOME_ROLES, Identity, Tokens, write_secret
from wattflow.store.database import StoreTrouble, open_store
from wattflow.store.objects import Objects, open_objects
from wattflow.store.short_turns import ask_for_short_turns
from wattflow.store.writer import Writer
from wattflow.store.writing import Refused, WritingProcess

log = logging.getLogger(__name__)


def open_house(
    settings: ServerSettings, driver: Driver, objects: Objects | None = None, writing: WritingProcess | None = None
) -> House:
    """Store, objects, tokens and service, restored from where they were."""
    home = settings.home
    home.make()
    if writing is not None:
        _wait_for(writing, settings)
    database = open_store(settings.store or home.store, upgrade=settings.upgrade)
    kept = objects or open_objects(settings.objects or home.objects)
    tokens = open_tokens(home, database)
    service = restore(
        database, Writer(database, fatal=_end_this_process, process=writing), driver, home.folder, settings.policy,
        settings.twin,
    )  # fmt: skip
    return House(service, database, kept, tokens, home.folder, settings.keep_s)


def _wait_for(writing: WritingProcess, settings: ServerSettings) -> None:
    """Until nobody else writes to the store: what is read from now on is all there is."""
    try:
        writing.wait_until_ready()
    except (Refused, OSError) as error:
        raise StoreTrouble(f"{settings.store or settings.home.store}: {error}") from None


def _settle_memory() -> None:
    """What start-up made stays; the collector need not look at it again, for that would hold the loop up for long."""
    gc.collect()
    gc.freeze()
    gc.enable()
    # Small portions: a collection must not hold the loop up. One of the middle generation looks at what five of the
    # youngest left (25,000 objects took up to 5 ms, 5,000 take a fraction of one); `app` has the whole one.
    gc.set_threshold(1_000, 5, 5_000)
    # The writer lets go of the interpreter for every row and must get it back soon: at a millisecond a commit of a
    # hundred rows took twice as long beside a busy loop as alone. And it must not keep the loop from its turn.
    sys.setswitchinterval(0.0001)


def _end_this_process() -> None:
    """The store can never take what was decided: what it holds is right, what memory holds is not. A start mends it."""
    os.kill(os.getpid(), signal.SIGTERM)


def open_tokens(home: Home, database: sa.Engine) -> Tokens:
    """Open the store's tokens. The home has one of each role: made at the first start and after it was revoked, told
    to the store again where that was made anew or restored from a time before."""
    tokens = Tokens(database)
    tokens.adopt_file(home.tokens)
    for role in HOME_ROLES:
        path = home.token_file(role)
        kept = path.read_text().strip() if path.exists() else ""
        if kept and not tokens.knows(kept):
            tokens.adopt(kept, Identity(role, role))
        elif not kept or tokens.user_of(kept) is None:
            write_secret(path, tokens.make(role, role)[0])
    return tokens


def serve(
    settings: ServerSettings,
    driver: Driver,
    listener: socket.socket,
    objects: Objects | None = None,
    writing: WritingProcess | None = None,
) -> None:
    """Run until told to stop. Writes where it listens into the home once it answers."""
    import uvicorn

    house = open_house(settings, driver, objects, writing)
    app = make_app(house)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", log_level="warning", access_log=False, proxy_headers=False,
        timeout_keep_alive=120,
        ssl_certfile=settings.tls_cert, ssl_keyfile=settings.tls_key, timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=64 * 1024, server_header=False,
    )  # fmt: skip
    server = _Server(config, settings.home, listener, house)

    def shut_down() -> None:
        server.should_exit = True

    house.shut_down = house.service.on_fault = shut_down
    _settle_memory()
    ask_for_short_turns()  # this thread is the loop's
    # uvicorn ends in peace when it is told to, and then raises the signal anew, which would be the end right there.
    # Only the main thread may say what a signal does; a server in another one is ended by `shut_down`.
    meant = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: None) for number in meant}
    try:
        server.run(sockets=[listener])
    finally:
        house.service.writer.close()
        house.database.dispose()  # the last one to close a store copies its log back
        with contextlib.suppress(OSError):
            settings.home.server_file.unlink()
        for number, handler in before.items():
            signal.signal(number, handler)
    if house.service.writer.message is not None:
        raise StoreTrouble(f"the store does not take changes: {house.service.writer.message}")
    if house.service.fault is not None:
        raise WattflowError(house.service.fault)


def _server_class() -> type:
    import uvicorn

    return uvicorn.Server


class _Server(_server_class()):  # type: ignore[misc]
    """A uvicorn server that says where it listens once it does."""

    def __init__(self, config: object, home: Home, listener: socket.socket, house: House) -> None:
        super().__init__(config)
        self._home, self._listener, self._house = home, listener, house

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._house.dashboard.events.close()  # else the end would wait for streams that never do
        await super().shutdown(sockets=sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.should_exit:
            return
        host, port = self._listener.getsockname()[:2]
        scheme = "https" if self.config.ssl_certfile else "http"
        shown = f"[{host}]" if ":" in host else host
        about: dict[str, object] = {"url": f"{scheme}://{shown}:{port}", "pid": os.getpid()}
        if self.config.ssl_certfile:
            about["ca"] = str(Path(self.config.ssl_certfile).absolute())
        write_text(self._home.server_file, json.dumps(about))
        log.info("the server is ready at %s", about["url"])
