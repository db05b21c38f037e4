"""Redfish: a controller played by the test, as DSP0266 describes one, powers its machine off and on."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from wattflow.levels.power_hooks import HookFailed
from wattflow.levels.redfish_power import RedfishHook
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.drivers.registry import _power_hook

LOGIN = "operator:open sesame"


class _Controller(BaseHTTPRequestHandler):
    told: ClassVar[list[str]] = []
    allowed: ClassVar[list[str]] = ["On", "ForceOff", "GracefulShutdown"]

    def do_GET(self) -> None:
        system = {"target": "/redfish/v1/Systems/1/Actions/Reset", "ResetType@Redfish.AllowableValues": self.allowed}
        tree: dict[str, Any] = {
            "/redfish/v1/": {"Systems": {"@odata.id": "/redfish/v1/Systems"}},
            "/redfish/v1/Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]},
            "/redfish/v1/Systems/1": {
                "Actions": {"#ComputerSystem.Reset": system},
                "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
            },
            "/redfish/v1/Chassis/1": {"Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}},
            "/redfish/v1/Chassis/1/Power": {"PowerControl": [{"PowerConsumedWatts": 344}]},
        }
        self._answer(200 if self.path in tree else 404, tree.get(self.path, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._knows():
            self.told.append(body["ResetType"])
        self._answer(204, {})

    def _knows(self) -> bool:
        return self.headers["Authorization"] == "Basic " + base64.b64encode(LOGIN.encode()).decode()

    def _answer(self, status: int, body: object) -> None:
        self.send_response(status if self._knows() else 401)
        data = json.dumps(body).encode() if status != 204 else b""
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    _Controller.told, _Controller.allowed = [], ["On", "ForceOff", "GracefulShutdown"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Controller)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def login(tmp_path: Path) -> Path:
    file = tmp_path / "login"
    file.write_text(LOGIN + "\n")
    file.chmod(0o600)
    return file


def test_a_machine_is_shut_down_and_powered_on(url: str, login: Path) -> None:
    hook = _power_hook({"redfish": url, "redfish_login": str(login)})
    assert isinstance(hook, RedfishHook) and hook.covers("n1")
    asyncio.run(hook.suspend("n1"))
    asyncio.run(hook.resume("n1"))
    _Controller.allowed = ["On", "ForceOff"]
    asyncio.run(hook.suspend("n1"))
    assert _Controller.told == ["GracefulShutdown", "On", "ForceOff"]


def test_what_goes_wrong_is_told_without_the_password(url: str, login: Path) -> None:
    _Controller.allowed = ["Nmi"]
    with pytest.raises(HookFailed, match="allows Nmi"):
        asyncio.run(RedfishHook(url, login).resume("n1"))
    login.write_text("operator:wrong")
    with pytest.raises(HookFailed, match="the login is refused") as told:
        asyncio.run(RedfishHook(url, login).resume("n1"))
    assert "wrong" not in str(told.value) and not _Controller.told
    with pytest.raises(HookFailed, match=r"refused|reset"):
        asyncio.run(RedfishHook("http://127.0.0.1:1", login).resume("n1"))


def test_bad_options_are_refused(url: str, login: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"redfish": url}, "--redfish-login"),
        ({"redfish": url, "redfish_login": str(login), "wake_on_lan": "a=b"}, "leave the other ways out"),
        ({"redfish": "nothing", "redfish_login": str(login)}, "not a URL"),
        ({"redfish": "http://{node}-bmc", "redfish_login": str(login)}, "use https"),
        ({"redfish": url, "redfish_login": str(tmp_path / "none")}, "cannot be read"),
    ):
        with pytest.raises(WattflowError, match=message):
            _power_hook(options)
    login.chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod 600"):
        RedfishHook(url, login)


def test_a_controller_tells_what_its_machine_draws(url: str, login: Path) -> None:
    assert asyncio.run(RedfishHook(url, login).watts("n")) == 344.0
