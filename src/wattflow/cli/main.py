"""The `wattflow` command. Only light modules load here; a command loads what it needs when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from wattflow import __version__
from wattflow.cli import (
    account_commands,
    book,
    choices,
    compare,
    completion,
    first_run,
    kube,
    lab_commands,
    levels_command,
    machine_commands,
    model_commands,
    run_command,
    server_commands,
    simulate_command,
    store_command,
    up,
    view_command,
    workload_commands,
)
from wattflow.cli.screen import BAD_INPUT, guarded

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

_FIRST: tuple[Callable[..., None], ...] = (
    compare.demo, compare.compare, simulate_command.simulate, choices.policies, choices.clusters, up.up,
    run_command.run, server_commands.ps, server_commands.why, view_command.view, account_commands.report, up.down,
    book.docs,
)  # fmt: skip
_BELOW: dict[str, tuple[str, tuple[Callable[..., None], ...]]] = {
    "workload": (
        "Workloads: make, read, change and look at them.",
        (workload_commands.generate, workload_commands.convert, workload_commands.describe, workload_commands.enrich,
         workload_commands.bounds),
    ),
    "machine": (
        "This machine's watts: meters and power profiles.",
        (machine_commands.meters, machine_commands.profile, machine_commands.profiles),
    ),
    "server": (
        "A server that is up: its nodes, logs and agents.",
        (server_commands.top, server_commands.nodes, server_commands.logs, server_commands.cancel,
         server_commands.agent, account_commands.audit, server_commands.warm),
    ),
    "model": (
        "What is learned from runs: runtimes and the learned policy's weights.",
        (model_commands.fit, model_commands.predict, model_commands.learn),
    ),
    "lab": ("Designs of schedulers.", (lab_commands.explore, lab_commands.frames)),
}  # fmt: skip
FIRST = tuple(command.__name__ for command in _FIRST)
"""Commands that a user needs first, on top of the list."""
NOUNS = {noun: (about, tuple(command.__name__ for command in some)) for noun, (about, some) in _BELOW.items()}
"""Everything else, below a noun; the spelling of 0.1 without the noun is accepted for one release more."""
_HIDDEN = (*(command for _, some in _BELOW.values() for command in some), completion.completion)
COMMANDS: dict[str, Callable[..., None]] = {command.__name__: command for command in (*_FIRST, *_HIDDEN)}

# Order of registration is the order in the list. Hidden, not gone: scripts of the last release still work.
for _name, _command in COMMANDS.items():
    app.command(_name, hidden=_command in _HIDDEN)(guarded(_command))
for _noun, (_about, _some) in _BELOW.items():
    _group = typer.Typer(help=_about, no_args_is_help=True, rich_markup_mode=None)
    for _command in _some:
        # The same function twice, under both spellings.
        _group.command(_command.__name__)(guarded(_command))
    app.add_typer(_group, name=_noun)
for _noun, _group in {"kube": kube.app, "store": store_command.app, "account": account_commands.accounts,
                      "token": account_commands.tokens, "levels": levels_command.app}.items():  # fmt: skip
    app.add_typer(_group, name=_noun)


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


def _open_missing() -> None:
    """Let streams that were closed (``>&-``) lead nowhere: else the next file or socket that is opened gets theirs."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for as long as the process lives


def main() -> None:
    """Entry point of the console script."""
    _open_missing()
    # Before typer reads the arguments: the shell's question is in the environment.
    completion.prepare()
    # Only here: who imports a command keeps its own numba settings (`first_run`).
    first_run.of_own_process = True
    # Before any command has loaded its parts, so by the arguments themselves.
    if not {"-q", "--quiet"} & set(sys.argv):
        first_run.tell_of_compiling()
    try:
        app(prog_name="wattflow")
    except OSError as error:  # help and version are printed outside of any command
        sys.stderr.write(f"error: {error.strerror or error}\n")
        sys.exit(BAD_INPUT)
