"""The record of an attempt that ended (`model.run.ATTEMPT`): its columns are written here, by all that simulate.

Group by group, so that compiled code need not hold all values at once.
"""

from __future__ import annotations

from wattflow.kernel.jit import inner


@inner
def write_who(records, row, task, part, attempt, outcome):
    """Write whose attempt it was and how it ended."""
    record = records[row]
    record.task = task
    record.part = part
    record.attempt = attempt
    record.outcome = outcome


@inner
def write_where(records, row, node, device, variant, guarantee):
    """Write where it ran and as what; the device is counted on its node, −1 without one."""
    record = records[row]
    record.node = node
    record.device = device
    record.variant = variant
    record.guarantee = guarantee


@inner
def write_when(records, row, ready_s, placed_s, start_s, end_s):
    """Write when it was ready, placed, started and ended."""
    record = records[row]
    record.ready_s = ready_s
    record.placed_s = placed_s
    record.start_s = start_s
    record.end_s = end_s


@inner
def write_stages(records, row, message_s, wake_s, cold_s, data_s, hold_s):
    """Write how long each stage before the run took."""
    record = records[row]
    record.message_s = message_s
    record.wake_s = wake_s
    record.cold_s = cold_s
    record.data_s = data_s
    record.hold_s = hold_s


@inner
def write_joules(records, row, run_j, cold_j, transfer_j, marginal_j):
    """Write the joules that it took; ``marginal_j`` is what its decision reckoned with."""
    record = records[row]
    record.run_j = run_j
    record.cold_j = cold_j
    record.transfer_j = transfer_j
    record.marginal_j = marginal_j
