"""The operator's commands against a small API server and a played Prometheus."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from wattflow.kube import curves, opt_in
from wattflow.kube.access import Access
from wattflow.kube.client import Client
from wattflow.kube.http_endpoints import TOKEN_HEADER, let_in, shield_gauges
from wattflow.kube.prometheus_text import Metrics
from wattflow.kube.settings import SchedulerSettings
from wattflow.live.shielding import Remembered, Shielding
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Scope

from .small_api import small_api
from .test_scheduler_whole import NODES, node

PAGE = b"""# HELP wattflow_shadow_pods x
wattflow_shadow_pods{result="same"} 3
wattflow_shadow_pods{result="other"} 7
wattflow_shadow_saved_watts 12.5
wattflow_shadow_saved_joules 3.6e+06
wattflow_node_joules{node="a"} 3.6e+07
"""


@asynccontextmanager
async def played(answers: Any) -> AsyncIterator[str]:
    """Serve what a function answers."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answers)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def test_savings_are_read_in_words_and_through_the_proxy_with_the_token() -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get(TOKEN_HEADER, "")))
        if "/secrets/" in request.path:
            return web.json_response({"data": {"token": "c2VjcmV0"}})
        return web.Response(body=PAGE)

    async def whole() -> tuple[str, str]:
        async with played(answer) as url, Client(Access(url, token="mine")) as client:
            return await opt_in.savings(client, "", "green/wf"), await opt_in.savings(client, url, "green/wf")

    proxied, direct = asyncio.run(whole())
    assert proxied == direct
    assert "10 pods compared" in direct and "1.0000 kWh" in direct and "10.0 % of the 10.000 kWh" in direct
    assert asked[0][0] == "/api/v1/namespaces/green/secrets/wf-http"
    assert asked[1] == ("/api/v1/namespaces/green/services/wf-scheduler:http/proxy/metrics", "secret")
    assert asked[2] == ("/metrics", ""), "no token goes to an address that was typed"


def test_a_shield_tells_what_it_kept_saved_and_cost() -> None:
    shield, metrics = Shielding("wattflow:shield=kubernetes"), Metrics()
    metrics.gauges |= shield_gauges(shield)
    found = opt_in.metrics(metrics.text().encode())
    assert "wattflow_shield_kept" not in found, "before the first answer nothing is known"
    summary = {"kept": True, "judged": 40, "late": -0.05, "tail": 0.98, "saved": 0.25, "spent": 2}
    shield.remembered = Remembered([], summary, {}, 12.5)
    metrics.gauges["wattflow_node_joules"] = ("Joules.", lambda: [((("node", "a"),), 3 * 3.6e6)])
    text = opt_in.shielded(opt_in.metrics(metrics.text().encode()))
    assert "promise kept on the last 40 workflows: 5.0% sooner than under the reference, p95 0.980 of its" in text
    assert "saved 1.0000 kWh (modelled), 25.0% of the reference's" in text  # 3 kWh are what is left of 4
    assert "12.5 s of processor, budget spent 2 times" in text
    # Of a policy that is guarded nobody knows what it saves.
    shield.remembered = Remembered([], {**summary, "saved": None}, {}, 12.5)
    text = opt_in.shielded(opt_in.metrics(metrics.text().encode()))
    assert "promise kept" in text and "budget spent 2 times" in text and "saved" not in text


def test_a_scheduler_without_a_shadow_or_answer_is_told() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="up 1\n")

    async def whole() -> None:
        async with played(answer) as url, Client(Access(url)) as client:
            with pytest.raises(InvalidInput, match="runs no shadow"):
                await opt_in.savings(client, url, "a/b")
            with pytest.raises(InvalidInput, match="does not answer"):
                await opt_in.ask(client, "/metrics", "http://127.0.0.1:1")

    asyncio.run(whole())


def test_others_than_this_machine_need_the_token(tmp_path: Path) -> None:
    token, missing = tmp_path / "token", str(tmp_path / "none")
    token.write_text("secret\n")

    def asked(address: str, file: str, **headers: str) -> None:
        shown = {key.replace("_", "-"): value for key, value in headers.items()}
        let_in(SchedulerSettings(address=address, token_file=file), make_mocked_request("GET", "/metrics", shown))

    asked("127.0.0.1", missing)
    asked("localhost", "")
    asked("0.0.0.0", str(token), Authorization="Bearer secret")
    asked("::", str(token), X_Wattflow_Token="secret")
    for address, file, shown in (("0.0.0.0", str(token), ""), ("10.0.0.1", str(token), "Bearer other")):
        with pytest.raises(web.HTTPUnauthorized):
            asked(address, file, Authorization=shown)
    for file in ("", missing):
        with pytest.raises(web.HTTPForbidden):
            asked("0.0.0.0", file, Authorization="Bearer ")


def test_a_policy_names_namespace_labels_and_scheduler() -> None:
    policy, binding = opt_in.documents("team-a", {"class": "batch"}, "green")
    text = json.dumps([policy, binding])
    assert "schedulerName: 'green'" in text and '"class": "batch"' in text and '"Ignore"' in text
    other = opt_in.documents("team-a", {}, "green")[0]
    assert policy["metadata"] != other["metadata"], "each has a name of its own"


@pytest.mark.parametrize("generation", [0, 1])
def test_curves_come_from_prometheus(generation: int) -> None:
    """Four threads: 40 W idle, 20 W a thread; the second generation has no exporter of loads beside it."""

    async def answer(request: web.Request) -> web.Response:
        query, end_s = request.query["query"], float(request.query["end"])
        loads = {end_s - 60 * i: 4 * ((i * 7) % 100) / 100 for i in range(300)}
        label: dict[str, str] = {"instance": "a:9100"} if generation else {"node_name": "a"}
        if ("kepler_node_cpu_joules" in query and not generation) or ("platform_joules" in query and generation):
            rows = {at: 40 + 20 * load for at, load in loads.items()}
        elif "node_cpu_seconds" in query and not generation:
            rows = loads
        elif "usage_ratio" in query and generation:
            rows = {at: load / 4 for at, load in loads.items()}
        elif "DCGM" in query:
            label, rows = {"Hostname": "a"}, dict.fromkeys(loads, 25.0)
        else:
            rows = {}
        result = [{"metric": label, "values": [[at, str(value)] for at, value in rows.items()]}] if rows else []
        return web.json_response({"status": "success", "data": {"result": result}})

    async def whole() -> list[curves.Fitted]:
        async with played(answer) as url, small_api() as (api, access), Client(access) as client:
            for name in ("a", "b"):
                api.put(NODES, node(name))
            return await curves.fitted(client, url, 1.0)

    one, other = asyncio.run(whole())
    assert one.found is not None and other.found is None
    assert one.found.curve.idle_w == pytest.approx(65, rel=0.02), "with the idle GPU"
    assert one.found.curve.full_w == pytest.approx(145, rel=0.02)
    assert one.found.curve.scope is (Scope.WALL if generation else Scope.PACKAGE)
    said = curves.told(one, time.time())
    assert "measured" in said and "DCGM" in said and "h old" in said
    assert "usable samples" in curves.told(other, time.time())


def test_nodes_without_a_source_are_listed_as_guessed() -> None:
    async def whole() -> list[str]:
        async with small_api() as (api, access), Client(access) as client:
            api.put(NODES, node("a"))
            return await curves.listed(client)

    (line,) = asyncio.run(whole())
    assert line.startswith("a: ") and "guessed" in line
