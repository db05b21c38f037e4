"""What a policy of the reference may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.facts import Offer
from reference.objects import busy_together

if TYPE_CHECKING:
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
            devices = live.device_choices(offer.variant)[0]
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
            added = card.power.at(more_used) - card.power.at(used)
            watts += added * max(1, offer.variant.devices)
        return watts

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
