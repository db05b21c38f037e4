"""Why a pod is where it is, or waits, which candidates it had, and how the scheduler stands: asked of the cluster.

Sources are what the binding wrote into the pod, its condition, the scheduler itself, and the journal of its engine,
replayed up to the decision that is asked about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattflow.engine.tables import UNKNOWN_COST
from wattflow.kube import objects, opt_in, telling
from wattflow.kube.access import Access
from wattflow.kube.argo.fetch import watts_of
from wattflow.kube.client import ApiError, Client
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters.snapshot import Snapshot
from wattflow.kube.leader import Lease
from wattflow.kube.power import Watts
from wattflow.kube.telling import DECISION
from wattflow.live.journal import Journal
from wattflow.live.past_decision import Past, explain_past
from wattflow.live.protocol import UnknownId
from wattflow.model.errors import InvalidInput

_USUAL = ("wattflow", "kube-system")
"""Where deploy/base puts the lease, and where a scheduler without a configuration does."""


async def status(where: Access, name: str, lease: str) -> str:
    """Describe a scheduler in a few lines. ``lease`` is NAMESPACE/NAME; without one the usual places are tried."""
    async with Client(where) as client:
        holder = await _holder(client, [lease] if lease else [f"{space}/{name}" for space in _USUAL])
        pods = (await client.list_all("/api/v1/pods", objects.Pod)).items
        nodes = (await client.list_all("/api/v1/nodes", objects.Node)).items
        watts = await watts_of(client)
        given = [f"enabled for {one}" for one in await opt_in.enabled(client)]
    return "\n".join([f"{name}: {holder}", *given, *_pods(name, pods), *_watts(watts, Snapshot.of(nodes, pods))])


async def _holder(client: Client, leases: list[str]) -> str:
    for lease in leases:
        space, _, title = lease.rpartition("/")
        try:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/{title}"
            return f"led by {(await client.get(path, Lease)).spec.holder_identity or 'nobody'}"
        except ApiError as error:
            if error.code != 404:
                return f"led by unknown ({error.reason or error.code})"
    return f"led by nobody: there is no lease {' or '.join(leases)} (--lease names another)"


def _pods(name: str, pods: list[objects.Pod]) -> list[str]:
    ours = [pod for pod in pods if pod.spec.scheduler_name == name and not pod.ended]
    waiting = [pod for pod in ours if not pod.spec.node_name]
    reasons = Counter(
        condition.message or condition.reason
        for pod in waiting
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    )
    lines = [f"{len(ours) - len(waiting)} pods placed, {len(waiting)} wait"]
    return lines + [f"  {count} × {reason}" for reason, count in reasons.most_common(5)]


def _watts(watts: Watts, cluster: Snapshot) -> list[str]:
    found = {}
    for name, view in cluster.nodes.items():
        # For its side effect: `node_w` reads the curve that this finds.
        watts.profile_of(view.node)
        value = watts.node_w(view)
        if value is not None:
            found[name] = value
    unknown = len(cluster.nodes) - len(found)
    lines = [f"{sum(found.values()):.1f} W modelled on {len(found)} nodes; {unknown} without a power profile"]
    top = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:5]
    return lines + [f"  {name} {value:.1f} W" for name, value in top]


_RUNS, _MOST_BYTES, _LOOK_S = 3, 256 << 20, 10.0
_PREFIX = "run-"


@dataclass(slots=True)
class Decisions:
    """The journal of one run."""

    decider: EngineDecider
    journal: Journal

    @classmethod
    def into(cls, folder: Path, decider: EngineDecider) -> Decisions:
        """Begin a run's journal; of older runs the last few stay."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Names are times, so sorted is oldest first; with the new one there are `_RUNS`.
        for old in sorted(folder.glob(f"{_PREFIX}*"))[: 1 - _RUNS]:
            shutil.rmtree(old, ignore_errors=True)
        # Padded, so that names sort as times do.
        return cls(decider, Journal(decider.engine, folder / f"{_PREFIX}{time.time_ns():020}"))

    def note(self, uid: str) -> dict[str, object]:
        """Return what a binding writes so that the decision can be found again."""
        task = self.decider.task_of(uid)
        return {} if task is None else {"run": self.journal.folder.name, "task": task}

    async def run(self) -> None:
        """Begin anew from a snapshot where the journal has become large; decisions before it are forgotten."""
        with self.journal:
            while True:
                await asyncio.sleep(_LOOK_S)
                if sum(file.stat().st_size for file in self.journal.folder.glob("journal-*")) > _MOST_BYTES:
                    self.journal.checkpoint()


def candidates(folder: Path, note: Mapping[str, object], most: int = 8) -> list[str]:
    """Describe the candidates of the decision that a pod's note names, cheapest first, with the terms of each."""
    run, task = note.get("run"), note.get("task")
    if not isinstance(run, str) or not isinstance(task, int):
        return ["candidates: the scheduler kept no journal when it decided ([decisions] journal)"]
    # The note comes from a pod's annotation: it must not lead out of the folder.
    if "/" in run or not (folder / run).is_dir():
        raise InvalidInput(str(folder), f"it does not hold the journal {run!r} of the scheduler that decided")
    try:
        past = explain_past(folder / run, task)
    except UnknownId:
        return ["candidates: the decision is older than the journal's last snapshot"]
    return [f"{sum(one.alike for one in past.candidates)} candidates, cheapest first:", *_listed(past, most)]


def _listed(past: Past, most: int) -> list[str]:
    found = []
    for one in past.candidates[:most]:
        terms = ", ".join(f"{name} {value:.4g}" for name, value in one.terms.items())
        alike = f" and {one.alike - 1} alike" if one.alike > 1 else ""
        said = (
            # Nodes of unknown watts have a cost beyond all known ones (`UNKNOWN_COST`), which says nothing as a
            # number.
            f"cost {one.cost:.4g} ({terms})" if one.cost < UNKNOWN_COST else "watts unknown, after all that are known"
        )
        found.append(f"  {past.names.get(one.node, '?')}{alike}: {said}")
    rest = len(past.candidates) - most
    return [*found, *([f"  … and {rest} more"] if rest > 0 else []), *_moves(past)]


def _moves(past: Past, most: int = 4) -> list[str]:
    """Tell what moved a learned policy to the cheapest rather than the next: the features that count most."""
    known = [one for one in past.candidates if one.cost < UNKNOWN_COST and one.moved]
    if len(known) < 2:
        return []
    first, second = known[:2]
    # Moves are differences of logarithms of the price; a person reads per cent.
    told = [f"{name} {math.expm1(move):+.1%}" for name, move in first.against(second).items()]
    said = ", ".join(told[:most]).replace("-", "−").replace("%", " %") or "nothing"
    return [
        f"features that moved the first price against that of {past.names.get(second.node, '?')}: {said}"
        + (f" and {len(told) - most} smaller" if len(told) > most else "")
    ]


async def explain(
    where: Access,
    asked: tuple[str, str],
    scheduler_url: str,
    journal: Path | None = None,
    release: str = "wattflow/wattflow",
) -> str:
    """Explain a pod (namespace and name) in a few lines; with a journal also which other nodes there were."""
    namespace, name = asked
    async with Client(where) as client:
        try:
            pod = await client.get(f"/api/v1/namespaces/{namespace}/pods/{name}", objects.Pod)
        except ApiError as error:
            if error.code == 404:
                raise InvalidInput(f"{namespace}/{name}", "there is no such pod") from None
            raise
        said = None
        if not pod.spec.node_name:
            with contextlib.suppress(InvalidInput):  # what stands in the pod is told all the same
                said = json.loads(await opt_in.ask(client, f"/explain/{namespace}/{name}", scheduler_url, release))
    found, note = lines(pod, said), pod.metadata.annotations.get(DECISION)
    if journal is not None and note:
        found += candidates(journal, json.loads(note))
    return "\n".join(found)


def lines(pod: objects.Pod, said: dict[str, object] | None) -> list[str]:
    """Write the explanation; ``said`` is what a running scheduler knows of a waiting pod."""
    found = [f"{pod.key}: schedulerName {pod.spec.scheduler_name}"]
    note = pod.metadata.annotations.get(DECISION)
    if pod.spec.node_name:
        found.append(f"on {pod.spec.node_name}")
        decision = json.loads(note) if note else {}
        if "policy" in decision:
            found.append(f"chosen by policy {decision['policy']}")
        if "added_w" in decision:
            found.append(f"added {decision['added_w']} W, node then at {decision['node_w']} W (modelled)")
        elif decision:
            found.append("watts unknown: the node has no power profile")
        return found
    told = [one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"]
    found += [f"waits: {one.message or one.reason}" for one in told]
    # What the scheduler says now comes after what stands in the pod, which may be older.
    if said is not None:
        requests = said.get("requests")
        found.append(f"now: {said.get('why')}")
        found.append(f"asks for {telling.asked(requests) if isinstance(requests, dict) else requests}")
    elif not told:
        found.append("waits: nothing is known yet; is the scheduler running?")
    return found
