"""`wattflow compare`: workloads under several policies, each figure against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import (
    check_outputs,
    chosen_form,
    deliver,
    fitting,
    never_onto,
    offer_to_open,
    print_tables,
    progress_bar,
    remark,
)
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.lab.compare.comparison import Comparison
    from wattflow.lab.compare.study import Slo, Study


_OF_THE_FILE = (
    "cluster", "policies", "seeds", "baseline", "jitter", "runtime_error", "power_error", "estimates", "queue",
    "round_s", "sleep_after",
)  # fmt: skip
"""Keys that a compare file says itself."""


def compare(
    ctx: typer.Context,
    workflows: o.Workflows,
    cluster: o.ClusterName = ["mixed"],  # noqa: B006
    policies: o.Policies = "all",
    seeds: o.Seeds = 5,
    baseline: o.Baseline = "fifo",
    output: o.Output = None,
    out: o.Out = None,
    report: o.Report = None,
    metrics: o.Metrics = "headline",
    slo: Annotated[
        list[str],
        typer.Option("--slo", metavar="NAME=BOUND", help="A bound such as p95_wait=10m; prints what it costs."),
    ] = [],  # noqa: B006
    jitter: Annotated[
        float,
        typer.Option("--jitter", metavar="SIGMA", help="Shake recorded runtimes anew for each seed; 0.1: by 10 %."),
    ] = 0.0,
    runtime_error: o.RuntimeError_ = 0.0,
    power_error: o.PowerError = 0.0,
    estimates: o.Estimates = None,
    queue: o.QueueRule = None,
    round_s: o.RoundS = 0.0,
    sleep_after: o.SleepAfter = None,
    workers: o.Workers = "",
    full: o.Full = False,
    headroom: Annotated[
        bool, typer.Option("--bounds", help="Also each policy's distance to a lower and an upper bound (first seed).")
    ] = False,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Compare policies against a baseline.

    Simulates every workload under every policy and seed; all figures with -o json. -c may be repeated.

    A TOML file instead of workloads is a whole study: workloads, clusters, policies (docs/figures.md).

    Percentages are (before − after) / before against the baseline, with a 95 % interval over seeds.

    A run of real work (`wattflow run FILE --out RUN.parquet`) is compared with simulations of its own tasks and nodes.

    A seed redraws generated workloads, failures, errors of estimates and a policy's dice, not a recorded trace; add
    --jitter for that.

    Example: wattflow compare montage:tasks=200 trace.json -c mixed -p fifo,heft --report report.html
    """
    from wattflow.lab.compare.study import Slo, Study, read_study, shaken
    from wattflow.lab.show.result_tables import metric_names

    form, crew = chosen_form(output, out, force), o.workers_of(workers)
    # By ending and content: other parquet files are traces.
    if (
        len(workflows) == 1
        and workflows[0].endswith(".parquet")
        and real_run(workflows[0], policies, form, out, report, force, quiet)
    ):
        return
    shown, bounds = metric_names(metrics), tuple(Slo.parse(text) for text in slo)
    inputs = [*workflows, *cluster, *([] if estimates is None else [str(estimates)])]
    # Before anything runs: a run of an hour must not end by refusing to write.
    never_onto(inputs, out, report)
    # `True`: whether a file may be written over is asked below, when all names of reports are known.
    check_outputs(True, report)
    if _is_study(workflows):
        # An option that the file overrules would be accepted and ignored.
        _nothing_beside(ctx)
        study = read_study(Path(workflows[0]))
        study = replace(study, slos=(*study.slos, *bounds))
    else:
        study = _typed(workflows, cluster, policies, estimates)
        options = o.sim_options(queue, round_s, sleep_after, (runtime_error, power_error))
        study = replace(
            study,
            workloads=shaken(study.workloads, jitter),
            baseline=baseline,
            seeds=seeds,
            slos=bounds,
            setup=replace(study.setup, options=options),
        )
    # For the type checker alone.
    assert isinstance(study, Study)
    if headroom:
        _may_be_bounded(study, form)
    if report is not None:
        check_outputs(force, *_reports(report, study))
    found = _run(study, report is not None, crew, quiet)
    show(found, form, out, shown, full, study.slos)
    if headroom:
        show_bounds(found, study, quiet)
    # `strict` only where there are reports: without one the first list is empty.
    for path, comparison in zip(_reports(report, study) if report else (), found, strict=report is not None):
        write(comparison, path, quiet)
    # The same note comes from each comparison.
    for note in dict.fromkeys(note for comparison in found for note in comparison.notes):
        remark(f"note: {note}", quiet)


def real_run(
    path: str, policies: str, form: o.OutputForm, out: Path | None, report: Path | None, force: bool, quiet: bool
) -> bool:
    """Show a real run beside its simulations; False where the file is none."""
    from dataclasses import asdict

    from wattflow.lab.compare.real import beside_simulated, real_comparison
    from wattflow.lab.run.run_file import is_run, read_run
    from wattflow.lab.show.result_tables import beside_table

    if not is_run(path):
        return False
    never_onto([path], out, report)
    if report is not None:
        check_outputs(force, report)
    # Without names a few: all of them would take long for a look at one run.
    some = ("fifo", "least-energy", "eft", "most-allocated", "round-robin")
    chosen = some if policies == "all" else o.names_of(policies)
    saved = read_run(path)
    lines = beside_simulated(saved, chosen)
    if form is o.OutputForm.table:
        print_tables([beside_table(lines, f"{path}: real and simulated")])
    else:
        deliver([asdict(line) for line in lines], form, out, {"run": path})
    if report is not None:
        write(real_comparison(saved, chosen), report, quiet, f"{path}: real and simulated")
    return True


def _is_study(workflows: Sequence[str]) -> bool:
    named = [text for text in workflows if text.endswith(".toml")]
    if named and len(workflows) > 1:
        raise InvalidInput(named[0], "a compare file names its workloads itself; give it alone")
    return bool(named)


def _nothing_beside(ctx: typer.Context) -> None:
    """Refuse options that a compare file answers: none is accepted and ignored."""
    for name in _OF_THE_FILE:
        # Defaults come from the signature and do not count; only what was typed does.
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidInput(f"--{name.replace('_', '-')}", "is set in the compare file; change it there")


def _typed(workflows: Sequence[str], clusters: Sequence[str], policies: str, estimates: Path | None) -> Study:
    from wattflow.cli.options import estimated
    from wattflow.clusters import load_cluster
    from wattflow.lab.compare.study import Study
    from wattflow.sim.inputs import source_of

    sources = tuple(estimated(source_of(text), estimates) for text in workflows)
    return Study(sources, tuple(load_cluster(name) for name in clusters), tuple(o.names_of(policies)))


def _run(study: Study, keep: bool, workers: int | str | None, quiet: bool) -> list[Comparison]:
    with progress_bar(quiet) as progress:
        setup = replace(study.setup, keep_runs=keep, workers=workers)
        return list(replace(study, setup=o.with_progress(setup, progress)).run())


def _reports(path: Path, study: Study) -> list[Path]:
    """Name a page for each cluster, after it where there are several."""
    # One page is named as it was asked for.
    if len(study.clusters) == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{cluster.name.replace('/', '-')}{path.suffix}") for cluster in study.clusters]


def show(
    found: Sequence[Comparison],
    output: o.OutputForm,
    out: Path | None,
    metrics: tuple[str, ...],
    full: bool = False,
    slos: Sequence[Slo] = (),
) -> None:
    """Show the answer and tables for people; every figure for programs."""
    from wattflow.lab.show.overall import clusters_table
    from wattflow.lab.show.result_tables import comparison_about, comparison_rows

    if output is not o.OutputForm.table:
        about = comparison_about(found[0]) | {"cluster": ", ".join(each.cluster.name for each in found)}
        deliver([row for each in found for row in comparison_rows(each)], output, out, about)
        return
    for comparison in found:
        if len(found) > 1:
            typer.echo(f"== {comparison.cluster.name}")
        _show_one(comparison, metrics, full, slos)
    if len(found) > 1:
        print_tables([clusters_table(found)])


def _show_one(comparison: Comparison, metrics: tuple[str, ...], full: bool, slos: Sequence[Slo]) -> None:
    from wattflow.lab.figures.metrics import HEADLINE
    from wattflow.lab.show import answer, overall
    from wattflow.lab.show.result_tables import comparison_tables, explanation

    lines = [line for slo in slos for line in overall.slo_lines(comparison, slo)]
    if metrics != HEADLINE:
        print_tables(comparison_tables(comparison, fitting(metrics, len(comparison.policies))))
        typer.echo("\n".join([*lines, explanation(comparison)]))
        return
    rows = None if full else answer.ROWS
    typer.echo("\n".join([answer.sentence(comparison), *lines, ""]))
    if len(comparison.workloads) > 1:
        print_tables([overall.workloads_table(comparison, rows)])
    print_tables([answer.short_table(comparison, workload, rows) for workload in comparison.workloads])
    typer.echo(explanation(comparison, front=False))


def _may_be_bounded(study: Study, form: o.OutputForm) -> None:
    if study.setup.options is not None and study.setup.options.power_error > 0:
        raise InvalidInput("--bounds", "do not hold where true watts are not those of the cluster: drop --power-error")
    if form is not o.OutputForm.table:
        raise InvalidInput("--bounds", "are shown as a table; `wattflow workload bounds` has them for programs")


def show_bounds(found: Sequence[Comparison], study: Study, quiet: bool) -> None:
    """Show every policy's distance to both bounds on the first seed's draw of each workload."""
    from wattflow.lab.compare import headroom
    from wattflow.model.workload import Workload

    for comparison in found:
        # Bounds of one draw only: each costs a search.
        seed = comparison.seeds[0]
        for title, source in zip(comparison.workloads, study.workloads, strict=True):
            figures = []
            for policy in comparison.policies:
                energy_j, makespan_s = (comparison.values(title, policy, m)[0] for m in ("energy_j", "makespan_s"))
                if energy_j is not None and makespan_s is not None and makespan_s > 0:
                    figures.append((policy, energy_j, makespan_s))
            with progress_bar(quiet) as progress:
                search = headroom.Search(seed)
                workload = source if isinstance(source, Workload) else source.draw(seed)
                rows = list(headroom.headroom(workload, comparison.cluster, figures, search, progress))
            print_tables([headroom.table(f"{title} on {comparison.cluster.name}: bounds, seed {seed}", rows)])
    typer.echo(headroom.EXPLANATION)


def write(comparison: Comparison, path: Path, quiet: bool, title: str = "wattflow comparison") -> None:
    """Write the HTML report, whole or not at all."""
    from wattflow.lab.show.report import write_report

    write_report(path, comparison, title)
    remark(f"report: {path}", quiet)


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
    from wattflow.lab.compare.comparison import compare
    from wattflow.lab.figures.metrics import HEADLINE
    from wattflow.lab.run.points import Setup

    check_outputs(force, report)
    crew = o.workers_of(workers)
    cluster = load_cluster("mixed")
    with progress_bar(quiet) as progress:
        # Runs take memory; they are kept only where something will be made of them.
        keep = report is not None or runs is not None
        setup = Setup(keep_runs=keep, workers=crew, progress=progress)
        comparison = compare(list(DEMOS.values()), cluster, o.names_of(policies), seeds, baseline, setup)
    show([comparison], o.OutputForm.table, None, HEADLINE, full)
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
