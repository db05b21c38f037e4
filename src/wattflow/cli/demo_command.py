"""`wattflow demo`: the bundled workloads under every policy on the bundled mixed cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.compare import show, write
from wattflow.cli.screen import check_outputs, offer_to_open, progress_bar, remark

if TYPE_CHECKING:
    from wattflow.lab.compare.comparison import Comparison


def demo(
    policies: o.Policies = "all",
    seeds: o.Seeds = 3,
    baseline: o.Baseline = "kubernetes",
    report: o.Report = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Also write the best runs here, for `wattflow view`.")
    ] = None,
    workers: o.Workers = "",
    full: o.Full = False,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Three bundled workflows under every policy.

    On the bundled mixed cluster: tables in the terminal, and an HTML report with --report.
    The workflows are generated: a stream of montage-like mosaics, one of map-reduce jobs, and a CPU/GPU/FPGA mix.
    """
    from wattflow.clusters import load_cluster
    from wattflow.generate import DEMOS
    from wattflow.kernel import jit
    from wattflow.lab.compare.comparison import compare
    from wattflow.lab.figures.metrics import HEADLINE
    from wattflow.lab.run.points import Setup

    check_outputs(force, report)
    crew = o.workers_of(workers)
    cluster = load_cluster("mixed")
    # Said before the wait, not after it.
    if not jit.has_compiled():
        remark("compiling the simulator for this machine, once; then three workloads under every policy", quiet)
    with progress_bar(quiet) as progress:
        # Runs take memory; they are kept only where something will be made of them.
        keep = report is not None or runs is not None
        setup = Setup(keep_runs=keep, workers=crew, progress=progress)
        comparison = compare(list(DEMOS.values()), cluster, o.names_of(policies), seeds, baseline, setup)
    show([comparison], o.Form.table, None, HEADLINE, full)
    _show_equal(o.names_of(policies), seeds, baseline, crew)
    for note in comparison.notes:
        remark(f"note: {note}", quiet)
    if runs is not None:
        _write_runs(comparison, runs)
        remark(f"runs: {runs} (`wattflow view {runs}` opens them in the page)", quiet)
    if report is not None:
        write(comparison, report, quiet, "wattflow demo")
        offer_to_open(report, quiet)


def _show_equal(policies: list[str], seeds: int, baseline: str, crew: int | str | None) -> None:
    """Say what the same streams come to on equal nodes, where a scheduler that is blind to speed gives nothing away."""
    from wattflow.generate import DEMOS
    from wattflow.lab.compare.comparison import SLEEPING, compare
    from wattflow.lab.run.points import Setup
    from wattflow.lab.show import answer
    from wattflow.policy.registry import START

    # The whole list on a second cluster would double the demo's time.
    few = [*START, f"{SLEEPING}:sleep=600", "eft:sleep=120"] if policies == ["all"] else policies
    found = compare(list(DEMOS.values())[:2], "equal", few, seeds, baseline, Setup(workers=crew))
    typer.echo(f"\nThe two streams on twelve equal nodes (equal): {answer.sentence(found)}")


def _write_runs(comparison: Comparison, folder: Path) -> None:
    """Write, of each workload, the baseline's run and those of the Pareto front."""
    from wattflow.lab.run.run_file import write_run

    folder.mkdir(parents=True, exist_ok=True)
    for (workload, policy), run in comparison.runs.items():
        if policy == comparison.baseline or policy in comparison.front(workload):
            # Names of workloads and policies hold what file systems do not like.
            write_run(folder / f"{workload}-{policy}.parquet".replace("/", "-").replace(":", "-"), run)
