"""A server process: the store is opened, the application runs on uvicorn until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading

import sqlalchemy as sa

from wattflow.files.whole import write_text
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime import processes
from wattflow.runtime.cap_series import CapSeries
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.home import Home, read_token
from wattflow.runtime.recovery import restore
from wattflow.server import known_store
from wattflow.server.app import make_app
from wattflow.server.connections import Connections, protocol
from wattflow.server.context import Context
from wattflow.server.energy import intensity
from wattflow.server.settings import ServerSettings, address_of
from wattflow.server.tokens import HOME_ROLES, Identity, Tokens, write_secret
from wattflow.store import backup
from wattflow.store.claim import Claim
from wattflow.store.objects import Objects
from wattflow.store.s3 import open_objects
from wattflow.store.schema import StoreMissing, StoreTrouble, open_store, told
from wattflow.store.writer import Writer
from wattflow.store.writing import Refused, WritingProcess, ask_for_short_turns

log = logging.getLogger(__name__)
LAST_WORDS_S = 3.0
"""How long a server that cannot go on still answers with the reason: clients ask again within a second or two."""
END_WITHIN_S = 20.0
"""A server that was told to end does so within this long, whatever hangs in it: what is committed is right."""


def open_context(
    settings: ServerSettings,
    driver: Driver,
    objects: Objects | None = None,
    writing: WritingProcess | None = None,
    url: str = "",
) -> Context:
    """Store, objects, tokens and service, restored from where they were, once no other server works on the store."""
    home = settings.home
    home.make()
    if writing is not None:
        _wait_for(writing, settings)
    store, place = settings.store or home.store, settings.objects or home.objects
    try:
        database = open_store(store, upgrade=settings.upgrade, known=known_store.identity_of(home))
    except StoreMissing:
        raise known_store.gone(backup.shown(store), home) from None
    # Before anything is read: what a server that still writes would add were missing from memory.
    claim = _claim(database, settings, url)
    # A store that was put back by hand must not give out numbers that this home has seen used.
    known_store.catch_up(home, database)
    kept = objects or open_objects(place)
    tokens = open_tokens(home, database)
    service = restore(
        database, Writer(database, fatal=_end_this_process, process=writing), driver, home.folder, settings.policy,
    )  # fmt: skip
    known_store.remember(home, database, place, service.fences.epoch)
    if settings.cap is not None:
        service.capping.book.series = CapSeries.read(settings.cap)
    service.ledger.usage.intensity = intensity(home.folder, settings.carbon_g_per_kwh)
    if claim is not None:
        claim.hold()
    return Context(
        service, database, kept, tokens, home.folder, settings.keep_s, settings.keep_journal_bytes, claim=claim
    )


def _claim(database: sa.Engine, settings: ServerSettings, url: str) -> Claim | None:
    """Wait for a store that other servers may use; one in a file is its writing process's."""
    if database.dialect.name == "sqlite":
        return None
    claim = Claim(database, url, _end_this_process, lambda others: _tell_others(settings.home, others))
    try:
        claim.take(settings.standby)
    except sa.exc.DBAPIError as error:
        raise StoreTrouble(told(error)) from None
    return claim


def _tell_others(home: Home, others: list[str]) -> None:
    """Note in the home who waits to take over: clients on this machine ask there when this server is gone."""
    with contextlib.suppress(OSError, ValueError):
        about = json.loads(home.server_file.read_text())
        write_text(home.server_file, json.dumps(about | {"others": others}))


def _wait_for(writing: WritingProcess, settings: ServerSettings) -> None:
    """Until nobody else writes to the store: what is read from now on is all there is."""
    try:
        writing.wait_until_ready()
    except (Refused, OSError) as error:
        raise StoreTrouble(f"{settings.store or settings.home.store}: {error}") from None


def _settle_memory() -> None:
    """Settle what start-up made: the collector need not look at it again, for that would hold the loop up for long."""
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


def _end_within(seconds: float) -> None:
    """End this process by force where it has not ended by then."""

    def end() -> None:
        log.critical("told to end %g s ago and still here; ending by force", seconds)
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def open_tokens(home: Home, database: sa.Engine) -> Tokens:
    """Open the store's tokens. The home has one of each role: made at the first start and after it was revoked, told
    to the store again where that was made anew or restored from a time before."""
    tokens = Tokens(database)
    tokens.adopt_file(home.tokens)
    for role in HOME_ROLES:
        path = home.token_file(role)
        # A damaged one is made anew, as one that was revoked.
        kept = ""
        with contextlib.suppress(InvalidInput):
            kept = read_token(path)
        if kept and not tokens.knows(kept):
            tokens.adopt(kept, Identity(role, role))
        elif not kept or tokens.user_of(kept) is None:
            token, row = tokens.draft(role, role)
            tokens.store(row)
            write_secret(path, token)
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

    url = address_of(settings, listener)
    if settings.standby:
        processes.mark(settings.home.server_file, os.getpid(), **_about(settings, url), standby=True)
        log.info("the server waits to take over, at %s", url)
    context = open_context(settings, driver, objects, writing, url)
    app = make_app(context)
    config = uvicorn.Config(
        app, loop="uvloop", http=protocol(Connections(context.closed)), ws="none",
        log_config=None, log_level="warning", access_log=False, proxy_headers=False,
        timeout_keep_alive=120,
        ssl_certfile=settings.tls_cert, ssl_keyfile=settings.tls_key, timeout_graceful_shutdown=2,
        server_header=False,
    )  # fmt: skip
    # The file that tells where it listens is written by `startup`, when it does, and not before.
    server = _Server(config, settings, url, context)

    def shut_down() -> None:
        server.should_exit = True
        if own_process:
            _end_within(END_WITHIN_S)

    def end_after_a_fault() -> None:
        # Whoever is between two polls would find nobody to tell the reason: it is told to all who come meanwhile.
        asyncio.get_running_loop().call_later(LAST_WORDS_S, shut_down)

    own_process = threading.current_thread() is threading.main_thread()  # else it is somebody else's to end
    context.shut_down, context.service.on_fault = shut_down, end_after_a_fault
    _settle_memory()
    ask_for_short_turns()  # this thread is the loop's
    # uvicorn ends in peace when it is told to, and then raises the signal anew, which would be the end right there.
    # Only the main thread may say what a signal does; a server in another one is ended by `shut_down`.
    meant = (signal.SIGTERM, signal.SIGINT) if own_process else ()
    before = {number: signal.signal(number, lambda *_: None) for number in meant}
    try:
        server.run(sockets=[listener])
    finally:
        # After the last answer: what was decided is written even while the process ends.
        context.service.writer.close()
        if context.claim is not None:
            context.claim.close()
        context.database.dispose()  # the last one to close a store copies its log back
        if (settings.home.server() or {}).get("pid") == os.getpid():
            settings.home.server_file.unlink(missing_ok=True)
        for number, handler in before.items():
            signal.signal(number, handler)
    if context.claim is not None and context.claim.reason is not None:
        raise StoreTrouble(context.claim.reason)
    if context.service.writer.message is not None:
        raise StoreTrouble(f"the store does not take changes: {context.service.writer.message}")
    if context.service.fault is not None:
        raise WattflowError(context.service.fault)


def _server_class() -> type:
    import uvicorn

    return uvicorn.Server


class _Server(_server_class()):  # type: ignore[misc]
    """A uvicorn server that says where it listens once it does."""

    def __init__(self, config: object, settings: ServerSettings, url: str, context: Context) -> None:
        super().__init__(config)
        self._settings, self._url, self._context = settings, url, context

    def handle_exit(self, sig: int, frame: object) -> None:
        super().handle_exit(sig, frame)
        _end_within(END_WITHIN_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.dashboard.events.close()  # else the end would wait for streams that never do
        await super().shutdown(sockets=sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.should_exit:
            return
        # Told with the address: whoever finds the server in the home also learns of its standby.
        others = self._context.claim.others if self._context.claim is not None else []
        processes.mark(self._settings.home.server_file, os.getpid(), **_about(self._settings, self._url), others=others)
        log.info("the server is ready at %s, in epoch %d", self._url, self._context.service.fences.epoch)


def _about(settings: ServerSettings, url: str) -> dict[str, object]:
    """Write what the home says of the server that runs there."""
    about: dict[str, object] = {"url": url}
    if settings.tls_cert is not None:
        about["ca"] = str(settings.tls_cert.absolute())
    return about
