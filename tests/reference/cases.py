"""Small random cases for differential runs: a seed and feature switches give workload, cluster and options.

Runtimes, speeds, arrivals and watts are real numbers, so that no two events or costs tie by chance; cores, guarantees
and shares are multiples of 1/8, so that sums of them are exact in any order of addition. The first node is plain and
large enough for every task, so that no case is infeasible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from reference.facts import Options
from wattflow.model.cluster import (
    Cluster,
    Device,
    DeviceLevels,
    Frequency,
    FunctionLevels,
    Network,
    Node,
    Series,
    Serverless,
    Sleep,
    Zone,
)
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

FEATURES = (
    "dag", "arrivals", "strict", "easy", "twins", "memory", "tags", "guarantee", "overcommit", "gpu",
    "multi_device", "fpga", "transfers", "zones", "cold", "sleep", "serverless", "rounds", "parts", "frequency",
    "carbon", "node_failures", "task_failures", "checkpoints", "message", "estimates", "zero_runtimes",
    "duty", "levels",
)  # fmt: skip

GIB = 2**30


def random_features(seed: int, share: float = 0.25) -> frozenset[str]:
    """A random subset of the switches that go together."""
    rng = np.random.default_rng([seed, 7])
    chosen = {name for name in FEATURES if rng.random() < share}
    if chosen & {"cold", "transfers", "message", "sleep", "fpga"}:
        chosen.discard("zero_runtimes")  # stages that end within an instant may be folded in either order
    if "parts" in chosen:
        # Parts on equal, crowded nodes end together but for rounding, and what fits then depends on it.
        chosen -= {"task_failures", "checkpoints", "twins"}
    if "serverless" in chosen:
        chosen.discard("guarantee")
    if "levels" in chosen:
        chosen.add("gpu")
        # What a checkpoint holds of an attempt whose clock changed is a matter of rounding to whole intervals.
        chosen.discard("checkpoints")
    return frozenset(chosen)


def random_case(seed: int, features: Iterable[str] | None = None) -> tuple[Workload, Cluster, Options]:
    """A case of 2–40 tasks on 1–6 nodes; without ``features`` a random subset of them."""
    on = random_features(seed) if features is None else frozenset(features)
    unknown = on - set(FEATURES)
    if unknown:
        raise ValueError(f"no features named {sorted(unknown)}; known: {', '.join(FEATURES)}")
    if on & {"duty", "levels"}:
        on |= {"gpu"}
    draw = _Draw(np.random.default_rng(seed), on)
    cluster = draw.cluster()
    workload = draw.workload()
    return workload, cluster, draw.options(workload, cluster)


class _Draw:
    """Draws the parts of one case in a fixed order."""

    def __init__(self, rng: np.random.Generator, on: frozenset[str]) -> None:
        self.rng, self.on = rng, on

    def real(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, values: tuple[Any, ...]) -> Any:
        return values[self.whole(0, len(values) - 1)]

    # Clusters

    def cluster(self) -> Cluster:
        count = self.whole(1, 6)
        zones = [self.zone(f"z{i}") for i in range(2 if "zones" in self.on else 1)]
        self.levels = self.whole(2, 3) if "frequency" in self.on else 1
        nodes = tuple(self.node(i, zones[self.whole(0, len(zones) - 1)].name) for i in range(count))
        if "twins" in self.on:  # some nodes twice or three times, not side by side
            again = [node for node in nodes for _ in range(self.whole(0, 2))]
            nodes += tuple(replace(node, name=f"{node.name}.{i}") for i, node in enumerate(again))
        return Cluster("random", nodes, tuple(zones))

    def zone(self, name: str) -> Zone:
        if "carbon" not in self.on:
            return Zone(name)
        carbon = Series(self.real(5, 40), tuple(self.real(10, 800) for _ in range(self.whole(1, 5))))
        price = Series(self.real(5, 40), tuple(self.real(0.05, 0.5) for _ in range(self.whole(1, 3))))
        return Zone(name, carbon, price, self.real(1, 1.8), carbon_known=True, price_known=True)

    def node(self, index: int, zone: str) -> Node:
        on, anchor = self.on, index == 0
        cores = self.whole(2, 4) if anchor else self.whole(1, 4)
        per_core = self.whole(1, 2)
        node = Node(
            f"n{index}", cores, 4 * GIB if anchor else self.whole(1, 6) * GIB, per_core,
            smt_slowdown=self.real(1.2, 1.8), speed=self.real(0.5, 2), zone=zone,
            power=None if not anchor and self.chance(0.1) else self.profile(cores * per_core),
            devices=self.devices(anchor), price_per_hour=self.real(0, 2) if "carbon" in on else 0.0,
            frequencies=(Frequency(), *(self.level() for _ in range(self.levels - 1))),
            network=self.network(), keep_alive_s=self.real(1, 30), cold_start_factor=self.real(0.5, 2),
        )  # fmt: skip
        if "overcommit" in on:
            node = replace(node, allocatable_cores=float(node.threads + self.whole(0, 3)))
        if "tags" in on:
            odd = not anchor and self.chance()
            tags = ("avx", "ssd") if anchor else tuple(t for t in ("avx", "ssd") if self.chance())
            speeds = {"f0": self.real(0.5, 2)} if self.chance() else {}
            node = replace(node, architecture="arm64" if odd else "x86_64", features=tags, function_speed=speeds)
        if "sleep" in on and self.chance(0.7):
            node = replace(node, sleep=self.sleep())
        if "serverless" in on and not anchor and self.chance():
            node = replace(node, serverless=self.serverless(), sleep=None)
        return node

    def profile(self, threads: int) -> PowerProfile:
        idle_w = self.real(20, 120)
        rises = [self.real(3, 25) for _ in range(threads)]
        watts = tuple(float(w) for w in idle_w + np.concatenate([[0.0], np.cumsum(rises)]))
        return PowerProfile(tuple(float(k) for k in range(threads + 1)), watts)

    def level(self) -> Frequency:
        return Frequency(self.real(0.5, 1.2), self.real(0.3, 1.4))

    def network(self) -> Network:
        zone_s = self.real(0.1, 1) if "zones" in self.on else 0.0
        latency_s = self.real(0.01, 0.5) if self.chance() else 0.0
        return Network(self.real(50, 400), latency_s, zone_s, self.real(0, 0.2))

    def sleep(self) -> Sleep:
        return Sleep(
            self.real(1, 10), self.real(0.5, 6), self.real(0.1, 2) if self.chance() else 0.0,
            self.real(20, 150) if self.chance() else None, self.real(1, 15),
        )  # fmt: skip

    def serverless(self) -> Serverless:
        return Serverless(
            float(self.whole(0, 2)), self.real(0.05, 0.5), self.real(5, 30), self.real(0, 0.01), self.real(0, 0.001)
        )

    def devices(self, anchor: bool) -> tuple[Device, ...]:
        found: list[Device] = []
        if self.on & {"gpu", "multi_device"} and (anchor or self.chance()):
            found += [self.gpu() for _ in range(2 if anchor else self.whole(1, 3))]
        if "fpga" in self.on and (anchor or self.chance()):
            found.append(Device("fpga", reconfigure_s=self.real(0.5, 4), speed=self.real(0.5, 3), power=self.card()))
        return tuple(found)

    def gpu(self) -> Device:
        sharing = str(self.pick(("exclusive", "time-slice", "mps", "mig")))
        return Device(
            "gpu", "a" if self.chance() else "b", 16 * GIB, sharing, self.whole(1, 3) if sharing == "time-slice" else 1,
            self.real(0.5, 3), self.real(0, 1), power=self.card(),
            switch_loss=self.real(0, 1) if "duty" in self.on else 0.0,
            levels=self.device_levels() if "levels" in self.on and self.chance(0.8) else None,
        )  # fmt: skip

    def device_levels(self) -> DeviceLevels:
        """Two or three clocks: some functions' responses, and for the others a share or nothing."""
        count = self.whole(2, 3)
        clocks = (1000.0, self.real(700, 950), self.real(300, 600))[:count]
        rows = [
            FunctionLevels(f"f{i}", (1.0, *self.reals(count - 1, 1, 1.8)), (1.0, *self.reals(count - 1, 0.5, 1.2)))
            for i in range(3)
            if self.chance()
        ]
        share = self.real(0, 1) if self.chance() else None
        return DeviceLevels("clock_mhz", clocks, tuple(rows), share)

    def reals(self, count: int, low: float, high: float) -> tuple[float, ...]:
        return tuple(self.real(low, high) for _ in range(count))

    def card(self) -> DeviceProfile:
        idle_w, half_w, full_w = self.real(5, 40), self.real(60, 150), self.real(160, 300)
        return DeviceProfile((0.0, 0.5, 1.0), (idle_w, half_w, full_w))

    # Workloads

    def workload(self) -> Workload:
        count, on = self.whole(2, 40), self.on
        functions = tuple(self.function(i) for i in range(self.whole(1, 3)))
        shapes = tuple(self.shape(len(functions)) for _ in range(self.whole(1, 4)))
        runtime_s = self.rng.lognormal(1.5, 0.8, count)
        if "zero_runtimes" in on:
            runtime_s[self.rng.random(count) < 0.2] = 0.0
        columns: dict[str, object] = {
            "shape": self.rng.integers(0, len(shapes), count).astype(np.int32),
            "estimate_s": np.maximum(runtime_s, 1e-3),
        }
        release_s = np.zeros(count)
        if "arrivals" in on:
            release_s = self.rng.permutation(np.cumsum(self.rng.exponential(self.real(0.2, 4), count)))
        edges = self.edges(count) if "dag" in on else None
        if "transfers" in on:
            columns["input_bytes"] = self.rng.uniform(1, 500, count) * (self.rng.random(count) < 0.6)
            columns["output_bytes"] = self.rng.uniform(1, 500, count)
            if edges is not None:
                columns["edge_bytes"] = self.rng.uniform(1, 500, len(edges[0])) * (self.rng.random(len(edges[0])) < 0.8)
        if "estimates" in on:
            columns["estimate_s"] = runtime_s * self.rng.lognormal(0, 0.5, count) + 1e-3
        return Workload.of_columns(
            "random", release_s=release_s, runtime_s=runtime_s, shapes=shapes, functions=functions, edges=edges,
            **columns,
        )  # fmt: skip

    def edges(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        pairs = [
            (int(parent), child)
            for child in range(1, count)
            for parent in np.unique(self.rng.integers(0, child, self.whole(0, 3)))
        ]
        parents, children = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(parents, np.int32), np.array(children, np.int32)

    def function(self, index: int) -> Function:
        on = self.on
        return Function(
            f"f{index}",
            self.real(0.2, 5) if "cold" in on and self.chance(0.8) else 0.0,
            self.real(0, 1) if "frequency" in on else 1.0,
            0.0,
            self.real(0.5, 4) if "checkpoints" in on else 0.0,
            self.real(0, 0.5) if "checkpoints" in on else 0.0,
        )

    def shape(self, functions: int) -> Shape:
        variants = [self.variant()]
        if "gpu" in self.on and self.chance():
            variants.append(self.device_variant("gpu", 1))
        if "multi_device" in self.on and self.chance():
            variants.append(self.device_variant("gpu", 2))
        if "fpga" in self.on and self.chance():
            variants.append(self.device_variant("fpga", 1))
        if len(variants) > 1 and self.chance():
            del variants[0]
        parts = self.whole(2, 3) if "parts" in self.on and self.chance() else 1
        if parts > 1:
            variants = [Variant(cores=0.5)]
        return Shape(self.whole(0, functions - 1), tuple(variants), parts)

    def variant(self) -> Variant:
        tags = tuple(t for t in ("avx", "ssd") if "tags" in self.on and self.chance(0.3))
        return Variant(
            "cpu", float(self.pick((0.5, 1.0, 1.0, 2.0))), self.whole(0, 3) * GIB if "memory" in self.on else 0,
            architecture="x86_64" if "tags" in self.on and self.chance(0.3) else None, features=tags,
        )  # fmt: skip

    def device_variant(self, kind: str, count: int) -> Variant:
        share = float(self.pick((0.125, 0.25, 0.5, 1.0))) if kind == "gpu" and count == 1 else 1.0
        memory = self.whole(0, 10) * GIB if kind == "gpu" and "memory" in self.on else 0
        return Variant(
            f"{kind}{count}", float(self.pick((0.5, 1.0))), 0, kind, count, share, memory,
            runtime_factor=self.real(0.2, 1.5),
            device_duty=float(self.pick((0.125, 0.5, 0.75, 1.0, 1.0))) if "duty" in self.on else 1.0,
        )  # fmt: skip

    # Options

    def options(self, workload: Workload, cluster: Cluster) -> Options:
        on = self.on
        offered = self.pick(((1.0, 0.75), (0.75,), (1.0, 0.875, 0.5)))
        return Options(
            queue="strict" if "strict" in on else "easy-backfill" if "easy" in on else "skip",
            guarantees=offered if "guarantee" in on else (1.0,),
            levels=tuple(range(max(self.levels, 3 if "levels" in on else 1))),
            round_s=float(self.pick((0.5, 1.0, 2.5))) if "rounds" in on else None,
            message_s=self.real(0.01, 0.5) if "message" in on else 0.0,
            see_sleeping="sleep" in on and self.chance(0.3),
            from_zero=self.chance(0.3),
            node_failures=self.node_failures(len(cluster.nodes)) if "node_failures" in on else (),
            task_failures=self.task_failures(len(workload)) if "task_failures" in on else {},
        )

    def node_failures(self, nodes: int) -> tuple[tuple[int, float, float], ...]:
        found = []
        for node in range(nodes):
            at_s = 0.0
            for _ in range(self.whole(0, 2)):
                down_s = at_s + self.real(1, 20)
                at_s = down_s + self.real(0.5, 10)
                found.append((node, down_s, at_s))
        return tuple(found)

    def task_failures(self, tasks: int) -> dict[tuple[int, int], float]:
        return {
            (task, attempt): self.real(0, 1)
            for task in range(tasks)
            for attempt in range(self.whole(0, 4) if self.chance(0.3) else 0)
        }
