"""`wattflow machine`: what can read energy here, P(k) of this node or watts of its GPU, power profiles by name."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import (
    check_outputs,
    check_places,
    chosen_form,
    deliver,
    plain_table,
    print_tables,
    progress_bar,
    remark,
)
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.clusters.profiles import NamedProfile
    from wattflow.energy.cpu_profile import CpuProfile, StressNg
    from wattflow.energy.meters.port import Meter
    from wattflow.energy.meters.probe import Finding
    from wattflow.lab.show.result_tables import Row


def meters(
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0.0, max=3600.0, help="Also read each meter twice, so far apart, and show the watts."
        ),
    ] = 0.0,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """Show every meter of this machine: its domains, whether they count or only sample, or why it is not here.

    Where to look is set by WATTFLOW_SYSFS, WATTFLOW_PMPROXY, WATTFLOW_PMCD, WATTFLOW_KEPLER, WATTFLOW_REDFISH,
    WATTFLOW_REDFISH_USER and WATTFLOW_REDFISH_CA.
    """
    from wattflow.energy.meters.probe import try_all

    form = chosen_form(output, out, force)
    rows = [row for finding in try_all() for row in _rows(finding, seconds)]
    if form is not o.OutputForm.table:
        deliver(rows, form, out, {})
        return
    print_tables([plain_table(rows)])


def _rows(finding: Finding, seconds: float) -> list[Row]:
    from wattflow.energy.meters.port import Tally

    if finding.meter is None:
        return [
            {"meter": finding.name, "domain": None, "covers": None, "by": None, "W": None, "why not": finding.reason}
        ]
    try:
        tally = Tally(finding.meter)
        if seconds > 0:
            time.sleep(seconds)
            tally.update()
        energy = tally.energy()
        watts = {domain.name: energy.watts(domain.name) for domain in finding.meter.domains}
        return [
            {
                "meter": finding.meter.name,
                "domain": domain.name,
                "covers": domain.kind,
                "by": "counter" if domain.counter else "sampled watts",
                # Rounding None would fail, and 0 is a reading.
                "W": None if watts[domain.name] is None else round(float(watts[domain.name] or 0.0), 2),
                "why not": None,
            }
            for domain in finding.meter.domains
        ]
    finally:
        finding.meter.close()


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
    check_places(out, plot)
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
        from wattflow.kube.curves import write_profile
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
    from wattflow.energy.cpu_profile import StressNg
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
    rows = [
        {"threads": point.k, "really busy": f"{point.busy:.2f}", "W": f"{point.watts:.2f}",
         "± W (95 %)": f"{point.half_w:.2f}", "windows": point.windows}
        for point in done.points()
    ]  # fmt: skip
    print_tables([plain_table(rows, title=f"{done.node}, {done.meter}, {done.scope} watts")])
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
    from wattflow.files.whole import write_text

    meter = NvmlMeter((0,))
    try:
        with tempfile.TemporaryDirectory(prefix="wattflow-gpu-") as folder:
            program = build(Path(folder))
            remark("measuring the GPU: about eight minutes", quiet)
            # Written after every point, so that a broken run keeps what it measured.
            work = gpu_profile.GpuProfiler(
                meter, program, started_mps, lambda document: write_text(out, json.dumps(document, indent=1) + "\n")
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


def profiles(
    search: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only those with this in their name or description.")
    ] = "",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw those listed over one another into this file.")
    ] = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """List the power profiles that cluster files can name: watts, scope, provenance, age and licence.

    Example: wattflow machine profiles epyc --plot epyc.svg
    """
    from wattflow.clusters.profiles import list_profiles
    from wattflow.model.errors import InvalidInput

    form = chosen_form(output, out, force)
    check_outputs(force, plot)
    if plot is not None and plot.suffix not in PICTURES:
        raise InvalidInput(str(plot), f"ends in none of {', '.join(PICTURES)}, the pictures that can be drawn")
    wanted = search.lower()
    found = [profile for profile in list_profiles() if wanted in f"{profile.name} {profile.about}".lower()]
    rows = [_profile_row(profile) for profile in found] + _gpu_rows(wanted)
    if not rows:
        raise InvalidInput("profiles", f"none has {search!r} in its name or description")
    if plot is not None:
        _plot_named(found, plot)
    if form is not o.OutputForm.table:
        deliver(rows, form, out, {})
        return
    print_tables([plain_table(rows)])


PICTURES = (".svg", ".png", ".pdf")


def _age(year: int | None) -> str | None:
    from datetime import UTC, datetime

    return None if year is None else f"{datetime.now(UTC).year - year} y"


def _profile_row(profile: NamedProfile) -> Row:
    return {
        "profile": profile.name,
        "machine": profile.about,
        "threads": profile.threads,
        "idle W": round(profile.idle_w, 1),
        "full W": round(profile.full_w, 1),
        "points": len(profile.load),
        "scope": profile.scope.value,
        "provenance": profile.provenance.value,
        "age": _age(profile.year),
        "licence": profile.licence,
    }


def _gpu_rows(wanted: str) -> list[Row]:
    """Return the measured GPU profiles, whose points are shares of the device."""
    from wattflow.energy import gpu_profile

    rows: list[Row] = []
    for name, document in gpu_profile.shipped().items():
        device = document["device"]
        model = str(device.get("model")) if isinstance(device, dict) else ""
        year = int(str(document["measured_at"])[:4]) if "measured_at" in document else None
        kernels = [kernel for kernel in ("gemm", "fma", "mem") if gpu_profile.by_share(document, kernel)[0]]
        for kernel in kernels:
            profile = gpu_profile.device_profile(document, kernel)
            if wanted in f"gpu:{name}/{kernel} {model}".lower():
                rows.append(
                    {
                        "profile": f"gpu:{name}/{kernel}",
                        "machine": f"{model}, {kernel} by {document['sharing']} share",
                        "threads": None,
                        "idle W": round(profile.idle_w, 1),
                        "full W": round(profile.watts[-1], 1),
                        "points": len(profile.share),
                        "scope": "device",
                        "provenance": profile.provenance.value,
                        "age": _age(year),
                        "licence": "Apache-2.0",
                    }
                )
    return rows


def _plot_named(found: list[NamedProfile], path: Path) -> None:
    from wattflow.energy.plots import plot_profiles

    # Half of the threads as cores: nearly all of these machines have two threads each, and the table
    # does not say.
    plot_profiles({profile.name: profile.for_node(max(1, profile.threads // 2), 2) for profile in found[:12]}, path)
