"""How fast pods are bound: the API server's ceiling, kube-scheduler as shipped and unthrottled, and ours, in one run.

KWOK rests while bindings are counted (its status writes would take the same API server from everyone); the nodes are
its own. Everything runs on this machine, so the CPUs are shared by all that is measured; what other work took of them
is a figure too.
"""

from __future__ import annotations

import argparse
import statistics
import time

import kube_measure as measure
from kube_measure import DEFAULT, OURS, figure
from kuberig.rig import Rig

AS_SHIPPED_PODS = 1500  # at 50 a second the full number would take minutes and say the same
LATE_PODS = 2000
BARE_PODS = 4000  # a rate too: making, binding and deleting more of them, twice, takes minutes
UNTHROTTLED = 1e5


def ceiling(rig: Rig, nodes: list[str], pods: int, size: str) -> float:
    """Bare bindings a second that the API server takes, with nothing else going on."""
    with measure.namespace(rig, f"bare-{size}") as name:
        measure.fill(rig, name, pods, "nobody")
        report = measure.bind_bare(rig, name, pods, nodes)
    rate = report.ok / report.seconds
    figure(f"kube_{size}_api_server_bindings", rate, "1/s")
    return rate


def throughput(rig: Rig, label: str, scheduler: str, pods: int, start: measure.Starter) -> float:
    """Binds a second of a scheduler that finds `pods` waiting when it starts."""
    with measure.namespace(rig, f"fill-{label}") as name, measure.watching(rig, name) as binds:
        measure.fill(rig, name, pods, scheduler)
        with start(rig) as process:
            try:
                binds.await_all(pods, label)
            except measure.NotBound as error:
                figure(f"kube_{label}_binds", 0.0, "1/s", f"({error})", ok=False)
                return 0.0
            if scheduler == OURS:
                held = measure.peak_mb(process)
                figure(f"kube_{label}_peak_memory", held, "MB", "<1000", held < 1000)
    figure(f"kube_{label}_binds", binds.rate(), "1/s")
    return binds.rate()


def latency(rig: Rig, label: str, scheduler: str, start: measure.Starter) -> float:
    """p99 from a pod's creation (as its client saw it) to its binding (as a watch saw it) at 100 pods a second."""
    with measure.namespace(rig, f"late-{label}") as name, measure.watching(rig, name) as binds, start(rig):
        report = measure.fill(rig, name, LATE_PODS, scheduler, rate=100.0)
        try:
            binds.await_all(LATE_PODS, label)
        except measure.NotBound as error:
            print(error)
            return float("inf")
    waits = [binds.at[f"p-{i}"] - report.answered[i] for i in range(LATE_PODS)]
    return statistics.quantiles(waits, n=100)[98]


def at_size(count: int, pods: int, with_ours: bool) -> None:
    """All measurements at one number of nodes."""
    size = f"{count}_nodes"
    with measure.rig_of(count, measure.SHAPES, f"kube_{size}") as (rig, nodes):
        bare = ceiling(rig, nodes, min(pods, BARE_PODS), size)
        shipped = throughput(rig, f"{size}_as_shipped", DEFAULT, AS_SHIPPED_PODS, measure.kube_scheduler(None))
        lifted = throughput(rig, f"{size}_unthrottled", DEFAULT, pods, measure.kube_scheduler(UNTHROTTLED))
        late_s = latency(rig, f"{size}_unthrottled", DEFAULT, measure.kube_scheduler(UNTHROTTLED))
        figure(f"kube_{size}_unthrottled_p99_at_100_per_s", 1000 * late_s, "ms")
        if not with_ours:
            return
        rate = throughput(rig, f"{size}_wattflow", OURS, pods, measure.ours())
        # Once more, beside ours: on a machine with other work the first may be no ceiling for what came minutes later.
        bare = max(bare, ceiling(rig, nodes, min(pods, BARE_PODS), f"{size}_again"))
        figure(f"kube_{size}_wattflow_over_as_shipped", rate / shipped, "times", ">=15", rate >= 15 * shipped)
        figure(f"kube_{size}_wattflow_over_unthrottled", rate / lifted, "times", ">=1.5", rate >= 1.5 * lifted)
        figure(f"kube_{size}_wattflow_of_api_server", 100 * rate / bare, "%", ">=60", rate >= 0.6 * bare)
        late_s = latency(rig, f"{size}_wattflow", OURS, measure.ours())
        figure(f"kube_{size}_wattflow_p99_at_100_per_s", 1000 * late_s, "ms", "<250", late_s < 0.25)


def latencies(count: int) -> None:
    """Of all measurements at one number of nodes the waits alone: ours, then kube-scheduler's."""
    size = f"{count}_nodes"
    with measure.rig_of(count, measure.SHAPES, f"kube_{size}") as (rig, _):
        late_s = latency(rig, f"{size}_wattflow", OURS, measure.ours())
        figure(f"kube_{size}_wattflow_p99_at_100_per_s", 1000 * late_s, "ms", "<250", late_s < 0.25)
        late_s = latency(rig, f"{size}_unthrottled", DEFAULT, measure.kube_scheduler(UNTHROTTLED))
        figure(f"kube_{size}_unthrottled_p99_at_100_per_s", 1000 * late_s, "ms")


def lists_s(rig: Rig) -> float:
    """How long the API server itself takes for the two long lists of a start, asked for one after the other."""
    began = time.monotonic()
    for path in ("/api/v1/pods", "/api/v1/nodes"):
        rig.api.read(f"{path}?resourceVersion=0")
    return time.monotonic() - began


def cold_start(count: int, pods: int) -> None:
    """From starting our process to its first binding: nine of ten pods are others' and bound, the rest wait."""
    name = f"kube_cold_start_{count}_nodes_{pods}_pods"
    waiting = pods // 10
    with measure.rig_of(count, measure.SHAPES, name) as (rig, nodes):
        with measure.namespace(rig, "there", clean=False) as there:
            measure.fill(rig, there, pods - waiting, "nobody")
            measure.bind_bare(rig, there, pods - waiting, nodes)
            with measure.namespace(rig, "waiting", clean=False) as here, measure.watching(rig, here) as binds:
                measure.fill(rig, here, waiting, OURS)
                list_s = lists_s(rig)
                began = time.time()
                with measure.ours()(rig) as process:
                    binds.await_all(1, name)
                    held = measure.peak_mb(process)
                    print(process.tail(12), flush=True)
        first_s = min(binds.at.values()) - began
        figure(f"{name}_first_bind", first_s, "s", "<10", first_s < 10)
        figure(f"{name}_api_server_lists", list_s, "s")
        figure(f"{name}_peak_memory", held, "MB", "<1000", held < 1000)


def main() -> None:
    """Measures at each size and prints all figures once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 5000], help="none: the cold start alone")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--without-ours", action="store_true", help="the peers alone")
    parser.add_argument("--latency", action="store_true", help="of each size the waits at 100 pods a second alone")
    parser.add_argument("--cold", type=int, default=50_000, metavar="PODS", help="pods of the cold start; 0 for none")
    parser.add_argument("--cold-nodes", type=int, default=5000, metavar="NODES", help="nodes of the cold start")
    arguments = parser.parse_args()
    for count in arguments.nodes:
        if arguments.latency:
            latencies(count)
        else:
            at_size(count, arguments.pods, not arguments.without_ours)
    if arguments.cold and not arguments.without_ours:
        cold_start(arguments.cold_nodes, arguments.cold)
    print("\n".join(["", *measure.FIGURES]))


if __name__ == "__main__":
    main()
