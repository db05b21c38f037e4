"""What switches nodes: a board's controller over real HTTPS, a magic packet over real UDP, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from wattflow.kube import actuators
from wattflow.kube.settings import SchedulerSettings, parse
from wattflow.kube.sleeping import Sleeper
from wattflow.levels.power_hooks import HookFailed, magic_packet
from wattflow.live.protocol import Power
from wattflow.model.errors import InvalidInput

from .test_sleeping import Patches, until

LOGIN = "operator:open sesame"


class Controller(BaseHTTPRequestHandler):
    """A board's controller (DSP0266): a shutdown is answered at once and takes a few looks."""

    told: ClassVar[list[str]] = []
    states: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        reset = {"target": "/redfish/v1/Systems/1/Actions/Reset", "ResetType@Redfish.AllowableValues": ["On"]}
        reset["ResetType@Redfish.AllowableValues"] = ["On", "GracefulShutdown"]
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        tree: dict[str, Any] = {
            "/redfish/v1/": {"Systems": {"@odata.id": "/redfish/v1/Systems"}},
            "/redfish/v1/Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]},
            "/redfish/v1/Systems/1": {"PowerState": state, "Actions": {"#ComputerSystem.Reset": reset}},
        }
        self._answer(200, tree[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._knows():
            self.told.append(body["ResetType"])
        self._answer(204, None)

    def _knows(self) -> bool:
        return self.headers["Authorization"] == "Basic " + base64.b64encode(LOGIN.encode()).decode()

    def _answer(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status if self._knows() else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Its address and the certificate that it shows."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bmc"]
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    Controller.told, Controller.states = [], ["On"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Controller)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}", certificate
    server.shutdown()
    server.server_close()


def login(folder: Path, mode: int = 0o440) -> Path:
    """The login as a Secret's file: of root and of the pod's group."""
    file = folder / "login"
    file.write_text(LOGIN + "\n")
    file.chmod(mode)
    return file


def chosen(url: str, folder: Path, ca: str) -> SchedulerSettings:
    lines = [f'redfish = "{url}"', f'redfish_login = "{login(folder)}"', f'redfish_ca = "{ca}"']
    return parse("\n".join(["[sleep]", *lines]))


def test_a_node_sleeps_and_wakes_by_its_controller(controller: tuple[str, Path], tmp_path: Path) -> None:
    url, ca = controller
    told: list[Power] = []

    async def run() -> None:
        client = Patches()
        hook = actuators.make(chosen(url, tmp_path, str(ca)), client)
        assert hook is not None
        Controller.states = ["On", "On", "PoweringOff", "Off"]
        sleeper = Sleeper(client, "wattflow", hook, lambda name: False, lambda name, state: told.append(state),
                          settle_s=0.0, wake_limit_s=60.0)  # fmt: skip
        sleeper.sleep("n")
        await until(lambda: told == [Power.ASLEEP])
        assert Controller.told == ["GracefulShutdown"] and Controller.states == ["Off"], "asleep is off, not told so"
        client.renewed = "2026-01-01T00:00:00Z"
        sleeper.wake("n")
        await until(lambda: Controller.told == ["GracefulShutdown", "On"])
        assert not sleeper.awake("n")

    asyncio.run(run())


def test_a_controller_with_another_certificate_is_not_told(controller: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = controller
    told: list[Power] = []

    async def run() -> None:
        hook = actuators.make(chosen(url, tmp_path, ""), Patches())
        assert hook is not None
        with pytest.raises(HookFailed, match="certificate"):
            await hook.suspend("n")
        sleeper = Sleeper(Patches(), "wattflow", hook, lambda name: False, lambda name, state: told.append(state),
                          settle_s=0.0)  # fmt: skip
        sleeper.sleep("n")
        await until(lambda: told == [Power.ON])

    asyncio.run(run())
    assert Controller.told == []


def test_a_magic_packet_wakes_a_node(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text("# rack a\nn 3c:ec:ef:12:34:56\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.0.0.1", 0))
        card.settimeout(30)
        where = f"127.0.0.1:{card.getsockname()[1]}"
        lines = [f'wake_on_lan = "{file}"', 'suspend = "true {node}"', f'broadcast = "{where}"']
        hook = actuators.make(parse("\n".join(["[sleep]", *lines])), Patches())
        assert hook is not None and hook.covers("n") and not hook.covers("other")
        asyncio.run(hook.resume("n"))
        assert card.recv(200) == magic_packet("3c:ec:ef:12:34:56")


def test_a_node_without_an_address_is_left_on(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text("n 3c:ec:ef:12:34:56\n")
    told: list[Power] = []
    hook = actuators.make(parse(f'[sleep]\nwake_on_lan = "{file}"\nsuspend = "false"'), Patches())
    assert hook is not None
    sleeper = Sleeper(Patches(), "wattflow", hook, lambda name: False, lambda name, state: told.append(state))
    sleeper.sleep("other")
    assert told == [Power.ON]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('redfish = "https://{node}-bmc"', "redfish_login"),
        ('redfish = "http://{node}-bmc"\nredfish_login = "LOGIN"', "https"),
        ('redfish = "https://{node}-bmc"\nredfish_login = "OPEN"', "read by others"),
        ('wake_on_lan = "ADDRESSES"', "suspend"),
        ('wake_on_lan = "ADDRESSES"\nsuspend = "x"', "NODE HARDWARE-ADDRESS"),
        ('wake_on_lan = "NONE"\nsuspend = "x"', "cannot be read"),
        ('hook = "a \\"b"', "sleep.hook"),
        ('hook = "x"\nredfish = "y"', "one of them"),
    ],
)
def test_what_cannot_be_used_is_told(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "addresses").write_text("n 3c:ec:ef:12:34:56 more\n")
    (tmp_path / "open").write_text(LOGIN)
    (tmp_path / "open").chmod(0o444)
    for word, path in (("LOGIN", login(tmp_path)), ("OPEN", tmp_path / "open"), ("ADDRESSES", tmp_path / "addresses")):
        text = text.replace(word, str(path))
    with pytest.raises(InvalidInput, match=said):
        actuators.make(parse("[sleep]\n" + text), Patches())
