"""`wattflow model learn`: fine-tune the learned policy's weights on what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_outputs, never_onto

if TYPE_CHECKING:
    from wattflow.learn.recorded import Recorded


def learn(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE...]",
            help="Folders with the journal of an engine, or workloads that were run, oldest first.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="FOLDER|URL", help="The store of a server, its own folder or postgresql://…; only read."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Candidate weights to write (.npz).")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Train nothing: are these weights worse than --from by now?"),
    ] = None,
    attempts: Annotated[
        list[Path] | None,
        typer.Option(
            "--attempts", metavar="FILE", help="The run of each workload (parquet of `simulate --attempts`, `run`)."
        ),
    ] = None,
    cluster: o.ClusterName = ["mixed"],  # noqa: B006
    weights_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Weights to go on from; those in use by default.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.0, help="How long to train, without setting up.")
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Fixes directions.")] = 1,
    force: o.Force = False,
) -> None:
    """Fine-tune the learned policy on recorded runs, and put the candidate to a shadow test beside the weights in use.

    Two thirds of the record, the older, are trained on; the last third is the test. The candidate is written with its
    card and the verdict in any case; WATTFLOW_WEIGHTS=FILE uses it, deleting that setting goes back. With --check a
    later record is replayed under promoted weights and under those before: exit code 1 means that they should go.

    With --store the finished workflows of a server are the record; it may be running. `wattflow up -p learned --learn`
    does all of this by itself.

    Example: wattflow model learn trace.json --attempts run.parquet -c mixed --out candidate.npz
    """
    from dataclasses import replace

    from wattflow.learn import finetune
    from wattflow.model.errors import InvalidInput
    from wattflow.policy import weights

    sources = sources or []
    if not sources and store is None:
        raise InvalidInput("SOURCE", "name what was recorded: folders with journals, workloads, or --store")
    # Exactly one of the two.
    if (out is None) == (check is None):
        raise InvalidInput("--out", "give either the file to write, or --check with the weights to try")
    present = weights.load(weights_file)[0] if weights_file else weights.current()
    if check is not None:
        # Both are loaded before anything is replayed.
        tried = weights.load(check)[0]
        verdict = finetune.shadow(present, tried, finetune.tested(_blocks(sources, attempts or [], cluster, store)))
        typer.echo(f"{'alarm, go back' if verdict.alarm else 'no alarm'}: {verdict}")
        # For scripts: the exit code is the verdict.
        raise typer.Exit(1 if verdict.alarm else 0)
    assert out is not None
    never_onto([*sources, *map(str, attempts or ())], out)
    check_outputs(force, out)
    recent, held = finetune.parted(_blocks(sources, attempts or [], cluster, store))
    settings = replace(finetune.USUAL, seed=seed)
    tuner = finetune.FineTuner(present, recent, settings=settings)
    candidate = tuner.run(seconds)
    verdict = finetune.shadow(present, candidate, held)
    base = str(weights_file) if weights_file else "weights in use"
    # Also where it was not promoted: the card says so, and the user decides.
    weights.save(out, candidate, finetune.card(tuner, verdict, [*sources, *(["a store"] if store else [])], base))
    typer.echo(f"{tuner.progress.generation} generations on {len(recent)} recorded trials")
    typer.echo(f"shadow test, {'promoted' if verdict.promoted else 'not promoted'}: {verdict}")
    typer.echo(f"wrote {out}", err=True)


def _blocks(sources: list[str], attempts: list[Path], clusters: list[str], store: str | None) -> list[Recorded]:
    from wattflow.clusters import load_cluster
    from wattflow.lab.run.run_file import read_run
    from wattflow.learn import recorded
    from wattflow.model.errors import InvalidInput
    from wattflow.model.workload import Workload
    from wattflow.sim.inputs import source_of

    made: list[Recorded] = []
    traces = [one for one in sources if not Path(one).is_dir()]
    # Only workloads have runs; journals hold their own.
    if attempts and len(attempts) != len(traces):
        raise InvalidInput("--attempts", f"{len(attempts)} runs for {len(traces)} workloads: give one for each")
    runs = iter(attempts)
    for one in sources:
        if Path(one).is_dir():
            workload, there = recorded.from_journal(one)
        else:
            there, source = load_cluster(o.one_cluster(clusters)), source_of(one)
            workload = source if isinstance(source, Workload) else source.draw(0)
            if attempts:
                run = read_run(next(runs))
                workload = recorded.with_attempts(workload, run.attempts, there, run.names)
        made += recorded.blocks(Path(one).name, workload, there)
    return made + (_stored(store) if store is not None else [])


def _stored(store: str) -> list[Recorded]:
    """Return blocks of a server's finished workflows."""
    from wattflow.runtime.home import Home
    from wattflow.server.history import read_history
    from wattflow.store.database import read_store

    place = Path(store)
    # A folder is a server's home; anything else is a database's URL.
    return read_history(read_store(Home(place).store if place.is_dir() else store)).blocks("store")
