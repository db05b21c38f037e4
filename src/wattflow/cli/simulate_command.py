"""`wattflow simulate`: one workload under one policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import first_run
from wattflow.cli import options as o
from wattflow.cli.completion import policy_name
from wattflow.cli.screen import check_outputs, chosen_form, deliver, never_onto, print_tables, progress_bar, remark

if TYPE_CHECKING:
    from wattflow.model.run import Run


def simulate(
    workflow: o.OneWorkflow,
    cluster: o.ClusterName = ["mixed"],  # noqa: B006
    policy: Annotated[
        str,
        typer.Option(
            "--policy", "-p", metavar="NAME", help="`wattflow policies` lists them.", autocompletion=policy_name
        ),
    ] = "fifo",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Fixes everything that is random.")
    ] = 0,
    output: o.Output = None,
    out: o.Out = None,
    attempts: Annotated[
        Path | None,
        typer.Option(
            "--attempts", metavar="FILE", help="Write every attempt, with its manifest, to this parquet file."
        ),
    ] = None,
    report: o.Report = None,
    metrics: o.Metrics = "all",
    runtime_error: o.RuntimeError_ = 0.0,
    power_error: o.PowerError = 0.0,
    estimates: o.Estimates = None,
    queue: o.QueueRule = None,
    round_s: o.RoundS = 0.0,
    sleep_after: o.SleepAfter = None,
    cap_w: o.CapW = None,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Simulate one workload under one policy.

    Example: wattflow simulate montage:tasks=200 -c mixed -p heft --attempts run.parquet
    """
    # First of all: once the kernel is imported, whether it compiles is settled.
    first_run.prepare(workflow, policy, quiet)
    from wattflow.cli.cap_option import capped
    from wattflow.cli.compare import write
    from wattflow.cli.options import estimated
    from wattflow.clusters import load_cluster
    from wattflow.lab.compare.comparison import check_seeds, of_one_run
    from wattflow.lab.figures.ideal import ideal_s
    from wattflow.lab.figures.metrics import metrics as figures_of
    from wattflow.lab.run.points import Setup
    from wattflow.lab.run.run_file import write_run
    from wattflow.lab.show.result_tables import metric_names, run_rows, run_table
    from wattflow.model.workload import Workload
    from wattflow.sim import simulate as run_simulator
    from wattflow.sim.inputs import source_of

    form = chosen_form(output, out, force)
    named = o.one_cluster(cluster)
    check_outputs(force, report, attempts)
    never_onto([workflow, named, *(file for file in (estimates, cap_w) if file is not None)], out, report, attempts)
    names = metric_names(metrics)
    source, machine = estimated(source_of(workflow), estimates), load_cluster(named)
    # As an option of the command line, not in the middle of a run.
    check_seeds([seed])
    cap, chosen = capped(cap_w, policy)
    workload = source if isinstance(source, Workload) else source.draw(seed)
    options = o.sim_options(queue, round_s, sleep_after, (runtime_error, power_error))
    with progress_bar(quiet) as progress:
        told = None if progress is None else lambda share: progress(share, policy)
        # Power is recorded: the peak and the report need it.
        run = run_simulator(
            workload, machine, chosen, seed=seed, options=replace(options, record_power=True), progress=told
        )
    tell_choices(run, quiet)
    about = Setup(options=options).about()
    notes: tuple[str, ...] = ()
    if cap is not None:
        run, notes = cap.beside(run)
        remark("\n".join(notes), quiet)
        about["cap"] = run.manifest["cap"]
    values = figures_of(run, ideal_s(workload, machine))
    if attempts is not None:
        write_run(attempts, run)
        remark(f"attempts: {attempts}", quiet)
    if report is not None:
        shown = replace(of_one_run(run, machine, policy, seed, values, about), notes=notes)
        write(shown, report, quiet, f"{workload.name} under {policy}")
    if form is o.OutputForm.table:
        print_tables([run_table(values, f"{workload.name} on {machine.name} under {policy}, seed {seed}", names)])
    else:
        what = {"workload": workload.name, "cluster": machine.name, "policy": policy, "seed": seed}
        deliver(run_rows(values), form, out, {**what, "simulated": run.simulated, **about})


def tell_choices(run: Run, quiet: bool) -> None:
    """Say what a shield chose on the way, and why."""
    notes = run.manifest.get("steering")
    if isinstance(notes, list) and notes:
        from wattflow.plan.shield import summed, told

        for note in notes:
            remark(f"shield: {told(note)}", quiet)
        summary = run.manifest["shield"]
        assert isinstance(summary, dict)
        remark(f"shield: {summed(summary)}", quiet)
