"""The reference's policies and options in the engine's words, so that both can be asked the same."""

from __future__ import annotations

from reference.facts import Options
from wattflow.engine import view
from wattflow.model.cluster import Cluster
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate


def least_loaded(state, task, variant, out):
    for c in range(out.size):
        out[c] = view.load(state, c)


def most_allocated(state, task, variant, out):
    for c in range(out.size):
        out[c] = -view.load(state, c)


def marginal_energy(state, task, variant, out):
    for c in range(out.size):
        out[c] = view.priced_w(state, task, variant, c) * view.runtime_s(state, task, variant, c)


def shortest_first(state, task):
    return state.tasks.estimate[task]


def wfp3(state, task):
    shape = state.tasks.form[task]
    cores = state.variants.cores_u[state.shapes.variant_first[shape]] / 1e6 * state.shapes.parts[shape]
    return -((view.waited_s(state, task) / state.tasks.estimate[task]) ** 3) * cores


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", score=least_loaded),
        Policy("first-fit"),
        Policy("most-allocated", score=most_allocated),
        Policy("marginal-energy", score=marginal_energy),
        Policy("sjf", score=least_loaded, priority=shortest_first),
        Policy("wfp3", score=least_loaded, priority=wfp3).with_settings(dynamic=True),
    )
}


def run_engine(workload: Workload, cluster: Cluster, policy: str, options: Options, *, power_log: bool = False) -> Run:
    """The engine's run of a case of the reference."""
    chosen = POLICIES[policy].with_settings(
        queue=options.queue, guarantees=options.guarantees, frequencies=options.levels, wakes=options.see_sleeping
    )
    given = SimOptions(
        round_s=options.round_s or 0.0,
        message_s=options.message_s,
        max_retries=options.max_retries,
        from_zero=options.from_zero,
        record_power=power_log,
        outages=options.node_failures,
        task_faults=tuple((task, attempt, share) for (task, attempt), share in options.task_failures.items()),
    )
    return simulate(workload, cluster, chosen, options=given)
