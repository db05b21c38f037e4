"""Nodes that several placers use: what is promised on each, written down before a binding leaves.

A binding checks no amounts, so two placers that see the same free cores would both take them. Each node therefore has a
page, an object of the API that is only written as it was read (its resource version is the precondition). A placer
first writes its pods onto the page, then binds them; when another was quicker it reads the page, counts what is new,
and looks again whether there is room. An entry stays until its pod has ended, so a page is never behind any watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import accounting, objects
from wattflow.kube.book import Book, Record
from wattflow.kube.client import ApiError, Client
from wattflow.kube.reflect import ADDED, DELETED, MODIFIED
from wattflow.kube.tenant import PREFIX

log = logging.getLogger(__name__)
LEDGER, ENTRIES = f"{PREFIX}ledger", f"{PREFIX}promised"
_TRIES, _PAUSE_S = 8, 0.002
_MOST_GONE, _SWEEP_S, _STALE_SWEEP = 100_000, 1.0, 30


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """A pod that is, or is about to be, on a node."""

    placer: int
    key: str
    amounts: accounting.Amounts


class Page(objects.ClusterWide):
    """The object of one node: a Lease whose annotation holds the entries, so that no kind of our own is needed."""

    @property
    def node(self) -> str:
        return self.metadata.annotations.get(f"{PREFIX}node", "")

    @property
    def version(self) -> int:
        # Resource versions are opaque in the API's contract; leases live in etcd, whose revisions rise, and
        # we compare only versions of one object.
        return int(self.metadata.resource_version or 0)

    def entries(self) -> dict[str, Entry]:
        return msgspec.json.decode(self.metadata.annotations.get(ENTRIES, "{}"), type=dict[str, Entry])


@dataclass(slots=True)
class Reservations:
    """The pages as one placer sees them.

    Attributes:
        count: How many placers there are; what one of more than these left behind is the first one's to take back.
        find: A pod by its key, as the watch knows it.
        conflicts: Pages that another had written first; ``lost``: placements that found no room then.
    """

    client: Client
    namespace: str
    scheduler: str
    placer: int
    count: int
    book: Book
    find: Callable[[str], objects.Pod | None]
    timeout_s: float = 4.0
    conflicts: int = 0
    lost: int = 0
    pages: dict[str, Page] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _withdrawn: dict[str, str] = field(default_factory=dict)
    _counted: dict[str, dict[str, objects.Pod]] = field(default_factory=dict)
    _at: dict[str, set[str]] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def query(self) -> dict[str, str]:
        return {"labelSelector": f"{LEDGER}={self.scheduler}"}

    # what watches say

    def on_page(self, kind: str, page: Page) -> None:
        """Take up a page that came, changed or went: what others promise counts, what they took back does not."""
        known = self.pages.get(page.node)
        if kind == DELETED:
            # News may come twice and late: our own write tells of a page before the watch does.
            if known is not None and known.version <= page.version:
                del self.pages[page.node]
                self._count(page.node, {})
        elif known is None or known.version < page.version:
            self.pages[page.node] = page
            self._count(page.node, page.entries())

    def on_pod(self, kind: str, pod: objects.Pod) -> None:
        """Drop the entries of a pod that ended; one that is bound counts by itself from now on."""
        uid = pod.metadata.uid
        if kind == DELETED or pod.ended:
            self._gone[uid] = None
            for node in list(self._at.get(uid, ())):
                self._uncount(node, uid)
            if len(self._gone) > _MOST_GONE:
                del self._gone[next(iter(self._gone))]
        elif pod.spec.node_name:
            # From now on the real pod counts, told by the watch of pods; the promised one must not count beside
            # it.
            self._uncount(pod.spec.node_name, uid)

    def begin(self, pods: Iterable[objects.Pod]) -> None:
        """Take back entries that we, or who was this placer before, left without a binding."""
        bound = {pod.metadata.uid for pod in pods if pod.spec.node_name and not pod.ended}
        for node, page in self.pages.items():
            for uid, entry in page.entries().items():
                if self._ours(entry) and uid not in bound:
                    self._withdrawn[uid] = node

    # what the scheduler does

    async def reserve(self, records: Sequence[Record]) -> str | None:
        """Promise room to all of these pods, or to none; the reason where there is none left."""
        by_node: dict[str, list[Record]] = {}
        for record in records:
            by_node.setdefault(record.node, []).append(record)
        # Sorted: all placers take pages in the same order, so of two that want the same pages one gets all.
        for node in sorted(by_node):
            reason = await self._write(node, by_node[node])
            if reason is not None:
                self.lost += 1
                # Also those that were written already; `sweep` takes them off the pages.
                for record in records:
                    self.withdraw(record.pod.metadata.uid, record.node)
                return reason
        return None

    def withdraw(self, uid: str, node: str) -> None:
        """Take an entry back: the binding did not come about."""
        self._withdrawn[uid] = node

    async def sweep(self) -> None:
        """Take back what was withdrawn, soon; take out entries of pods that ended, now and then."""
        rounds = 0
        while True:
            await asyncio.sleep(_SWEEP_S)
            rounds += 1
            for node in sorted(set(self._withdrawn.values())):
                await self._write(node, ())
            if rounds % _STALE_SWEEP == 0:
                # A list: writing changes `pages`.
                for node in [name for name, page in self.pages.items() if self._stale(page)]:
                    await self._write(node, ())

    # inside

    def _stale(self, page: Page) -> bool:
        return any(self._ours(entry) and uid in self._gone for uid, entry in page.entries().items())

    def _ours(self, entry: Entry) -> bool:
        # Placers that are no more (the frame was made smaller) have nobody else.
        return entry.placer == self.placer or (self.placer == 0 and entry.placer >= self.count)

    def _count(self, node: str, entries: dict[str, Entry]) -> None:
        """Count on a node what others promise there and the watch has not shown."""
        wanted = {
            uid: entry
            for uid, entry in entries.items()
            if entry.placer != self.placer and uid not in self._gone and not self._is_there(uid, node)
        }
        for uid in set(self._counted.get(node, ())) - wanted.keys():
            self._uncount(node, uid)
        for uid in wanted.keys() - self._counted.get(node, {}).keys():
            pod = self._promised(uid, wanted[uid], node)
            self._counted.setdefault(node, {})[uid] = pod
            self._at.setdefault(uid, set()).add(node)
            self.book.on_pod(ADDED, pod)

    def _uncount(self, node: str, uid: str) -> None:
        pod = self._counted.get(node, {}).pop(uid, None)
        if pod is not None:
            self._at[uid].discard(node)
            if not self._at[uid]:
                del self._at[uid]
            self.book.on_pod(DELETED, pod)

    def _is_there(self, uid: str, node: str) -> bool:
        record = self.book.records.get(uid)
        return record is not None and record.node == node

    def _promised(self, uid: str, entry: Entry, node: str) -> objects.Pod:
        """Return the pod as if bound, under a uid of its own: itself where the watch knows it, else its amounts.

        A pod may stand on two pages for a moment, where its placer decided anew: it then counts on both nodes.
        """
        pod = self.find(entry.key)
        if pod is None or pod.metadata.uid != uid:
            units = {key: f"{value}m" if key == accounting.CPU else str(value) for key, value in entry.amounts.items()}
            units.pop(accounting.PODS, None)
            container = objects.Container(name="promised", resources=objects.ResourceNeeds(requests=units))
            space, _, name = entry.key.partition("/")
            spec = objects.PodSpec(containers=[container])
            pod = objects.Pod(metadata=objects.Metadata(name=name, namespace=space), spec=spec)
        metadata = msgspec.structs.replace(pod.metadata, uid=f"{uid}@{node}")
        return msgspec.structs.replace(
            pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node), status=objects.PodStatus()
        )

    async def _write(self, node: str, records: Sequence[Record]) -> str | None:
        """Write a page as it should be, however often another is quicker."""
        async with self._locks.setdefault(node, asyncio.Lock()):
            for attempt in range(_TRIES):
                for record in records:
                    # Again at each attempt: what the other wrote counts in the book by now.
                    reason = self.book.against(record)
                    if reason is not None:
                        return f"another placer was quicker: {reason}"
                try:
                    self.on_page(MODIFIED, await self._send(node, records))
                    return None
                except ApiError as error:
                    # 404: the page was deleted with its node. 409: another was quicker, or has made the page.
                    if error.code not in (404, 409):
                        return str(error)
                    self.conflicts += 1
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    # Whether it was written is open; entries are keyed by uid, so writing them twice does no harm.
                    log.warning("page of %s: %s", node, error)
                # two that go in step would else meet again and again, with the same one behind each time
                await asyncio.sleep(random.uniform(0, _PAUSE_S * 2**attempt))
                try:
                    await self._read(node)
                except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                    return f"the page of {node} cannot be read: {error}"
        return "its page changes too often"

    async def _send(self, node: str, records: Sequence[Record]) -> Page:
        page, before = self.pages.get(node), {}
        dropped = {uid for uid, where in self._withdrawn.items() if where == node}
        # A pod that is promised anew on the same node is not dropped.
        dropped -= {record.pod.metadata.uid for record in records}
        if page is not None:
            before = page.entries()
        entries = {
            uid: entry
            for uid, entry in before.items()
            # Only our own: another's entry is taken off by its owner, who knows whether a binding is under way.
            if not (self._ours(entry) and (uid in dropped or uid in self._gone))
        }
        for record in records:
            entries[record.pod.metadata.uid] = Entry(self.placer, record.pod.key, record.amounts)
        # Nothing to say: no write, and no news for all placers' watches.
        if records or entries != before:
            page = await self._call(node, page, entries)
        for uid in {record.pod.metadata.uid for record in records} | dropped:
            # Only this node's: it may have been withdrawn elsewhere meanwhile.
            if self._withdrawn.get(uid) == node:
                del self._withdrawn[uid]
        return page or Page(metadata=objects.Metadata(annotations={f"{PREFIX}node": node}))

    async def _call(self, node: str, page: Page | None, entries: dict[str, Entry]) -> Page:
        notes = {f"{PREFIX}node": node, ENTRIES: msgspec.json.encode(entries).decode()}
        # Names of objects have 253 characters at most.
        name = f"{self.scheduler}-on-{node}"[:253]
        metadata = objects.Metadata(
            name=name, namespace=self.namespace, labels={LEDGER: self.scheduler}, annotations=notes
        )
        view = self.book.cluster.nodes.get(node)
        if view is not None:  # the page goes with its node
            owner = objects.OwnerReference(api_version="v1", kind="Node", name=node, uid=view.node.metadata.uid)
            metadata.owner_references = [owner]
        method, path = "POST", self.path
        if page is not None and page.metadata.resource_version:
            metadata.resource_version = page.metadata.resource_version
            method, path = "PUT", f"{self.path}/{name}"
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        raw = await self.client.quick(method, path, body, self.timeout_s)
        return msgspec.json.decode(raw, type=Page)

    async def _read(self, node: str) -> None:
        try:
            name = f"{self.scheduler}-on-{node}"[:253]
            self.on_page(MODIFIED, await self.client.get(f"{self.path}/{name}", Page))
        except ApiError as error:
            if error.code != 404:
                raise
            self.pages.pop(node, None)
            self._count(node, {})
