"""How a server is run, and the socket that it listens on. Light: the command line loads it."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

from wattflow.files.whole import small_text
from wattflow.model.errors import InvalidInput
from wattflow.runtime.addresses import check_listening
from wattflow.runtime.home import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a server is run.

    Attributes:
        store: URL of a database; the home's own file where None.
        host: Loopback unless told otherwise.
        port: 0 takes a free one.
        keep_s: How long ended workflows are kept.
        carbon_g_per_kwh: What the site's electricity emits; None where nobody says.
        clear_text: Whether other machines may send their tokens over plain HTTP.
        keep_journal_bytes: What snapshots and journal may take to tell how past decisions came about.
        cap: File of a cap on all nodes' watts over time (`runtime.capping.CapSeries`).
        standby: Wait until no other server works on the store, then take over.
    """

    home: Home
    policy: str = "least-energy"
    store: str | None = None
    objects: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    keep_s: float = 30 * 86400.0
    keep_journal_bytes: int = 256 << 20
    standby: bool = False
    upgrade: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    clear_text: bool = False
    carbon_g_per_kwh: float | None = None
    cap: Path | None = None


def listen(settings: ServerSettings) -> socket.socket:
    """The socket, taken before anything else is done, so that a port in use costs nothing."""
    check_listening(settings.host, settings.tls_cert is not None, settings.clear_text)
    for option, path in (("--tls-cert", settings.tls_cert), ("--tls-key", settings.tls_key)):
        if path is not None and "-----BEGIN" not in small_text(path, "PEM file"):
            raise InvalidInput(f"{option} {path}", "is no PEM file: it has no -----BEGIN")
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    # A server that is started again at once finds its own old connections still closing.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            why = (
                "another program listens there, perhaps a server that is just starting or one of another folder: "
                "`wattflow ps` shows whether it answers, `wattflow down` (with its --home) ends it, "
                "`--port 0` takes a free port"
            )
        else:
            why = f"{error.strerror}; choose another with --port (0 takes any free one)"
        raise InvalidInput(where, why) from None
    if not settings.standby:  # who waits refuses: clients and agents ask others then
        listener.listen(512)
    return listener


def address_of(settings: ServerSettings, listener: socket.socket) -> str:
    """Where others reach the server that listens there."""
    host, port = listener.getsockname()[:2]
    # "Every address" is none that another machine could call.
    named = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{named}:{port}"
