"""Which devices there are, which claims hold them, and which pods may therefore go where.

An allocation that was decided counts at once (it is *assumed*), before the claim says so: two pods never get the same
device, however long the API server takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wattflow.kube import objects, quantity
from wattflow.kube.dra import allocation, cel, device_objects
from wattflow.kube.dra.device_objects import Allocation, DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from wattflow.kube.filters import selectors
from wattflow.model.errors import InvalidInput

MOST_CONSUMERS = 256
"""Pods that may use one claim, by the API."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """An allocation that is not seen in its claim yet."""

    pod: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Needs:
    """Hold what the claims of one pod ask of a node.

    Attributes:
        new: Claims that have to be allocated.
        reach: Where those go that are: None is everywhere.
        taken: What is given away.
    """

    new: tuple[ResourceClaim, ...]
    reach: tuple[objects.NodeSelector | None, ...]
    taken: allocation.Taken


@dataclass(slots=True)
class Devices:
    """Claims by namespace and name; slices and classes by name; assumed allocations by the claim's key.

    Attributes:
        sent: Of the assumed ones those that may stand in the API server's claim: they hold until the watch has told.
    """

    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    assumed: dict[str, Assumed] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    _pools: dict[allocation.PoolId, dict[str, ResourceSlice]] = field(default_factory=dict)
    _of_node: dict[str, set[allocation.PoolId]] = field(default_factory=dict)
    _anywhere: set[allocation.PoolId] = field(default_factory=set)
    _offers: dict[str, allocation.Offer] = field(default_factory=dict)
    _selected: allocation.Selected = field(default_factory=dict)
    _too_hard: set[str] = field(default_factory=set)

    # what is there

    def put_slice(self, found: ResourceSlice) -> None:
        """Take up a slice, or what became of it."""
        self._forget_found()
        pool = found.spec.driver, found.spec.pool.name
        self._pools.setdefault(pool, {})[found.key] = found
        # A slice never leaves its pool or its node; where one did, the old entry only costs a look.
        if found.spec.node_name:
            self._of_node.setdefault(found.spec.node_name, set()).add(pool)
        else:
            self._anywhere.add(pool)

    def drop_slice(self, gone: ResourceSlice) -> None:
        """Forget a slice."""
        self._forget_found()
        pool = gone.spec.driver, gone.spec.pool.name
        known = self._pools.get(pool, {})
        known.pop(gone.key, None)
        if not known:
            self._pools.pop(pool, None)
            self._anywhere.discard(pool)
            for pools in self._of_node.values():
                pools.discard(pool)

    def put_class(self, found: DeviceClass) -> None:
        """Take up a class, or what became of it."""
        self.classes[found.key] = found
        self._forget_found()

    def drop_class(self, gone: DeviceClass) -> None:
        """Forget a class."""
        self.classes.pop(gone.key, None)
        self._forget_found()

    def _forget_found(self) -> None:
        """Nothing holds that was found out about devices and selectors: either may be another now."""
        self._offers.clear()
        self._selected.clear()
        self._too_hard.clear()

    def put_claim(self, claim: ResourceClaim) -> None:
        """Take up a claim; once it says what it holds, that is no longer only assumed."""
        self.claims[claim.key] = claim
        if claim.status.allocation is not None:
            # The watch confirms it, whoever has written it.
            self.unassume(claim.key)

    def drop_claim(self, key: str) -> None:
        """Forget a claim."""
        self.claims.pop(key, None)
        self.unassume(key)

    def unassume(self, key: str) -> None:
        """Forget what was assumed of a claim: it holds what it says."""
        self.assumed.pop(key, None)
        self.sent.discard(key)

    # what pods ask

    def against(self, pod: objects.Pod) -> str | None:
        """Why a pod with these claims is placed nowhere now, or None."""
        for name, key in claims_of(pod):
            claim = self.claims.get(key or "")
            if key is None:
                # kube-controller-manager makes it; the watch will tell.
                return f"the resource claim {name} has not been made from its template yet"
            if claim is None:
                return f"the resource claim {key} does not exist"
            reason = self._claim_against(claim, pod)
            if reason is not None:
                return f"the resource claim {key} {reason}"
        return None

    def _claim_against(self, claim: ResourceClaim, pod: objects.Pod) -> str | None:
        if claim.metadata.deletion_timestamp is not None:
            return "is being deleted"
        owner = next((one for one in claim.metadata.owner_references if one.controller), None)
        # A claim from a template belongs to one pod, whoever else names it.
        if owner is not None and owner.kind == "Pod" and owner.uid != pod.metadata.uid:
            return "was made for another pod"
        users = claim.status.reserved_for
        if len(users) >= MOST_CONSUMERS and all(one.uid != pod.metadata.uid for one in users):
            return f"is used by {MOST_CONSUMERS} pods already"
        if claim.status.allocation is not None:
            return None
        for wish in _wishes(claim):
            kind = self.classes.get(wish.device_class_name)
            if kind is None:
                return f"names the device class {wish.device_class_name!r}, which does not exist"
            try:
                for expression in allocation.expressions((*kind.spec.selectors, *wish.selectors)):
                    cel.read(expression)
            except cel.CelError as error:
                return f"has a selector that is not supported by this scheduler: {error}"
            except allocation.Unallocatable as error:
                return str(error)
        return None

    def needs(self, pod: objects.Pod) -> Needs | None:
        """Prepare the claims of a pod; None where it has none."""
        if not pod.spec.resource_claims:
            return None
        new, reach = [], []
        for _, key in claims_of(pod):
            claim = self.claims.get(key or "")
            if claim is None:
                continue
            held = self._allocation(claim)
            if held is None:
                new.append(claim)
            else:
                reach.append(held.node_selector)
        # Only new claims need to know what is taken; listing it walks all claims.
        return Needs(tuple(new), tuple(reach), self._taken() if new else allocation.Taken())

    def why_not(self, needs: Needs, node: objects.Node) -> str | None:
        """The reason against a node, or None."""
        # Devices that are allocated already must be reachable from the node.
        if not all(selectors.node_terms(one, node) for one in needs.reach):
            return "devices of a claim are elsewhere"
        found = self._allocate(needs, node)
        return found if isinstance(found, str) else None

    def assume(self, pod: objects.Pod, node: objects.Node) -> str | None:
        """Give a pod its devices on a node; the reason where that cannot be after all."""
        needs = self.needs(pod)
        found = self._allocate(needs, node) if needs is not None else []
        if isinstance(found, str):
            return found
        for claim, given in zip(needs.new if needs is not None else (), found, strict=True):
            self.assumed[claim.key] = Assumed(pod.metadata.uid, given)
        return None

    def forget(self, uid: str) -> None:
        """Take back what was only assumed for a pod."""
        # What was sent may stand in the API server: it holds until the watch or a look says otherwise.
        for key in [key for key, one in self.assumed.items() if one.pod == uid and key not in self.sent]:
            del self.assumed[key]

    def idle(self, pod: objects.Pod) -> list[ResourceClaim]:
        """Claims of a waiting pod that hold devices for nobody else: they may be given back."""
        found = (self.claims.get(key or "") for _, key in claims_of(pod))
        return [
            one for one in found
            if one is not None and one.status.allocation is not None
            and all(user.uid == pod.metadata.uid for user in one.status.reserved_for)
        ]  # fmt: skip

    def _allocate(self, needs: Needs, node: objects.Node) -> list[Allocation] | str:
        """Return devices for each new claim on a node, or why there are none."""
        if not needs.new:
            return []
        if any(one.metadata.uid in self._too_hard for one in needs.new):
            return "devices: a claim's constraints leave too many ways to try"
        try:
            found = allocation.allocate(needs.new, self.classes, self._offer(node), needs.taken, self._selected)
        except allocation.TooHard as error:
            # once is enough: on a thousand nodes its owner would hold everybody up
            self._too_hard.update(one.metadata.uid for one in needs.new)
            return f"devices: {error}"
        except (allocation.Unallocatable, InvalidInput) as error:
            return f"devices: {error}"
        return "too few devices" if found is None else found

    def _offer(self, node: objects.Node) -> allocation.Offer:
        known = self._offers.get(node.metadata.name)
        if known is not None:
            return known
        offer = allocation.Offer(node.metadata.name)
        # Sorted: the order of pools is part of which solution comes first. Devices that are waited for come last.
        for pool in sorted(self._of_node.get(node.metadata.name, set()) | self._anywhere, key=self._order):
            offer.add(pool, self._pools[pool].values(), node)
        if not self._anywhere:  # else it depends on the node's labels, which may change
            self._offers[node.metadata.name] = offer
        return offer

    def _order(self, pool: allocation.PoolId) -> tuple[bool, allocation.PoolId]:
        slices = self._pools[pool].values()
        return any(one.binding_conditions for each in slices for one in each.spec.devices), pool

    def _allocation(self, claim: ResourceClaim) -> Allocation | None:
        if claim.status.allocation is not None:
            return claim.status.allocation
        return self.assumed[claim.key].allocation if claim.key in self.assumed else None

    def _taken(self) -> allocation.Taken:
        whole: set[allocation.DeviceId] = set()
        shares: dict[allocation.DeviceId, device_objects.Share] = {}
        for claim in self.claims.values():
            held = self._allocation(claim)
            for one in held.devices.results if held is not None else ():
                id = one.driver, one.pool, one.device
                if one.admin_access:
                    continue
                if one.share_id is None:
                    whole.add(id)
                else:
                    share = {name: quantity.exact(text) for name, text in one.consumed_capacity.items()}
                    device_objects.add_share(shares.setdefault(id, {}), share)
        return allocation.Taken(frozenset(whole), shares)


def claims_of(pod: objects.Pod) -> Iterator[tuple[str, str | None]]:
    """Names in the pod and keys of its claims; None as key where a template's claim is not there yet.

    A template may come to nothing: then the status names no claim, and none is needed.
    """
    made: Mapping[str, str | None] = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    for ref in pod.spec.resource_claims:
        name = ref.resource_claim_name
        if name is None and ref.name in made:
            name = made[ref.name]
            if name is None:
                continue
        yield ref.name, f"{pod.metadata.namespace}/{name}" if name is not None else None


def unsupported(pod: objects.Pod, devices: Devices | None) -> str | None:
    """Why this scheduler does not place a pod because of its resource claims, or None."""
    if not pod.spec.resource_claims:
        return None
    if devices is None:
        return (
            "it has resource claims (dynamic resource allocation), which this scheduler does not read "
            "([devices] allocate, rights: deploy/devices), or has not read yet"
        )
    return devices.against(pod)


def _wishes(claim: ResourceClaim) -> Iterator[DeviceRequest]:
    for request in claim.spec.devices.requests:
        yield from (request.exactly,) if request.exactly is not None else request.first_available
