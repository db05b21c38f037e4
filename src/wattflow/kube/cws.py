"""HTTP routes in the shape of the Common Workflow Scheduler, behind a token. `executions` keeps what they are told."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from wattflow.kube.executions import BadExecution, Executions, NoExecution, NoStrategy
from wattflow.model.errors import InvalidInput

ROOT = "/v1/scheduler/{execution}"
_LEAST_TOKEN = 16
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Body(msgspec.Struct, rename="camel", kw_only=True):
    """Fields that we do not use are skipped."""


class Config(_Body):
    namespace: str = "default"
    strategy: str = "rank"


class Vertex(_Body):
    uid: int
    label: str | None = ""
    type: str = "PROCESS"


class Edge(_Body):
    uid: int
    from_: int = msgspec.field(name="from")
    to: int


class TaskConfig(_Body):
    task: str
    run_name: str
    name: str = ""
    input_size: float | None = None


def read_token(path: Path) -> str:
    """Read the token of a file. Raises InvalidInput where it is short, or readable by others."""
    try:
        token, mode = path.read_text(encoding="utf-8").strip(), path.stat().st_mode
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    if len(token) < _LEAST_TOKEN:
        raise InvalidInput(str(path), f"a token has at least {_LEAST_TOKEN} letters")
    if mode & 0o077:
        raise InvalidInput(str(path), "may be read by others; chmod 600 it")
    return token


def routes(executions: Executions, token: str) -> list[web.RouteDef]:
    """Return all routes; each answers 401 without the token."""

    def route(method: str, path: str, act: Callable[[str, web.Request, bytes], object]) -> web.RouteDef:
        async def answer(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization", "")
            # In constant time: the answer's time must not tell how much of a token was right.
            if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return _problem(401, "a token is needed: Authorization: Bearer …")
            try:
                found = act(request.match_info["execution"], request, await request.read())
            except NoStrategy as error:
                return _problem(404, str(error))
            except (NoExecution, BadExecution) as error:
                return _problem(400, str(error))
            except (msgspec.MsgspecError, ValueError) as error:
                return _problem(400, f"{method} {request.path}: {error}")
            # Only False: None stands for an answer without content.
            if found is False:
                return _problem(404, "there is no such task")
            return web.Response(body=msgspec.json.encode(found or {}), content_type="application/json")

        return web.route(method, ROOT + path, answer)

    known = executions
    return [
        route("POST", "", lambda name, _, raw: known.register(name, *_config(raw))),
        route("DELETE", "", lambda name, _, raw: known.delete(name)),
        route("POST", "/DAG/vertices", lambda name, _, raw: known.add_vertices(name, _vertices(raw))),
        route("DELETE", "/DAG/vertices", lambda name, _, raw: known.drop_vertices(name, _whole(raw))),
        route("POST", "/DAG/edges", lambda name, _, raw: known.add_edges(name, _edges(raw))),
        route("DELETE", "/DAG/edges", lambda name, _, raw: known.drop_edges(name, _whole(raw))),
        route("PUT", "/startBatch", lambda name, _, raw: known.start_batch(name)),
        route("PUT", "/endBatch", lambda name, _, raw: known.end_batch(name, msgspec.json.decode(raw, type=int))),
        route("POST", "/task/{id}", lambda name, request, raw: _task(known, name, _id(request), raw)),
        route("GET", "/task/{id}", lambda name, request, raw: _state(known, name, _id(request))),
        route("DELETE", "/task/{id}", lambda name, request, raw: known.drop_task(name, _id(request))),
    ]


def _problem(code: int, text: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if code == 401 else {}
    return web.json_response({"error": text}, status=code, headers=headers)


def _config(raw: bytes) -> tuple[str, str]:
    found = msgspec.json.decode(raw or b"{}", type=Config)
    return found.namespace, found.strategy


def _vertices(raw: bytes) -> list[tuple[int, str, str]]:
    return [(one.uid, one.label or "", one.type) for one in msgspec.json.decode(raw, type=list[Vertex])]


def _edges(raw: bytes) -> list[tuple[int, int, int]]:
    return [(one.uid, one.from_, one.to) for one in msgspec.json.decode(raw, type=list[Edge])]


def _whole(raw: bytes) -> list[int]:
    return msgspec.json.decode(raw, type=list[int])


def _id(request: web.Request) -> int:
    return int(request.match_info["id"])


def _task(known: Executions, name: str, id: int, raw: bytes) -> None:
    told = msgspec.json.decode(raw, type=TaskConfig)
    known.add_task(name, id, told.task, told.run_name, told.input_size or 0.0)


def _state(known: Executions, name: str, id: int) -> object:
    task = known.of_name(name).tasks.get(id)
    return False if task is None else {"state": task.state}
