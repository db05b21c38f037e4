"""Min-Min and Max-Min: of all waiting tasks, the one whose best completion is earliest (or latest) goes first.

Maheswaran, Ali, Siegel, Hensgen, Freund: Dynamic mapping of a class of independent tasks onto heterogeneous computing
systems, J. Parallel Distrib. Comput. 59(2), 1999, doi:10.1006/jpdc.1999.1581. O(waiting × candidates) per placement;
ties go to the task that entered first, then to the lower index.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import view
from wattflow.policy.base import Policy


def score(state, task, variant, out):
    """Completion: wake, cold start, data and run, and the seconds taken from those who share the node's cores.

    Only nodes with room are seen, so there is no further wait; where threads are busy beside it, the run is longer.
    """
    for c in range(out.size):
        out[c] = view.crowded_finish_s(state, task, variant, c) + view.crowding_s(state, task, variant, c)


MIN_MIN = Policy(
    "min-min",
    "the task that can complete first, where it completes first",
    "10.1006/jpdc.1999.1581",
    score=score,
    settings=PolicySettings(selection="best_pair"),
)
MAX_MIN = Policy(
    "max-min",
    "the task whose best completion is latest, where it completes first",
    "10.1006/jpdc.1999.1581",
    score=score,
    # Only the order between tasks is turned round: each task still goes where it completes first.
    settings=PolicySettings(selection="best_pair", largest=True),
)
