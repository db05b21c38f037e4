"""`wattflow machine profile`: measure this node's P(k), or its GPU's watts by share, into a profile file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_folder, print_tables, progress_bar, remark
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.energy.cpu_load import StressNg
    from wattflow.energy.cpu_profile import CpuProfile
    from wattflow.energy.meters.port import Meter


def profile(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Profile to write; one that is there is resumed.")],
    gpu: Annotated[bool, typer.Option("--gpu", help="Measure the first GPU instead of the CPUs.")] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Use the virtual meter: watts computed from CPU time, and named so.")
    ] = False,
    interference: Annotated[
        bool, typer.Option("--interference", help="Also measure what a rising load beside it costs a job.")
    ] = False,
    levels: Annotated[
        str | None, typer.Option("--levels", help="Loaded threads, with commas between; by default 0 to all.")
    ] = None,
    window_s: Annotated[float, typer.Option("--window-s", min=0.5, help="Seconds of one measurement.")] = 10.0,
    warm_s: Annotated[float, typer.Option("--warm-s", min=0.0, help="Seconds discarded before each.")] = 3.0,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.001, help="Half width of the interval at which a point is settled.")
    ] = 0.02,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the profile into this file.")] = None,
    kube: Annotated[
        str, typer.Option("--kube", metavar="NODE", help="Also write it as the NodePowerProfile of this node.")
    ] = "",
    kubeconfig: Annotated[Path | None, typer.Option("--kubeconfig", help="Of --kube; default: KUBECONFIG.")] = None,
    quiet: o.Quiet = False,
) -> None:
    """Measure watts against load here: stress-ng on k pinned threads, watts by counter, P(k) with confidence.

    Refuses without a meter. A profile of the virtual meter says `virtual` in the file and in everything made from it.

    Example: wattflow machine profile node.json --plot node.svg
    """
    # Not `check_outputs`: a file that is there is resumed.
    check_folder(out, plot)
    if gpu and kube:
        raise InvalidInput("--kube", "a NodePowerProfile is a curve of CPUs; leave --gpu out")
    if gpu:
        _gpu(out, plot, quiet)
        return
    from wattflow.energy.profiler import ProfilerSettings

    chosen = None if levels is None else _levels(levels)
    settings = ProfilerSettings(warm_s=warm_s, window_s=window_s, tolerance=tolerance, levels=chosen)
    with ExitStack() as stack, progress_bar(quiet) as bar:
        meter, load = _meter(stack, virtual)
        done = _measure(out, (meter, load), settings, interference, bar)
    _show(done)
    remark(f"wrote {out}: {done.power_profile().source}", quiet)
    if plot is not None:
        _plot(done, plot)
    if kube:
        _to_kube(done, kube, kubeconfig, quiet)


def _to_kube(done: CpuProfile, node: str, kubeconfig: Path | None, quiet: bool) -> None:
    """Write the curve where the scheduler on Kubernetes reads it."""
    import asyncio

    try:
        from wattflow.kube import access
        from wattflow.kube.power_write import write_profile
    except ImportError as error:
        from wattflow.model.errors import MissingExtra

        raise MissingExtra(f"{error.name} is needed: pip install 'wattflow[kube]'") from None
    asyncio.run(write_profile(access.find(kubeconfig), node, done.power_profile()))
    remark(f"NodePowerProfile {node} is written", quiet)


def _levels(text: str) -> tuple[int, ...]:
    try:
        # Idle always: every profile needs it.
        return tuple(sorted({int(part) for part in text.split(",")} | {0}))
    except ValueError:
        raise InvalidInput("--levels", f"{text!r} is not numbers with commas between, such as 0,1,2,4") from None


def _meter(stack: ExitStack, virtual: bool) -> tuple[Meter, StressNg]:
    from wattflow.energy.cpu_load import StressNg
    from wattflow.energy.meters.powercap import PowercapMeter
    from wattflow.energy.meters.probe import open_node_meter
    from wattflow.energy.virtual import DEMO_CURVE, VirtualMeter

    meter: Meter
    if not virtual:
        meter = open_node_meter()
        stack.callback(meter.close)
        return meter, StressNg()
    # The virtual meter reads the load's own CPU time, so both must be the same object.
    load = StressNg()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattflow-virtual-")))
    source = stack.enter_context(VirtualMeter(folder, DEMO_CURVE, lambda: {"load": load.cpu_s()}))
    meter = PowercapMeter(source.powercap)
    stack.callback(meter.close)
    return meter, load


def _measure(
    out: Path,
    tools: tuple[Meter, StressNg],
    settings: object,
    interference: bool,
    bar: Callable[[float, str], None] | None,
) -> CpuProfile:
    from wattflow.energy import machine_facts
    from wattflow.energy.profiler import Profiler, ProfilerSettings

    assert isinstance(settings, ProfilerSettings)
    topology = machine_facts.topology()
    # Sorted, so the last is the largest.
    if settings.levels is not None and settings.levels[-1] > topology.threads:
        raise InvalidInput("--levels", f"{settings.levels[-1]} threads asked for, this machine has {topology.threads}")

    def tell(done: int, of: int, what: str) -> None:
        if bar is not None:
            bar(done / max(1, of), what)

    profiler = Profiler(*tools, topology, out, settings, progress=tell)
    measured = profiler.run()
    return profiler.interference(measured) if interference else measured


def _show(done: CpuProfile) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"{done.node}, {done.meter}, {done.scope} watts", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    for column in ("threads", "really busy", "W", "± W (95 %)", "windows"):
        table.add_column(column, justify="right")
    for point in done.points():
        table.add_row(
            str(point.k), f"{point.busy:.2f}", f"{point.watts:.2f}", f"{point.half_w:.2f}", str(point.windows)
        )
    print_tables([table])
    typer.echo(f"for a node of a cluster file:\n{done.toml()}")


def _plot(done: CpuProfile, path: Path) -> None:
    from wattflow.energy.plots import plot_profiles, plot_sharing

    plot_profiles({done.node: done.power_profile()}, path)
    if done.interference:
        rows = [(row["beside"], row["runtime_s"]) for row in done.interference]
        plot_sharing({done.node: rows}, path.with_name(f"{path.stem}-sharing{path.suffix}"), "loaded threads beside it")


def _gpu(out: Path, plot: Path | None, quiet: bool) -> None:
    import json

    from wattflow.energy import gpu_profile
    from wattflow.energy.gpu_load import build, started_mps
    from wattflow.energy.meters.nvml import NvmlMeter
    from wattflow.energy.plots import plot_gpu

    meter = NvmlMeter((0,))
    try:
        with tempfile.TemporaryDirectory(prefix="wattflow-gpu-") as folder:
            program = build(Path(folder))
            remark("measuring the GPU: about eight minutes", quiet)
            # Written after every point, so that a broken run keeps what it measured.
            work = gpu_profile.GpuProfiler(
                meter, program, started_mps, lambda document: _write(out, json.dumps(document, indent=1))
            )
            document = work.measure()
    finally:
        meter.close()
    for kernel in program.kernels:
        shares, windows = gpu_profile.by_share(document, kernel)
        if len(shares) >= 4:
            knee = gpu_profile.knee(shares, windows)
            where = f"knee at {knee.share:.0%} of the device ({knee.low:.0%} to {knee.high:.0%})"
            remark(f"{kernel}: {where if knee.flattens else 'no knee'}", quiet)
    if plot is not None:
        plot_gpu(document, plot)


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n")
