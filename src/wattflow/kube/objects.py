"""The parts of API objects that we read, as msgspec structs. Unknown fields are skipped while decoding.

Names are those of the API in snake case; absent fields have the default that the API gives them.
"""

from __future__ import annotations

import msgspec

Resources = dict[str, str]


# `gc=False`: objects hold no cycles, and tens of thousands of them would make every collection
# slow.
class Object(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base of all: camelCase on the wire."""


class OwnerReference(Object):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Metadata(Object):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    # msgspec copies an empty default for each object, unlike a plain class.
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []


class ClusterWide(Object):
    """An object that is known by its name in the whole cluster."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)

    @property
    def key(self) -> str:
        return self.metadata.name


class Spaced(ClusterWide):
    """An object that is known by its name in its namespace."""

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class ResourceNeeds(Object):
    requests: Resources = {}
    limits: Resources = {}


class ContainerPort(Object):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Object):
    name: str = ""
    image: str = ""
    resources: ResourceNeeds = msgspec.field(default_factory=ResourceNeeds)
    ports: list[ContainerPort] = []
    restart_policy: str | None = None


class Requirement(Object):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(Object):
    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []


class NodeSelectorTerm(Object):
    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Object):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredNode(Object):
    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Object):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredNode] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Object):
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodTerm(Object):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Object):
    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Object):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Object):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class Named(Object):
    name: str = ""


class VolumeSource(Object):
    """Hold what is read of any kind of volume."""

    claim_name: str = ""
    read_only: bool = False


class PodClaim(Object):
    """A claim of devices that a pod names: one that is there, or one that is made from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class PodClaimStatus(Object):
    """The claim that was made from a template; None where none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(Object):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Resources = {}
    resources: ResourceNeeds | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[SpreadConstraint] = []
    volumes: list[dict[str, str | VolumeSource]] = []
    """Each has its ``name`` and one more key, its kind."""
    priority: int = 0
    preemption_policy: str = ""
    scheduling_gates: list[Named] = []
    resource_claims: list[PodClaim] = []
    host_network: bool = False


class Condition(Object):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None


class Terminated(Object):
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Object):
    terminated: Terminated | None = None


class ContainerStatus(Object):
    name: str = ""
    resources: ResourceNeeds | None = None
    allocated_resources: Resources = {}
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(Object):
    phase: str = ""
    reason: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    resource_claim_statuses: list[PodClaimStatus] = []
    resources: ResourceNeeds | None = None
    allocated_resources: Resources = {}
    start_time: str | None = None


class Pod(Spaced):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Object):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Object):
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[Taint] = []


class NodeInfo(Object):
    architecture: str = ""
    kernel_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(Object):
    allocatable: Resources = {}
    capacity: Resources = {}
    conditions: list[Condition] = []
    node_info: NodeInfo = msgspec.field(default_factory=NodeInfo)


class Node(ClusterWide):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(ClusterWide):
    """A namespace: of it only its labels and annotations are read."""


class ServiceSpec(Object):
    selector: dict[str, str] = {}


class Service(Spaced):
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ReplicasSpec(Object):
    """A selector: of labels in a ReplicationController, else a LabelSelector, which has keys of its own."""

    selector: dict[str, str | dict[str, str] | list[Requirement]] = {}


class Replicas(Spaced):
    """A ReplicaSet, StatefulSet or ReplicationController."""

    spec: ReplicasSpec = msgspec.field(default_factory=ReplicasSpec)


class TopologyLabel(Object):
    key: str = ""
    values: list[str] = []


class TopologyTerm(Object):
    match_label_expressions: list[TopologyLabel] = []


class StorageClass(ClusterWide):
    """How claims of a class get their volumes."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []


class StorageDriverSpec(Object):
    storage_capacity: bool | None = None


class StorageDriver(ClusterWide):
    """A CSI driver as a whole, and whether it tells how much room it has."""

    spec: StorageDriverSpec = msgspec.field(default_factory=StorageDriverSpec)


class StorageCapacity(Spaced):
    """How much room a driver has for volumes of a class, for the nodes of a topology."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str = ""
    maximum_volume_size: str = ""


class ClaimSpec(Object):
    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: list[str] = []
    resources: ResourceNeeds = msgspec.field(default_factory=ResourceNeeds)
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None


class ClaimStatus(Object):
    phase: str = ""


class PersistentVolumeClaim(Spaced):
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class VolumeNodeAffinity(Object):
    required: NodeSelector | None = None


class CsiSource(Object):
    driver: str = ""
    volume_handle: str = ""


class ClaimReference(Object):
    """The claim that a volume belongs to, or is meant for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeStatus(Object):
    phase: str = ""


class PersistentVolumeSpec(Object):
    """Of its kinds those whose attachments nobody needs to count, and the one whose attachments are."""

    capacity: Resources = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    local: VolumeSource | None = None
    host_path: VolumeSource | None = None
    nfs: VolumeSource | None = None
    iscsi: VolumeSource | None = None
    fc: VolumeSource | None = None

    @property
    def known(self) -> bool:
        """Tell whether it is of one of these kinds."""
        plain = (self.local, self.host_path, self.nfs, self.iscsi, self.fc)
        return self.csi is not None or any(one is not None for one in plain)


class PersistentVolume(ClusterWide):
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class CsiAllocatable(Object):
    count: int | None = None


class CsiDriver(Object):
    name: str = ""
    allocatable: CsiAllocatable | None = None


class CsiNodeSpec(Object):
    drivers: list[CsiDriver] | None = None  # the API says null where a node has none


class CsiNode(ClusterWide):
    """How many volumes of each driver a node takes."""

    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)


class AttachmentSource(Object):
    persistent_volume_name: str = ""


class AttachmentSpec(Object):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = msgspec.field(default_factory=AttachmentSource)


class VolumeAttachment(ClusterWide):
    spec: AttachmentSpec = msgspec.field(default_factory=AttachmentSpec)


class ListMeta(Object):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Status(Object):
    """Hold what the API answers instead of an object when it refuses."""

    message: str = ""
    reason: str = ""
    code: int = 0
