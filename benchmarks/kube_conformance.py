"""Kubernetes' own [sig-scheduling] specs on the rig, with kube-scheduler and with ours as `default-scheduler`.

Real: specs (unchanged, of the rig's version), API server, controllers, schedulers. Simulated: five KWOK nodes in three
zones. `tools/kube-rig/conformance/specs.toml` lists all specs, with the reason for each that cannot pass here under any
scheduler. Results are kept per scheduler in the folder of `--out`; a spec that has a result is not run again unless
`--again` is given, so a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import kube_measure as measure
import yaml
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.parts import HERE, program
from kuberig.rig import Rig

SPECS = HERE / "conformance" / "specs.toml"
KUBE, OURS = "kube-scheduler", "wattflow"
NODES = 5
SHAPE = Shape("kwok", cpu="32", memory="256Gi")
RIGHTS = ("preempt", "volumes", "devices")
"""Overlays of deploy/ that give our account the rights of the settings below."""
SETTINGS = [
    "[priority]", "preempt = true", "[volumes]", "provision = true", "[devices]", "allocate = true",
    # a busy machine must not cost us the lease: whoever loses it ends
    "[lease]", "lease_s = 60", "renew_s = 40",
]  # fmt: skip
SYSTEM = ("kube-proxy", "fluentd-elasticsearch", "node-problem-detector")
"""Pods that specs expect on every node of a healthy cluster; each spec waits a minute for them where they are not."""
_LIMIT_S = 3600


@dataclass(frozen=True, slots=True)
class Spec:
    """One spec of the list.

    Attributes:
        left_out: Why it cannot pass on this rig under any scheduler; empty where it is judged.
        quick: Whether it is part of the slice that `make test-cluster` runs.
    """

    name: str
    left_out: str = ""
    quick: bool = False


def specs() -> list[Spec]:
    """The list of the repo."""
    return [Spec(**one) for one in tomllib.loads(SPECS.read_text())["spec"]]


def grant(rig: Rig, overlay: str) -> None:
    """Give our account what an overlay of deploy/ gives its service account."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    for path in sorted((measure.ROOT / "deploy" / overlay).glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document.get("kind") == "ClusterRole":
                rig.api.create(f"{group}/clusterroles", document, exists_ok=True)
                who = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "wattflow-scheduler"}
                role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
                name = document["metadata"]["name"]
                body = {"metadata": {"name": name}, "roleRef": role | {"name": name}, "subjects": [who]}
                rig.api.create(f"{group}/clusterrolebindings", body, exists_ok=True)


def scheduler(rig: Rig, who: str, joules: float) -> AbstractContextManager[object]:
    """Ours under the name of kube-scheduler; that one runs already where it is asked for."""
    if who == KUBE:
        return nullcontext()
    for overlay in RIGHTS:
        grant(rig, overlay)
    settings = ["[scores]", f"joules = {joules:g}", *SETTINGS]
    return measure.ours(more=lambda _: settings, name=measure.DEFAULT)(rig)


def run(rig: Rig, names: Sequence[str], log: Path) -> dict[str, dict[str, object]]:
    """Run these specs one after the other; how each ended, its seconds and, where it failed, why."""
    report = log.with_suffix(".json")
    report.unlink(missing_ok=True)
    focus = "|".join(f"{re.escape(name)}$" for name in names)  # before it stands the name of the suite
    words = [str(program("conformance")), f"--kubeconfig={rig.kubeconfig}", f"--ginkgo.focus={focus}"]
    words += [f"--ginkgo.json-report={report}", "--ginkgo.no-color", "--ginkgo.v", "--provider=skeleton"]
    with log.open("w") as output:
        subprocess.run(words, stdout=output, stderr=output, timeout=_LIMIT_S, check=False)
    if not report.exists():
        raise RuntimeError(f"the suite ended without a report: {log.read_text()[-2000:]}")
    return dict(filter(None, map(_result, json.loads(report.read_text())[0]["SpecReports"] or ())))


def _result(report: dict[str, object]) -> tuple[str, dict[str, object]] | None:
    if report["LeafNodeType"] != "It" or report["NumAttempts"] == 0:
        return None
    name = full_name(report)
    failure = report.get("Failure") or {}
    assert isinstance(failure, dict)
    took_s = round(float(str(report["RunTime"])) / 1e9, 1)
    return name, {"state": report["State"], "seconds": took_s, "why": str(failure.get("Message", ""))[:600]}


def full_name(report: dict[str, object]) -> str:
    """The name that ginkgo's focus is matched with: containers and leaf, with the labels in brackets."""
    containers = report["ContainerHierarchyTexts"] or []
    assert isinstance(containers, list)
    return " ".join([*containers, str(report["LeafNodeText"])])


def add_system_pods(rig: Rig) -> None:
    """Run in name what usual clusters have on every node; the scheduler under test places it."""
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    for name in SYSTEM:
        labels = {"app": name}
        spec = {"containers": [{"name": "main", "image": "none"}], "tolerations": [{"operator": "Exists"}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        rig.api.create(path, body)
    for name in SYSTEM:
        rig.api.await_one(path, name, lambda one: one["status"].get("numberReady") == NODES, 120)


def all_names(rig: Rig, folder: Path) -> list[str]:
    """Every spec of the suite, whether it is in the list or not."""
    report = folder / "names.json"
    words = [str(program("conformance")), f"--kubeconfig={rig.kubeconfig}", "--ginkgo.dry-run"]
    words += [f"--ginkgo.json-report={report}", "--ginkgo.focus=sig-scheduling"]
    subprocess.run(words, capture_output=True, timeout=_LIMIT_S, check=True)
    found = json.loads(report.read_text())[0]["SpecReports"]
    return [full_name(one) for one in found if one["LeafNodeType"] == "It"]


def play(
    who: str, names: Sequence[str], folder: Path, again: bool, joules: float = 0.0
) -> dict[str, dict[str, object]]:
    """Run under one scheduler what has no result yet, and keep each result as soon as it is there."""
    kept = folder / f"{who}.json"
    results: dict[str, dict[str, object]] = json.loads(kept.read_text()) if kept.exists() else {}
    todo = [name for name in names if again or name not in results]
    if not todo:
        return results
    rig = Rig.start(Options(scheduler=who == KUBE), die_with_parent=True)
    try:
        rig.add_kwok_nodes(NODES, [SHAPE])
        with scheduler(rig, who, joules):
            add_system_pods(rig)
            for number, name in enumerate(todo, 1):
                log = folder / f"{who}-{re.sub('[^a-zA-Z0-9]+', '-', name)[-80:]}.log"
                results |= run(rig, [name], log)
                kept.write_text(json.dumps(results, indent=1))
                told = results.get(name, {"state": "not run"})
                print(f"{who} {number}/{len(todo)} {told['state']} {told.get('seconds', 0)} s {name}", flush=True)
    finally:
        rig.stop()
    return results


def judge(listed: Sequence[Spec], theirs: dict[str, dict[str, object]], mine: dict[str, dict[str, object]]) -> None:
    """The figures: what the control passes, and of that what we do."""
    passed = [one.name for one in listed if theirs.get(one.name, {}).get("state") == "passed"]
    judged = {one.name for one in listed if not one.left_out}
    ours = [name for name in passed if mine.get(name, {}).get("state") == "passed"]
    for name in sorted(set(passed) - set(ours)):
        print(f"not passed by us: {name}: {mine.get(name, {}).get('why') or 'not run'}")
    for name in sorted(judged.symmetric_difference(passed) & theirs.keys()):
        print(f"the list and the control differ: {name}")
    measure.figure("e2e_specs_of_the_list", len(listed), "specs")
    measure.figure("e2e_control_passed", len(passed), "specs", str(len(judged)), len(passed) >= len(judged))
    measure.figure("e2e_passed_of_the_control's", len(ours), "specs", str(len(passed)), len(ours) == len(passed))


def main(words: Sequence[str]) -> int:
    """Run what is asked for and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--who", choices=[KUBE, OURS], nargs="*", default=[KUBE, OURS], help="whom to run")
    parser.add_argument("--out", type=Path, default=Path("out/conformance"), metavar="FOLDER")
    parser.add_argument("--focus", default="", metavar="REGEX", help="only specs whose name it is found in")
    parser.add_argument("--again", action="store_true", help="run what has a result, too")
    parser.add_argument("--joules", type=float, default=0.0, help="of [scores]; 0.1 is shipped, 0 leaves joules out")
    parser.add_argument("--names", action="store_true", help="list the suite's specs and end")
    asked = parser.parse_args(words)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.names:
        rig = Rig.start(Options(scheduler=False), die_with_parent=True)
        try:
            print("\n".join(all_names(rig, asked.out)))
        finally:
            rig.stop()
        return 0
    listed = specs()
    names = [one.name for one in listed if not one.left_out and re.search(asked.focus, one.name)]
    results = {
        who: play(who, names if who in asked.who else (), asked.out, asked.again, asked.joules) for who in (KUBE, OURS)
    }
    judge(listed, results[KUBE], results[OURS])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
