"""A small API server in memory, for faults that a real one does not make on demand: 410, 429, cut watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from wattflow.kube.access import Access

Json = dict[str, Any]
_PATCHED = ("pods", "nodes", "persistentvolumeclaims", "persistentvolumes")
_GUARDS = ("uid", "resourceVersion")


class SmallApi:
    """Collections by path with versions and watches; ``faults`` are answered before anything else."""

    def __init__(self) -> None:
        self.version = 0
        self.items: dict[str, dict[str, Json]] = {}
        self.log: dict[str, list[tuple[int, str, Json]]] = {}
        self.oldest = 0
        self.changed = asyncio.Event()
        self.faults: list[tuple[str, Callable[[], web.Response]]] = []
        self.calls: list[tuple[str, str]] = []
        self.lose_answers = 0
        self.watches: set[asyncio.Task[Any]] = set()

    def put(self, path: str, item: Json) -> Json:
        self.version += 1
        key = f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        kind = "MODIFIED" if key in self.items.setdefault(path, {}) else "ADDED"
        item = json.loads(json.dumps(item))
        item["metadata"]["resourceVersion"] = str(self.version)
        self.items[path][key] = item
        self._tell(path, kind, item)
        return item

    def delete(self, path: str, key: str) -> None:
        self.version += 1
        item = self.items[path].pop(key)
        item["metadata"]["resourceVersion"] = str(self.version)
        self._tell(path, "DELETED", item)

    def _tell(self, path: str, kind: str, item: Json) -> None:
        self.log.setdefault(path, []).append((self.version, kind, item))
        self.changed.set()
        self.changed = asyncio.Event()

    def compact(self) -> None:
        """Forget all history: older watches get 410."""
        self.oldest = self.version + 1
        self.version += 1
        self.log.clear()

    def cut(self) -> None:
        """Break all watches."""
        for task in self.watches:
            task.cancel()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.calls.append((request.method, request.path))
        for i, (part, answer) in enumerate(self.faults):
            if part in request.path:
                del self.faults[i]
                return answer()
        if request.method == "GET" and "watch" in request.query:
            return await self._watch(request)
        if request.method == "GET":
            return self._get(request)
        body = await request.json()
        return await self._write(request, body)

    def _get(self, request: web.Request) -> web.Response:
        if request.path in self.items or request.path.count("/") == 3 or request.path.endswith("/leases"):
            items = [one for one in self.items.get(request.path, {}).values() if selected(request, one)]
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        found = self._one(request.path)
        if found is None:
            return refusal(404, "NotFound")
        return web.json_response(found)

    def _one(self, path: str) -> Json | None:
        parts = path.split("/")
        name, kind = parts[-1], parts[-2]
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        for collection, items in self.items.items():
            if collection.endswith(kind):
                return items.get(f"{namespace}/{name}")
        return None

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return refusal(410, "Expired")
        answer = web.StreamResponse()
        await answer.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self.watches.add(task)
        try:
            while True:
                changed = self.changed
                for version, kind, item in self.log.get(request.path, []):
                    if version > since:
                        since = version
                        if not selected(request, item):
                            continue
                        await answer.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
                await changed.wait()
        except asyncio.CancelledError:
            if request.transport is not None:  # else the client has closed it already
                with contextlib.suppress(ConnectionError):
                    request.transport.close()
            return answer
        finally:
            self.watches.discard(task)

    async def _write(self, request: web.Request, body: Json) -> web.Response:
        parts = request.path.split("/")
        if parts[-1] == "binding":
            return self._bind(request.path.removesuffix("/binding"), body)
        if "leases" in parts:
            return self._lease(request, body)
        if request.method == "PATCH" and "resourceclaims" in parts:
            return self._patch(request.path.removesuffix("/status"), body)
        if request.method == "PATCH" and parts[-2] in _PATCHED:
            return self._label(request.path, body["metadata"], body.get("spec", {}))
        return web.json_response({}, status=201)

    def _bind(self, path: str, body: Json) -> web.Response:
        pod = self._one(path)
        if pod is None:
            return refusal(404, "NotFound")
        if pod["metadata"]["uid"] != body["metadata"]["uid"] or pod["spec"].get("nodeName"):
            return refusal(409, "Conflict")
        if (
            body["metadata"].get("resourceVersion", pod["metadata"]["resourceVersion"])
            != (pod["metadata"]["resourceVersion"])
        ):
            return refusal(409, "Conflict")
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        self.put("/api/v1/pods", pod)
        if self.lose_answers:
            self.lose_answers -= 1
            raise web.HTTPInternalServerError(text="lost")
        return web.json_response({}, status=201)

    def _label(self, path: str, wanted: Json, spec: Json) -> web.Response:
        found = self._one(path)
        if found is None:
            return refusal(404, "NotFound")
        for key in ("uid", "resourceVersion"):
            if key in wanted and found["metadata"][key] != wanted[key]:
                return refusal(409, "Conflict")
        for key in ("labels", "annotations"):
            merged = found["metadata"].get(key, {}) | wanted.get(key, {})
            found["metadata"][key] = {name: value for name, value in merged.items() if value is not None}
        found["spec"] |= {key: spec[key] for key in ("taints", "claimRef") if key in spec}
        return web.json_response(self.put(f"/api/v1/{path.split('/')[-2]}", found))

    def _patch(self, path: str, body: Json) -> web.Response:
        """Merge a claim of devices, whole: lists are replaced, null takes a key away."""
        found = self._one(path)
        if found is None:
            return refusal(404, "NotFound")
        if any(found["metadata"][key] != body["metadata"].get(key, found["metadata"][key]) for key in _GUARDS):
            return refusal(409, "Conflict")
        for part in ("metadata", "status"):
            whole = found.setdefault(part, {}) | body.get(part, {})
            found[part] = {key: value for key, value in whole.items() if value is not None}
        return web.json_response(self.put("/apis/resource.k8s.io/v1/resourceclaims", found))

    def _lease(self, request: web.Request, body: Json) -> web.Response:
        path = request.path if request.method == "POST" else request.path.rpartition("/")[0]
        key = f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
        known = self.items.get(path, {}).get(key)
        if request.method == "POST" and known is not None:
            return refusal(409, "AlreadyExists")
        if known is not None and body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            return refusal(409, "Conflict")
        return web.json_response(self.put(path, body))


def selected(request: web.Request, item: Json) -> bool:
    key, _, value = request.query.get("labelSelector", "").partition("=")
    return not key or item["metadata"].get("labels", {}).get(key) == value


def refusal(code: int, reason: str, **headers: str) -> web.Response:
    return web.json_response({"code": code, "reason": reason, "message": reason}, status=code, headers=headers)


@asynccontextmanager
async def small_api() -> AsyncIterator[tuple[SmallApi, Access]]:
    api = SmallApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield api, Access(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        api.cut()
        await runner.cleanup()
