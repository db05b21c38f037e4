"""The three routes of every task's way (submission, an agent's turn, outcomes), past the framework's machinery.

They are FastAPI routes too, which describe them, and answer alike; but looking up a route and solving its dependencies
costs more there than what these do. Anything unusual about a request is left to the framework.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from wattflow.model.errors import WattflowError
from wattflow.server import agent_routes, routes

Endpoint = Callable[[Request], Awaitable[Response]]
Handler = Callable[[Request, Exception], Awaitable[Response]]
_OUTCOMES = ("/v1/workflows/", "/outcomes")


class Hot:
    """Answers what is on every task's way; says False to the rest."""

    def __init__(self, refused: Handler, http: Handler) -> None:
        self._refused, self._http, self._routes = refused, http, routes
        self._posts: dict[str, Endpoint] = {"/v1/agents/sync": agent_routes.sync, "/v1/submissions": routes.submit}

    async def answered(self, scope: Any, receive: Any, send: Any) -> bool:
        """Answer if it is one of them."""
        endpoint = self._endpoint(scope)
        if endpoint is None:
            return False
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except WattflowError as error:
            response = await self._refused(request, error)
        except HTTPException as error:
            response = await self._http(request, error)
        await response(scope, receive, send)
        return True

    def _endpoint(self, scope: Any) -> Endpoint | None:
        path: str = scope["path"]
        if scope["method"] == "POST":
            return self._posts.get(path)
        if scope["method"] == "GET" and path.startswith(_OUTCOMES[0]) and path.endswith(_OUTCOMES[1]):
            return self._outcomes(path[len(_OUTCOMES[0]) : -len(_OUTCOMES[1])], scope["query_string"])
        return None

    def _outcomes(self, workflow: str, query: bytes) -> Endpoint | None:
        given = dict(parse_qsl(query.decode("latin-1")))
        after, wait = given.pop("after", "0"), given.pop("wait_s", "0")
        # Anything but the plain question is the framework's: it has the checks and the words for what is wrong.
        if given or "/" in workflow or not after.isdecimal() or len(after) > 18:
            return None
        try:
            wait_s = float(wait)
        except ValueError:
            return None
        if not 0 <= wait_s <= self._routes.WAIT_S:
            return None
        return lambda request: self._routes.outcomes(request, workflow, int(after), wait_s)
