"""A user's policy, for the measurement of what a new one costs to compile."""

from wattflow.policy import policy, view


@policy("frugal")
def frugal(state, task, variant, out):
    """Joules of the node while the task runs there, its idle watts included."""
    for candidate in range(out.size):
        watts = view.added_w(state, task, variant, candidate) + view.idle_w(state, candidate)
        out[candidate] = watts * view.runtime_s(state, task, variant, candidate)
