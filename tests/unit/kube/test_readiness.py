"""What is missing at start, when the scheduler says that it is ready, and that events wait for bindings."""

from __future__ import annotations

import asyncio

import pytest

from wattflow.kube import http_endpoints, scheduler_process, settings
from wattflow.kube.access import Access
from wattflow.kube.binder import Binder
from wattflow.kube.client import ApiError, Client
from wattflow.kube.scheduler import Scheduler

from .making import pod

CONFIG = "[energy]\nprofiles = false\n[workflows]\nargo = false\n"


def synced() -> Scheduler:
    scheduler = scheduler_process.make(
        Client(Access("http://127.0.0.1:1")), settings.parse('policy = "fifo"\n' + CONFIG)
    )
    scheduler.book.live = False
    for mirror in scheduler.mirrors:
        mirror.synced.set()
    return scheduler


def test_not_ready_before_the_lease_was_asked_for_and_the_cluster_taken_up() -> None:
    scheduler = synced()
    assert http_endpoints.unready(scheduler) == "takes up the cluster"
    scheduler.leader.asked = True  # another holds it: ready to take over
    assert http_endpoints.unready(scheduler) is None
    scheduler.leader._until_s = float("inf")  # ours, but nothing was taken up yet
    assert http_endpoints.unready(scheduler) == "takes up the cluster"
    scheduler.book.begin([], lambda pod: None, 0.0)
    assert http_endpoints.unready(scheduler) is None


def test_events_wait_while_bindings_do() -> None:
    asyncio.run(_events_wait())


async def _events_wait() -> None:
    class Writes(Client):
        def __init__(self) -> None:
            super().__init__(Access("http://127.0.0.1:1"))
            self.written: list[str] = []

        async def quick(self, method: str, path: str, body: object, timeout_s: float) -> bytes:
            assert isinstance(body, dict)
            self.written.append(body["note"])
            return b"{}"

    api = Writes()
    binder = Binder(api, "wattflow", events_per_s=1000.0)
    for text in ("first", "second"):
        binder.event(pod("p"), "Normal", "Scheduled", text)
    looks: list[bool] = []

    def idle() -> bool:
        looks.append(not api.written)
        return len(looks) > 3

    writer = asyncio.create_task(binder.write_events(idle))
    async with asyncio.timeout(60):
        while len(api.written) < 2:
            await asyncio.sleep(0)
    writer.cancel()
    assert api.written == ["first", "second"] and looks[:3] == [True, True, True]


def test_an_api_server_that_is_too_old_is_told_at_start() -> None:
    class Old(Client):
        async def call(self, method: str, path: str, body: object = None, **more: object) -> bytes:
            if path == "/apis/events.k8s.io/v1":
                raise ApiError(404, "NotFound", "the server could not find the requested resource")
            return b'{"status": {"allowed": true}}'

    chosen = settings.parse('policy = "fifo"\n' + CONFIG)
    (problem,) = asyncio.run(scheduler_process.missing(Old(Access("http://127.0.0.1:1")), chosen))
    assert problem.where == "/apis/events.k8s.io/v1" and "1.19" in problem.what


@pytest.mark.parametrize(("code", "problems"), [(404, 0), (403, 1)])
def test_a_cluster_without_argo_is_served_and_one_that_forbids_it_is_told_what_to_do(code: int, problems: int) -> None:
    class Bare(Client):
        async def call(self, method: str, path: str, body: object = None, **more: object) -> bytes:
            if "argoproj" in path:
                raise ApiError(code, "No", "the server could not find the requested resource, or may not tell")
            return b'{"status": {"allowed": true}}'

    found = asyncio.run(scheduler_process.missing(Bare(Access("http://127.0.0.1:1")), settings.parse("")))
    assert len(found) == problems
    assert all("install Argo Workflows, or set argo = false under [workflows]" in one.what for one in found)


def test_a_shadow_needs_no_right_to_write() -> None:
    class Reader(Client):
        async def call(self, method: str, path: str, body: object = None, **more: object) -> bytes:
            asked = body["spec"]["resourceAttributes"]["verb"] if isinstance(body, dict) else "get"
            return b'{"status": {"allowed": true}}' if asked in ("get", "list", "watch") else b'{"status": {}}'

    client = Reader(Access("http://127.0.0.1:1"))
    assert asyncio.run(scheduler_process.missing(client, settings.parse(""))), "a scheduler does"
    assert not asyncio.run(scheduler_process.missing(client, settings.parse('mode = "shadow"')))


def test_an_api_server_that_is_being_restarted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """First nobody listens, then it has not read the rights yet, then all is well."""
    early = ApiError(403, "Forbidden", "cannot create resource selfsubjectaccessreviews")
    answers: list[bytes | Exception] = [OSError("refused"), early, b'{"status": {}}', b'{"status": {"allowed": true}}']

    class Restarting(Client):
        async def call(self, method: str, path: str, body: object = None, **more: object) -> bytes:
            found = answers[0]
            if isinstance(found, Exception):
                answers.pop(0)
                raise found
            return found

    async def later(seconds: float) -> None:
        if len(answers) == 2:
            answers.pop(0) if looks else looks.append(seconds)

    looks: list[float] = []
    monkeypatch.setattr(asyncio, "sleep", later)
    client = Restarting(Access("http://127.0.0.1:1"))
    assert not asyncio.run(scheduler_process._missing_now(client, settings.parse('policy = "fifo"\n' + CONFIG), None))
    assert len(answers) == 1
