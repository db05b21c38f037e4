"""What a policy of the reference may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.facts import Offer
from reference.objects import at_clock, busy_share, busy_together

if TYPE_CHECKING:
    from reference.objects import LiveNode
    from reference.simulator import Simulation


UNKNOWN_W = 1e30
"""A node without a profile loses to every node that has one."""


class View:
    """Read-only questions about the present; estimates, never true runtimes."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.workload = simulation.workload
        self.cluster = simulation.cluster

    @property
    def now_s(self) -> float:
        return self._simulation.now_s

    def waited_s(self, task: int) -> float:
        """Time since the task was queued (for a retry: queued again)."""
        return self._simulation.now_s - self._simulation.ready_s[task]

    def estimate_s(self, task: int) -> float:
        return float(self.workload.estimate_s[task])

    def cores_asked(self, task: int) -> float:
        """Cores of the first variant, over all parts."""
        shape = self.workload.shapes[self.workload.shape[task]]
        return shape.variants[0].cores * shape.parts

    def load(self, node: int) -> float:
        """Guaranteed cores in use, as a share of what requests may sum to."""
        live = self._simulation.nodes[node]
        return live.guaranteed_cores() / live.facts.request_cores

    def estimated_run_s(self, task: int, offer: Offer, node: int, device: int) -> float:
        """Seconds by the estimate, alone on that node or device."""
        live = self._simulation.nodes[node]
        devices: tuple[int, ...] = () if device < 0 else (device,)
        if offer.variant.devices > 1:
            devices = live.device_choices(offer)[0]
        return self._simulation.work_s(self.estimate_s(task), task, offer, live, devices)

    def added_w(self, offer: Offer, node: int, device: int) -> float:
        """Watts that the offer would add: cores of all attempts held on the node count as busy. 1e30: unknown."""
        live = self._simulation.nodes[node]
        facts = live.facts
        if facts.power is None:
            return UNKNOWN_W
        held = sum(a.offer.variant.cores for a in live.attempts)
        more = held + offer.variant.cores
        scale = (held + offer.variant.cores * facts.frequencies[offer.level].power) / more if more > 0 else 1.0
        idle_w, held_w, more_w = (facts.power.at(min(facts.threads, k)) for k in (0, held, more))
        watts = (more_w - idle_w) * scale - (held_w - idle_w)
        if device >= 0:
            card = facts.devices[device]
            there = [a.offer.variant for a in live.tenants(device)]
            used, more_used = busy_together(card, there), busy_together(card, [*there, offer.variant])
            idle_w, used_w, more_w = (card.power.at(k) for k in (0, used, more_used))
            old, new = self._powers(live, device, offer)
            watts += ((more_w - idle_w) * new - (used_w - idle_w) * old) * max(1, offer.variant.devices)
        return watts

    def _powers(self, live: LiveNode, device: int, offer: Offer) -> tuple[float, float]:
        """Mean watts above idle at the clocks before and with the offer, over those at full clock.

        With it, those who are there count by the work that they do: watts times seconds over their seconds now.
        """
        card, there = live.facts.devices[device], live.tenants(device)
        now = live.clock(device)
        then = min([offer.clock, *([now] if there else [])])
        old = new = total = 0.0
        for tenant in there:
            share, function = tenant.busy_share_of(card), tenant.offer.function
            (now_s, now_w), (then_s, then_w) = (at_clock(card, function, clock) for clock in (now, then))
            total, old, new = total + share, old + share * now_w, new + share * then_w * then_s / now_s
        own = busy_share(card, offer.variant)
        new += own * at_clock(card, offer.function, then)[1]
        return old / total if total > 0 else 1.0, new / (total + own) if total + own > 0 else 1.0

    def priced_w(self, offer: Offer, node: int, device: int) -> float:
        """Watts added and, where cores are shared, the watts of the time by which all that share run longer."""
        live = self._simulation.nodes[node]
        added_w = self.added_w(offer, node, device)
        held = sum(a.offer.variant.cores for a in live.attempts)
        before, after = live.rate_at(held), live.rate_at(held + offer.variant.cores)
        if added_w >= UNKNOWN_W or after == 1.0:
            return added_w
        assert live.facts.power is not None
        node_w = live.facts.power.at(min(live.facts.threads, held)) if held > 0 else 0.0
        node_w *= 1 + 0.001 * (held + offer.variant.cores) / live.facts.threads
        if device >= 0:
            return added_w + node_w * (1 - after / before)
        return added_w / after + node_w * (1 / after - 1 / before)
