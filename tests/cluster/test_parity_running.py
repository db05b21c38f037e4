"""Parity on a running cluster: generated cases as real objects, our bindings asked of kube-scheduler's filters.

Each case is made of nodes and pods that the API server took (what it refuses is left out), then one pod is left to our
scheduler. Where it was bound, or that it was left waiting, is compared with what kube-scheduler's own filters say of
the objects as they then are. WATTFLOW_RIG_PARITY_CASES says how many; 200 by default. Of the feasible nodes 512 are
scored, which is the scheduler's default; all of them are filtered.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from kuberig import kwok, parts
from kuberig.api import JSON, Api, ApiError
from kuberig.control import Options
from kuberig.rig import CONTROL_PLANE, Rig
from parity_cases import NAMESPACES, Cases
from under_test import unavailable

from wattflow.kube import access, scheduler_process, settings
from wattflow.kube.client import Client
from wattflow.kube.scheduler import Scheduler

COUNT = int(os.environ.get("WATTFLOW_RIG_PARITY_CASES", "200"))
CONFIG = (
    'policy = "fifo"\n[lease]\nleader_elect = false\n[http]\nport = 0\n[energy]\nprofiles = false\n'
    "[workflows]\nargo = false\n[limits]\nevents_per_s = 0.1\n"
)
# New nodes get a taint that a controller would take off again, one by one: no part of the question.
OPTIONS = Options(scheduler=False, api_flags=("--disable-admission-plugins=TaintNodesByCondition",))


def test_bindings_on_the_running_rig_are_what_kube_schedulers_filters_allow() -> None:
    lacking = [part.name for part in parts.missing((*CONTROL_PLANE, "parity"))]
    if lacking:
        unavailable(f"the rig lacks {', '.join(lacking)} (`make kube-rig`)")
    rig = Rig.start(OPTIONS, die_with_parent=True)
    try:
        answers = asyncio.run(_ask_all(rig))
    finally:
        rig.stop()
    infeasible = [one for one in answers if one[1] and one[1] not in one[2]]
    missed = [one for one in answers if not one[1] and one[2]]
    placed = sum(bool(node) for _, node, _ in answers)
    print(f"\n{len(answers)} cases on the running rig: {placed} bound, {len(answers) - placed} left waiting")
    print(f"figure parity_rig_infeasible {len(infeasible)} placements goal 0 {'short' if infeasible else 'ok'}")
    print(f"figure parity_rig_missed {len(missed)} pods goal counted ok")
    assert not infeasible and not missed, (infeasible[:5], missed[:5])
    assert len(answers) == COUNT and placed > COUNT / 4 and len(answers) - placed > COUNT / 20


async def _ask_all(rig: Rig) -> list[tuple[int, str, list[str]]]:
    """For each case: its number, where ours bound the pod (or nowhere), and where it could have gone."""
    for name, labels in NAMESPACES.items():
        rig.api.create("/api/v1/namespaces", {"metadata": {"name": name}}, exists_ok=True)
        rig.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}})
        rig.api.await_one(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda _: True, 30)
    generator = Cases(20261116)
    found: list[tuple[JSON, str, str]] = []
    async with Client(access.find(rig.kubeconfig)) as client:
        chosen = settings.parse(CONFIG)
        assert chosen.score_limit == 512, "feasible nodes scored, as by default"
        scheduler = scheduler_process.make(client, chosen)
        running = asyncio.create_task(scheduler.run())
        try:
            number = 0
            while len(found) < COUNT:
                answer = await _ask(rig.api, scheduler, generator.case(number), number)
                found += [answer] if answer is not None else []
                number += 1
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    text = "\n".join(json.dumps(case) for case, _, _ in found) + "\n"
    done = subprocess.run([parts.program("parity")], input=text, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert not any(one.get("error") for one in answers), answers
    for (case, node, why), one in zip(found, answers, strict=True):
        if not node and one["feasible"]:
            print(f"case {case['id']}: {why}; could go to {one['feasible']}: {json.dumps(case['pod']['spec'])[:600]}")
    return [(case["id"], node, one["feasible"]) for (case, node, _), one in zip(found, answers, strict=True)]


async def _ask(api: Api, scheduler: Scheduler, case: JSON, number: int) -> tuple[JSON, str, str] | None:
    """Make a case real and leave its pod to our scheduler; the objects as they were, and the node.

    None where the API server does not take the pod, or where a controller changed what it is asked about meanwhile (one
    evicts pods from tainted nodes): which of both worlds was decided in is not known then.
    """
    there = await asyncio.to_thread(_make, api, case)
    book = scheduler.book
    await _until(lambda: set(book.cluster.nodes) == there["nodes"] and there["pods"] <= set(book.records))
    objects = await asyncio.to_thread(_read, api)
    body = _plain(case["pod"], f"new-{number}")
    body["spec"].pop("nodeName", None)
    body["spec"]["schedulerName"] = "wattflow"
    space = case["pod"]["metadata"]["namespace"]
    try:
        made = await asyncio.to_thread(api.create, f"/api/v1/namespaces/{space}/pods", body)
    except ApiError as error:
        if error.status not in _WRONG:
            raise
        await _clean(api, scheduler)
        return None
    uid = made["metadata"]["uid"]
    await _until(lambda: uid in book.waiting or uid in book.records or uid in book.refused)
    steps = sum(scheduler.metrics.algorithm_s.counts)
    scheduler._wake.set()
    await _until(lambda: uid in book.records or sum(scheduler.metrics.algorithm_s.counts) >= steps + 2)
    if uid in book.records:
        await _until(lambda: not book.records[uid].assumed)
    node = book.records[uid].node if uid in book.records else ""
    why = "" if node else book.refused.get(uid) or scheduler.decider.why(uid)
    now = await asyncio.to_thread(_read, api)
    made["spec"].pop("nodeName", None)
    await _clean(api, scheduler)
    if _facts(objects) != _facts(now, but=uid):
        return None
    return {"id": number, "pod": made, **objects}, node, why


async def _clean(api: Api, scheduler: Scheduler) -> None:
    await asyncio.to_thread(_clear, api)
    book = scheduler.book
    await _until(lambda: not book.cluster.nodes and not book.records and not book.waiting)


def _make(api: Api, case: JSON) -> dict[str, set[str]]:
    """Create nodes, then the pods on them that the API server takes."""
    ready = [{"type": kind, "status": status} for kind, status in kwok._CONDITIONS.items()]
    for node in case["nodes"]:
        taints = {(one["key"], one["effect"]): one for one in node["spec"].get("taints", [])}  # as nodes may have them
        spec, status = node["spec"] | {"taints": list(taints.values())}, node["status"] | {"conditions": ready}
        api.create("/api/v1/nodes", {"metadata": _meta(node), "spec": spec, "status": status})
    uids = set()
    for number, pod in enumerate(case["pods"]):
        body = _plain(pod, f"old-{number}")
        body["spec"]["schedulerName"] = "another"
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        try:
            made = api.create(path, body)
            if pod["status"]:
                status = {"status": pod["status"]}
                made = api.request("PATCH", f"{path}/{made['metadata']['name']}/status", status, _MERGE)
        except ApiError as error:
            if error.status not in _WRONG:
                raise
            continue  # a case that no cluster could have
        if made["status"].get("phase") not in ("Succeeded", "Failed"):
            uids.add(made["metadata"]["uid"])
    return {"nodes": {node["metadata"]["name"] for node in case["nodes"]}, "pods": uids}


_MERGE, _WRONG = "application/merge-patch+json", (400, 403, 422)


def _meta(one: JSON) -> JSON:
    labels = {key: value.lstrip("-") for key, value in one["metadata"].get("labels", {}).items()}
    return {"name": one["metadata"]["name"], "labels": labels}


def _plain(pod: JSON, name: str) -> Any:
    """The pod as a client would create it."""
    body = json.loads(json.dumps({"metadata": _meta(pod) | {"name": name}, "spec": pod["spec"]}))
    for container in (*body["spec"]["containers"], *body["spec"].get("initContainers", ())):
        # what may not be overcommitted has the same limit
        asked = container.get("resources", {}).get("requests", {})
        limits = {key: value for key, value in asked.items() if "/" in key or key.startswith("hugepages")}
        if limits:
            container["resources"]["limits"] = limits
    return body


def _read(api: Api) -> JSON:
    """All objects as the API server has them."""
    spaces = [{"apiVersion": "v1", "kind": "Namespace", **one} for one in api.items("/api/v1/namespaces")]
    return {"nodes": api.items("/api/v1/nodes"), "pods": api.items("/api/v1/pods"), "objects": spaces}


def _facts(objects: JSON, but: str = "") -> list[JSON]:
    """Nodes and pods but for one, without what changes by itself and decides nothing."""
    idle = ("resourceVersion", "managedFields", "annotations")
    return [
        one | {"metadata": {key: value for key, value in one["metadata"].items() if key not in idle}}
        for one in (*objects["nodes"], *objects["pods"])
        if one["metadata"]["uid"] != but
    ]


def _clear(api: Api) -> None:
    for space in NAMESPACES:
        api.request("DELETE", f"/api/v1/namespaces/{space}/pods?gracePeriodSeconds=0")
    api.request("DELETE", "/api/v1/nodes")


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.005)
