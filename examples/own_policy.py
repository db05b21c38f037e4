"""A policy of your own: one cost per candidate, lowest wins. Compiled, and once more as plain Python."""

import wattflow as wf
from wattflow.policy import policy, view


@policy("frugal")
def frugal(state, task, variant, out):
    """Joules of the node while the task runs there, its idle watts included."""
    for candidate in range(out.size):
        watts = view.added_w(state, task, variant, candidate) + view.idle_w(state, candidate)
        out[candidate] = watts * view.runtime_s(state, task, variant, candidate)


@policy("first-fit", compiled=False)
def first_fit(state, task, variant, out):
    """The first node that fits: plain Python, called from the compiled simulator."""
    out[:] = range(out.size)


recipe = wf.Recipe("map-reduce", tasks=40, workflows=4, arrivals=wf.generate.Arrivals("poisson", 0.02))
result = wf.compare(recipe, "mixed", [frugal, first_fit], seeds=3, baseline="fifo")
for name in result.policies:
    energy = result.summary("map-reduce", name, "energy_j")
    print(f"{name:<10} {energy.mean / 1000:.1f} kJ")
