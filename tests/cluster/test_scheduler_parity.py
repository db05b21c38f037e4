"""Our filters against kube-scheduler's own, on generated cases: no node that it refuses may be ours.

WATTFLOW_PARITY_CASES says how many; 10,000 by default. A tenth as many have volume claims (they take longer).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from typing import Any

import msgspec
from kuberig import parts
from parity_cases import Cases, VolumeCases
from under_test import unavailable

from wattflow.kube import objects
from wattflow.kube.filters.feasible import feasible
from wattflow.kube.filters.snapshot import Snapshot
from wattflow.kube.filters.volumes import Storage

COUNT = int(os.environ.get("WATTFLOW_PARITY_CASES", "10000"))


def ours(case: dict[str, Any]) -> dict[str, str | None]:
    raw = msgspec.json.encode
    pod = msgspec.json.decode(raw(case["pod"]), type=objects.Pod)
    nodes = [msgspec.json.decode(raw(one), type=objects.Node) for one in case["nodes"]]
    pods = [msgspec.json.decode(raw(one), type=objects.Pod) for one in case["pods"]]
    kinds = {"Namespace": objects.Namespace, "PersistentVolumeClaim": objects.PersistentVolumeClaim,
             "PersistentVolume": objects.PersistentVolume, "CSINode": objects.CsiNode,
             "VolumeAttachment": objects.VolumeAttachment}  # fmt: skip
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for one in case["objects"]:
        found[one["kind"]].append(msgspec.json.decode(raw(one), type=kinds[one["kind"]]))
    names, *stored = found.values()
    return feasible(pod, Snapshot.of(nodes, pods, names, Storage.of(*stored)))


Answers = list[tuple[dict[str, Any], dict[str, Any]]]


def answers_to(generator: Cases, count: int) -> Answers:
    """Cases with what kube-scheduler's filters say of each."""
    if parts.missing(("parity",)):
        unavailable("the rig lacks parity (`make kube-rig`)")
    cases = [generator.case(i) for i in range(count)]
    text = "\n".join(json.dumps(case) for case in cases) + "\n"
    done = subprocess.run([parts.program("parity")], input=text, capture_output=True, text=True, check=True)
    return list(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))


def test_no_infeasible_placement_and_no_feasible_node_missed() -> None:
    plugins = compare(answers_to(Cases(20261115), COUNT), "parity")
    assert len(plugins) >= 7, "the cases do not ask enough"


def test_claims_that_are_bound_go_where_their_volumes_are() -> None:
    plugins = compare(answers_to(VolumeCases(20261116), max(1, COUNT // 10)), "parity_volumes")
    assert {"VolumeBinding", "VolumeZone", "NodeVolumeLimits"} <= set(plugins), plugins


def compare(answers: Answers, about: str) -> Counter[str]:
    """Print and judge the answers; which filters refused how many nodes."""
    wrong: list[str] = []
    missed: Counter[str] = Counter()
    plugins: Counter[str] = Counter()
    pairs = feasible_pairs = 0
    for case, answer in answers:
        assert not answer.get("error"), (case, answer)
        theirs = set(answer["feasible"])
        for name, reason in ours(case).items():
            pairs += 1
            feasible_pairs += name in theirs
            if reason is None and name not in theirs:
                wrong.append(f"case {case['id']} node {name}: {answer['rejected'][name]}")
            elif reason is not None and name in theirs:
                missed[reason] += 1
                wrong.append(f"case {case['id']} node {name}: missed for {reason}")
        plugins.update(one["plugin"] for one in answer["rejected"].values())
    print(f"\n{len(answers)} cases, {pairs} pairs, {feasible_pairs} feasible; refused by {dict(plugins)}")
    infeasible = len(wrong) - sum(missed.values())
    print(f"figure {about}_infeasible {infeasible} placements goal 0 {'short' if infeasible else 'ok'}")
    print(f"figure {about}_missed {sum(missed.values())} nodes goal counted ok", dict(missed) or "")
    assert not wrong, "\n".join(wrong[:20])
    assert feasible_pairs > pairs / 20, "the cases do not ask enough"
    return plugins
