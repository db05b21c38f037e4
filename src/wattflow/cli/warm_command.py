"""`wattflow server warm`: compile everything ahead, for images and packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from wattflow.model.errors import WattflowError


def warm(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the compiled code.")],
    policy: Annotated[list[str] | None, typer.Option("-p", "--policy", help="Only these; else every policy.")] = None,
    this_cpu: Annotated[bool, typer.Option(help="For this very processor instead of any of its kind.")] = False,
) -> None:
    """Compile the simulator, the live engine and all policies into DIR; use it with WATTFLOW_CACHE=DIR.

    The code runs on any processor of this architecture, so an image or a package can carry it. It holds for these
    very sources and this version of numba; anything else is compiled as usual.
    """
    from wattflow.policy import registry

    names = tuple(policy) if policy else tuple(registry.names())
    for name in names:
        registry.load(name)  # a name that is wrong is said before anything is compiled
    folder.mkdir(parents=True, exist_ok=True)
    # A process of its own: numba settles which processor it compiles for when it is loaded.
    # "generic" is any processor of this architecture.
    settings = {"WATTFLOW_CACHE": str(folder.resolve())} | ({} if this_cpu else {"NUMBA_CPU_NAME": "generic"})
    command = [sys.executable, "-m", "wattflow.live.warm", *names]
    done = subprocess.run(command, env=os.environ | settings, check=False)
    if done.returncode != 0:
        raise WattflowError(f"compiling ahead ended with status {done.returncode}")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    count = f"{len(names)} {'policy' if len(names) == 1 else 'policies'}"
    typer.echo(f"{count}, {size / 1e6:.0f} MB in {folder}; use it with WATTFLOW_CACHE={folder}")
