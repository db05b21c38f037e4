"""The examples of argo-workflows under kube-scheduler and under ours: do they end alike?

Real: workflow-controller, API server, both schedulers. Examples whose course needs nothing but the end of their pods
run on simulated nodes, where every pod of a workflow succeeds at once; those that need outputs run on a real kubelet,
with busybox in the place of the small images that they name. `tools/kube-rig/conformance/examples.toml` says which runs
where, and why others are left out. Each runs in two namespaces at once, one for each scheduler. Results are kept in the
folder of `--out`; what has one is not run again unless `--again` is given.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kube_measure as measure
import yaml
from kuberig import argo, images
from kuberig.api import JSON, ApiError
from kuberig.control import Options
from kuberig.kwok import Shape
from kuberig.parts import ARGO_MODULE, HERE
from kuberig.rig import Rig

LIST = HERE / "conformance" / "examples.toml"
SPACES = {"theirs": measure.DEFAULT, "ours": measure.OURS}
ENDED = ("Succeeded", "Failed", "Error")
SMALL = ("busybox", "alpine", "argoproj/argosay")
"""Images that busybox can stand in for."""
ARGOSAY = """case "$1" in
echo) if [ -n "$3" ]; then mkdir -p "$(dirname "$3")" && echo "$2" > "$3"; else echo "$2"; fi ;;
cat) shift; cat "$@" ;;
sleep) sleep "${2%s}" ;;
exit) exit "${2:-0}" ;;
esac"""
KWOK, REAL = "kwok", "real"
AT_ONCE = {KWOK: 12, REAL: 2}
LIMIT_S = {KWOK: 150.0, REAL: 300.0}
SELECTOR = {KWOK: {"type": "kwok"}, REAL: {"node.wattflow.io/class": "real"}}
SETTINGS = ["[lease]", "lease_s = 60", "renew_s = 40"]


@dataclass(frozen=True, slots=True)
class Example:
    """One file of the folder; ``where`` is empty for one that is left out."""

    file: str
    where: str = ""
    left_out: str = ""


def folder() -> Path:
    """The examples folder of the module that the rig's Argo is built from."""
    words = ["go", "list", "-m", "-f", "{{.Dir}}", ARGO_MODULE]
    found = subprocess.run(words, cwd=HERE / "argo", capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "examples"


def documents(path: Path) -> list[JSON]:
    """The objects of one file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def containers(node: object) -> Iterator[JSON]:
    """Every part of an object that names an image."""
    if isinstance(node, dict):
        if isinstance(node.get("image"), str):
            yield node
        for value in node.values():
            yield from containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value)


def classify(path: Path, root: Path) -> Example:
    """Where an example can run, by what it says; the list of the repo was begun with this and corrected by trying."""
    file, text = str(path.relative_to(root)), path.read_text()
    kinds = [one.get("kind") for one in documents(path)]
    if "Workflow" not in kinds:
        return Example(file, left_out=f"holds no Workflow ({', '.join(map(str, kinds))})")
    reasons = (
        (r"^\s*(resource|http|data):", "needs kubectl, HTTP or a data source in the cluster"),
        (r"\b(s3|gcs|oss|azure|hdfs|git|artifactory|webhdfs):", "needs an artifact store or a repository elsewhere"),
        (r"windows", "needs Windows"),
        (r"database:", "needs a database for locks"),
    )
    for sign, reason in reasons:
        if re.search(sign, text, re.MULTILINE):
            return Example(file, left_out=reason)
    if not re.search(r"outputs\.|outputs:|artifacts:|script:", text):
        return Example(file, KWOK)
    names = {one["image"] for document in documents(path) for one in containers(document)}
    large = sorted(name for name in names if not name.startswith(SMALL))
    if large:
        return Example(file, left_out=f"needs outputs of {', '.join(large)}")
    return Example(file, REAL)


def adapted(document: JSON, scheduler: str, where: str) -> JSON:
    """An example as the rig can run it: the scheduler named, nodes of one kind, images that are there."""
    document = json.loads(json.dumps(document, default=str))
    for one in containers(document):
        said = "argosay" in one["image"]
        if said:  # the image's own program, as far as examples use it
            one["command"] = ["sh", "-c", ARGOSAY, "argosay"]
        elif not one.get("command"):  # the controller would ask the image's registry
            one["command"] = ["sh", "-c", "true"]
        if where == REAL:
            one |= {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    spec = document["spec"]
    if document["kind"] == "Workflow":
        spec["schedulerName"] = scheduler
        spec["nodeSelector"] = SELECTOR[where] | spec.get("nodeSelector", {})
    return document


def prepare(rig: Rig, root: Path, where: str) -> None:
    """Namespaces, and the templates and maps that examples refer to."""
    for space in SPACES:
        argo.prepare_namespace(rig.api, space)
    paths = {
        "WorkflowTemplate": "/apis/argoproj.io/v1alpha1/namespaces/{}/workflowtemplates",
        "ClusterWorkflowTemplate": "/apis/argoproj.io/v1alpha1/clusterworkflowtemplates",
        "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    }
    for path in sorted(root.rglob("*.yaml")):
        for document in documents(path):
            for space in SPACES if document.get("kind") in paths else ():
                body = adapted(document, "", where) if "spec" in document else document
                body["metadata"].pop("namespace", None)
                try:
                    rig.api.create(paths[document["kind"]].format(space), body, exists_ok=True)
                except ApiError as error:
                    print(f"{path.name}: {document['kind']} is not taken: {error}", file=sys.stderr)


@dataclass(slots=True)
class Run:
    """One example under one scheduler."""

    example: Example
    space: str
    names: list[str]
    began_s: float = field(default_factory=time.monotonic)

    def result(self, rig: Rig) -> JSON | None:
        """How it ended, or None while it goes on."""
        late = time.monotonic() - self.began_s > LIMIT_S[self.example.where]
        found = [rig.api.get(f"{argo.WORKFLOWS.format(self.space)}/{name}") for name in self.names]
        phases = [one.get("status", {}).get("phase", "Pending") for one in found]
        if not late and not all(phase in ENDED for phase in phases):
            return None
        nodes = [
            [node.get("templateName", ""), node.get("phase", "")]
            for one in found
            for node in one.get("status", {}).get("nodes", {}).values()
            if node.get("type") == "Pod"
        ]
        told = " ".join(str(one.get("status", {}).get("message", "")) for one in found)[:300]
        ended = all(phase in ENDED for phase in phases)
        took_s = round(time.monotonic() - self.began_s, 1)
        return {"ended": ended, "phases": phases, "pods": sorted(nodes), "message": told, "seconds": took_s}


def submit(rig: Rig, root: Path, example: Example, space: str) -> Run | JSON:
    """Submit the workflows of a file; the refusal where one is not taken."""
    names = []
    for document in documents(root / example.file):
        if document.get("kind") == "Workflow":
            body = adapted(document, SPACES[space], example.where)
            body["metadata"].pop("namespace", None)
            try:
                names.append(argo.submit(rig.api, space, body))
            except ApiError as error:
                return {"ended": False, "phases": [], "pods": [], "message": str(error)[:300], "seconds": 0}
    return Run(example, space, names)


def play(rig: Rig, root: Path, todo: Sequence[Example], kept: Path) -> None:
    """Run examples, several at once, and keep each result as soon as both schedulers have one."""
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    waiting, running = list(todo), dict[str, dict[str, Run | JSON]]()
    while waiting or running:
        while waiting and len(running) < AT_ONCE[waiting[0].where]:
            example = waiting.pop(0)
            running[example.file] = {space: submit(rig, root, example, space) for space in SPACES}
        for file, runs in list(running.items()):
            for space, run in runs.items():
                if isinstance(run, Run):
                    runs[space] = run.result(rig) or run
            if not any(isinstance(run, Run) for run in runs.values()):
                results[file] = running.pop(file)
                kept.write_text(json.dumps(results, indent=1))
                both = [f"{'/'.join(one['phases']) or 'refused'} {one['seconds']} s" for one in results[file].values()]
                print(f"{file}: {', '.join(both)}{'' if alike(results[file]) else ' NOT ALIKE'}", flush=True)
        time.sleep(1)


def alike(result: JSON) -> bool:
    """Whether both schedulers brought an example to the same end, pod by pod."""
    theirs, ours = result["theirs"], result["ours"]
    return bool(theirs["ended"]) and (theirs["phases"], theirs["pods"]) == (ours["phases"], ours["pods"])


def judge(listed: Sequence[Example], results: JSON) -> None:
    """The figures."""
    ran = {one.file: results[one.file] for one in listed if one.where and one.file in results}
    ended = [file for file, one in ran.items() if one["theirs"]["ended"]]
    same = [file for file in ended if alike(ran[file])]
    for file in sorted(set(ran) - set(same)):
        print(f"not alike: {file}: {ran[file]}")
    measure.figure("argo_examples_of_the_list", len(listed), "files")
    measure.figure("argo_examples_ended_under_kube_scheduler", len(ended), "files", "60", len(ended) >= 60)
    measure.figure("argo_examples_ended_alike", len(same), "files", str(len(ended)), len(same) == len(ended))


def main(words: Sequence[str]) -> int:
    """Run what is asked for and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--where", choices=[KWOK, REAL], nargs="*", default=[KWOK, REAL], help="which nodes")
    parser.add_argument("--out", type=Path, default=Path("out/conformance"), metavar="FOLDER")
    parser.add_argument("--focus", default="", metavar="REGEX", help="only files whose name it is found in")
    parser.add_argument("--again", action="store_true", help="run what has a result, too")
    parser.add_argument("--list", action="store_true", help="print a first list for examples.toml and end")
    asked = parser.parse_args(words)
    asked.out.mkdir(parents=True, exist_ok=True)
    root, kept = folder(), asked.out / "examples.json"
    if asked.list:
        for path in sorted(root.rglob("*.yaml")):
            one = classify(path, root)
            key, value = ("where", one.where) if one.where else ("left_out", one.left_out)
            print(f'[[example]]\nfile = "{one.file}"\n{key} = {json.dumps(value)}\n')
        return 0
    listed = [Example(**one) for one in tomllib.loads(LIST.read_text())["example"]]
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for where in asked.where:
        todo = [one for one in listed if one.where == where and re.search(asked.focus, one.file)]
        todo = [one for one in todo if asked.again or one.file not in known]
        if todo:
            with_nodes(where, root, todo, kept)
    judge(listed, json.loads(kept.read_text()) if kept.exists() else {})
    return 0


def with_nodes(where: str, root: Path, todo: Sequence[Example], kept: Path) -> None:
    """A rig with nodes of one kind, Argo and both schedulers."""
    rig = Rig.start(Options(scheduler=True), die_with_parent=True)
    try:
        if where == KWOK:
            rig.add_kwok_nodes(10, [Shape("kwok", cpu="32", memory="256Gi")])
        else:
            rig.start_real_node()
        rig.start_argo(requeue_s=1.0)
        prepare(rig, root, where)
        with measure.ours(workflows=True, more=lambda _: SETTINGS)(rig):
            play(rig, root, todo, kept)
    finally:
        rig.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
