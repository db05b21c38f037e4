"""The parts of resource.k8s.io/v1 that we read and write. Unknown fields are skipped while decoding."""

# ruff: noqa: RUF012 (msgspec gives each object an empty list or table of its own)

from __future__ import annotations

import msgspec

from wattflow.kube import objects
from wattflow.kube.objects import ClusterWide, Metadata, Object, Spaced, Taint

Config = msgspec.Raw
"""Drivers' own parameters: copied into an allocation as they came."""


class Cel(Object):
    expression: str = ""


class Selector(Object):
    cel: Cel | None = None


class DeviceToleration(Object):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityWish(Object):
    requests: dict[str, str] = {}


class DeviceRequest(Object):
    """Hold what one request, or one alternative of it, asks for."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[Selector] = []
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityWish | None = None


class Request(Object):
    name: str = ""
    exactly: DeviceRequest | None = None
    first_available: list[DeviceRequest] = []


class Constraint(Object):
    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimConfig(Object):
    requests: list[str] = []
    opaque: Config | None = None


class DeviceWishes(Object):
    requests: list[Request] = []
    constraints: list[Constraint] = []
    config: list[ClaimConfig] = []


class ResourceClaimSpec(Object):
    devices: DeviceWishes = msgspec.field(default_factory=DeviceWishes)


class Given(Object):
    """One device of an allocation, or a share of one."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] = {}
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []


class GivenConfig(Object):
    source: str = ""
    requests: list[str] = []
    opaque: Config | None = None


class GivenDevices(Object):
    results: list[Given] = []
    config: list[GivenConfig] = []


class Allocation(Object):
    devices: GivenDevices = msgspec.field(default_factory=GivenDevices)
    node_selector: objects.NodeSelector | None = None
    allocation_timestamp: str | None = None


class Consumer(Object):
    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""


class DeviceStatus(Object):
    """What a driver says of a device that was given away."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[objects.Condition] = []


class ResourceClaimStatus(Object):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []
    devices: list[DeviceStatus] = []


class ClaimMetadata(Metadata):
    finalizers: list[str] = []


class ResourceClaim(Spaced):
    metadata: ClaimMetadata = msgspec.field(default_factory=ClaimMetadata)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class Attribute(Object):
    """A value of one of four kinds; of kinds that we do not know all are None."""

    string: str | None = None
    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None


class ShareRange(Object):
    min: str | None = None
    max: str | None = None
    step: str | None = None


class SharePolicy(Object):
    """What may be taken of a capacity by one request."""

    default: str | None = None
    valid_values: list[str] = []
    valid_range: ShareRange | None = None


class Capacity(Object):
    value: str = "0"
    request_policy: SharePolicy | None = None


class Counter(Object):
    value: str = "0"


class CounterSet(Object):
    name: str = ""
    counters: dict[str, Counter] = {}


class Consumed(Object):
    counter_set: str = ""
    counters: dict[str, Counter] = {}


class Device(Object):
    name: str = ""
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: list[Consumed] = []
    taints: list[Taint] = []
    node_name: str = ""
    node_selector: objects.NodeSelector | None = None
    all_nodes: bool = False
    binds_to_node: bool = False
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool = False


class Pool(Object):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Object):
    driver: str = ""
    pool: Pool = msgspec.field(default_factory=Pool)
    node_name: str = ""
    node_selector: objects.NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(ClusterWide):
    """Some devices of one driver's pool."""

    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


class ClassConfig(Object):
    opaque: Config | None = None


class ClassSpec(Object):
    selectors: list[Selector] = []
    config: list[ClassConfig] = []


class DeviceClass(ClusterWide):
    spec: ClassSpec = msgspec.field(default_factory=ClassSpec)
