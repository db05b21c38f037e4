"""The way in and out: what a shadow would have saved, pods of one kind given to this scheduler, and back.

Pods are given to it at admission: a policy of the API server's own sets ``schedulerName`` on pods of a namespace, those
with certain labels, that ask for the default scheduler. No Job is edited, and without us nothing waits for us.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.client import ApiError, Client
from wattflow.kube.http_endpoints import TOKEN_HEADER
from wattflow.kube.tenant import PREFIX
from wattflow.model.errors import InvalidInput

# Asks a running scheduler for its metrics and explanations: at its address, or through the API server's proxy.
#
# Through the proxy the caller's own rights decide: to reach the Service, and to read the Secret with the token.

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


async def ask(client: Client, path: str, url: str = "", release: str = "wattflow/wattflow") -> bytes:
    """Return what a scheduler answers. ``release`` is NAMESPACE/NAME of its installation, for where there is no URL.

    Raises:
        InvalidInput: it does not answer, or wants a token.
    """
    space, _, name = release.partition("/")
    where = url.rstrip("/") or f"{client.access.server}/api/v1/namespaces/{space}/services/{name}-scheduler:http/proxy"
    headers = {} if url else {"Authorization": f"Bearer {client.access.bearer()}"}
    if not url:
        headers[TOKEN_HEADER] = await _token(client, space, f"{name}-http")
    wait = aiohttp.ClientTimeout(total=10)
    try:
        async with client.session.get(where + path, headers=headers, timeout=wait) as answer:
            raw = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise InvalidInput(where, f"does not answer: {error or type(error).__name__}") from None
    if answer.status != 200:
        raise InvalidInput(where + path, f"answers {answer.status}: {raw[:200].decode(errors='replace').strip()}")
    return raw


async def _token(client: Client, space: str, name: str) -> str:
    try:
        found = msgspec.json.decode(
            await client.call("GET", f"/api/v1/namespaces/{space}/secrets/{name}"), type=_Secret
        )
        return base64.b64decode(found.data.get("token", "")).decode().strip()
    except (ApiError, ValueError):  # it may be at loopback, or refuse us with a reason of its own
        return ""


def metrics(page: bytes) -> dict[str, dict[str, float]]:
    """Read a page of metrics: by name, then by labels as they stand."""
    found: dict[str, dict[str, float]] = {}
    for line in page.decode().splitlines():
        match = _LINE.fullmatch(line)
        if match is not None:
            found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
    return found


_GROUP, _VERSIONS = "admissionregistration.k8s.io", ("v1", "v1beta1")
_OURS = f"{PREFIX}enabled"
_KINDS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


def documents(namespace: str, labels: Mapping[str, str], scheduler: str) -> list[dict[str, object]]:
    """Return the policy and its binding."""
    name = _name(namespace, labels, scheduler)
    about = {
        "name": name,
        "labels": {_OURS: "true"},
        "annotations": {f"{PREFIX}enabled-for": f"{namespace} {_words(labels)} {scheduler}"},
    }
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy: dict[str, object] = {
        "kind": "MutatingAdmissionPolicy", "metadata": about,
        "spec": {
            "failurePolicy": "Ignore",  # a pod rather stays with its scheduler
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{
                "name": "asks-for-the-default",
                "expression": "object.spec.?schedulerName.orValue('default-scheduler') == 'default-scheduler'"
                              " && object.spec.?nodeName.orValue('') == ''",
            }],
            "mutations": [{
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{schedulerName: '{scheduler}'}}}}"},
            }],
        },
    }  # fmt: skip
    where = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding: dict[str, object] = {
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": about,
        "spec": {
            "policyName": name,
            "matchResources": {
                "namespaceSelector": where,
                "objectSelector": {"matchLabels": dict(labels)},
            },
        },
    }
    return [policy, binding]


async def enable(client: Client, namespace: str, labels: Mapping[str, str], scheduler: str) -> str:
    """Give the pods of a namespace that have these labels to a scheduler from now on."""
    try:
        await client.get(f"/api/v1/namespaces/{namespace}", objects.Namespace)
    except ApiError as error:
        raise InvalidInput(f"namespace {namespace}", f"cannot be read: {error}") from None
    version = await _version(client)
    for document in documents(namespace, labels, scheduler):
        path = f"/apis/{_GROUP}/{version}/{_KINDS[str(document['kind'])]}"
        try:
            await client.call("POST", path, {"apiVersion": f"{_GROUP}/{version}", **document})
        except ApiError as error:
            # 409: it is enabled already; the name holds a hash of all that was asked, so it is the same policy.
            if error.code != 409:
                raise InvalidInput(path, f"was refused: {error}") from None
    return f"new pods of {namespace} {_words(labels)} go to {scheduler}; `wattflow kube disable {namespace}` ends that"


async def disable(client: Client, namespace: str, labels: Mapping[str, str], scheduler: str) -> str:
    """Give new pods back to the default scheduler; those that run stay, those that wait are told."""
    version, name = await _version(client), _name(namespace, labels, scheduler)
    gone = 0
    for kind in reversed(list(_KINDS)):  # the binding first: a policy without one does nothing
        try:
            await client.call("DELETE", f"/apis/{_GROUP}/{version}/{_KINDS[kind]}/{name}")
            gone += 1
        except ApiError as error:
            if error.code != 404:
                raise InvalidInput(name, f"was not taken away: {error}") from None
    pods = (await client.list_all(f"/api/v1/namespaces/{namespace}/pods", objects.Pod)).items
    ours = [pod for pod in pods if pod.spec.scheduler_name == scheduler and not pod.ended]
    waiting = [pod.metadata.name for pod in ours if not pod.spec.node_name]
    said = "new pods go to the default scheduler" if gone else f"nothing was enabled for {namespace} {_words(labels)}"
    if waiting:
        said += f"; {len(waiting)} still wait for {scheduler} (delete them, and their controller makes them anew): "
        said += ", ".join(waiting[:5])
    return f"{said}; {len(ours) - len(waiting)} that it placed run on"


async def enabled(client: Client) -> list[str]:
    """Return what is given to us, one line each."""
    try:
        path = f"/apis/{_GROUP}/{await _version(client)}/{_KINDS['MutatingAdmissionPolicy']}"
        # Read as plain metadata, which any kind has.
        found = (await client.list_all(path, objects.Namespace, query={"labelSelector": _OURS})).items
    except (ApiError, InvalidInput):
        return []
    return [one.metadata.annotations.get(f"{PREFIX}enabled-for", one.metadata.name) for one in found]


async def savings(client: Client, url: str, release: str) -> str:
    """Return what a shadow has compared and would have saved, in words."""
    found = metrics(await ask(client, "/metrics", url, release))
    if "wattflow_shield_kept" in found:
        return shielded(found)
    if "wattflow_shadow_saved_joules" not in found:
        raise InvalidInput(
            url or release,
            'runs no shadow and no shield: set mode = "shadow", or policy = "wattflow:shield=kubernetes"',
        )
    # `{result="same"}`: the value stands between the quotes.
    pods = {labels.partition('"')[2].rstrip('"'): int(n) for labels, n in found.get("wattflow_shadow_pods", {}).items()}
    joules, watts = found["wattflow_shadow_saved_joules"][""], found["wattflow_shadow_saved_watts"][""]
    whole = sum(found.get("wattflow_node_joules", {}).values())
    part = f", {100 * joules / whole:.1f} % of the {whole / 3.6e6:.3f} kWh that the nodes took" if whole > 0 else ""
    words = {
        "same": "to the same node",
        "other": "to another",
        "unknown": "where watts are unknown",
        "wait": "where ours would have waited",
    }
    lines = [f"{sum(pods.values())} pods compared since the shadow began"]
    lines += [f"  {pods[key]} {text}" for key, text in words.items() if key in pods]
    lines.append(f"would have saved {joules / 3.6e6:.4f} kWh (modelled){part}")
    lines.append(f"  {watts:.1f} W over all pods that went elsewhere")
    return "\n".join(lines)


def shielded(found: Mapping[str, Mapping[str, float]]) -> str:
    """Say what the shield of a scheduler that places pods has kept, saved and cost."""
    value = {name.removeprefix("wattflow_shield_"): one[""] for name, one in found.items() if "_shield_" in name}
    whole_j = sum(found.get("wattflow_node_joules", {}).values())
    saved, kept = value.get("saved"), "kept" if value["kept"] else "not kept"
    joules = []
    if saved is not None:
        usual_j = whole_j / max(1e-9, 1.0 - saved)  # what the nodes took is what the reference would have, less these
        joules = [f"saved {saved * usual_j / 3.6e6:.4f} kWh (modelled), {saved:.1%} of the reference's"]
    late = f"{abs(value['late']):.1%} {'later' if value['late'] >= 0 else 'sooner'}"
    return "\n".join((
        f"promise {kept} on the last {value['judged']:.0f} workflows: {late} than under the reference,"
        f" p95 {value['tail']:.3f} of its",
        *joules,
        f"the shield: {value['processor_seconds']:.1f} s of processor, budget spent {value['spent']:.0f} times",
    ))  # fmt: skip


async def _version(client: Client) -> str:
    for version in _VERSIONS:
        try:
            offered = msgspec.json.decode(await client.call("GET", f"/apis/{_GROUP}/{version}"))
        except ApiError:
            continue
        if any(one.get("name") == "mutatingadmissionpolicies" for one in offered.get("resources", [])):
            return version
    raise InvalidInput(
        "MutatingAdmissionPolicy",
        "is not served (Kubernetes 1.36, or 1.34 with its beta on); set schedulerName by hand",
    )


def _name(namespace: str, labels: Mapping[str, str], scheduler: str) -> str:
    said = f"{namespace} {_words(labels)} {scheduler}"
    # Names of objects are short; the hash keeps apart what the cut made equal.
    return f"wattflow-enable-{namespace[:30].rstrip('-')}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def _words(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "(all)"
