"""The six policies of the FGD paper, as its authors' simulator defines them, for the experiment alone.

Weng et al., USENIX ATC 2023, section 6: random, dot product (Grandl et al., doi:10.1145/2619239.2626334), GPU
clustering (Gandiva, Xiao et al., OSDI 2018), GPU packing (Weng et al., NSDI 2022), best fit, FGD. What the paper does
not say was learned from the authors' simulator (hkust-adsl/kubernetes-scheduler-simulator) and matters:

- Only nodes with GPUs take part, and pods without a GPU go there too.
- A score is a whole number from 0 to 100, and of the nodes with the highest the first by name is taken. So small
  differences do not count, and pods without a GPU fill the first nodes under packing and clustering.
- Resources are cores and GPUs, over 128 cores and 8 GPUs; memory only has to fit.
- A share of a GPU goes to the fullest GPU of its node that takes it; under random to any; under FGD to the first of the
  best.
- FGD scores sigmoid(−added fragments), so two nodes that differ by less than about 0.04 GPUs are equal.

Equal nodes and GPUs are one candidate here; at random n of them draw the best of n numbers. O(candidates × GPUs of a
node) per pod.
"""

from __future__ import annotations

import math

from wattflow.engine.settings import Settings
from wattflow.engine.tables import GPU, MICRO, NO_DEVICE
from wattflow.policy import effects, fgd
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

MOST_CORES, MOST_GPUS = 128.0, 8.0
TINY = 1e-9
"""A choice within a node must not outweigh one between nodes."""


@jit
def drawn(state, node):  # type: ignore[no-untyped-def]
    """A number in [0, 1) that orders equal nodes at random; the least of as many as the node stands for."""
    many = 1.0
    if state.rules[0].grouped == 1:
        many = max(1.0, float(state.groups[state.nodes[node].group].count))
    return 1.0 - math.pow(effects.draw(state), 1.0 / many)


@jit
def turn(state, node):  # type: ignore[no-untyped-def]
    """A number in [0, 1) that orders equal nodes by their place in the list."""
    return node / state.nodes.size


@jit
def put(state, variant, out):  # type: ignore[no-untyped-def]
    """From points (0 … 100, in ``out``) to costs: whole points, the first of equal nodes, the fullest GPU of a node."""
    last = -1
    luck = 0.0
    for c in range(out.size):
        place = state.candidates[c]
        if place.node != last:
            # The candidates of one node follow each other.
            last = place.node
            luck = turn(state, place.node)
        rest = float(MICRO - state.devices[place.device].share_u) / MICRO if place.device >= 0 else 0.0
        out[c] = 101.0 - math.floor(out[c] + TINY) + luck + TINY * rest


@jit
def free_gpus(state, node):  # type: ignore[no-untyped-def]
    """Free GPU share of a node, in GPUs."""
    row = state.nodes[node]
    free = 0
    for d in range(row.device_first, row.device_first + row.device_n):
        if state.device_classes[state.devices[d].cls].kind == GPU:
            free += MICRO - state.devices[d].share_u
    return free / MICRO


@jit
def asked_gpus(state, variant):  # type: ignore[no-untyped-def]
    """GPUs that a pod asks for."""
    needs = state.variants[variant]
    return needs.devices * needs.share_u / MICRO if needs.device != NO_DEVICE else 0.0


@jit
def free_cores(state, node):  # type: ignore[no-untyped-def]
    """Free cores of a node."""
    return (state.nodes[node].capacity_u - state.nodes[node].used_u) / MICRO


@jit
def kind_of(state, variant):  # type: ignore[no-untyped-def]
    """Kind of GPU request: 0 for none, 1 for a share, 1 + n for n whole ones."""
    needs = state.variants[variant]
    if needs.device == NO_DEVICE:
        return 0
    return 1 if needs.share_u < MICRO else 1 + needs.devices


@jit
def alike(state, candidate):  # type: ignore[no-untyped-def]
    """GPUs of the candidate's node that are as full as the candidate's own: equal ones are one candidate."""
    place = state.candidates[candidate]
    if place.device < 0:
        return 1.0
    row = state.nodes[place.node]
    count = 0.0
    for d in range(row.device_first, row.device_first + row.device_n):
        count += 1.0 if state.devices[d].share_u == state.devices[place.device].share_u else 0.0
    return count


def any_node(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Any node with room, each as likely; any of its GPUs with room."""
    last = -1
    luck = 0.0
    for c in range(out.size):
        node = state.candidates[c].node
        if node != last:
            last = node
            luck = drawn(state, node)
        out[c] = luck + TINY * (1.0 - math.pow(effects.draw(state), 1.0 / alike(state, c)))


def best_fit(state, task, variant, out):  # type: ignore[no-untyped-def]
    """The least left over: cores and GPUs, half the points each."""
    cores = state.variants[variant].need_u / MICRO
    gpus = asked_gpus(state, variant)
    for c in range(out.size):
        node = state.candidates[c].node
        left = (free_cores(state, node) - cores) / MOST_CORES + (free_gpus(state, node) - gpus) / MOST_GPUS
        out[c] = 100.0 * (1.0 - 0.5 * left)
    put(state, variant, out)


def dot_product(state, task, variant, out):  # type: ignore[no-untyped-def]
    """The smallest product of what the node has free and what the pod asks for."""
    cores = state.variants[variant].need_u / MICRO / MOST_CORES
    gpus = asked_gpus(state, variant) / MOST_GPUS
    for c in range(out.size):
        node = state.candidates[c].node
        product = cores * free_cores(state, node) / MOST_CORES + gpus * free_gpus(state, node) / MOST_GPUS
        out[c] = 100.0 * (1.0 - 0.5 * product)
    put(state, variant, out)


@jit
def packing_points(state, variant, node):  # type: ignore[no-untyped-def]
    """GPUs in use first (by how little they leave), then idle GPUs of a node in use, then idle nodes, small first."""
    row = state.nodes[node]
    idle = 0
    gpus = 0
    for d in range(row.device_first, row.device_first + row.device_n):
        if state.device_classes[state.devices[d].cls].kind == GPU:
            gpus += 1
            idle += 1 if state.devices[d].share_u == 0 else 0
    if idle == gpus:
        return max(33.0 - gpus, float(gpus))
    needs = state.variants[variant]
    share_u = needs.share_u if needs.devices == 1 else MICRO
    if share_u == MICRO:
        return max(50.0 - needs.devices, 33.0)
    fullest = MICRO + 1
    for d in range(row.device_first, row.device_first + row.device_n):
        left_u = MICRO - state.devices[d].share_u
        if share_u <= left_u < fullest:
            fullest = left_u
    if fullest == MICRO:
        return 49.0
    return max(50.0, 100.0 - math.floor(math.floor(100.0 * fullest / MICRO + TINY) / 10.0))


def gpu_packing(state, task, variant, out):  # type: ignore[no-untyped-def]
    """First GPUs in use, then idle GPUs of nodes in use, then idle nodes; pods without a GPU go anywhere."""
    asks = state.variants[variant].device != NO_DEVICE
    for c in range(out.size):
        out[c] = packing_points(state, variant, state.candidates[c].node) if asks else 0.0
    put(state, variant, out)


def gpu_clustering(state, task, variant, out):  # type: ignore[no-untyped-def]
    """Nodes whose GPU pods all ask alike, then those with such among others, then those without, then the rest."""
    mine = kind_of(state, variant)
    for c in range(out.size):
        out[c] = 0.0
        if mine == 0:
            continue
        node = state.candidates[c].node
        same = 0
        other = 0
        a = state.nodes[node].first_attempt
        while a >= 0:
            kind = kind_of(state, state.attempts[a].variant)
            same += 1 if kind == mine else 0
            other += 1 if kind > 0 and kind != mine else 0
            a = state.attempts[a].next
        rule = 0.0
        if same > 0:
            rule = 75.0 if other == 0 else 50.0
        elif other == 0:
            rule = 25.0
        out[c] = rule + math.floor(25.0 * (MOST_GPUS - free_gpus(state, node)) / MOST_GPUS + TINY)
    put(state, variant, out)


def fewest_fragments(state, task, variant, out):  # type: ignore[no-untyped-def]
    """sigmoid(−added fragments) in whole points; of a node's GPUs the first of the best."""
    fgd.note_added_fragments(state, variant, out)
    last = -1
    luck = 0.0
    for c in range(out.size):
        node = state.candidates[c].node
        if node != last:
            last = node
            luck = turn(state, node)
        points = math.floor(100.0 / (1.0 + math.exp(out[c])) + TINY)
        out[c] = 101.0 - points + luck + TINY * (c / out.size)


_NODES = Settings(grouped=False)
"""Nodes that are allocated alike may run pods of different kinds, so each stands for itself."""

RIVALS = {
    policy.name: policy
    for policy in (
        Policy("random", "any node with room, each as likely", score=any_node),
        Policy("best-fit", "least left over", score=best_fit),
        Policy("dot-product", "smallest product of free and asked", "10.1145/2619239.2626334", dot_product),
        Policy("gpu-packing", "used GPUs, then used nodes, then idle ones", score=gpu_packing),
        Policy("gpu-clustering", "pods with equal GPU requests together", score=gpu_clustering, settings=_NODES),
        Policy("fgd", "least added GPU fragmentation, in whole points", score=fewest_fragments, prepare=fgd.prepare),
    )
}
"""By name; they stand for those that `wattflow.policy.registry` lists under the same names."""
