"""Choosing devices for the claims of a pod on one node, in the order and with the result of kube-scheduler's allocator.

Claims, their requests and devices are tried in the order in which they are written, with backtracking; the first
solution is taken. A device that allows it is given out in shares of its capacity (`device_objects.share_of`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from wattflow.kube import objects, quantity
from wattflow.kube.dra import cel, device_objects
from wattflow.kube.dra.device_objects import (
    Allocation,
    Attribute,
    Constraint,
    Device,
    DeviceClass,
    DeviceRequest,
    DeviceToleration,
    Given,
    GivenConfig,
    GivenDevices,
    ResourceClaim,
    ResourceSlice,
    Selector,
)
from wattflow.kube.filters import selectors
from wattflow.model.errors import InvalidInput

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
Selected = dict[tuple[bytes, DeviceId], bool]
"""Tells whether a wish (as text) selects a device: asked again and again for pods alike, and expressions are slow."""
PoolId = tuple[str, str]
Counters = dict[tuple[str, str], Decimal]
"""Amounts left, by counter set and counter."""
MOST_RESULTS = 32
"""Devices of one claim, by the API."""
_MOST_STEPS = 20_000
"""Attempts for one pod on one node: constraints can make the search exponential, and it must not hold us up."""
_KEEP_OFF = ("NoSchedule", "NoExecute")


class Unallocatable(ValueError):
    """Why a claim cannot be allocated whatever is free: something about it is not understood or not there."""


class TooHard(Unallocatable):
    """Constraints leave so many ways to try that the search was ended."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Devices that are given away whole, and what is given away of those that several requests share."""

    whole: frozenset[DeviceId] = frozenset()
    shares: Mapping[DeviceId, device_objects.Share] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offered:
    """A device that a node can reach."""

    id: DeviceId
    device: Device
    slice: ResourceSlice

    @property
    def pool(self) -> PoolId:
        return self.id[:2]


@dataclass(slots=True)
class Offer:
    """Devices that one node can reach.

    Attributes:
        node: The node's name.
        unfinished: Whether a driver is about to publish more of them: "all" cannot be told then.
        counters: Of each pool, what its devices share (partitions of one GPU), nothing taken off.
        sharing: Devices of these pools, also those of other nodes, that take from the counters.
    """

    node: str = ""
    devices: list[Offered] = field(default_factory=list)
    unfinished: bool = False
    counters: dict[PoolId, Counters] = field(default_factory=dict)
    sharing: list[Offered] = field(default_factory=list)

    def add(self, pool: PoolId, slices: Iterable[ResourceSlice], node: objects.Node) -> None:
        """Add what the node can reach of a pool; slices of an older generation than its newest are void."""
        # By name: watches tell slices in any order, and the first solution must not depend on that.
        found = sorted(slices, key=lambda one: one.key)
        newest = max(one.spec.pool.generation for one in found)
        current = [one for one in found if one.spec.pool.generation == newest]
        every = [Offered((*pool, device.name), device, one) for one in current for device in one.spec.devices]
        reached = [one for one in every if _reaches(one.slice, one.device, node)]
        # A driver publishes a pool as several slices, one after another; each says how many there are.
        if len(current) != current[0].spec.pool.resource_slice_count:
            # nothing is taken from a pool of which a part is missing; only nodes that it concerns have to know
            self.unfinished = self.unfinished or bool(reached)
            return
        self.devices += reached
        self.sharing += [one for one in every if one.device.consumes_counters]
        self.counters[pool] = {
            (each.name, name): quantity.exact(counter.value)
            for one in current
            for each in one.spec.shared_counters
            for name, counter in each.counters.items()
        }


def _reaches(one: ResourceSlice, device: Device, node: objects.Node) -> bool:
    place = device if one.spec.per_device_node_selection else one.spec
    if place.node_name:
        return place.node_name == node.metadata.name
    return place.all_nodes or (place.node_selector is not None and selectors.node_terms(place.node_selector, node))


def allocate(
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    offer: Offer,
    taken: Taken,
    known: Selected,
) -> list[Allocation] | None:
    """Return an allocation for each claim, or None where the node has too few devices left.

    Args:
        claims: Claims of one pod.
        classes: All device classes by name.
        offer: What the node can reach.
        taken: What is given away.
        known: What was found out before, of the same classes and slices; more is added.

    Raises:
        Unallocatable: a claim asks for something that is not understood, or for a class that is not there.
    """
    search = _Search(claims, classes, offer, set(taken.whole), known)
    search.shares = {id: [dict(share)] for id, share in taken.shares.items()}
    # Counters are what a pool has; devices that are given away have their part of it already.
    for one in offer.sharing:
        if one.id in search.taken or one.id in search.shares:
            search.count(one, -1)
    if not search.claim(0):
        return None
    return [_result(claim, search, number) for number, claim in enumerate(claims)]


@dataclass(slots=True)
class _Chosen:
    """A device of a request; ``share`` where it is one that others may have a share of, too."""

    offered: Offered
    request: str
    wish: DeviceRequest
    share: device_objects.Share | None = None


@dataclass(slots=True)
class _Search:
    """A depth-first search with what is chosen so far.

    Attributes:
        shares: Of each device that several requests may share, those given away before and now.
    """

    claims: Sequence[ResourceClaim]
    classes: Mapping[str, DeviceClass]
    offer: Offer
    taken: set[DeviceId]
    known: Selected
    chosen: list[list[_Chosen]] = field(init=False)
    shares: dict[DeviceId, list[device_objects.Share]] = field(default_factory=dict)
    left: dict[PoolId, Counters] = field(init=False)
    _steps: int = 0
    _texts: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chosen = [[] for _ in self.claims]
        # Copies: the offer is kept for later pods.
        self.left = {pool: dict(counters) for pool, counters in self.offer.counters.items()}

    def claim(self, number: int) -> bool:
        """Allocate this claim and all after it."""
        return number == len(self.claims) or self._request(number, 0)

    def _request(self, number: int, index: int) -> bool:
        requests = self.claims[number].spec.devices.requests
        if index == len(requests):
            return self.claim(number + 1)
        asked = requests[index]
        if asked.exactly is not None:
            return self._wish(number, index, asked.name, asked.exactly)
        # In the order of preference; the first alternative that lets everything else fit is taken.
        return any(self._wish(number, index, f"{asked.name}/{one.name}", one) for one in asked.first_available)

    def _wish(self, number: int, index: int, name: str, wish: DeviceRequest) -> bool:
        if wish.allocation_mode == "All":
            every = [one for one in self.offer.devices if self._selects(wish, one) and self._has(wish, one)]
            # "All" of nothing, or of a pool that is still being published, is not satisfied.
            if self.offer.unfinished or not every:
                return False
            return self._fill(number, index, name, wish, every, len(every))
        if wish.allocation_mode != "ExactCount":
            raise Unallocatable(f"request {name}: the allocation mode {wish.allocation_mode!r} is not supported")
        return self._fill(number, index, name, wish, self.offer.devices, wish.count)

    def _fill(
        self, number: int, index: int, name: str, wish: DeviceRequest, among: Sequence[Offered], count: int
    ) -> bool:
        """Choose so many devices more for a wish, then go on with the next request."""
        if count == 0:
            return self._request(number, index + 1)
        if len(self.chosen[number]) + count > MOST_RESULTS:
            return False
        # with "all" each device must be got: the next one or none
        for at, one in enumerate(among[:1] if wish.allocation_mode == "All" else among):
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise TooHard("its constraints leave too many ways to try")
            if not self._choose(number, name, wish, one):
                continue
            # devices before this one were tried in an earlier place: other orders of the same are no other solution
            if self._fill(number, index, name, wish, among[at + 1 :], count - 1):
                return True
            self._give_back(number)
        return False

    def _choose(self, number: int, name: str, wish: DeviceRequest, one: Offered) -> bool:
        mine = self.chosen[number]
        shared = one.device.allow_multiple_allocations
        if wish.admin_access:
            # An administrator's claim may look at a taken device, but not get the same one twice.
            if not shared and any(other.offered.id == one.id for other in mine):
                return False
        elif one.id in self.taken:
            return False
        if not self._selects(wish, one) or not self._has(wish, one):
            return False
        constraints = self.claims[number].spec.devices.constraints
        if not all(_kept(rule, name, one, mine) for rule in constraints):
            return False
        if not wish.admin_access:  # an administrator's look at a device takes nothing from others
            # the first share of a device takes its part of the counters for all of them
            if not self.shares.get(one.id) and not self._consume(one):
                return False
            if not shared:
                self.taken.add(one.id)
        share = device_objects.share_of(wish, one.device) if shared else None
        if share is not None:
            self.shares.setdefault(one.id, []).append(share)
        mine.append(_Chosen(one, name, wish, share))
        return True

    def _give_back(self, number: int) -> None:
        last = self.chosen[number].pop()
        id = last.offered.id
        if last.share is not None:
            self.shares[id].pop()
        if not last.wish.admin_access:
            self.taken.discard(id)
            if not self.shares.get(id):
                self.count(last.offered, 1)

    def _has(self, wish: DeviceRequest, one: Offered) -> bool:
        """Tell whether a device has what a wish asks of its capacity, beside the shares that are given away."""
        share = device_objects.share_of(wish, one.device)
        if share is None:
            return False
        held: device_objects.Share = {}
        for each in self.shares.get(one.id, ()):
            device_objects.add_share(held, each)
        return device_objects.share_fits(share, held, one.device)

    def _consume(self, one: Offered) -> bool:
        """Take a device's part of what its pool shares; False, and nothing taken, where that is not there."""
        self.count(one, -1)
        counters = self.left[one.pool]
        asked = ((each.counter_set, name) for each in one.device.consumes_counters for name in each.counters)
        # A counter that its pool does not have counts as used up.
        if all(counters.get(key, Decimal(-1)) >= 0 for key in asked):
            return True
        self.count(one, 1)
        return False

    def count(self, one: Offered, sign: int) -> None:
        """Give a device's part of what its pool shares back, or take it (sign -1)."""
        counters = self.left[one.pool]
        for each in one.device.consumes_counters:
            for name, counter in each.counters.items():
                key = each.counter_set, name
                if key in counters:
                    counters[key] += sign * quantity.exact(counter.value)

    def _selects(self, wish: DeviceRequest, one: Offered) -> bool:
        # By identity within one search: encoding a wish takes longer than looking it up.
        text = self._texts.get(id(wish))
        if text is None:
            # Everything that `selects` reads of a wish; a part that was left out would mix up wishes.
            asked = [wish.device_class_name, wish.selectors, wish.tolerations, wish.admin_access, wish.capacity]
            text = self._texts[id(wish)] = msgspec.json.encode(asked)
        found = self.known.get((text, one.id))
        if found is None:
            found = self.known[text, one.id] = selects(wish, self.classes, one)
        return found


def selects(wish: DeviceRequest, classes: Mapping[str, DeviceClass], one: Offered) -> bool:
    """Tell whether a device is of the class that a wish names, meets its selectors, and has no taint against it."""
    kind = classes.get(wish.device_class_name)
    if kind is None:
        raise Unallocatable(f"there is no device class {wish.device_class_name!r}")
    about: dict[str, Any] | None = None
    for expression in expressions((*kind.spec.selectors, *wish.selectors)):
        try:
            # Made only where there is an expression to ask.
            about = about or _about(one)
            if not cel.holds(expression, about):
                return False
        except (cel.CelError, InvalidInput) as error:
            raise Unallocatable(f"the selector {expression!r}: {error}") from error
    return wish.admin_access is True or not _kept_off(one.device.taints, wish.tolerations)


def expressions(found: Iterable[Selector]) -> Iterator[str]:
    """Selectors as text."""
    for one in found:
        if one.cel is None:
            raise Unallocatable("a selector that is no CEL expression is not supported by this scheduler")
        yield one.cel.expression


def _about(one: Offered) -> dict[str, Any]:
    """Return a device as expressions see it; attributes of kinds that we do not know are not there."""
    known = {name: _raw(found) for name, found in one.device.attributes.items()}
    values = {
        name: cel.Version.of(str(raw[1])) if raw[0] == "version" else raw[1]
        for name, raw in known.items()
        if raw is not None
    }
    capacity = {name: found.value for name, found in one.device.capacity.items()}
    return cel.device(one.id[0], values, capacity, one.device.allow_multiple_allocations)


def _kept_off(taints: Iterable[objects.Taint], tolerations: Iterable[DeviceToleration]) -> bool:
    known = list(tolerations)
    return any(one.effect in _KEEP_OFF and not any(_tolerates(each, one) for each in known) for one in taints)


def _tolerates(one: DeviceToleration, taint: objects.Taint) -> bool:
    if one.effect not in ("", taint.effect) or one.key not in ("", taint.key):
        return False
    # An empty key tolerates all taints only with `Exists`.
    return one.operator == "Exists" or (one.key != "" and one.value == taint.value)


def _raw(found: Attribute) -> tuple[str, str | int | bool] | None:
    kinds = {"string": found.string, "int": found.int_, "bool": found.bool_, "version": found.version}
    return next(((kind, value) for kind, value in kinds.items() if value is not None), None)


def _kept(rule: Constraint, request: str, one: Offered, chosen: Iterable[_Chosen]) -> bool:
    """Tell whether a device may join those that a constraint is about."""
    about = set(rule.requests)

    def concerned(name: str) -> bool:
        # A constraint that names a request means its alternatives too ("request/alternative").
        return not about or name in about or name.partition("/")[0] in about

    if not concerned(request):
        return True
    name = rule.match_attribute or rule.distinct_attribute
    if name is None:
        raise Unallocatable("a constraint that is neither matchAttribute nor distinctAttribute is not supported")
    value = _attribute(one, name)
    others = [_attribute(other.offered, name) for other in chosen if concerned(other.request)]
    # A device without the attribute cannot keep a promise about it.
    if value is None:
        return False
    return all(other == value for other in others) if rule.match_attribute else value not in others


def _attribute(one: Offered, name: str) -> tuple[str, str | int | bool] | None:
    domain, _, own = name.partition("/")
    found = one.device.attributes.get(name)
    # Names without a domain are the driver's own.
    if found is None and domain == one.id[0]:
        found = one.device.attributes.get(own)
    return _raw(found) if found is not None else None


def _result(claim: ResourceClaim, search: _Search, number: int) -> Allocation:
    chosen = search.chosen[number]
    results = [
        Given(
            request=one.request,
            driver=one.offered.id[0],
            pool=one.offered.id[1],
            device=one.offered.id[2],
            admin_access=one.wish.admin_access,
            tolerations=one.wish.tolerations,
            share_id=None if one.share is None else str(uuid.uuid4()),
            consumed_capacity=device_objects.share_text(one.share or {}),
            binding_conditions=one.offered.device.binding_conditions,
            binding_failure_conditions=one.offered.device.binding_failure_conditions,
        )
        for one in chosen
    ]
    config = [*_class_config(chosen, search.classes), *_claim_config(claim, chosen)]
    return Allocation(
        devices=GivenDevices(results=results, config=config), node_selector=_reach(chosen, search.offer.node)
    )


def _class_config(chosen: Sequence[_Chosen], classes: Mapping[str, DeviceClass]) -> Iterator[GivenConfig]:
    """Each class's parameters once, with all requests that got devices of it."""
    by_class: dict[str, list[str]] = {}
    for one in chosen:
        names = by_class.setdefault(one.wish.device_class_name, [])
        if one.request not in names:
            names.append(one.request)
    for kind, names in by_class.items():
        for each in classes[kind].spec.config:
            yield GivenConfig(source="FromClass", requests=names, opaque=each.opaque)


def _claim_config(claim: ResourceClaim, chosen: Sequence[_Chosen]) -> Iterator[GivenConfig]:
    got = {one.request for one in chosen}
    names = got | {name.partition("/")[0] for name in got}
    for each in claim.spec.devices.config:
        if not each.requests or not names.isdisjoint(each.requests):
            yield GivenConfig(source="FromClaim", requests=each.requests, opaque=each.opaque)


def _reach(chosen: Sequence[_Chosen], node: str) -> objects.NodeSelector | None:
    """Return which nodes can reach all of the devices; None is all.

    One device of a single node, or one that is attached to the node, ties the claim to that node. Else all selectors
    hold together, as one term.
    """
    terms: list[objects.Requirement] = []
    fields: list[objects.Requirement] = []
    for one in chosen:
        spec = one.offered.slice.spec
        place = one.offered.device if spec.per_device_node_selection else spec
        if place.node_name or one.offered.device.binds_to_node:
            here = objects.Requirement(key="metadata.name", operator="In", values=[node])
            return objects.NodeSelector(node_selector_terms=[objects.NodeSelectorTerm(match_fields=[here])])
        if place.node_selector is not None:
            for term in place.node_selector.node_selector_terms:
                terms += [each for each in term.match_expressions if each not in terms]
                fields += [each for each in term.match_fields if each not in fields]
    if not terms and not fields:
        return None
    return objects.NodeSelector(
        node_selector_terms=[objects.NodeSelectorTerm(match_expressions=terms, match_fields=fields)]
    )
