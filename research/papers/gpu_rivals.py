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

# Scores are compiled by numba and carry no annotations, as those of `wattflow.policy`.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

from wattflow.engine.settings import PolicySettings
from wattflow.policy import effects, fgd, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

MOST_CORES, MOST_GPUS = 128.0, 8.0
WHOLE_U = view.WHOLE_U
TINY = 1e-9
"""A choice within a node must not outweigh one between nodes."""


@jit
def drawn(state, node):
    """A number in [0, 1) that orders equal nodes at random; the least of as many as the node stands for."""
    # The least of n draws, by one draw: n equal nodes stand as one candidate.
    return 1.0 - math.pow(effects.draw(state), 1.0 / view.stands_for(state, node))


@jit
def turn(state, node):
    """A number in [0, 1) that orders equal nodes by their place in the list."""
    return node / view.nodes_n(state)


@jit
def put(state, variant, out):
    """Turn points (0 … 100, in ``out``) into costs: whole points, the first of equal nodes, a node's fullest GPU."""
    last = -1
    luck = 0.0
    for c in range(out.size):
        node = view.node_of(state, c)
        device = view.device_of(state, c)
        if node != last:
            # The candidates of one node follow each other.
            last = node
            luck = turn(state, node)
        rest = float(WHOLE_U - view.taken_u(state, device)) / WHOLE_U if device >= 0 else 0.0
        # Whole points decide between nodes; luck, below 1, among equal ones; the rest within a node.
        out[c] = 101.0 - math.floor(out[c] + TINY) + luck + TINY * rest


@jit
def free_gpus(state, node):
    """Free GPU share of a node, in GPUs."""
    first, behind = view.devices_of(state, node)
    free = 0
    for d in range(first, behind):
        if view.is_gpu(state, d):
            free += WHOLE_U - view.taken_u(state, d)
    return free / WHOLE_U


@jit
def asked_gpus(state, variant):
    """GPUs that a pod asks for."""
    return view.variant_devices(state, variant) * view.variant_share_u(state, variant) / WHOLE_U


@jit
def free_cores(state, node):
    """Free cores of a node."""
    return view.free_u(state, node) / WHOLE_U


@jit
def kind_of(state, variant):
    """Kind of GPU request: 0 for none, 1 for a share, 1 + n for n whole ones."""
    devices = view.variant_devices(state, variant)
    if devices == 0:
        return 0
    return 1 if view.variant_share_u(state, variant) < WHOLE_U else 1 + devices


@jit
def alike(state, candidate):
    """GPUs of the candidate's node that are as full as the candidate's own: equal ones are one candidate."""
    device = view.device_of(state, candidate)
    if device < 0:
        return 1.0
    first, behind = view.devices_of(state, view.node_of(state, candidate))
    count = 0.0
    for d in range(first, behind):
        count += 1.0 if view.taken_u(state, d) == view.taken_u(state, device) else 0.0
    return count


def any_node(state, task, variant, out):
    """Any node with room, each as likely; any of its GPUs with room."""
    last = -1
    luck = 0.0
    for c in range(out.size):
        node = view.node_of(state, c)
        if node != last:
            last = node
            luck = drawn(state, node)
        out[c] = luck + TINY * (1.0 - math.pow(effects.draw(state), 1.0 / alike(state, c)))


def best_fit(state, task, variant, out):
    """Prefer the least left over: cores and GPUs, half the points each."""
    cores = view.variant_need_u(state, variant) / WHOLE_U
    gpus = asked_gpus(state, variant)
    for c in range(out.size):
        node = view.node_of(state, c)
        # Half of the points each, though a node has sixteen times as many cores as GPUs.
        left = (free_cores(state, node) - cores) / MOST_CORES + (free_gpus(state, node) - gpus) / MOST_GPUS
        out[c] = 100.0 * (1.0 - 0.5 * left)
    put(state, variant, out)


def dot_product(state, task, variant, out):
    """Prefer the smallest product of what the node has free and what the pod asks for."""
    cores = view.variant_need_u(state, variant) / WHOLE_U / MOST_CORES
    gpus = asked_gpus(state, variant) / MOST_GPUS
    for c in range(out.size):
        node = view.node_of(state, c)
        product = cores * free_cores(state, node) / MOST_CORES + gpus * free_gpus(state, node) / MOST_GPUS
        out[c] = 100.0 * (1.0 - 0.5 * product)
    put(state, variant, out)


@jit
def packing_points(state, variant, node):
    """GPUs in use first (by how little they leave), then idle GPUs of a node in use, then idle nodes, small first."""
    first, behind = view.devices_of(state, node)
    idle = 0
    gpus = 0
    for d in range(first, behind):
        if view.is_gpu(state, d):
            gpus += 1
            idle += 1 if view.taken_u(state, d) == 0 else 0
    if idle == gpus:
        # By the authors' simulator: small idle nodes before large ones.
        return max(33.0 - gpus, float(gpus))
    share_u = view.variant_share_u(state, variant)
    if share_u == WHOLE_U:
        return max(50.0 - view.variant_devices(state, variant), 33.0)
    fullest = WHOLE_U + 1
    for d in range(first, behind):
        left_u = WHOLE_U - view.taken_u(state, d)
        if share_u <= left_u < fullest:
            fullest = left_u
    if fullest == WHOLE_U:
        return 49.0
    # As there, in whole tenths of a GPU.
    return max(50.0, 100.0 - math.floor(math.floor(100.0 * fullest / WHOLE_U + TINY) / 10.0))


def gpu_packing(state, task, variant, out):
    """Prefer GPUs in use, then idle GPUs of nodes in use, then idle nodes; pods without a GPU go anywhere."""
    asks = view.variant_devices(state, variant) > 0
    for c in range(out.size):
        out[c] = packing_points(state, variant, view.node_of(state, c)) if asks else 0.0
    put(state, variant, out)


def gpu_clustering(state, task, variant, out):
    """Prefer nodes whose GPU pods all ask alike, then some of them, then nodes without any, then the rest."""
    mine = kind_of(state, variant)
    for c in range(out.size):
        out[c] = 0.0
        if mine == 0:
            continue
        node = view.node_of(state, c)
        same = 0
        other = 0
        a = view.first_attempt(state, node)
        while a >= 0:
            kind = kind_of(state, view.attempt_variant(state, a))
            same += 1 if kind == mine else 0
            other += 1 if kind > 0 and kind != mine else 0
            a = view.next_attempt(state, a)
        rule = 0.0
        if same > 0:
            rule = 75.0 if other == 0 else 50.0
        elif other == 0:
            rule = 25.0
        out[c] = rule + math.floor(25.0 * (MOST_GPUS - free_gpus(state, node)) / MOST_GPUS + TINY)
    put(state, variant, out)


def fewest_fragments(state, task, variant, out):
    """sigmoid(−added fragments) in whole points; of a node's GPUs the first of the best."""
    fgd.note_added_fragments(state, variant, out)
    last = -1
    luck = 0.0
    for c in range(out.size):
        node = view.node_of(state, c)
        if node != last:
            last = node
            luck = turn(state, node)
        points = math.floor(100.0 / (1.0 + math.exp(out[c])) + TINY)
        # Behind everything else: the first GPU of the best.
        out[c] = 101.0 - points + luck + TINY * (c / out.size)


_NODES = PolicySettings(grouped=False)
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
