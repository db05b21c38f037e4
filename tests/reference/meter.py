"""Joules, grams and money: watts held between two instants, added up node by node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reference.facts import ACCOUNTS
from reference.objects import Attempt, LiveNode
from wattflow.model.cluster import Cluster, Series

J_PER_KWH = 3.6e6
_IDLE, _RUN, _COLD, _TRANSFER, _LOST = (
    ACCOUNTS.index(a) for a in ("idle", "run", "cold_start", "transfer", "lost")
)  # fmt: skip


def series_at(series: Series, at_s: float) -> float:
    """The value at a time; the series repeats."""
    return series.values[math.floor(at_s / series.step_s) % len(series.values)]


def series_integral(series: Series, from_s: float, to_s: float) -> float:
    """∫ value dt, step by step."""
    if len(series.values) == 1:
        return series.values[0] * (to_s - from_s)
    total, at_s, step = 0.0, from_s, math.floor(from_s / series.step_s)
    while at_s < to_s:
        edge_s = min(to_s, (step + 1) * series.step_s)
        total += series.values[step % len(series.values)] * max(0.0, edge_s - at_s)
        at_s, step = max(at_s, edge_s), step + 1
    return total


class Meter:
    """Adds up what each node used."""

    def __init__(self, cluster: Cluster, nodes: Sequence[LiveNode]) -> None:
        self.nodes = nodes
        zones = {zone.name: zone for zone in cluster.zones}
        self.zone = [zones[node.zone] for node in cluster.nodes]
        self.energy_j = np.zeros((len(nodes), len(ACCOUNTS)))
        self.carbon_g = np.zeros(len(nodes))
        self.cost = np.zeros(len(nodes))
        self.peak_w = 0.0

    def add(self, from_s: float, to_s: float) -> None:
        """Watts as they are now, held from ``from_s`` to ``to_s``."""
        held_s = to_s - from_s
        if held_s <= 0:
            return
        cluster_w = 0.0
        for node in self.nodes:
            base_w, account, shares = node.power()
            self.energy_j[node.index, ACCOUNTS.index(account)] += base_w * held_s
            for attempt, watts in shares:
                self._add_share(attempt, watts * held_s)
            node_w = base_w + sum(watts for _, watts in shares)
            zone = self.zone[node.index]
            self.carbon_g[node.index] += node_w * series_integral(zone.carbon, from_s, to_s) * zone.pue / J_PER_KWH
            self.cost[node.index] += node_w * series_integral(zone.price, from_s, to_s) * zone.pue / J_PER_KWH
            cluster_w += node_w
        self.peak_w = max(self.peak_w, cluster_w)

    def _add_share(self, attempt: Attempt, joules: float) -> None:
        if attempt.stage == "cold":
            attempt.cold_j += joules
            self.energy_j[attempt.node.index, _COLD] += joules
        else:
            attempt.run_j += joules
            self.energy_j[attempt.node.index, _RUN] += joules

    def transfer(self, attempt: Attempt, at_s: float) -> None:
        """Joules of the bytes that an attempt has fetched, booked and paid at one moment."""
        node = attempt.node
        attempt.transfer_j = attempt.bytes * node.facts.network.energy_j_per_byte
        self.energy_j[node.index, _TRANSFER] += attempt.transfer_j
        zone = self.zone[node.index]
        paid_j = attempt.transfer_j * zone.pue / J_PER_KWH
        self.carbon_g[node.index] += paid_j * series_at(zone.carbon, at_s)
        self.cost[node.index] += paid_j * series_at(zone.price, at_s)

    def lose(self, attempt: Attempt) -> None:
        """Move the joules of an attempt that did not end well."""
        row = self.energy_j[attempt.node.index]
        row[_RUN] -= attempt.run_j
        row[_COLD] -= attempt.cold_j
        row[_LOST] += attempt.run_j + attempt.cold_j

    def use(self, attempt: Attempt, end_s: float) -> None:
        """The per-use price of a function platform: core seconds of the run stage, and the call."""
        platform = attempt.node.facts.serverless
        if platform is not None:
            used_s = 0.0 if math.isnan(attempt.start_s) else end_s - attempt.start_s
            used_s += attempt.spent_s["hold"]
            price = platform.price_per_core_s * attempt.offer.variant.cores * used_s + platform.price_per_call
            self.cost[attempt.node.index] += price

    def close(self, start_s: float, end_s: float) -> None:
        """Node hours, on or off, over the whole run."""
        for node in self.nodes:
            self.cost[node.index] += node.facts.price_per_hour * (end_s - start_s) / 3600
