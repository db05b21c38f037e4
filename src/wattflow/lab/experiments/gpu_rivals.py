"""The rivals of FGD in its paper, as policies for the experiment alone.

Weng et al., USENIX ATC 2023, section 6, names them: dot product (Grandl et al., doi:10.1145/2619239.2626334), GPU
clustering (Gandiva, Xiao et al., OSDI 2018), GPU packing (Weng et al., NSDI 2022), best fit. Resources are cores,
memory and GPUs, each over the largest amount that a node of the cluster has. Where the paper leaves it open, a share of
a GPU goes to the fullest GPU of the node that takes it, and pods without a GPU go by best fit. Ties go to the lower
index; O(candidates × GPUs of a node) per pod.
"""

from __future__ import annotations

from typing import Any

from wattflow.engine.settings import Settings
from wattflow.engine.tables import GPU, MICRO, NO_DEVICE
from wattflow.model.cluster import Cluster
from wattflow.policy import view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

NOTES = view.notes("largest")
# The largest cores (millionths), memory (bytes) and GPUs of a node
CORES, MEMORY, GPUS = 0, 1, 2
# A rule of placement outweighs best fit, which is below 3, and the choice of the GPU, which is below 1 / FINE.
RULE = 10.0
FINE = 1e6


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
def device_rest(state, candidate):  # type: ignore[no-untyped-def]
    """Free share of the candidate's GPU: the term that chooses the fullest one of a node."""
    device = state.candidates[candidate].device
    return (MICRO - state.devices[device].share_u) / MICRO / FINE if device >= 0 else 0.0


@jit
def left_over(state, candidate):  # type: ignore[no-untyped-def]
    """What is free on the candidate's node: cores, memory and GPUs, each over the largest of the cluster, summed."""
    node = state.candidates[candidate].node
    row = state.nodes[node]
    cores = (row.capacity_u - row.used_u) / view.recall(state, NOTES.largest, CORES)
    memory = (state.classes[row.cls].memory - row.used_mem) / view.recall(state, NOTES.largest, MEMORY)
    return cores + memory + free_gpus(state, node) / view.recall(state, NOTES.largest, GPUS)


@jit
def kind_of(state, variant):  # type: ignore[no-untyped-def]
    """Kind of GPU request: 0 for none, 1 for a share, 1 + n for n whole ones."""
    needs = state.variants[variant]
    if needs.device == NO_DEVICE:
        return 0
    return 1 if needs.share_u < MICRO else 1 + needs.devices


def best_fit(state, task, variant, out):  # type: ignore[no-untyped-def]
    """The node with the least left over."""
    for c in range(out.size):
        out[c] = left_over(state, c) + device_rest(state, c)


def dot_product(state, task, variant, out):  # type: ignore[no-untyped-def]
    """The smallest product of what the node has free and what the pod asks for."""
    needs = state.variants[variant]
    share = needs.devices * needs.share_u / MICRO if needs.device != NO_DEVICE else 0.0
    for c in range(out.size):
        node = state.candidates[c].node
        row = state.nodes[node]
        cores = (
            (row.capacity_u - row.used_u)
            / view.recall(state, NOTES.largest, CORES)
            * (needs.need_u / view.recall(state, NOTES.largest, CORES))
        )
        memory = (state.classes[row.cls].memory - row.used_mem) / view.recall(state, NOTES.largest, MEMORY)
        memory *= needs.memory / view.recall(state, NOTES.largest, MEMORY)
        gpus = (
            free_gpus(state, node)
            / view.recall(state, NOTES.largest, GPUS)
            * (share / view.recall(state, NOTES.largest, GPUS))
        )
        out[c] = cores + memory + gpus + device_rest(state, c)


def gpu_packing(state, task, variant, out):  # type: ignore[no-untyped-def]
    """First GPUs in use, then idle GPUs of nodes in use, then idle nodes; best fit within each."""
    asks = state.variants[variant].device != NO_DEVICE
    for c in range(out.size):
        candidate = state.candidates[c]
        rule = 0.0
        if asks and state.nodes[candidate.node].running == 0:
            rule = 2.0 * RULE
        elif asks and state.devices[candidate.device].share_u == 0:
            rule = RULE
        out[c] = rule + left_over(state, c) + device_rest(state, c)


def gpu_clustering(state, task, variant, out):  # type: ignore[no-untyped-def]
    """First nodes that run pods with the same GPU request, then those without GPU pods, then others; then best fit."""
    mine = kind_of(state, variant)
    for c in range(out.size):
        rule = 0.0
        if mine > 0:
            same = 0
            other = 0
            a = state.nodes[state.candidates[c].node].first_attempt
            while a >= 0:
                kind = kind_of(state, state.attempts[a].variant)
                same += 1 if kind == mine else 0
                other += 1 if kind > 0 and kind != mine else 0
                a = state.attempts[a].next
            rule = 0.0 if same > 0 else (RULE if other == 0 else 2.0 * RULE)
        out[c] = rule + left_over(state, c) + device_rest(state, c)


def prepare(state: Any, cluster: Cluster) -> None:
    """The largest node, by which amounts are scaled."""
    cores = max(node.request_cores for node in cluster.nodes) * MICRO
    memory = max(node.memory_bytes for node in cluster.nodes)
    gpus = max(len(node.devices) for node in cluster.nodes)
    view.lay_out(state, NOTES, largest=[cores, max(1, memory), max(1, gpus)])


RIVALS = {
    policy.name: policy
    for policy in (
        Policy("best-fit", "least left over", score=best_fit, prepare=prepare),
        Policy(
            "dot-product", "smallest product of free and asked", "10.1145/2619239.2626334", dot_product, prepare=prepare
        ),
        Policy("gpu-packing", "used GPUs, then used nodes, then idle ones", score=gpu_packing, prepare=prepare),
        # Nodes that are allocated alike may run pods of different kinds, so each stands for itself.
        Policy(
            "gpu-clustering", "pods with equal GPU requests together", score=gpu_clustering, prepare=prepare,
            settings=Settings(grouped=False),
        ),
    )
}  # fmt: skip
"""By name; `wattflow.policy.registry` does not list them."""
