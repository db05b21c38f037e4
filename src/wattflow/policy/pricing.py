"""Parts of a candidate's price, computed once for all who ask. Compiled.

The flagship's price, its look at places that are about to come and the features of the learned policy need the same
seconds and joules of a candidate. Those of the first `MOST` candidates of a task and a variant are kept in the policy's
memory, in a block of `SIZE` numbers, until the next are priced.
"""

from __future__ import annotations

from wattflow.policy import device_view, view
from wattflow.policy.jit import jit

RUN, FINISH, WORTH, AWAKE, UNTIL, PRICE = range(6)
"""Run seconds, seconds until the end, joules at what they are worth, joules of having the node awake, when the node's
last attempt ends (−inf where nobody looked), and the price itself."""
# Most decisions look at fewer candidates: groups of equal nodes stand as one.
WIDTH, MOST = 6, 64
SIZE = WIDTH * (MOST + 1)
"""The last place is for a candidate of whom nothing was kept."""


@jit
def beside(state, variant, candidate):
    """`device_view.beside` on the candidate's device; nothing is lost without one."""
    device = view.device_of(state, candidate)
    return device_view.beside(state, variant, device) if device >= 0 else (1.0, 0.0)


@jit
def finish_and_worth(state, task, variant, candidate, run_w, run_s):
    """Return `view.finish_and_worth` with what sharing a device costs: all who share it run longer at their watts."""
    finish_s, worth_j = view.finish_and_worth(state, task, variant, candidate, run_w, run_s)
    longer, lost = beside(state, variant, candidate)
    if longer == 1.0:
        return finish_s, worth_j
    return finish_s + run_s * (longer - 1.0), worth_j + run_w * run_s * (longer - 1.0 + lost)


@jit
def finish_s(state, task, variant, candidate):
    """Return seconds until the task's end on a candidate, with those that share its cores or its device."""
    run_s = view.runtime_s(state, task, variant, candidate)
    run_w = view.added_w(state, task, variant, candidate)
    return finish_and_worth(state, task, variant, candidate, run_w, run_s)[0]


@jit
def worth_j(state, task, variant, candidate):
    """Return joules of a candidate at what they are worth, sharing counted in."""
    run_s = view.runtime_s(state, task, variant, candidate)
    run_w = view.added_w(state, task, variant, candidate)
    return finish_and_worth(state, task, variant, candidate, run_w, run_s)[1]


@jit
def look(state, task, variant, candidate, at):
    """Write a candidate's numbers, but for its price, into the memory from ``at`` on; returns its added watts."""
    memory = state.memory
    run_w = view.added_w(state, task, variant, candidate)
    run_s = view.runtime_s(state, task, variant, candidate)
    finish_s, worth_j = finish_and_worth(state, task, variant, candidate, run_w, run_s)
    awake_j, until_s = view.awake_and_until(state, candidate, finish_s)
    memory[at + RUN] = run_s
    memory[at + FINISH] = finish_s
    memory[at + WORTH] = worth_j
    memory[at + AWAKE] = awake_j
    memory[at + UNTIL] = until_s
    return run_w


@jit
def slot(kept, candidate):
    """Return where a candidate's numbers belong in the block that begins at ``kept``."""
    # Whoever comes beyond shares the last place, and is looked up again when asked about (`found`).
    return kept + WIDTH * min(candidate, MOST)


@jit
def found(state, task, variant, candidate, kept):
    """Return where a candidate's numbers are, once its task and variant are priced."""
    at = slot(kept, candidate)
    if candidate >= MOST:
        look(state, task, variant, candidate, at)
    return at
