"""Shares of a device's capacity: what a request takes of a device that may be given to several of them.

Amounts are in the device's own units, by the names of its capacities. What a request does not name costs the policy's
default, or all there is; what it names is rounded up to the next value that the device gives out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

from wattflow.kube import quantity
from wattflow.kube.dra.device_objects import Capacity, Device, DeviceRequest, SharePolicy

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


def fits(share: Mapping[str, Decimal], held: Mapping[str, Decimal], device: Device) -> bool:
    """Tell whether a device has a share left beside those that are given away."""
    return all(held.get(name, 0) + amount <= quantity.exact(device.capacity[name].value)
               for name, amount in share.items())  # fmt: skip


def add(held: Share, share: Mapping[str, Decimal], sign: int = 1) -> None:
    """Count a share as given away, or as given back (sign -1)."""
    for name, amount in share.items():
        held[name] = held.get(name, Decimal(0)) + sign * amount


def written(share: Mapping[str, Decimal]) -> dict[str, str]:
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
