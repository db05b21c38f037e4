"""Volumes: which kinds need nothing from the scheduler, where a claim's volume can be reached, and what is refused.

A claim that is bound already goes where its volume's node affinity and zone labels allow, and where its CSI driver may
attach one more; one for a single pod waits until no other pod uses it. A claim that nobody has bound is waited for,
unless its class waits for its first consumer and we may ask for the volume: then it goes where a volume lies ready for
it, or where its class can make one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wattflow.kube import objects
from wattflow.kube.filters import volume_match

PLAIN = frozenset({
    "emptyDir", "hostPath", "configMap", "secret", "projected", "downwardAPI", "nfs", "image", "gitRepo",
})  # fmt: skip
"""Kinds that exist on every node alike."""
CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
Handle = tuple[str, str]
"""A CSI driver and its own name of a volume."""
BOUND, SELECTED_NODE = "pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node"
TIED = "pv.kubernetes.io/bound-by-controller"
"""Tells the controller that a volume was tied to its claim by a scheduler: it may be untied with the claim."""
_BY_HAND = "kubernetes.io/no-provisioner"
_OLD_ZONE, _OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_ZONES = {
    _OLD_ZONE: "topology.kubernetes.io/zone",
    _OLD_REGION: "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes that name zones, and the label of a node that may stand in for each."""


@dataclass(slots=True)
class Storage:
    """Claims by namespace and name, and volumes, CSI's nodes and attachments by name.

    Attributes:
        provisions: Whether we ask for volumes whose class waits for the first pod.
        promised: Volumes that lie ready, chosen for the claim of a pod that is on its way: its uid and the claim's key.
    """

    claims: dict[str, objects.PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, objects.PersistentVolume] = field(default_factory=dict)
    drivers: dict[str, objects.CsiNode] = field(default_factory=dict)
    attachments: dict[str, objects.VolumeAttachment] = field(default_factory=dict)
    classes: dict[str, objects.StorageClass] = field(default_factory=dict)
    provisions: bool = False
    promised: dict[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        claims: Iterable[objects.PersistentVolumeClaim],
        volumes: Iterable[objects.PersistentVolume],
        drivers: Iterable[objects.CsiNode] = (),
        attachments: Iterable[objects.VolumeAttachment] = (),
    ) -> Storage:
        """These objects."""
        by_key = ({one.key: one for one in claims}, {one.key: one for one in volumes})
        return cls(*by_key, {one.key: one for one in drivers}, {one.key: one for one in attachments})

    def limits(self, node: str) -> dict[str, int]:
        """How many volumes of each driver a node takes, where that is limited."""
        found = (self.drivers[node].spec.drivers or []) if node in self.drivers else []
        told = ((one.name, one.allocatable.count if one.allocatable is not None else None) for one in found)
        return {name: count for name, count in told if count is not None}

    def attached(self, node: str) -> set[Handle]:
        """Tell what is attached to a node, whoever uses it."""
        there = [one.spec for one in self.attachments.values() if one.spec.node_name == node and one.spec.attacher]
        found = ((one.attacher, self.volumes.get(one.source.persistent_volume_name)) for one in there)
        return {
            (name, one.spec.csi.volume_handle) for name, one in found if one is not None and one.spec.csi is not None
        }

    def used(self, pods: Iterable[objects.Pod]) -> set[Handle] | None:
        """CSI volumes of pods that run; None where one has a volume of which we do not know what it attaches."""
        found: set[Handle] = set()
        for pod in pods:
            if any(_kind(volume) not in (*PLAIN, CLAIM, _EPHEMERAL, "csi") for volume in pod.spec.volumes):
                return None
            for key in (*claims(pod), *_made(pod)):
                volume = self.volumes.get(self.claims[key].spec.volume_name) if key in self.claims else None
                if volume is not None and not volume.spec.known:
                    return None
                if volume is not None and volume.spec.csi is not None:
                    found.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
        return found

    def against(self, key: str) -> str | None:
        """Why a pod with this claim is not placed at all, or None."""
        claim = self.claims.get(key)
        if claim is None:
            return f"the volume claim {key} does not exist"
        if claim.metadata.deletion_timestamp is not None:
            return f"the volume claim {key} is being deleted"
        name = claim.spec.volume_name
        if claim.status.phase == "Lost" or (name and name not in self.volumes):
            return f"the volume claim {key} is bound to the volume {name!r}, which is not there"
        if not name and self.waits_for_pod(key):
            return None
        if not name or BOUND not in claim.metadata.annotations:
            return f"the volume claim {key} is not bound to a volume; this scheduler waits for that, it binds none"
        return None if self.volumes[name].spec.known else f"the volume {name} is of a kind that is not supported"

    def waits_for_pod(self, key: str) -> bool:
        """Tell whether a claim without a volume gets one made when we have chosen a node."""
        claim = self.claims[key]
        kind = self.classes.get(claim.spec.storage_class_name or "")
        return (
            self.provisions
            and not claim.spec.volume_name
            and kind is not None
            and kind.volume_binding_mode == "WaitForFirstConsumer"
        )

    def to_make(self, pod: objects.Pod) -> list[str]:
        """Keys of the pod's claims whose volumes are to be made on its node."""
        return [key for key in claims(pod) if key in self.claims and self.waits_for_pod(key)]

    def cannot_make(self, pod: objects.Pod, node: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a volume of the pod neither lies ready for a node nor can be made there.

        That is where it was asked for elsewhere, lies outside the class's topologies, or nobody makes any.
        """
        keys = self.to_make(pod)
        ready = self.ready(pod, labels) if keys else {}
        for key in (key for key in keys if key not in ready):
            asked = self.claims[key].metadata.annotations.get(SELECTED_NODE, node)
            kind = self.classes[self.claims[key].spec.storage_class_name or ""]
            terms = kind.allowed_topologies
            met = [all(labels.get(one.key) in one.values for one in term.match_label_expressions) for term in terms]
            if asked != node or kind.provisioner == _BY_HAND or (terms and not any(met)):
                return True
        return False

    def ready(self, pod: objects.Pod, labels: Mapping[str, str]) -> dict[str, str]:
        """Volumes that lie ready on a node with these labels, by the claim of the pod that would get them."""
        # one whose volume was asked for is being made: it must not get a second
        wanted = [self.claims[key] for key in self.to_make(pod)]
        wanted = [one for one in wanted if SELECTED_NODE not in one.metadata.annotations]
        others = [name for name, (uid, _) in self.promised.items() if uid != pod.metadata.uid]
        return volume_match.match(wanted, self.volumes.values(), labels, others) if wanted else {}

    def assume(self, pod: objects.Pod, node: objects.Node) -> str | None:
        """Promise a pod the volumes that lie ready on its node; nobody else gets them."""
        for key, name in self.ready(pod, node.metadata.labels).items():
            self.promised[name] = (pod.metadata.uid, key)
        return None

    def forget(self, uid: str) -> None:
        """Take back what was promised to a pod; what its claims have got by now they keep."""
        for name in [name for name, (owner, _) in self.promised.items() if owner == uid]:
            del self.promised[name]


def claims(pod: objects.Pod) -> list[str]:
    """Keys of the claims that a pod names."""
    found = (volume.get(CLAIM) for volume in pod.spec.volumes)
    return [f"{pod.metadata.namespace}/{one.claim_name}" for one in found if isinstance(one, objects.VolumeSource)]


def _kind(volume: Mapping[str, object]) -> str:
    return next((key for key in volume if key != "name"), "emptyDir")


def _made(pod: objects.Pod) -> list[str]:
    """Keys of the claims that are made for a pod's generic ephemeral volumes."""
    names = (volume.get("name") for volume in pod.spec.volumes if _kind(volume) == _EPHEMERAL)
    return [f"{pod.metadata.namespace}/{pod.metadata.name}-{name}" for name in names]


def unsupported(pod: objects.Pod, storage: Storage | None = None) -> str | None:
    """Why this scheduler does not place the pod at all, or None. Without ``storage`` nothing is known of claims."""
    for volume in pod.spec.volumes:
        kind = _kind(volume)
        if kind != CLAIM and kind not in PLAIN:
            return f"a volume of kind {kind} is not supported by this scheduler"
    named = claims(pod)
    if named and storage is None:
        return (
            "it has volume claims, and persistentvolumeclaims, persistentvolumes, csinodes and volumeattachments "
            "are not read yet (rights: deploy/base)"
        )
    found = (storage.against(key) for key in named) if storage is not None else ()
    return next((one for one in found if one is not None), None)


def reach(pod: objects.Pod, storage: Storage | None) -> tuple[objects.PersistentVolume, ...]:
    """The volumes of a pod's claims, as far as they are known."""
    if storage is None:
        return ()
    bound = (storage.claims[key].spec.volume_name for key in claims(pod) if key in storage.claims)
    return tuple(storage.volumes[name] for name in bound if name in storage.volumes)


def why_not(wanted: Iterable[objects.PersistentVolume], labels: Mapping[str, str]) -> str | None:
    """The reason against a node with these labels, or None."""
    for volume in wanted:
        if not volume_match.reachable(volume, labels):
            return "volume node affinity"
        if not _zones_met(volume.metadata.labels, labels):
            return "volume zone"
    return None


def taken(pod: objects.Pod, storage: Storage | None, others: Iterable[objects.Pod]) -> bool:
    """Tell whether another pod, wherever it is, uses a claim of the pod that is for one pod alone."""
    known = storage.claims if storage is not None else {}
    alone = {key for key in claims(pod) if key in known and "ReadWriteOncePod" in known[key].spec.access_modes}
    return bool(alone) and any(
        not alone.isdisjoint((*claims(one), *_made(one))) for one in others if one.metadata.uid != pod.metadata.uid
    )


def over_limit(
    wanted: Iterable[objects.PersistentVolume], node: str, pods: Iterable[objects.Pod], storage: Storage | None
) -> str | None:
    """The reason against a node to which a CSI driver would have to attach too many volumes, or None."""
    new = {(one.spec.csi.driver, one.spec.csi.volume_handle) for one in wanted if one.spec.csi is not None}
    limits = storage.limits(node) if new and storage is not None else {}
    if not limits or storage is None:
        return None
    used = storage.used(pods)
    if used is None:
        return "volumes that cannot be counted"
    held = Counter(driver for driver, _ in used | storage.attached(node))
    more = Counter(driver for driver, _ in new - used)
    over = any(held[driver] + count > limits.get(driver, held[driver] + count) for driver, count in more.items())
    return "volume limit" if over else None


def _zones_met(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether a node is in a volume's zones; one that names no zone at all is in a cluster that has none."""
    if not any(key in labels for key in _ZONES):
        return True
    for key, instead in _ZONES.items():
        zones = {zone.strip() for zone in wanted[key].split("__")} if key in wanted else None
        if zones is not None and "" not in zones and labels.get(key, labels.get(instead)) not in zones:
            return False
    return True
