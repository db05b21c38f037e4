"""The parts of resource.k8s.io/v1 that we read and write. Unknown fields are skipped while decoding.

Of a device that may be given to several requests each takes a share of its capacities, in the device's own units.
What a request does not name costs the policy's default, or all there is; what it names is rounded up to the next value
that the device gives out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

# ruff: noqa: RUF012 (msgspec gives each object an empty list or table of its own)
import msgspec

from wattflow.kube import objects, quantity
from wattflow.kube.objects import ClusterWide, Metadata, Object, Spaced, Taint

Share = dict[str, Decimal]


def share_of(wish: DeviceRequest, device: Device) -> Share | None:
    """Return what a request takes of a device; None where the device does not give out so much, or has no such thing.

    A device that is given away whole is taken like a share of all that the request names.
    """
    asked = wish.capacity.requests if wish.capacity is not None else {}
    if not asked.keys() <= device.capacity.keys():
        return None
    found: Share = {}
    for name, has in device.capacity.items():
        amount = _taken(asked.get(name), has)
        # Less than nothing would give others more than there is.
        if amount is None or not 0 <= amount <= quantity.exact(has.value):
            return None
        found[name] = amount
    return found


def share_fits(share: Mapping[str, Decimal], held: Mapping[str, Decimal], device: Device) -> bool:
    """Tell whether a device has a share left beside those that are given away."""
    return all(held.get(name, 0) + amount <= quantity.exact(device.capacity[name].value)
               for name, amount in share.items())  # fmt: skip


def add_share(held: Share, share: Mapping[str, Decimal], sign: int = 1) -> None:
    """Count a share as given away, or as given back (sign -1)."""
    for name, amount in share.items():
        held[name] = held.get(name, Decimal(0)) + sign * amount


def share_text(share: Mapping[str, Decimal]) -> dict[str, str]:
    """Return a share as the API writes quantities."""
    return {name: format(amount.normalize(), "f") for name, amount in share.items()}


def _taken(text: str | None, has: Capacity) -> Decimal | None:
    policy = has.request_policy
    if text is None:
        return quantity.exact(policy.default if policy is not None and policy.default is not None else has.value)
    asked = quantity.exact(text)
    return asked if policy is None else _rounded(asked, policy)


def _rounded(asked: Decimal, policy: SharePolicy) -> Decimal | None:
    """Return the smallest amount of a policy that is enough; None where it gives out none."""
    if policy.valid_values:
        return min((one for one in map(quantity.exact, policy.valid_values) if one >= asked), default=None)
    if policy.valid_range is None:
        return asked
    least = quantity.exact(policy.valid_range.min or "0")
    found = max(asked, least)
    # Whole numbers, as kube-scheduler counts steps. A step that is none is left out, whoever wrote it.
    step, start = math.ceil(quantity.exact(policy.valid_range.step or "0")), math.ceil(least)
    if step > 0 and found > least:
        found = Decimal(start + step * math.ceil(Decimal(math.ceil(found) - start) / step))
    most = policy.valid_range.max
    return found if most is None or found <= quantity.exact(most) else None


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
    """Tell what a driver says of a device that was given away."""

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
    """Bound what one request may take of a capacity."""

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
