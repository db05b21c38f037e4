"""The `wattflow` command. Only light modules load here; a command loads what it needs when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from wattflow import __version__
from wattflow.cli import (
    account,
    agent,
    bounds,
    clusters,
    compare,
    completion,
    convert,
    demo,
    describe,
    enrich,
    experiment,
    explore,
    fit,
    frames,
    generate,
    kube,
    learn,
    meters,
    policies,
    predict,
    profile,
    profiles,
    run,
    simulate,
    store,
    token,
    up,
    view,
    warm,
    watch,
)
from wattflow.cli.guard import guarded

app = typer.Typer(
    name="wattflow",
    help="Energy-aware scheduling of scientific workflows on mixed clusters: simulate, compare, explain.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "compare": compare.compare,
    "simulate": simulate.simulate,
    "bounds": bounds.bounds,
    "describe": describe.describe,
    "generate": generate.generate,
    "convert": convert.convert,
    "policies": policies.policies,
    "clusters": clusters.clusters,
    "experiment": experiment.experiment,
    "frames": frames.frames,
    "explore": explore.explore,
    "meters": meters.meters,
    "profile": profile.profile,
    "profiles": profiles.profiles,
    "enrich": enrich.enrich,
    "fit": fit.fit,
    "predict": predict.predict,
    "learn": learn.learn,
    "up": up.up,
    "down": up.down,
    "run": run.run,
    "ps": watch.ps,
    "logs": watch.logs,
    "cancel": watch.cancel,
    "nodes": watch.nodes,
    "top": watch.top,
    "why": watch.why,
    "view": view.view,
    "report": account.report,
    "audit": account.audit,
    "agent": agent.agent,
    "warm": warm.warm,
    "completion": completion.completion,
}

for _name, _command in COMMANDS.items():
    app.command(_name)(guarded(_command))
app.add_typer(kube.app, name="kube")
app.add_typer(store.app, name="store")
app.add_typer(account.app, name="account")
app.add_typer(token.app, name="token")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wattflow {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Energy-aware scheduling of scientific workflows on mixed clusters: simulate, compare, explain."""


def main() -> None:
    """Entry point of the console script."""
    completion.prepare()
    app(prog_name="wattflow")
