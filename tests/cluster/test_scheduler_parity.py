"""Our filters against kube-scheduler's own, on generated cases: no node that it refuses may be ours.

WATTFLOW_PARITY_CASES says how many; 10,000 by default.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from typing import Any

import msgspec
import pytest
from kuberig import parts
from parity_cases import Cases
from under_test import unavailable

from wattflow.kube import objects
from wattflow.kube.filters.feasible import feasible
from wattflow.kube.filters.snapshot import Snapshot

COUNT = int(os.environ.get("WATTFLOW_PARITY_CASES", "10000"))


def ours(case: dict[str, Any]) -> dict[str, str | None]:
    raw = msgspec.json.encode
    pod = msgspec.json.decode(raw(case["pod"]), type=objects.Pod)
    nodes = [msgspec.json.decode(raw(one), type=objects.Node) for one in case["nodes"]]
    pods = [msgspec.json.decode(raw(one), type=objects.Pod) for one in case["pods"]]
    names = [msgspec.json.decode(raw(one), type=objects.Namespace) for one in case["objects"]]
    return feasible(pod, Snapshot.of(nodes, pods, names))


@pytest.fixture(scope="module")
def answers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    if parts.missing(("parity",)):
        unavailable("the rig lacks parity (`make kube-rig`)")
    generator = Cases(20261115)
    cases = [generator.case(i) for i in range(COUNT)]
    text = "\n".join(json.dumps(case) for case in cases) + "\n"
    done = subprocess.run([parts.program("parity")], input=text, capture_output=True, text=True, check=True)
    return list(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))


def test_no_infeasible_placement_and_no_feasible_node_missed(
    answers: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
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
    print(f"figure parity_infeasible {infeasible} placements goal 0 {'short' if infeasible else 'ok'}")
    print(f"figure parity_missed {sum(missed.values())} nodes goal counted ok", dict(missed) or "")
    assert not wrong, "\n".join(wrong[:20])
    assert feasible_pairs > pairs / 20 and len(plugins) >= 7, "the cases do not ask enough"
