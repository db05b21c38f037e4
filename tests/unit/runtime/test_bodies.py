"""Submissions as they come over the wire: many tasks are decoded in pieces and mean the same as few."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from wattflow.runtime.messages import Submission, Task, Variant
from wattflow.runtime.records import Broken
from wattflow.server import app, bodies

KINDS = {"application/msgpack": msgspec.msgpack.encode, "application/json": msgspec.json.encode}


def decoded(data: bytes, kind: str) -> Submission:
    sent = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return sent.pop(0)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind.encode())], "path": "/"}
    return asyncio.run(bodies.typed_submission(Request(scope, receive)))


def submission(count: int) -> Submission:
    tasks = [Task(key=str(n), name="n", command=["true"], variants=[Variant(cpus=0.5)]) for n in range(count)]
    return Submission(workflow="w", name="many", tasks=tasks, seal=True, objective="energy", deadline_s=5.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, bodies.PIECE, bodies.PIECE + 1, 5 * bodies.PIECE])
def test_many_tasks_arrive_as_they_were_sent(kind: str, count: int) -> None:
    assert decoded(KINDS[kind](submission(count)), kind) == submission(count)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, 3 * bodies.PIECE])
def test_what_is_wrong_is_told_by_its_place(kind: str, count: int) -> None:
    wrong = msgspec.to_builtins(submission(count))
    wrong["tasks"][2]["variants"] = "none"
    with pytest.raises(HTTPException, match=r"tasks\[2\]\.variants") as found:
        decoded(KINDS[kind](wrong), kind)
    assert found.value.status_code == 422
    wrong = msgspec.to_builtins(submission(count)) | {"workflow": 7}
    with pytest.raises(HTTPException, match=r"\$\.workflow"):
        decoded(KINDS[kind](wrong), kind)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"tasks": 5}', b"\xff\x00"])
def test_nonsense_is_refused(data: bytes) -> None:
    for kind in KINDS:
        with pytest.raises(HTTPException, match="not a Submission"):
            decoded(data, kind)


@pytest.mark.parametrize(("path", "status"), [("/v1/agents/sync", 503), ("/v1/nodes", 503), ("/v1/submissions", 409)])
def test_a_fault_of_the_server_makes_agents_wait_and_is_told_to_clients(path: str, status: int) -> None:
    request = Request({"type": "http", "method": "POST", "headers": [], "path": path})
    assert asyncio.run(app._refused(request, Broken("a turn failed"))).status_code == status
