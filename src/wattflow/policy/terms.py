"""Named parts of costs, for `explain`: each is a score of its own, and together they sum to the policy's score.

What a policy's cost holds beyond the terms that it names is shown as `REST`, so that the sum is always the cost.
"""

from __future__ import annotations

from wattflow.engine.tables import UNKNOWN_COST
from wattflow.policy import view

REST = "policy's own"
"""The rest of the cost, beside the named terms."""


def run(state, task, variant, out):
    """Marginal watts, crowding included, for the seconds of the run."""
    for c in range(out.size):
        watts = view.priced_w(state, task, variant, c)
        out[c] = UNKNOWN_COST if watts >= UNKNOWN_COST else watts * view.runtime_s(state, task, variant, c)


def wake(state, task, variant, out):
    """Joules of waking a sleeping node."""
    for c in range(out.size):
        out[c] = view.wake_j(state, c) if state.counts[0].asleep_n > 0 else 0.0


def cold_start(state, task, variant, out):
    """Joules of making a container, or of loading a device."""
    for c in range(out.size):
        out[c] = 0.0
        if state.rules[0].cold == 1 or view.device_of(state, c) >= 0:
            seconds = view.cold_start_s(state, task, variant, c)
            if seconds > 0.0:
                # At the node's own watts: the device waits while it is loaded.
                out[c] = view.node_added_w(state, variant, view.node_of(state, c), -1) * seconds


def transfer(state, task, variant, out):
    """Joules of moving the task's data."""
    for c in range(out.size):
        out[c] = view.transfer_j(state, task, view.node_of(state, c)) if state.rules[0].has_data == 1 else 0.0


JOULES = {"run": run, "wake": wake, "cold start": cold_start, "transfer": transfer}
"""The parts of `view.added_j`."""
