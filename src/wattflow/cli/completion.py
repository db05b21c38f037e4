"""`wattflow completion`: what a shell needs to complete our commands, options and names."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

VARIABLE = "_WATTFLOW_COMPLETE"
"""Set by the shell's script when it asks for completions."""


class Shell(StrEnum):
    """Shells that can be served."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


_WHERE = {
    Shell.bash: 'eval "$(wattflow completion bash)"    # in ~/.bashrc',
    Shell.zsh: 'eval "$(wattflow completion zsh)"    # in ~/.zshrc, after compinit',
    Shell.fish: "wattflow completion fish > ~/.config/fish/completions/wattflow.fish",
}


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print the script that completes commands, options, policies and clusters in a shell.

    bash and zsh: eval "$(wattflow completion bash)" in the shell's start-up file.
    fish: wattflow completion fish > ~/.config/fish/completions/wattflow.fish
    """
    # Imported when asked: typer's completion is slow to load, and every command would pay.
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="wattflow", complete_var=VARIABLE, shell=shell.value)
    typer.echo(f"# {_WHERE[shell]}\n{script}")


def prepare() -> None:
    """Answer the shell's questions where it asks, before the command line is read."""
    # The shell asks at every press of Tab: nothing else may be loaded before.
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def policy_name(incomplete: str) -> list[str]:
    """Return policies that continue what was typed, where only one can be named."""
    from wattflow.policy import registry

    return [name for name in registry.names() if name.startswith(incomplete)]


def policy_names(incomplete: str) -> list[str]:
    """Return policies that continue what was typed, after the last comma."""
    from wattflow.policy import registry

    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in ("all", *registry.names()) if name.startswith(last)]


def cluster_names(incomplete: str) -> list[str]:
    """Return presets and cluster files that continue what was typed."""
    from wattflow.clusters import preset_names

    return [*(name for name in preset_names() if name.startswith(incomplete)), *_files(incomplete, ".toml")]


def workload_names(incomplete: str) -> list[str]:
    """Return families of generated workloads, bundled ones, and files."""
    from wattflow.generate import DEMOS, FAMILIES

    known = (*FAMILIES, *(f"demo:{name}" for name in DEMOS))
    return [*(name for name in known if name.startswith(incomplete)), *_files(incomplete)]


def _files(incomplete: str, ending: str = "") -> list[str]:
    """Return files with this ending, and folders, that continue what was typed."""
    # The letter keeps a trailing slash from being lost: "dir/" must list the folder, not itself.
    stem = Path(f"{incomplete}x")
    if not stem.parent.is_dir():
        return []
    found = sorted(path for path in stem.parent.iterdir() if path.name.startswith(stem.name[:-1]))
    return [f"{path}/" if path.is_dir() else str(path) for path in found if path.is_dir() or path.name.endswith(ending)]
