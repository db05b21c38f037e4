"""Rows of `make bench-operator` that other benchmarks measure, run from here: spread, binds, memory, specs, install."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import kube
import kube_conformance
import kube_examples
import kube_measure as measure
from kuberig import kwok
from kuberig.api import JSON
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.rig import Rig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("out/conformance")
REPLICAS, NODES, ZONES = 8, 8, 3
_ZONE = "topology.kubernetes.io/zone"
_BINDS_PODS = 4000


def spread() -> tuple[dict[str, float], list[str]]:
    """A Deployment of 8 over 8 nodes in 3 zones: replicas that are elsewhere than under kube-scheduler, joules = 0.

    By how many of them nodes and zones have, the most first: which node is which is chance for both.
    """
    rig = Rig.start(Options(scheduler=True), die_with_parent=True)
    try:
        kwok.start(rig.folder, rig.processes, rig.users)
        kwok.add_nodes(rig.api, NODES, [Shape("spread", cpu="4", memory="8Gi", pods="20", zones=ZONES)])
        kwok.await_ready(rig.api, NODES)
        theirs = _spread(rig, measure.DEFAULT)
        with measure.ours("most-allocated", more=lambda _: ["[scores]", "joules = 0"])(rig):
            ours = _spread(rig, measure.OURS)
    finally:
        rig.stop()
    elsewhere = max(_apart(a, b) for a, b in zip(theirs, ours, strict=True))
    print(f"nodes and zones have, kube-scheduler: {theirs}, ours: {ours}", flush=True)
    return {"elsewhere": elsewhere}, [] if not elsewhere else [f"kube-scheduler {theirs}, ours {ours}"]


def _spread(rig: Rig, scheduler: str) -> tuple[list[int], list[int]]:
    wants = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    labels = {"app": scheduler}
    template = {
        "metadata": {"labels": labels},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none", "resources": wants}]},
    }
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    pods, made = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/deployments"
    rig.api.create(made, {"metadata": {"name": scheduler}, "spec": spec})
    rig.api.await_each(pods, _bound, REPLICAS, 120, labelSelector=f"app={scheduler}")
    zones = {one["metadata"]["name"]: one["metadata"]["labels"][_ZONE] for one in rig.api.items("/api/v1/nodes")}
    found = [one["spec"]["nodeName"] for one in rig.api.items(f"{pods}?labelSelector=app%3D{scheduler}")]
    rig.api.delete(f"{made}/{scheduler}")
    rig.api.await_none(pods, 120)
    return _ordered(found), _ordered(zones[name] for name in found)


def _bound(pod: JSON) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _ordered(places: Iterable[str]) -> list[int]:
    return sorted(Counter(places).values(), reverse=True)


def _apart(one: list[int], other: list[int]) -> float:
    longest = max(len(one), len(other))
    padded = [[*counts, *[0] * (longest - len(counts))] for counts in (one, other)]
    return sum(abs(a - b) for a, b in zip(*padded, strict=True)) / 2


def binds() -> tuple[dict[str, float], list[str]]:
    """Binds a second over kube-scheduler's without its client limit, and p99 at 100 pods a second, on 1,000 nodes."""
    with measure.rig_of(1000, measure.SHAPES, "operator") as (rig, _):
        peer = measure.kube_scheduler(kube.UNTHROTTLED)
        theirs = kube.throughput(rig, "operator_unthrottled", measure.DEFAULT, _BINDS_PODS, peer)
        ours = kube.throughput(rig, "operator_wattflow", measure.OURS, _BINDS_PODS, measure.ours())
        # Once more after ours, and the better one counts: on a shared machine the load may have changed meanwhile.
        again = kube.throughput(rig, "operator_unthrottled_again", measure.DEFAULT, _BINDS_PODS, peer)
        theirs = max(theirs, again)
        late_s = kube.latency(rig, "operator_wattflow", measure.OURS, measure.ours())
        theirs_s = kube.latency(rig, "operator_unthrottled", measure.DEFAULT, peer)
    found = {"over": ours / theirs if theirs else 0.0, "p99_ms": 1000 * late_s, "ours": ours, "theirs": theirs}
    found["theirs_p99_ms"] = 1000 * theirs_s
    return found, []


def memory() -> tuple[dict[str, float], list[str]]:
    """Peak memory with 5,000 nodes and 4,000 pods."""
    with (
        measure.rig_of(5000, measure.SHAPES, "operator_5000") as (rig, _),
        measure.namespace(rig, "memory", clean=False) as name,
        measure.watching(rig, name) as seen,
        measure.ours()(rig) as process,
    ):
        measure.fill(rig, name, _BINDS_PODS, measure.OURS)
        seen.await_all(_BINDS_PODS, measure.OURS)
        held = measure.peak_mb(process)
    return {"mb": held}, []


def conformance() -> tuple[dict[str, float], list[str]]:
    """Kubernetes' specs and Argo's examples: what has no result yet is run, and all results are counted."""
    kube_conformance.main([])
    kube_examples.main([])
    return conformance_kept()


def conformance_kept() -> tuple[dict[str, float], list[str]]:
    """Count the results that `make test-conformance` has kept."""
    specs = {who: _read(RESULTS / f"{who}.json") for who in (kube_conformance.KUBE, kube_conformance.OURS)}
    theirs, ours = ({name for name, one in kept.items() if one["state"] == "passed"} for kept in specs.values())
    examples = _read(RESULTS / "examples.json")
    ended = [file for file, one in examples.items() if one["theirs"]["ended"]]
    alike = [file for file in ended if kube_examples.alike(examples[file])]
    found = {"control": len(theirs), "passed": len(theirs & ours), "ended": len(ended), "alike": len(alike)}
    failures = [f"spec {name}" for name in sorted(theirs - ours)]
    return {key: float(value) for key, value in found.items()}, [*failures, *sorted(set(ended) - set(alike))]


def _read(path: Path) -> dict[str, JSON]:
    found: dict[str, JSON] = json.loads(path.read_text()) if path.exists() else {}
    return found


def install() -> tuple[dict[str, float], list[str]]:
    """docs/install.md typed as a whole, with an image that is built first."""
    done = subprocess.run(["make", "test-install"], cwd=ROOT, capture_output=True, text=True, check=False)
    told = re.search(r"figure operator_install_typed (\d+)", done.stdout)
    said = f"{done.stdout[-600:]}\n{done.stderr[-600:]}"
    return ({"s": float(told[1])} if told else {}), ([] if done.returncode == 0 else [said])
