"""`wattflow run`: a workflow file or a script, for real."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wattflow.cli import options as o
from wattflow.cli.live import HomeFolder, Server, TokenFile, connect, home_of, pages
from wattflow.cli.screen import INTERRUPTED, as_it_is, check_outputs, never_onto, progress_bar, remark
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime.addresses import segment

if TYPE_CHECKING:
    from wattflow.runtime.connection import Connection

FAILED = 1
FIRST_LOOK_S, LOOK_S = 3.0, 10.0
"""Seconds after which a run that ends nothing is looked at, first and later."""


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A WfFormat workflow (.json) or a Python script (.py).")],
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    objective: Annotated[
        str | None, typer.Option("--objective", help="energy, response, makespan, edp, cost or utilisation.")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", min=0, max=1000, help="Of each task.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The finished Run (.parquet), or WfFormat (.json).")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Run a workflow or a script on the server.

    A workflow's tasks run their command.program with its arguments. Exit code 1 when a task failed.

    `--out` takes the run for `describe` and `compare` (.parquet), or the workflow with runtimes and joules (.json).

    Example: wattflow run montage.json --out run.parquet
    """
    never_onto([file], out)
    check_outputs(force, out)
    # Before connecting: a wrong path must not need a server.
    if not file.exists():
        raise InvalidInput(str(file), "no such file")
    if out is not None and (detach or file.suffix == ".py"):
        raise InvalidInput("--out", "is of a workflow that is waited for: neither of a script nor with --detach")
    if file.suffix == ".py":
        _check_for_script(objective, retries, detach)
        _check_text(file)
    # Also for a script, which would fail later and less clearly without a server.
    connection = connect(home, server, token_file)
    if file.suffix == ".py":
        _wait_for_node(connection, quiet)
        _tell_client(home, server, token_file)
        _script(file)
        return
    workflow = _submit(connection, file, objective, retries)
    remark(f"workflow {workflow}", quiet)
    if detach:
        # On stdout and alone, for scripts.
        typer.echo(workflow)
        return
    try:
        state = _wait(connection, workflow, quiet)
    except KeyboardInterrupt:
        typer.echo(f"{workflow} goes on at the server; `wattflow server cancel {workflow}` ends it", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if out is not None:
        _write_run(connection, workflow, out)
        remark(f"run: {out}", quiet)
    remark(f"{workflow}: {state}", quiet)
    if state != "done":
        raise typer.Exit(FAILED)


def _check_for_script(objective: str | None, retries: int, detach: bool) -> None:
    """Refuse the options that a script cannot be given, by name."""
    if objective is not None:
        raise InvalidInput("--objective", "is of a workflow; a script says wattflow.Client(objective=…)")
    if retries:
        raise InvalidInput("--retries", "is of a workflow; a script says wattflow.task(retries=…)")
    if detach:
        raise InvalidInput("--detach", "is of a workflow: a script runs here to its end")


def _tell_client(home: Path | None, server: str | None, token_file: Path | None) -> None:
    """Let the script's own `wattflow.Client()` find the server that this command found."""
    from wattflow.runtime.client import SERVER, TOKEN_FILE

    # Whole paths: the script may go to another folder.
    os.environ["WATTFLOW_HOME"] = str(home_of(home).folder.absolute())
    token = None if token_file is None else str(token_file.absolute())
    for variable, value in ((SERVER, server), (TOKEN_FILE, token)):
        os.environ.pop(variable, None)
        if value is not None:
            os.environ[variable] = value


def _script(file: Path) -> None:
    """Run a script as Python itself would: its folder comes first among those that modules are found in."""
    import runpy

    sys.path.insert(0, str(file.resolve().parent))
    # As Python sets it: the script sees no option of ours.
    sys.argv = [str(file)]
    try:
        # What a user's program prints is its own (`clean.as_it_is`).
        with as_it_is():
            runpy.run_path(str(file), run_name="__main__")
    # Ours are told by `guarded`, in one line; a pipe or a file of the script's own is none of ours.
    except WattflowError:
        raise
    except Exception:  # the script's own affair, told as Python tells it
        import traceback

        traceback.print_exc()
        raise typer.Exit(FAILED) from None


def _check_text(file: Path) -> None:
    """Refuse what Python could not read at all; a mistake in a script is told as Python tells it."""
    from importlib.util import decode_source

    if not file.is_file():
        return  # a folder with a `__main__.py`
    try:
        text = decode_source(file.read_bytes())
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InvalidInput(str(file), f"is no Python script: {error}") from None
    if "\0" in text:
        raise InvalidInput(str(file), "is no Python script: it holds bytes of zero, as no text does")


def _submit(connection: Connection, file: Path, objective: str | None, retries: int) -> str:
    from typing import get_args

    from wattflow.runtime.facts import submissions
    from wattflow.runtime.messages import Accepted, Objective
    from wattflow.traces.wfformat import read_document

    # Checked here, so that the message names the option.
    known: tuple[Objective, ...] = get_args(Objective)
    chosen = next((one for one in known if one == objective), None)
    if objective is not None and chosen is None:
        raise InvalidInput("--objective", f"{objective!r} is not one of {', '.join(known)}")
    name = ""
    for submission in submissions(read_document(file), chosen, retries):
        name = connection.call("POST", "/v1/submissions", submission, Accepted).workflow
    return name


def _wait(connection: Connection, workflow: str, quiet: bool) -> str:
    after, wait_s, path = 0, FIRST_LOOK_S, f"/v1/workflows/{segment(workflow)}"
    with progress_bar(quiet) as progress:
        while True:
            # Long polling: the server answers at once when something ends.
            answer = connection.patiently("GET", f"{path}/outcomes?after={after}&wait_s={wait_s:g}")
            if wait_s == FIRST_LOOK_S and not answer["outcomes"]:
                _tell_of_no_node(connection, quiet)
            wait_s = LOOK_S
            after = answer["last"]
            for outcome in answer["outcomes"]:
                if outcome["state"] == "failed":
                    remark(f"task {outcome['key']} failed: {outcome.get('reason')}", quiet)
            about: dict[str, Any] = connection.patiently("GET", path)
            if about["state"] != "open":
                return str(about["state"])
            # A bar that only says that something happens: how much is left, nobody knows.
            if progress is not None and after:
                progress(0.5, f"{answer['open']} tasks open")


def _wait_for_node(connection: Connection, quiet: bool) -> None:
    """Give an agent that was just started its seconds to join; then say that there is none."""
    end_s = time.monotonic() + FIRST_LOOK_S
    while all(row["state"] == "down" for row in connection.patiently("GET", "/v1/nodes")):
        if time.monotonic() > end_s:
            _tell_of_no_node(connection, quiet)
            return
        time.sleep(0.2)


def _tell_of_no_node(connection: Connection, quiet: bool) -> None:
    """Say that nothing can run where no node is up: waiting in silence looks like work."""
    nodes = connection.patiently("GET", "/v1/nodes")
    if all(row["state"] == "down" for row in nodes):
        known = f"all {len(nodes)} nodes are down" if nodes else "the server has no node"
        starts = (
            "`wattflow up` here, or `wattflow server agent`, starts one; agent.log in its folder tells of one that was"
        )
        remark(f"{known}: it waits until one is up; {starts}", quiet)


def _write_run(connection: Connection, workflow: str, out: Path) -> None:
    from wattflow.files.whole import whole_file

    _wait_for_joules(connection, workflow)
    what = "document" if out.suffix == ".json" else "run"
    data, _ = connection.raw("GET", f"/v1/workflows/{segment(workflow)}/{what}")
    with whole_file(out) as draft:
        draft.write_bytes(data)


def _wait_for_joules(connection: Connection, workflow: str, for_s: float = 5.0) -> None:
    """Wait for the last attempts' joules, which come a second or two after their end."""
    end_s = time.monotonic() + for_s
    # Bounded: joules of an attempt may never come, where its meter was lost.
    while time.monotonic() < end_s:
        rows = pages(connection, f"/v1/workflows/{segment(workflow)}/attempts", "task")
        # Attempts that never ran have none.
        if all(row["energy_j"] is not None for row in rows if row["outcome"] not in ("node_lost", "refused")):
            return
        time.sleep(0.2)
