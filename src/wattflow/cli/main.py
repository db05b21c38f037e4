"""The `wattflow` command. Only light modules load here; a command loads what it needs when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from wattflow import __version__
from wattflow.cli import (
    account,
    agent_command,
    bounds_command,
    clusters,
    compare,
    completion,
    convert,
    demo_command,
    describe_command,
    docs_command,
    enrich_command,
    explore,
    first_run,
    fit_command,
    frames_command,
    generate,
    kube,
    learn,
    levels_command,
    meters,
    policies_command,
    predict,
    profile_command,
    profiles_command,
    run_command,
    simulate_command,
    store_command,
    token,
    up,
    view_command,
    warm_command,
    watch,
)
from wattflow.cli.guard import guarded

app = typer.Typer(
    name="wattflow",
    help="Energy-aware scheduling of scientific workflows on mixed clusters: simulate, compare, explain.",
    no_args_is_help=True,
    add_completion=False,
    # `guarded` tells errors; rich's tracebacks would show local values, tokens among them.
    pretty_exceptions_enable=False,
    # Brackets in help texts are text.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo_command.demo,
    "compare": compare.compare,
    "simulate": simulate_command.simulate,
    "bounds": bounds_command.bounds,
    "describe": describe_command.describe,
    "generate": generate.generate,
    "convert": convert.convert,
    "policies": policies_command.policies,
    "clusters": clusters.clusters,
    "frames": frames_command.frames,
    "explore": explore.explore,
    "meters": meters.meters,
    "profile": profile_command.profile,
    "profiles": profiles_command.profiles,
    "enrich": enrich_command.enrich,
    "fit": fit_command.fit,
    "predict": predict.predict,
    "learn": learn.learn,
    "up": up.up,
    "down": up.down,
    "run": run_command.run,
    "ps": watch.ps,
    "logs": watch.logs,
    "cancel": watch.cancel,
    "nodes": watch.nodes,
    "top": watch.top,
    "why": watch.why,
    "view": view_command.view,
    "report": account.report,
    "audit": account.audit,
    "agent": agent_command.agent,
    "warm": warm_command.warm,
    "docs": docs_command.docs,
    "completion": completion.completion,
}

FIRST = (
    "demo",
    "compare",
    "simulate",
    "policies",
    "clusters",
    "up",
    "run",
    "ps",
    "why",
    "view",
    "report",
    "down",
    "docs",
)
"""What a user needs first, on top of the list."""
NOUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "workload": (
        "Workloads: make, read, change and look at them.", ("generate", "convert", "describe", "enrich", "bounds"),
    ),
    "machine": ("This machine's watts: meters and power profiles.", ("meters", "profile", "profiles")),
    "server": ("A server that is up: its nodes, logs and agents.", ("top", "nodes", "logs", "cancel", "agent", "audit",
               "warm")),
    "model": ("What is learned from runs: runtimes and the learned policy's weights.", ("fit", "predict", "learn")),
    "lab": ("Designs of schedulers.", ("explore", "frames")),
}  # fmt: skip
"""Everything else, below a noun; the spelling of 0.1 without the noun is accepted for one release more."""
# Hidden, not gone: scripts of the last release still work.
_BELOW = {name for _, some in NOUNS.values() for name in some} | {"completion"}

# Order of registration is the order in the list.
for _name in (*FIRST, *(name for name in COMMANDS if name not in FIRST)):
    app.command(_name, hidden=_name in _BELOW)(guarded(COMMANDS[_name]))
for _noun, (_about, _names) in NOUNS.items():
    _group = typer.Typer(help=_about, no_args_is_help=True, rich_markup_mode=None)
    for _name in _names:
        # The same function twice, under both spellings.
        _group.command(_name)(guarded(COMMANDS[_name]))
    app.add_typer(_group, name=_noun)
app.add_typer(kube.app, name="kube")
app.add_typer(store_command.app, name="store")
app.add_typer(account.app, name="account")
app.add_typer(token.app, name="token")
app.add_typer(levels_command.app, name="levels")


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
    # Before typer reads the arguments: the shell's question is in the environment.
    completion.prepare()
    # Only here: who imports a command keeps its own numba settings (`first_run`).
    first_run.of_own_process = True
    app(prog_name="wattflow")
