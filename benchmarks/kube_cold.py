"""A cold start without a cluster: from starting our process to its first binding, and where that time goes.

A server of prepared lists stands in for the API server, so its own work (which the same figure on the rig contains)
is next to nothing here. What is printed of parts is the scheduler's own log.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from aiohttp import web
from kube_cpu import node_bytes, pod_object

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "[http]\nport = 0\n[energy]\nprofiles = false\n[workflows]\nargo = false\n"


def lists(nodes: int, pods: int) -> dict[str, bytes]:
    """What the API server answers to each list: nine of ten pods are others' and bound, the rest wait for us."""
    waiting = pods // 10
    made = []
    for i in range(pods):
        pod = pod_object(i, i + 1, "" if i < waiting else f"n-{i % nodes}")
        pod["spec"]["schedulerName"] = "wattflow" if i < waiting else "nobody"
        made.append(msgspec.json.encode(pod))
    namespaces = [b'{"metadata":{"name":"fill","uid":"fill","resourceVersion":"1"}}']
    head = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1000000"},"items":['
    found = {"nodes": [node_bytes(i) for i in range(nodes)], "pods": made, "namespaces": namespaces}
    return {f"/api/v1/{kind}": head + b",".join(items) + b"]}" for kind, items in found.items()}


class Prepared:
    """Answers lists from memory, lets watches hang, allows everything, and notes when the first binding came."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.bound = asyncio.Event()
        self.listed_s: dict[str, float] = {}
        self.bound_s = 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        if request.query.get("watch"):
            stream = web.StreamResponse()
            await stream.prepare(request)
            await asyncio.sleep(3600)
            return stream
        if request.path in self.answers:
            self.listed_s.setdefault(request.path, time.time())
            return web.Response(body=self.answers[request.path], content_type="application/json")
        if request.path.endswith("/binding") and not self.bound.is_set():
            self.bound_s = time.time()
            self.bound.set()
        if "/leases/" in request.path and request.method == "GET":
            return web.json_response({"code": 404, "reason": "NotFound"}, status=404)
        return web.json_response({"status": {"allowed": True}, "metadata": {"resourceVersion": "1"}}, status=201)


async def cold(nodes: int, pods: int, profile: bool) -> None:
    """One start."""
    api = Prepared(lists(nodes, pods))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with tempfile.TemporaryDirectory() as folder:
        config, access = Path(folder) / "scheduler.toml", Path(folder) / "kubeconfig"
        config.write_text(CONFIG)
        access.write_text(_kubeconfig(runner.addresses[0][1]))
        words = [sys.executable, "-m", "wattflow.cli", "kube", "scheduler", "-v"]
        if profile:
            words = [sys.executable, __file__, "--inside", str(Path(folder) / "profile")]
        words += ["--config", str(config), "--kubeconfig", str(access)]
        began_s = time.time()
        process = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
        try:
            async with asyncio.timeout(600):
                await api.bound.wait()
            held_mb = _peak_mb(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 60)
        if profile:
            pstats.Stats(str(Path(folder) / "profile")).sort_stats("tottime").print_stats(45)
    await runner.cleanup()
    name = f"kube_cold_without_cluster_{nodes}_nodes_{pods}_pods"
    for what, value, unit in (
        ("until_asked_for_lists", min(api.listed_s.values()) - began_s, "s"),
        ("first_bind", api.bound_s - began_s, "s"),
        ("peak_memory", held_mb, "MB"),
    ):
        print(f"figure {name}_{what} {value:.4g} {unit} goal none ok")


def _kubeconfig(port: int) -> str:
    return msgspec.json.encode({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "it", "user": {"token": "none"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }).decode()  # fmt: skip


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("no VmHWM")


def inside(into: str, words: list[str]) -> None:
    """The scheduler in this process, under the profiler."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        from wattflow.cli.main import main as command

        sys.argv = ["wattflow", "kube", "scheduler", "-v", *words]
        command()
    finally:
        profiler.disable()
        profiler.dump_stats(into)


def main() -> None:
    """Prints the figures."""
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--profile", action="store_true", help="also where the scheduler's processor time goes")
    arguments = parser.parse_args()
    asyncio.run(cold(arguments.nodes, arguments.pods, arguments.profile))


if __name__ == "__main__":
    main()
