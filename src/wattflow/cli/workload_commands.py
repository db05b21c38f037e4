"""`wattflow workload`: make, convert, describe and enrich workloads, and bound the joules that they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import (
    check_outputs,
    check_target,
    chosen_form,
    deliver,
    never_onto,
    plain_table,
    print_tables,
    progress_bar,
    remark,
)
from wattflow.model.errors import InvalidInput
from wattflow.runtime.addresses import segment

if TYPE_CHECKING:
    from rich.table import Table

    from wattflow.runtime.connection import Connection


def generate(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY:key=value,…", help="As in map-reduce:tasks=50,workflows=10; --list shows families and keys."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write; its name chooses the format, .json is WfFormat."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Same seed, same bytes.")
    ] = 0,
    list_all: Annotated[bool, typer.Option("--list", help="List families, keys, distributions and arrivals.")] = False,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Make a workload and write it as a trace.

    From a parametric family of DAGs with heavy-tailed runtimes and arrivals; the same seed gives the same bytes.

    Example: wattflow workload generate montage:tasks=200,runtime=pareto,mean=30s --seed 1 --out montage.json
    """
    # Without a recipe the list is the answer: there is nothing to guess.
    if list_all or recipe is None:
        print_tables(list(_catalogue()))
        return
    from wattflow import traces
    from wattflow.generate.recipe import Recipe
    from wattflow.sim.inputs import source_of

    source = source_of(recipe)
    if not isinstance(source, Recipe):
        raise InvalidInput(recipe, "is a file; give a family, as in montage:tasks=200")
    if out is None:
        raise InvalidInput(
            "generate", "needs a file to write: add --out FILE; `wattflow workload describe` looks without writing"
        )
    check_outputs(force, out)
    workload = source.draw(seed)
    dropped = traces.save(workload, out)
    remark(f"wrote {out}: {len(workload):,} tasks in {len(workload.workflow_names):,} workflows", quiet)
    for note in dropped:
        remark(f"note: left out: {note}", quiet)


def _catalogue() -> Iterator[Table]:
    """List what may be generated, as tables."""
    from wattflow.generate import ARRIVALS, DEMOS, FAMILIES, LAWS
    from wattflow.generate.recipe import KEYS_ABOUT

    # The first line of a family's docstring is its entry in this list.
    families = {name: (family.__doc__ or "").split("\n")[0] for name, family in FAMILIES.items()}
    bundled = {f"demo:{name}": f"{recipe.family}, bundled with `wattflow demo`" for name, recipe in DEMOS.items()}
    lists = {
        "family": families | bundled,
        "key": KEYS_ABOUT,
        "distribution (runtime=, file=)": LAWS,
        "arrivals=": ARRIVALS,
    }
    for title, rows in lists.items():
        yield plain_table([{title: name, "": about} for name, about in rows.items()])


def convert(
    source: Annotated[Path, typer.Argument(metavar="A", help="File or folder to read; its format is recognised.")],
    target: Annotated[Path, typer.Argument(metavar="B", help="File or folder to write; its name chooses the format.")],
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Convert a trace to another format.

    The target appears whole or not at all.
    Its name says the format: .json is WfFormat, .swf is SWF, no ending is a folder of the Workflow Trace Archive.

    Example: wattflow workload convert workflow.json trace.swf
    """
    from wattflow import traces

    # Before reading: a conversion onto itself would destroy the trace.
    never_onto([source], target)
    check_target(force, target)
    done = traces.convert(source, target)
    remark(f"wrote {target}: {done.tasks:,} tasks, {done.source_format} to {done.target_format}", quiet)
    for note in done.read_notes:
        remark(f"note: read: {note}", quiet)
    for note in done.dropped:
        remark(f"note: {done.target_format} cannot hold: {note}", quiet)


MOST_SHOWN = 30


def describe(
    workflow: o.OneWorkflow,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Draw of a generated workload.")
    ] = 0,
) -> None:
    """Say what a workload or a finished run holds, or how a workflow or task on the server stands.

    Tasks, structure, runtimes, data, needs, and what its reader skipped or repaired.

    A run is the parquet file of `wattflow simulate --attempts` or `wattflow run --out`.

    Example: wattflow workload describe trace.json
    """
    from wattflow.generate.recipe import Recipe
    from wattflow.lab.run.run_file import is_run
    from wattflow.lab.show.workload_facts import describe_workload, description_table
    from wattflow.model.errors import InvalidInput
    from wattflow.sim.inputs import source_of

    form = chosen_form(output, out, force)
    # The server first: a workflow of its own is what a bare name usually means there.
    found = _on_server(workflow)
    if not isinstance(found, str):
        _describe_running(*found, form, out)
        return
    # A trace may be a parquet file as well.
    if Path(workflow).is_file() and is_run(workflow):
        _describe_run(workflow, form, out)
        return
    try:
        source = source_of(workflow)
    except InvalidInput as error:
        # A file that is there and cannot be read is the user's mistake; a name that nobody knows gets both
        # answers.
        if not found:
            raise
        raise InvalidInput(workflow, f"{error.problems[0]}; and {found}") from None
    workload = source.draw(seed) if isinstance(source, Recipe) else source
    rows = describe_workload(workload)
    if form is o.OutputForm.table:
        print_tables([description_table(rows, workload.name)])
        for note in workload.notes:
            remark(f"note: {note}")
    else:
        deliver(rows, form, out, {"workload": workload.name, "notes": list(workload.notes)})


def _on_server(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | str:
    """Find a workflow or task on this machine's server, with its attempts; else why not, nothing where none was asked.

    Then it is a file or a recipe, and is told as such.
    """
    # Paths and recipes ("montage:tasks=60") are never names of workflows.
    if Path(name).exists() or ":" in name or not _server_here():
        return ""
    from wattflow.cli.live import connect
    from wattflow.runtime.home import NotRunning
    from wattflow.runtime.transport import Denied, Unreachable

    try:
        return _found(connect(None, None, None), name)
    except Denied as error:
        return "this machine's server knows no such workflow or task" if error.status == 404 else str(error)
    except (NotRunning, Unreachable) as error:
        return str(error)


def _describe_running(
    about: dict[str, Any], attempts: list[dict[str, Any]], form: o.OutputForm, out: Path | None
) -> None:
    """Describe a workflow or task of a server."""
    from wattflow.cli.live import show

    known = [row["energy_j"] for row in attempts if row["energy_j"] is not None]
    kinds = sorted({row["provenance"] for row in attempts if row["provenance"]})
    about |= {"energy_j": sum(known) if known else None, "provenance": ", ".join(kinds) or None}
    if form is not o.OutputForm.table:
        show([about | {"attempts": attempts}], (), form, out, "")
        return
    rows = [{"what": what, "value": value} for what, value in _readable(about | {"attempts": len(attempts)}).items()]
    show(rows, ("what", "value"), form, out, "")
    columns = ("key", "number", "node", "variant", "outcome", "lasted", "energy", "reason")
    show([_readable_attempt(row) for row in attempts[:MOST_SHOWN]], columns, form, out, "no attempt yet")
    if len(attempts) > MOST_SHOWN:
        remark(f"{len(attempts) - MOST_SHOWN} more attempts; `-o json` has all")


def _server_here() -> bool:
    """Tell whether a server was started in this user's folder."""
    from wattflow.runtime.home import Home

    return Home.of().server_file.exists()


def _found(connection: Connection, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Find a workflow, or a task by number or as WORKFLOW/KEY, with its attempts."""
    from wattflow.cli.live import find_task, is_number, pages

    if is_number(name) or "/" in name:
        number = find_task(connection, name)["id"]
        task: dict[str, Any] = connection.call("GET", f"/v1/tasks/{number}")
        attempts = [row | {"key": task["key"]} for row in task.pop("attempts")]
        return task | {"why": connection.call("GET", f"/v1/tasks/{number}/why")["why"]}, attempts
    about: dict[str, Any] = connection.call("GET", f"/v1/workflows/{segment(name)}")
    return about, pages(connection, f"/v1/workflows/{segment(name)}/attempts", "task")


def _readable(about: dict[str, Any]) -> dict[str, object]:
    """Rewrite for people: dates, durations, joules in words; what says nothing is left out."""
    from datetime import datetime

    from wattflow.model import units

    shown: dict[str, object] = {}
    for key, value in about.items():
        # Units are in the keys; people read them in the values.
        name = key.removesuffix("_s").removesuffix("_j").replace("_", " ")
        if value is None or key in ("sealed", "variants"):
            continue
        if key.endswith("_s"):
            value = datetime.fromtimestamp(value).astimezone().isoformat(" ", "seconds")
        elif key.endswith("_j"):
            value = units.human_energy(value)
        elif isinstance(value, dict):
            value = ", ".join(f"{count} {state}" for state, count in sorted(value.items()))
        shown[name] = value
    if about.get("ended_s") is not None:
        shown["lasted"] = units.human_time(about["ended_s"] - about["submitted_s"])
    return shown


def _readable_attempt(row: dict[str, Any]) -> dict[str, object]:
    from wattflow.cli.live import energy_of
    from wattflow.model import units

    over = row["ended_s"] is not None and row["started_s"] is not None
    return row | {
        "variant": row["variant_name"],
        "outcome": row["outcome"] or "running",
        "lasted": units.human_time(row["ended_s"] - row["started_s"]) if over else None,
        "energy": energy_of(row),
    }


def _describe_run(path: str, form: o.OutputForm, out: Path | None) -> None:
    from wattflow.lab.run.run_file import read_run
    from wattflow.lab.show.workload_facts import describe_run, description_table

    run = read_run(path)
    rows = describe_run(run)
    if form is o.OutputForm.table:
        title = f"{run.about['workload']} on {run.about['cluster']} under {run.about['policy']}"
        print_tables([description_table(rows, title)])
    else:
        deliver(rows, form, out, dict(run.about))


def enrich(
    source: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace to read; its format is recognised.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="To write; its name chooses the format.")],
    nodes: Annotated[
        str, typer.Option("--nodes", help="Cluster file or preset whose nodes have the names of the trace's machines.")
    ],
    default: Annotated[
        str | None, typer.Option("--default", help="Node that stands for machines without one of their name.")
    ] = None,
    error: Annotated[
        float | None, typer.Option("--error", min=0.0, help="Relative error band to write, such as 0.07.")
    ] = None,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Fill the energy fields of a trace: each task's share of its node's watts above idle, by CPU time.

    WfFormat gets energyInKWh and avgPowerInW, the Workflow Trace Archive its energy columns; both say `modelled`.
    Joules that the trace already has are kept. Profiles by name (ccf:, ichnos:) and `load` curves of
    a cluster file are read as watts against busy threads, cores first.

    Example: wattflow workload enrich trace.json labelled.json --nodes cluster.toml --default node-1 --error 0.07
    """
    from wattflow import traces
    from wattflow.clusters import load_cluster
    from wattflow.energy.enrich import enrich as fill

    never_onto([source, nodes], target)
    check_target(force, target)
    cluster = load_cluster(nodes)
    # Nodes without watts cannot label anything.
    curves = {node.name: node.power for node in cluster.nodes if node.power is not None}
    if default is not None and default not in curves:
        known = ", ".join(sorted(curves)[:20])
        raise InvalidInput("--default", f"no node named {default!r} with watts; there are {known}")
    workload = traces.load(source)
    labelled = fill(workload, curves, None if default is None else curves[default], error)
    kinds = labelled.columns["energy_provenance"]
    filled = int(sum(bool(kind) for kind in kinds.tolist()))
    # A file without a single joule would look like a success.
    if filled == 0:
        machines = sorted({str(name) for name in workload.columns.get("machine", []) if name})
        named = f"its machines are {', '.join(machines[:10])}" if machines else "the trace names no machine"
        raise InvalidInput(str(source), f"no task got joules: {named}; name nodes so, or give --default NODE")
    dropped = traces.save(labelled, target)
    remark(f"wrote {target}: joules for {filled:,} of {len(labelled):,} tasks, modelled from {cluster.name}", quiet)
    for note in dropped:
        remark(f"note: the format cannot hold: {note}", quiet)


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
    if form is not o.OutputForm.table:
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
