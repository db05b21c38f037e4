"""`wattflow compare`: workloads under several policies, each figure against a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import (
    check_folder,
    chosen_form,
    deliver,
    fitting,
    never_onto,
    print_tables,
    progress_bar,
    remark,
)

if TYPE_CHECKING:
    from pathlib import Path

    from wattflow.lab.compare.comparison import Comparison


def compare(
    workflows: o.Workflows,
    cluster: o.ClusterName = ["mixed"],  # noqa: B006
    policies: o.Policies = "all",
    seeds: o.Seeds = 5,
    baseline: o.Baseline = "fifo",
    output: o.Output = None,
    out: o.Out = None,
    report: o.Report = None,
    metrics: o.Metrics = "headline",
    runtime_error: o.RuntimeError_ = 0.0,
    power_error: o.PowerError = 0.0,
    estimates: o.Estimates = None,
    queue: o.QueueRule = None,
    round_s: o.RoundS = 0.0,
    sleep_after: o.SleepAfter = None,
    workers: o.Workers = None,
    full: o.Full = False,
    quiet: o.Quiet = False,
) -> None:
    """Compare policies against a baseline.

    Simulates every workload under every policy and seed; all figures with -o json.

    Percentages are (before − after) / before against the baseline, with a 95 % interval over seeds.

    A run of real work (`wattflow run FILE --out RUN.parquet`) is compared with simulations of its own tasks and nodes.

    A seed redraws generated workloads, failures, errors of estimates and a policy's dice, not a recorded trace.

    Example: wattflow compare montage:tasks=200 trace.json -c mixed -p fifo,heft --report report.html
    """
    from wattflow.cli.inputs import estimated
    from wattflow.clusters import load_cluster
    from wattflow.lab.compare.comparison import compare as run_comparison
    from wattflow.lab.run.points import Setup
    from wattflow.lab.show.tables import metric_names
    from wattflow.sim.inputs import source_of

    form = chosen_form(output, out)
    if len(workflows) == 1 and workflows[0].endswith(".parquet") and real_run(workflows[0], policies, form, out):
        return
    named = o.one_cluster(cluster)
    check_folder(report)
    never_onto([*workflows, named, *([] if estimates is None else [estimates])], out, report)
    shown = metric_names(metrics)
    sources = [estimated(source_of(text), estimates) for text in workflows]
    machine = load_cluster(named)
    setup = Setup(
        options=o.sim_options(queue, round_s, sleep_after, (runtime_error, power_error)),
        keep_runs=report is not None,
        workers=workers,
    )
    with progress_bar(quiet) as progress:
        chosen = o.names_of(policies)
        comparison = run_comparison(sources, machine, chosen, seeds, baseline, o.with_progress(setup, progress))
    if report is not None:
        write(comparison, report, quiet)
    show(comparison, form, out, shown, full)
    for note in comparison.notes:
        remark(f"note: {note}", quiet)


def real_run(path: str, policies: str, form: o.Form, out: Path | None) -> bool:
    """A real run beside its simulations; False where the file is none."""
    from dataclasses import asdict

    from wattflow.lab.compare.real import beside_simulated
    from wattflow.lab.run.run_file import is_run, read_run
    from wattflow.lab.show.tables import beside_table

    if not is_run(path):
        return False
    chosen = ("fifo", "least-energy", "eft", "most-allocated", "round-robin") if policies == "all" else None
    lines = beside_simulated(read_run(path), chosen or o.names_of(policies))
    if form is o.Form.table:
        print_tables([beside_table(lines, f"{path}: real and simulated")])
    else:
        deliver([asdict(line) for line in lines], form, out, {"run": path})
    return True


def show(
    comparison: Comparison, output: o.Form, out: Path | None, metrics: tuple[str, ...], full: bool = False
) -> None:
    """The answer and tables for people; every figure for programs."""
    from wattflow.lab.figures.metrics import HEADLINE
    from wattflow.lab.show import answer
    from wattflow.lab.show.tables import comparison_about, comparison_rows, comparison_tables, explanation

    if output is o.Form.table and metrics == HEADLINE:
        typer.echo(answer.sentence(comparison) + "\n")
        rows = None if full else answer.ROWS
        print_tables([answer.short_table(comparison, workload, rows) for workload in comparison.workloads])
        typer.echo(explanation(comparison, front=False))
    elif output is o.Form.table:
        metrics = fitting(metrics, len(comparison.policies))
        print_tables(comparison_tables(comparison, metrics))
        typer.echo(explanation(comparison))
    else:
        deliver(comparison_rows(comparison), output, out, comparison_about(comparison))


def write(comparison: Comparison, path: Path, quiet: bool, title: str = "wattflow comparison") -> None:
    """The HTML report, whole or not at all."""
    from wattflow.lab.show.report import write_report

    write_report(path, comparison, title)
    remark(f"report: {path}", quiet)
