"""`wattflow workload bounds`: how many joules a workload needs at least, and how far each policy is from that."""

from __future__ import annotations

from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import chosen_form, deliver, never_onto, print_tables, progress_bar
from wattflow.model.errors import InvalidInput


def bounds(
    workflow: o.OneWorkflow,
    cluster: o.ClusterName = ["mixed"],  # noqa: B006
    policies: Annotated[
        str, typer.Option("--policies", "-p", metavar="NAMES", help="Policies to judge, with commas between.")
    ] = "heft,eft:sleep=120,wattflow",
    slack: Annotated[
        str,
        typer.Option(
            "--slack", metavar="SHARES", help="Also bounds at HEFT's makespan × (1 + each share), commas between."
        ),
    ] = "0,0.1,0.3",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Of the draw and of the search.")
    ] = 0,
    evaluations: Annotated[
        int | None,
        typer.Option(
            "--evaluations", metavar="N", min=1, max=10**9, help="Schedules a walk tries; by default by size."
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also the optimum of the model by CP-SAT, up to 50 tasks (needs ortools).")
    ] = False,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Bounds on the energy of a workload, and each policy's distance to them.

    Lower bound: a linear relaxation with start times and node area cuts (needs SciPy, extra `plan`).

    Upper bound: simulated annealing over order, node, variant and frequency, run in the simulator. Both at the row's
    makespan.

    Example: wattflow workload bounds montage:tasks=60 -c mixed -p heft,wattflow --slack 0,0.1,0.3
    """
    from wattflow.clusters import load_cluster
    from wattflow.lab.compare import headroom
    from wattflow.plan.exact import MOST_TASKS
    from wattflow.sim import simulate
    from wattflow.sim.inputs import drawn

    form = chosen_form(output, out, force)
    named = o.one_cluster(cluster)
    never_onto([workflow, named], out)
    # Before the draw: a wrong option must not cost a minute.
    shares = _shares(slack)
    workload, machine = drawn(workflow, seed), load_cluster(named)
    if exact and len(workload) > MOST_TASKS:
        raise InvalidInput("--exact", f"is for up to {MOST_TASKS} tasks; {workload.name} has {len(workload)}")
    chosen = o.names_of(policies)
    with progress_bar(quiet) as progress:
        runs = [(name, simulate(workload, machine, name, seed=seed)) for name in chosen]
        # Always HEFT: the slack is measured from one schedule, whatever policies were named.
        base_s = simulate(workload, machine, "heft", seed=seed).makespan_s
        figures = [(name, run.total_j, run.makespan_s) for name, run in runs]
        # NaN joules: such a row is a bound at a makespan, of no policy.
        figures += [(f"(HEFT's makespan + {100 * share:g} %)", float("nan"), base_s * (1 + share)) for share in shares]
        rows = list(headroom.headroom(workload, machine, figures, headroom.Search(seed, evaluations, exact), progress))
    if form is not o.Form.table:
        deliver(headroom.as_rows(rows), form, out, {"workload": workload.name, "cluster": machine.name, "seed": seed})
        return
    print_tables([headroom.table(f"{workload.name} on {machine.name}: {len(workload)} tasks, seed {seed}", rows)])
    typer.echo(headroom.EXPLANATION)
    speed = max(row.bounds.evaluations_per_s for row in rows)
    typer.echo(f"annealing: {max(r.bounds.evaluations for r in rows):,} schedules, {speed:,.0f} a second")
    for row in rows:
        if row.bounds.exact_j is not None:
            typer.echo(f"exact optimum of the model at {row.policy}: {headroom.kilojoules(row.bounds.exact_j)}")
        elif exact:
            typer.echo(f"exact optimum of the model at {row.policy}: not proven in time")


def _shares(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        # A value that the check below refuses, so that one message covers both.
        shares = [-1.0]
    if any(not 0 <= share < 1e6 for share in shares):
        raise InvalidInput("--slack", f"{text!r} must be numbers of at least 0 with commas between, as in 0,0.1,0.3")
    return shares
