"""Joules on their way from a node's report into the ledger: believed, counted once, written."""

from __future__ import annotations

from collections.abc import Callable

from wattflow.runtime.accounts import Accounts
from wattflow.runtime.ledger import Ledger
from wattflow.runtime.messages import Energy, Window
from wattflow.runtime.nodes import Nodes
from wattflow.runtime.plausible import Plausible
from wattflow.runtime.records import Trace


class Joules:
    """Takes what nodes report about energy.

    Args:
        accounts: Whose reservations they settle.
        now: Seconds on the service's clock.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger, accounts: Accounts, now: Callable[[], float]) -> None:
        self.plausible = Plausible(ledger.counts.refused)
        self._nodes, self._ledger, self._accounts, self._now = nodes, ledger, accounts, now

    def attempt(self, trace: Trace, energy: Energy) -> float:
        """Take an attempt's joules; returns those that were not known yet: none of what is told twice or a lie."""
        # By the trace, not by who reports: `AgentsDriver._is_its` has already refused reports about others' attempts.
        node = self._nodes.get(trace.node)
        if node is None or not self.plausible.attempt(node.spec, energy, trace.placed_s, self._now()):
            return 0.0
        # An agent tells an attempt's joules so far, again where an answer was lost: only what is new is booked.
        more_j, trace.energy_j = energy.energy_j - trace.energy_j, energy.energy_j
        self._accounts.settle(trace, more_j)
        self._ledger.attempt_energy(trace.task, trace.number, energy)
        self._ledger.counts.energy_j[energy.provenance] += more_j
        return more_j

    def window(self, node: str, window: Window) -> None:
        """Take a node's joules between two moments."""
        known = self._nodes.get(node)
        if known is not None and self.plausible.window(known.spec, window, self._now()):
            self._ledger.window(node, window)
