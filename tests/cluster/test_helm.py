"""The Helm chart: says the same as the kustomize base, and a real helm installs and removes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from kuberig import parts
from kuberig.api import JSON
from test_scheduler_deploy import DEPLOY, documents
from under_test import Cluster, unavailable

import wattflow
from wattflow.kube import settings

CHART = DEPLOY / "helm" / "wattflow"


@pytest.fixture(scope="module")
def helm() -> Path:
    if parts.missing(("helm",)):
        unavailable("the rig lacks helm (`make kube-rig`)")
    return parts.program("helm")


def _run(helm: Path, *words: str, kubeconfig: Path | None = None) -> str:
    env = os.environ | ({} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)})
    done = subprocess.run([helm, *words], capture_output=True, text=True, env=env, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _rendered(helm: Path, *words: str) -> dict[tuple[str, str], JSON]:
    version = ("--kube-version", parts.PINNED["kubernetes"])
    text = _run(helm, "template", "wattflow", str(CHART), "-n", "wattflow", "--include-crds", *version, *words)
    return _named([one for one in yaml.safe_load_all(text) if one])


def _named(found: list[JSON]) -> dict[tuple[str, str], JSON]:
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_the_chart_says_what_the_base_says(helm: Path) -> None:
    chart = _rendered(helm)
    del chart["Secret", "wattflow-http"]  # a token of its own; with kustomize it is made by hand
    del chart["Deployment", "wattflow-scheduler"]["spec"]["template"]["metadata"]["annotations"]  # the config's hash
    text = chart.pop(("ConfigMap", "wattflow-scheduler"))["data"]["scheduler.toml"]
    assert settings.parse(text) == settings.parse((DEPLOY / "base" / "scheduler.toml").read_text())
    base = _named(documents("base"))
    del base["Namespace", "wattflow"]  # helm makes it, by --create-namespace
    deployment = base["Deployment", "wattflow-scheduler"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "image": f"wattflow:{wattflow.__version__}",
        "imagePullPolicy": "IfNotPresent",
    }  # kustomize sets the tag apart
    assert chart == base


def test_rights_and_admission_are_asked_for_one_by_one(helm: Path) -> None:
    usual = _rendered(helm).keys()
    for value, folder in (
        ("rights.sleep", "sleep"), ("rights.karpenter", "karpenter"), ("rights.claims", "claims"),
        ("rights.consolidate", "consolidate"), ("rights.nodeGroups", "node-groups"), ("rights.kueue", "kueue"),
        ("admission.hpeGuarantee", "hpe-guarantee"),
        ("admission.mps", "mps"), ("rights.resize", "resize"), ("rights.watts", "watts"),
        ("rights.preempt", "preempt"), ("rights.volumes", "volumes"), ("rights.devices", "devices"),
        ("rights.carbon=true,admission.carbon", "carbon"), ("networkPolicy", "network"),
        ("monitoring.serviceMonitor=true,monitoring.board", "monitoring"),
    ):  # fmt: skip
        more = _rendered(helm, "--set", f"{value}=true")
        wanted = _named(documents(folder))
        for one in [one for one in wanted.values() if one["kind"] == "CronJob"]:  # kustomize sets the tag apart
            one["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = (
                f"wattflow:{wattflow.__version__}"
            )
        assert {key: more[key] for key in more.keys() - usual} == wanted, value


def test_the_namespace_gets_the_labels_of_the_base(helm: Path) -> None:
    usual, more = _rendered(helm).keys(), _rendered(helm, "--set", "podSecurity=restricted")
    assert more.keys() - usual == {("Namespace", "wattflow")}
    wanted = _named(documents("base"))["Namespace", "wattflow"]["metadata"]["labels"]
    assert more["Namespace", "wattflow"]["metadata"]["labels"] == wanted and len(wanted) == 3


def test_rights_of_placers_are_a_value(helm: Path) -> None:
    usual, more = _rendered(helm).keys(), _rendered(helm, "--set", "rights.frame=true")
    wanted = _named(list(yaml.safe_load_all((DEPLOY / "frame" / "rbac.yaml").read_text())))
    assert {key: more[key] for key in more.keys() - usual} == wanted


def test_rules_at_admission_say_which_version_they_need(helm: Path) -> None:
    words = [str(helm), "template", "x", str(CHART), "--kube-version", "1.35.8", "--set", "admission.mps=true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "from 1.36 on; this is v1.35.8" in done.stderr


def test_what_the_chart_does_not_know_is_refused(helm: Path) -> None:
    for value in ("rights.wats=true", "nonsense=1", "replicas=many", "image.pullPolicy=Sometimes", "podSecurity=tight"):
        words = [str(helm), "template", "x", str(CHART), "--kube-version", parts.KUBERNETES, "--set", value]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode != 0 and value.split(".")[-1].split("=")[0] in done.stderr, value


def test_a_change_of_the_configuration_rolls_out(helm: Path) -> None:
    def notes(*words: str) -> JSON:
        found = _rendered(helm, *words)["Deployment", "wattflow-scheduler"]["spec"]["template"]["metadata"]
        return found["annotations"]

    assert notes() == notes() != notes("--set", "schedulerName=green")


def test_two_releases_share_nothing_but_the_definition(helm: Path) -> None:
    everything = ",".join(f"rights.{one}=true" for one in ("sleep", "claims", "watts", "carbon", "preempt", "volumes"))
    everything += ",admission.mps=true,admission.hpeGuarantee=true,admission.carbon=true,monitoring.board=true"
    found = []
    for release in ("one", "two"):
        words = ("template", release, str(CHART), "-n", "same", "--kube-version", parts.PINNED["kubernetes"])
        found.append(_named([one for one in yaml.safe_load_all(_run(helm, *words, "--set", everything)) if one]))
    assert len(found[0]) == len(found[1]) > 25
    assert not found[0].keys() & found[1].keys()


def test_another_namespace_and_name_reach_everything(helm: Path) -> None:
    words = ("template", "x", str(CHART), "-n", "elsewhere", "--kube-version", parts.KUBERNETES)
    text = _run(helm, *words, "--set", "schedulerName=green")
    found = _named([one for one in yaml.safe_load_all(text) if one])
    assert "namespace: wattflow" not in text
    toml = settings.parse(found["ConfigMap", "x-scheduler"]["data"]["scheduler.toml"])
    assert (toml.name, toml.lease_namespace) == ("green", "elsewhere")
    assert found["Role", "x-scheduler"]["rules"][1]["resourceNames"] == ["green"]


def test_helm_installs_and_removes_it(helm: Path, cluster: Cluster) -> None:
    where = ("-n", "wattflow-helm")
    # without replicas: the image is not on the rig, and its pods would take other tests' nodes
    values = ("--set", "replicas=0,podSecurity=restricted", "--take-ownership")
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": where[1]}})
    words = ("install", "w", str(CHART), *where, *values, "--skip-crds")
    _run(helm, *words, kubeconfig=cluster.kubeconfig)
    try:
        labels = cluster.api.get("/api/v1/namespaces/wattflow-helm")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        found = cluster.api.get("/apis/apps/v1/namespaces/wattflow-helm/deployments/w-scheduler")
        assert found["spec"]["template"]["spec"]["serviceAccountName"] == "w-scheduler"
    finally:
        _run(helm, "uninstall", "w", *where, "--wait", kubeconfig=cluster.kubeconfig)
    assert cluster.api.get("/api/v1/namespaces/wattflow-helm")["status"]["phase"] == "Active", "it outlives the release"
    cluster.api.delete("/api/v1/namespaces/wattflow-helm")
    cluster.api.await_none("/apis/apps/v1/namespaces/wattflow-helm/deployments", 60)
