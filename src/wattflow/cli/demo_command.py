"""`wattflow demo`: the bundled workloads under every policy on the bundled mixed cluster."""

from __future__ import annotations

from wattflow.cli import options as o
from wattflow.cli.compare import show, write
from wattflow.cli.screen import check_outputs, offer_to_open, progress_bar, remark


def demo(
    policies: o.Policies = "all",
    seeds: o.Seeds = 3,
    baseline: o.Baseline = "kubernetes",
    report: o.Report = None,
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
    if not jit.has_compiled():
        remark("compiling the simulator for this machine, once; then three workloads under every policy", quiet)
    with progress_bar(quiet) as progress:
        setup = Setup(keep_runs=report is not None, workers=crew, progress=progress)
        comparison = compare(list(DEMOS.values()), cluster, o.names_of(policies), seeds, baseline, setup)
    show([comparison], o.Form.table, None, HEADLINE, full)
    for note in comparison.notes:
        remark(f"note: {note}", quiet)
    if report is not None:
        write(comparison, report, quiet, "wattflow demo")
        offer_to_open(report, quiet)
