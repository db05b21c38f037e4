"""Joules: the curve of watts and the integral over an interval, for whoever has a table of accounts.

The watts above idle are shared out by weight (millionths of busy threads). What one unit of weight took since the
beginning is a sum that only grows, so an attempt's joules are its weight × the sum's growth while it ran.
"""

from __future__ import annotations

from wattflow.kernel.jit import inner

IDLE_J, SLEEP_J, WAKE_J, RUN_J, COLD_J, TRANSFER_J, LOST_J, UNATTRIBUTED_J = 0, 1, 2, 3, 4, 5, 6, 7
"""Columns of a table of accounts: where each joule of a node goes."""


@inner
def curve_w(grid, first, count, at):
    """Read watts off a curve of ``count`` points from row ``first`` on: linear between them, flat beyond."""
    cell = int(at)
    # Also at exactly the last point, where there is no next one to draw a line to.
    if cell >= count - 1:
        return grid[first + count - 1]
    low = grid[first + cell]
    return low + (grid[first + cell + 1] - low) * (at - cell)


@inner
def book(energy, node, idle_w, dynamic_w, weight_u, apart_u, seconds):
    """Book an interval of a node that is on: *idle*, and *run* without the weight that is booked apart.

    Returns the joules of one unit of weight; 0 where nothing runs.
    """
    energy[node, IDLE_J] += idle_w * seconds
    if weight_u <= 0:
        return 0.0
    each = dynamic_w * seconds / weight_u
    # Whoever counts apart (cold starts, warming) books its own, so that each joule is in one account.
    energy[node, RUN_J] += each * (weight_u - apart_u)
    return each
