"""Redfish: a small controller that answers like DMTF's mockups, on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.runtime.hooks import HookFailed
from wattflow.runtime.redfish import RedfishHook

SYSTEM = "/redfish/v1/Systems/437XR1138R2"
SECRET = {"WATTFLOW_REDFISH_USER": "admin", "WATTFLOW_REDFISH_PASSWORD": "pass"}


class Controller(ThreadingHTTPServer):
    """One machine behind a controller."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.power = "On"
        self.resets: list[str] = []
        self.takes = ["On", "ForceOff", "GracefulShutdown", "ForceOn"]
        self.url = f"http://127.0.0.1:{self.server_address[1]}{SYSTEM}"


class Answers(BaseHTTPRequestHandler):
    server: Controller

    def do_GET(self) -> None:
        if not self._known():
            return
        reset = {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                 "ResetType@Redfish.AllowableValues": self.server.takes}  # fmt: skip
        self._answer(200, {
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "@odata.id": SYSTEM, "Id": "437XR1138R2",
            "PowerState": self.server.power, "Actions": {"#ComputerSystem.Reset": reset},
        })  # fmt: skip

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self._known():
            return
        kind = body["ResetType"]
        self.server.resets.append(kind)
        self.server.power = "On" if kind in ("On", "ForceOn", "Resume") else "Off"
        self._answer(204)

    def _known(self) -> bool:
        wanted = "Basic " + base64.b64encode(b"admin:pass").decode()
        if self.headers.get("authorization") != wanted:
            self._answer(401, {"error": {"code": "Base.1.0.InsufficientPrivilege"}})
            return False
        if not self.path.startswith(SYSTEM):
            self._answer(404)
            return False
        return True

    def _answer(self, status: int, body: object = None) -> None:
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_a_machine_goes_off_gently_and_comes_on_again(controller: Controller) -> None:
    hook = RedfishHook({"n": controller.url}, SECRET)
    assert hook.covers("n") and not hook.covers("m")
    asyncio.run(hook.suspend("n"))
    asyncio.run(hook.suspend("n"))  # it is off: nothing is told twice
    asyncio.run(hook.resume("n"))
    asyncio.run(hook.resume("n"))
    assert controller.resets == ["GracefulShutdown", "On"]


def test_sleep_is_better_than_off_where_it_is_taken(controller: Controller) -> None:
    controller.takes = ["On", "Suspend", "Resume", "GracefulShutdown"]
    hook = RedfishHook({"n": controller.url}, SECRET)
    asyncio.run(hook.suspend("n"))
    controller.power = "Paused"
    asyncio.run(hook.resume("n"))
    assert controller.resets == ["Suspend", "Resume"]


def test_what_a_controller_refuses_is_told(controller: Controller) -> None:
    with pytest.raises(HookFailed, match="401"):
        asyncio.run(RedfishHook({"n": controller.url}, {}).suspend("n"))
    controller.takes = ["ForceOff"]
    with pytest.raises(HookFailed, match="takes ForceOff"):
        asyncio.run(RedfishHook({"n": controller.url}, SECRET).suspend("n"))
    with pytest.raises(InvalidInput, match="not a system"):
        RedfishHook({"n": "bmc1"})
    assert controller.resets == []
