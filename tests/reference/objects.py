"""Nodes and attempts while they live, and the three questions asked of them: what fits, how fast, how many watts."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from reference.facts import Offer
from wattflow.model.cluster import Device, Node
from wattflow.model.workflow import Variant

TOLERANCE = 1e-9
INF = math.inf


@dataclass(eq=False)
class Attempt:
    """One attempt of one part of a task; holds cores, memory and devices from placed to end."""

    task: int
    part: int
    number: int
    function: int
    offer: Offer
    node: LiveNode
    devices: tuple[int, ...]
    sequence: int
    ready_s: float
    placed_s: float
    stage: str = "placed"
    stage_since_s: float = 0.0
    due_s: float = INF
    rate: float = 1.0
    remaining: float = 0.0
    work_s: float = 0.0
    fails: bool = False
    cold_for_s: float = 0.0
    bytes: float = 0.0
    latency_s: float = 0.0
    start_s: float = math.nan
    limit_at_s: float = INF
    spent_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    run_j: float = 0.0
    cold_j: float = 0.0
    transfer_j: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether it has several devices, each to itself."""
        return len(self.devices) > 1

    @property
    def counted_cores(self) -> float:
        """Cores times the power of its frequency level: its part of the watts above idle."""
        return self.offer.variant.cores * self.node.facts.frequencies[self.offer.level].power

    def share_of(self, device: Device) -> float:
        """The share of a device that it takes."""
        return 1.0 if self.whole else share_taken(device, self.offer.variant)

    def busy_share_of(self, device: Device) -> float:
        """The share that it keeps busy on average."""
        return busy_share(device, self.offer.variant)


def at_clock(device: Device, function: str, clock: int) -> tuple[float, float]:
    """Seconds and watts above idle at a level of a device, over those at full clock."""
    if clock == 0:
        return 1.0, 1.0
    assert device.levels is not None
    idle_w, full_w = device.power.at(0), device.power.at(1)
    cost = device.levels.cost(function, clock, idle_w / full_w)
    assert cost is not None
    seconds, joules = cost
    watts = full_w * joules / seconds  # joules are the whole device's
    return seconds, max(0.01, (watts - idle_w) / (full_w - idle_w))


def has_clock(device: Device, offer: Offer) -> bool:
    """Whether a device has the offer's level and knows how its function responds."""
    if offer.clock == 0:
        return True
    levels = device.levels
    return levels is not None and offer.clock < len(levels.values) and levels.cost(offer.function, 1) is not None


def share_taken(device: Device, variant: Variant) -> float:
    """Exclusive and time-sliced devices are taken as a whole, MIG in sevenths, MPS as asked."""
    if device.sharing == "mps":
        return variant.device_share
    if device.sharing == "mig":
        return math.ceil(variant.device_share * 7 - TOLERANCE) / 7
    return 1.0


def busy_share(device: Device, variant: Variant) -> float:
    """Share times duty, whatever the mode; MIG rounds shares up."""
    share = math.ceil(variant.device_share * 7 - TOLERANCE) / 7 if device.sharing == "mig" else variant.device_share
    return share * variant.device_duty


def busy_together(device: Device, variants: list[Variant]) -> float:
    """Busy share of a device with these on it: those that take turns never overlap."""
    busy, duty = sum(busy_share(device, v) for v in variants), sum(v.device_duty for v in variants)
    return busy / max(1.0, duty) if device.sharing == "time-slice" else busy


@dataclass(eq=False)
class LiveNode:
    """A node's state: on, falling (asleep), asleep, waking or lost; its attempts and idle containers."""

    index: int
    facts: Node
    state: str = "on"
    due_s: float = INF
    wake_after_fall: bool = False
    idle_since_s: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)
    idle_containers: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    loaded: dict[int, int] = field(default_factory=dict)

    # What fits (section 4)

    def offered_cores(self, now_s: float) -> float:
        platform = self.facts.serverless
        if platform is None:
            return self.facts.request_cores
        offered = min(self.facts.request_cores, platform.burst + platform.ramp_per_s * now_s)
        return math.floor(offered * 1e6 + 1e-3) / 1e6

    def guaranteed_cores(self) -> float:
        return sum([a.offer.guaranteed_cores for a in self.attempts])

    def tenants(self, device: int) -> list[Attempt]:
        return [a for a in self.attempts if device in a.devices]

    def placements(self, offers: list[Offer], now_s: float) -> list[tuple[Offer, tuple[int, ...]]]:
        """Each offer that fits now, with the devices it would take (none for a CPU variant)."""
        free_cores = self.offered_cores(now_s) - self.guaranteed_cores() + TOLERANCE
        if all(offer.guaranteed_cores > free_cores for offer in offers):
            return []
        free_bytes = self.facts.memory_bytes - sum(a.offer.variant.memory_bytes for a in self.attempts)
        return [
            (offer, devices)
            for offer in offers
            if offer.guaranteed_cores <= free_cores and offer.variant.memory_bytes <= free_bytes and self.suits(offer)
            for devices in self.device_choices(offer)
        ]

    def rooms(self, offer: Offer, gone: set[int], now_s: float) -> int:
        """How often an offer's cores and memory would fit if the attempts in ``gone`` had ended."""
        if self.state == "lost" or not self.suits(offer) or not self.has_devices(offer):
            return 0
        left = [a for a in self.attempts if a.sequence not in gone]
        free_cores = self.offered_cores(now_s) - sum(a.offer.guaranteed_cores for a in left)
        count = math.floor(free_cores / offer.guaranteed_cores + TOLERANCE)
        if offer.variant.memory_bytes > 0:
            free_bytes = self.facts.memory_bytes - sum(a.offer.variant.memory_bytes for a in left)
            count = min(count, free_bytes // offer.variant.memory_bytes)
        return max(0, count)

    def has_devices(self, offer: Offer) -> bool:
        """Whether an empty node would have the devices."""
        variant = offer.variant
        able = [
            d
            for d in self.facts.devices
            if d.kind == variant.device
            and variant.device_memory_bytes <= d.memory_bytes
            and (not variant.device_models or d.model in variant.device_models)
            and has_clock(d, offer)
        ]
        return variant.device is None or len(able) >= max(1, variant.devices)

    def suits(self, offer: Offer) -> bool:
        """Architecture, features and the frequency level are there."""
        variant, facts = offer.variant, self.facts
        return (
            offer.level < len(facts.frequencies)
            and variant.architecture in (None, facts.architecture)
            and set(variant.features) <= set(facts.features)
        )

    def device_choices(self, offer: Offer) -> list[tuple[int, ...]]:
        """``[()]`` without a device; else each device that has room, or the first free ones together."""
        variant = offer.variant
        if variant.device is None:
            return [()]
        count = max(1, variant.devices)
        able = [d for d in range(len(self.facts.devices)) if self.device_fits(d, offer, count > 1)]
        if count == 1:
            return [(d,) for d in able]
        return [tuple(able[:count])] if len(able) >= count else []

    def clock(self, index: int) -> int:
        """The level that a device has: the fastest that one of its attempts asked for; full without any."""
        return min((a.offer.clock for a in self.tenants(index)), default=0)

    def device_fits(self, index: int, offer: Offer, whole: bool) -> bool:
        device, tenants, variant = self.facts.devices[index], self.tenants(index), offer.variant
        if not has_clock(device, offer) or (tenants and offer.clock > self.clock(index)):
            return False
        if device.kind != variant.device or (variant.device_models and device.model not in variant.device_models):
            return False
        used_bytes = sum(a.offer.variant.device_memory_bytes for a in tenants)
        if used_bytes + variant.device_memory_bytes > device.memory_bytes:
            return False
        if whole or device.sharing == "exclusive":
            return not tenants
        if any(a.whole for a in tenants):
            return False
        if device.sharing == "time-slice":
            return len(tenants) < device.slots
        taken = sum(a.share_of(device) for a in tenants)
        return taken + share_taken(device, variant) <= 1 + TOLERANCE

    # How fast (sections 5 and 6)

    def cpu_rate(self) -> float:
        """r = X(D)/D with D all cores in their run stage, those beside a device included."""
        return self.rate_at(sum(a.offer.variant.cores for a in self.attempts if a.stage == "run"))

    def rate_at(self, demand: float) -> float:
        cores, threads, slowdown = self.facts.cores, self.facts.threads, self.facts.smt_slowdown
        if demand <= cores:
            return 1.0
        if demand <= threads:
            throughput = cores + (demand - cores) * (threads / slowdown - cores) / (threads - cores)
        else:
            throughput = threads / slowdown if threads > cores else float(cores)
        return throughput / demand

    def device_rate(self, index: int) -> float:
        device = self.facts.devices[index]
        running = [a for a in self.tenants(index) if a.stage == "run"]
        count = len(running)
        if device.sharing == "time-slice":
            duty = sum(a.offer.variant.device_duty for a in running)
            return 1.0 / max(1.0, duty * (1.0 + device.switch_loss)) if count > 1 else 1.0
        if device.sharing == "mps":
            shares = sum(a.busy_share_of(device) for a in running)
            return 1.0 / (1.0 + device.interference * shares * (count - 1) / count)
        return 1.0

    def clocked_rate(self, index: int, attempt: Attempt) -> float:
        """A device's rate for an attempt whose work is told at the clock that it asked for."""
        device, offer = self.facts.devices[index], attempt.offer
        asked_s = at_clock(device, offer.function, offer.clock)[0]
        return self.device_rate(index) * asked_s / at_clock(device, offer.function, self.clock(index))[0]

    def set_rates(self, now_s: float) -> None:
        """Give every attempt its present rate; its due time moves only if the rate changed."""
        cpu_rate = self.cpu_rate()
        transfers = sum(a.stage == "bytes" for a in self.attempts)
        for attempt in self.attempts:
            if attempt.stage == "bytes":
                rate = self.facts.network.bandwidth_bytes_per_s / transfers
            elif attempt.stage == "run":
                rate = min(self.clocked_rate(d, attempt) for d in attempt.devices) if attempt.devices else cpu_rate
            else:
                continue
            if rate != attempt.rate:
                attempt.rate, attempt.due_s = rate, now_s + attempt.remaining / rate

    # How many watts (section 7)

    def idle_w(self) -> float:
        profile = self.facts.power
        return (profile.at(0) if profile else 0.0) + sum(d.power.at(0) for d in self.facts.devices)

    def power(self) -> tuple[float, str, list[tuple[Attempt, float]]]:
        """(watts without the attempts' shares, the account they go to, watts by attempt)."""
        sleep = self.facts.sleep
        if self.state == "lost":
            return 0.0, "idle", []
        if self.state == "asleep":
            assert sleep is not None
            return sleep.watts, "sleep", []
        if self.state in ("waking", "falling"):
            assert sleep is not None
            return (self.idle_w() if sleep.wake_w is None else sleep.wake_w), "wake", []
        return self.idle_w(), "idle", self.cpu_shares() + self.device_shares()

    def cpu_shares(self) -> list[tuple[Attempt, float]]:
        """P(k) − P(0), each busy core the same but for its frequency level's power."""
        profile = self.facts.power
        busy = [a for a in self.attempts if a.stage in ("run", "cold")]
        cores = sum(a.offer.variant.cores for a in busy)
        if profile is None or cores == 0:
            return []
        above_w = profile.at(min(self.facts.threads, cores)) - profile.at(0)
        return [(a, above_w * a.counted_cores / cores) for a in busy]

    def device_shares(self) -> list[tuple[Attempt, float]]:
        """Each device's watts above idle, by share of the attempts in their run stage on it."""
        shares: list[tuple[Attempt, float]] = []
        for index, device in enumerate(self.facts.devices):
            running = [a for a in self.tenants(index) if a.stage == "run"]
            if not running:
                continue
            total = sum(a.busy_share_of(device) for a in running)
            used = busy_together(device, [a.offer.variant for a in running])
            above_w = device.power.at(used) - device.power.at(0)
            power = {id(a): at_clock(device, a.offer.function, self.clock(index))[1] for a in running}
            shares += [(a, above_w * a.busy_share_of(device) * power[id(a)] / total) for a in running]
        return shares
