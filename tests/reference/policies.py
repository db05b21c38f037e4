"""The policies that both simulators know, as plain callables."""

from __future__ import annotations

from reference.facts import Offer, Policy
from reference.view import View


def least_loaded(view: View, task: int, offer: Offer, node: int, device: int) -> float:
    """Share of the node's requestable cores that is guaranteed away."""
    return view.load(node)


def first_fit(view: View, task: int, offer: Offer, node: int, device: int) -> float:
    """The lowest index wins by the tie rule."""
    return 0.0


def most_allocated(view: View, task: int, offer: Offer, node: int, device: int) -> float:
    return -view.load(node)


def marginal_energy(view: View, task: int, offer: Offer, node: int, device: int) -> float:
    """Watts added, and those of longer runs, times estimated seconds."""
    return view.priced_w(offer, node, device) * view.estimated_run_s(task, offer, node, device)


def shortest_first(view: View, task: int) -> float:
    return view.estimate_s(task)


def wfp3(view: View, task: int) -> float:
    """−(wait / estimate)³ · cores; Tang et al. 2009, doi:10.1109/CLUSTR.2009.5289206."""
    return -((view.waited_s(task) / view.estimate_s(task)) ** 3) * view.cores_asked(task)


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", least_loaded),
        Policy("first-fit", first_fit),
        Policy("most-allocated", most_allocated),
        Policy("marginal-energy", marginal_energy),
        Policy("sjf", least_loaded, shortest_first),
        Policy("wfp3", least_loaded, wfp3),
    )
}
