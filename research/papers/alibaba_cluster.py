"""The 1,523-node Alibaba GPU cluster of the 2023 trace, read from the folder of real data.

The node list has vCPUs, memory, and number and model of GPUs. It has no watts. Those here are guesses in the manner
of the PWR paper (Lettich et al., CCGrid 2025, arXiv:2412.17484): TDP from data sheets and assumed idle watts of each
GPU and of a CPU that is sold with it. The idle watts are those of that paper's public simulator code. Unlike there,
where a GPU draws its TDP as soon as any share of it is taken, GPU watts rise up to 45 % of the device; CPU watts are
a straight line. Alibaba does not name the models G2 and G3, and that code has placeholders for them; here they are
like an A10 and an A100.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from wattflow.files.data_folder import data_file, open_text
from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.profile import DeviceProfile, PowerProfile, ends_profile
from wattflow.model.units import GIB, MIB

NODE_LIST = ("gpu_cluster", "alibaba_gpu_v2023", "openb_node_list_all_node.csv.gz")
_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


@dataclass(frozen=True, slots=True)
class _Chip:
    """A CPU: watts per socket and its vCPUs (two per core)."""

    name: str
    idle_w: float
    tdp_w: float
    vcpus: int


@dataclass(frozen=True, slots=True)
class _Gpu:
    idle_w: float
    tdp_w: float
    memory_bytes: int
    chip: _Chip


_SKYLAKE = _Chip("Xeon Platinum 8163", 20.0, 165.0, 48)
_BROADWELL = _Chip("Xeon E5-2682 v4", 15.0, 120.0, 32)
_ICE_LAKE = _Chip("Xeon Gold 6326", 20.0, 185.0, 32)
_BIG_ICE_LAKE = _Chip("Xeon Platinum 8369B", 20.0, 270.0, 64)
_NO_GPU = _Chip("Xeon Platinum 8269CY", 20.0, 205.0, 52)
_GPUS = {
    "T4": _Gpu(10.0, 70.0, 16 * GIB, _SKYLAKE),
    "P100": _Gpu(25.0, 250.0, 16 * GIB, _BROADWELL),
    "V100M16": _Gpu(30.0, 300.0, 16 * GIB, _ICE_LAKE),
    "V100M32": _Gpu(30.0, 300.0, 32 * GIB, _ICE_LAKE),
    "A10": _Gpu(30.0, 150.0, 24 * GIB, _BIG_ICE_LAKE),
    "G2": _Gpu(30.0, 150.0, 24 * GIB, _BIG_ICE_LAKE),
    "G3": _Gpu(50.0, 400.0, 80 * GIB, _BIG_ICE_LAKE),
}


def load_alibaba(path: Path | None = None) -> Cluster:
    """Read the cluster of a node list; by default all 1,523 nodes.

    A node's cores are its vCPUs (as in the trace's requests), GPUs are shared by MPS in any shares, and nodes of one
    kind are equal in all but their name.

    Raises:
        MissingData: The folder of real data is not there.
        InvalidInput: Rows of the list are wrong; lists them all.
    """
    path = path or data_file(*NODE_LIST)
    problems: list[Problem] = []
    nodes: list[Node] = []
    with open_text(path) as file:
        reader = csv.DictReader(file)
        missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise InvalidInput(str(path), f"is not a node list; it lacks the columns {', '.join(missing)}")
        # Lines as an editor counts them: the header is the first.
        for number, row in enumerate(reader, 2):
            try:
                nodes.append(_node(row))
            except ValueError as error:
                problems.append(Problem(f"line {number}", str(error)))
    if problems or not nodes:
        raise InvalidInput(str(path), problems or "has no nodes")
    about = "Alibaba GPU cluster of the 2023 trace: real inventory, guessed watts (idle and TDP of CPUs and GPUs)"
    try:
        return Cluster("alibaba", tuple(nodes), about=about)
    except ValueError as error:
        raise InvalidInput(str(path), str(error)) from error


def _node(row: dict[str, str]) -> Node:
    vcpus, gpus, model = int(row["cpu_milli"]) // 1000, int(row["gpu"]), row["model"] or ""
    # A model without a GPU count says nothing.
    if gpus and model not in _GPUS:
        raise ValueError(f"no GPU model named {model!r}; known: {', '.join(_GPUS)}")
    chip = _GPUS[model].chip if gpus else _NO_GPU
    return Node(
        name=row["sn"],
        # vCPUs are hardware threads; the trace's requests are in them, so one is one core here.
        cores=vcpus,
        memory_bytes=int(row["memory_mib"]) * MIB,
        power=_cpu_power(vcpus, chip),
        tdp_w=vcpus / chip.vcpus * chip.tdp_w,
        devices=(_device(model),) * gpus if gpus else (),
    )


# Cached: 1,523 nodes are of a few kinds, and equal objects make equal classes cheap to compare.
@functools.cache
def _cpu_power(vcpus: int, chip: _Chip) -> PowerProfile:
    """Scale idle and TDP by the share of the chip's vCPUs that the node has."""
    chips = vcpus / chip.vcpus
    source = f"idle and TDP of {chips:.2g} × {chip.name}, straight between (as arXiv:2412.17484 guesses)"
    about = {"scope": "package", "provenance": "guessed", "source": source}
    return ends_profile(chips * chip.idle_w, chips * chip.tdp_w, vcpus, 1, **about)


@functools.cache
def _device(model: str) -> Device:
    gpu = _GPUS[model]
    source = f"idle and TDP of {model}, flat above 45 % (as arXiv:2412.17484 guesses)"
    power = DeviceProfile.from_knee(gpu.idle_w, gpu.tdp_w, provenance="guessed", source=source)
    return Device("gpu", model, gpu.memory_bytes, "mps", power=power, tdp_w=gpu.tdp_w)
