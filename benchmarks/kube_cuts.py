"""A relay before the API server whose connections are cut now and then, watches and bindings under way with them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from kuberig.processes import free_ports


@dataclass
class Relay:
    """Bytes both ways on loopback. TLS goes through as it is: the certificate names the address, not the port."""

    port: int
    target: int
    cuts: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def run(self, every_s: float) -> None:
        """Serve, and cut all connections again and again."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", self.port):
            while True:
                await asyncio.sleep(every_s)
                self.cuts += len(self.writers) > 0
                for writer in list(self.writers):
                    writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self.writers |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(onward, writer))
        self.writers -= {writer, back}

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ConnectionError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        with contextlib.suppress(OSError):
            sink.close()


@contextmanager
def cutting(kubeconfig: Path, server: str, every_s: float) -> Iterator[tuple[Path, Relay]]:
    """A kubeconfig whose server is behind a relay that is cut every so many seconds."""
    relay = Relay(free_ports(1)[0], urlsplit(server).port or 443)
    path = kubeconfig.with_name(f"cut-{kubeconfig.name}")
    path.touch(mode=0o600)
    path.write_text(kubeconfig.read_text().replace(server, f"https://127.0.0.1:{relay.port}"))
    loop = asyncio.new_event_loop()
    task = loop.create_task(relay.run(every_s))

    def serve() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield path, relay
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
