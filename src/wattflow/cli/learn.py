"""`wattflow learn`: fine-tune the learned policy's weights on what was recorded."""

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
        list[str],
        typer.Argument(
            metavar="SOURCE...", help="Folders with the journal of an engine, or workloads that were run, oldest first."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Candidate weights to write (.npz).")],
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
    replay: Annotated[
        int, typer.Option("--replay", metavar="N", min=0, help="Older scenarios to keep in mind (needs the data).")
    ] = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0.0, help="How long to train, without setting up.")
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Fixes directions.")] = 1,
    force: o.Force = False,
) -> None:
    """Fine-tune the learned policy on recorded runs, and put the candidate to a shadow test beside the weights in use.

    Two thirds of the record, the older, are trained on; the last third is the test. The candidate is written with its
    card and the verdict in any case; WATTFLOW_WEIGHTS=FILE uses it, deleting that setting goes back.

    Example: wattflow learn trace.json --attempts run.parquet -c mixed --out candidate.npz
    """
    from dataclasses import replace

    from wattflow.learn import finetune
    from wattflow.policy import weights

    never_onto([*sources, *map(str, attempts or ())], out)
    check_outputs(force, out)
    present = weights.load(weights_file)[0] if weights_file else weights.current()
    recent, held = finetune.parted(_blocks(sources, attempts or [], o.one_cluster(cluster)))
    settings = replace(finetune.USUAL, seed=seed)
    tuner = finetune.FineTuner(present, recent, finetune.replayed(replay, seed=seed + 50), settings)
    candidate = tuner.run(seconds)
    verdict = finetune.shadow(present, candidate, held)
    base = str(weights_file) if weights_file else "weights in use"
    weights.save(out, candidate, finetune.card(tuner, verdict, [str(one) for one in sources], base))
    typer.echo(f"{tuner.progress.generation} generations on {len(recent)} recorded trials")
    typer.echo(f"shadow test: {verdict}")
    typer.echo(f"wrote {out}", err=True)


def _blocks(sources: list[str], attempts: list[Path], cluster: str) -> list[Recorded]:
    from wattflow.clusters import load_cluster
    from wattflow.lab.run.run_file import read_run
    from wattflow.learn import recorded
    from wattflow.model.errors import InvalidInput
    from wattflow.model.workload import Workload
    from wattflow.sim.inputs import source_of

    made: list[Recorded] = []
    traces = [one for one in sources if not Path(one).is_dir()]
    if attempts and len(attempts) != len(traces):
        raise InvalidInput("--attempts", f"{len(attempts)} runs for {len(traces)} workloads: give one for each")
    runs = iter(attempts)
    for one in sources:
        if Path(one).is_dir():
            workload, there = recorded.from_journal(one)
        else:
            there, source = load_cluster(cluster), source_of(one)
            workload = source if isinstance(source, Workload) else source.draw(0)
            if attempts:
                workload = recorded.with_attempts(workload, read_run(next(runs)).attempts, there)
        made += recorded.blocks(Path(one).name, workload, there)
    return made
