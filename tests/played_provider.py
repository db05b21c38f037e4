"""An external gRPC provider of cluster-autoscaler, played: real HTTP/2 and TLS, machines that are only written down."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from wattflow.kube.node_groups import SERVICE, messages, nested, one_text, one_whole, read, text, whole

RUNNING, CREATING = 1, 2


class Raw(CodecBase):
    """Messages as bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


class Played:
    """One group ``g``. ``made`` and ``deleted`` are told of machines, by their ids, as a cloud's kubelets would show.

    Attributes:
        instances: State and error of each machine by its id.
        calls: Names of the calls, in order.
        state, error: Of machines that are made from now on.
        lost: Whether orders for more are taken and forgotten.
    """

    def __init__(self, made: Callable[[str], None], deleted: Callable[[str], None], least: int = 0, most: int = 5):
        self.made, self.deleted, self.least, self.most = made, deleted, least, most
        self.instances: dict[str, tuple[int, str]] = {}
        self.calls: list[str] = []
        self.state, self.error, self.lost = RUNNING, "", False
        self.size = self.number = 0

    def add(self) -> str:
        """Make a machine, as for an order."""
        self.number += 1
        self.size += 1
        id = f"played://m{self.number}"
        self.instances[id] = self.state, self.error
        if not self.error:
            self.made(id)
        return id

    def __mapping__(self) -> dict[str, Handler]:
        """Serve the calls that switch nodes; the rest of the service is not asked for."""
        calls = (
            "NodeGroups NodeGroupForNode NodeGroupTargetSize NodeGroupIncreaseSize NodeGroupDeleteNodes NodeGroupNodes"
        )
        names = calls.split()
        return {
            f"/{SERVICE}/{name}": Handler(self._served(name), Cardinality.UNARY_UNARY, bytes, bytes) for name in names
        }

    def _served(self, name: str) -> Any:
        async def answer(stream: Stream[bytes, bytes]) -> None:
            self.calls.append(name)
            await stream.send_message(getattr(self, f"_{name}")(read(await stream.recv_message() or b"")))

        return answer

    def _group(self) -> bytes:
        return text(1, "g") + whole(2, self.least) + whole(3, self.most)

    def _NodeGroups(self, asked: Any) -> bytes:
        return nested(1, self._group())

    def _NodeGroupForNode(self, asked: Any) -> bytes:
        (about,) = messages(asked, 1)
        return nested(1, self._group() if one_text(about, 1) in self.instances else b"")

    def _NodeGroupTargetSize(self, asked: Any) -> bytes:
        return whole(1, self.size)

    def _NodeGroupIncreaseSize(self, asked: Any) -> bytes:
        assert one_text(asked, 2) == "g"
        for _ in range(one_whole(asked, 1)):
            if self.size >= self.most:
                raise GRPCError(Status.INTERNAL, "beyond the maximum")
            if not self.lost:
                self.add()
        return b""

    def _NodeGroupDeleteNodes(self, asked: Any) -> bytes:
        for about in messages(asked, 1):
            id = one_text(about, 1)
            if id not in self.instances:
                raise GRPCError(Status.NOT_FOUND, f"no machine {id}")
            del self.instances[id]
            self.size -= 1
            self.deleted(id)
        return b""

    def _NodeGroupNodes(self, asked: Any) -> bytes:
        found = b""
        for id, (state, error) in self.instances.items():
            failed = nested(2, text(1, error) + text(2, "no machines left")) if error else b""
            found += nested(1, text(1, id) + nested(2, whole(1, state) + failed))
        return found

    async def serve(self, folder: Path) -> tuple[Server, Path]:
        """Answer on loopback, to those who show our certificate; the server and cluster-autoscaler's file for it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        context.load_verify_locations(folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        server = Server([self], codec=Raw())
        await server.start("127.0.0.1", 0, ssl=context)
        (listening,) = server._server.sockets  # type: ignore[union-attr]
        file = folder / "cloud-config.yaml"
        lines = [f"address: localhost:{listening.getsockname()[1]}", f"cacert: {folder}/ca.crt"]
        file.write_text("\n".join([*lines, f"cert: {folder}/client.crt", f"key: {folder}/client.key"]) + "\n")
        return server, file


def certificates(folder: Path) -> None:
    """Write an authority and what it signed: one for the server on localhost, one for the client."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    # Python 3.13 asks of an authority what it may be used for, and of a certificate whose it is.
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", "-x509", *key, *usage, "-subj", "/CN=played", "-keyout", "ca.key", "-out", "ca.crt")
    (folder / "san").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid")
    for name in ("server", "client"):
        openssl("req", *key[:3], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")


async def stopped(server: Server) -> None:
    """End it."""
    server.close()
    async with asyncio.timeout(10):
        await server.wait_closed()
