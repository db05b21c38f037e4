"""`wattflow view`: a run in the dashboard's page, from a file or from a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.live import HomeFolder, Server, TokenFile, connect, workflow_path
from wattflow.cli.screen import remark
from wattflow.model.errors import InvalidInput
from wattflow.runtime.addresses import segment

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN|WORKFLOW]...", help="Run files or folders of them, or one workflow of a server; none: its page."
    ),
]


def view(
    targets: Targets = None,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For files; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser, or print alone.")] = True,
    quiet: o.Quiet = False,
) -> None:
    """Open runs in the page: schedule and watts on one time axis.

    A file or a folder is served on this machine's loopback until Ctrl-C; a workflow's name opens the server's page.

    Example: wattflow view run.parquet
    """
    named = targets or []
    files = [Path(target) for target in named if _is_path(target)]
    if files and len(files) < len(named):
        raise InvalidInput(", ".join(named), "are files and workflows; open them one after the other")
    if files:
        _serve(files, port, browser, quiet)
        return
    if len(named) > 1:
        raise InvalidInput(", ".join(named), "one workflow at a time; the page compares others with it")
    connection = connect(home, server, token_file)
    # A name that is wrong is told here, not by an empty page.
    if named:
        connection.call("GET", workflow_path(named[0]))
    # A code that logs in once, so that no token stands in the browser's history.
    code = connection.call("POST", "/v1/session/link")["code"]
    run = f"&run={segment(named[0])}" if named else ""
    # Behind the "#": browsers do not send that part to servers or proxies.
    _open(f"{connection.server}/#code={code}{run}", browser, quiet)


def _is_path(target: str) -> bool:
    """Tell whether a target is a file or a folder: it is there, or looks like one."""
    # What looks like a path and is not there should be told as such.
    return Path(target).exists() or "/" in target or target.endswith((".parquet", ".wfcols"))


def _serve(files: list[Path], port: int, browser: bool, quiet: bool) -> None:
    from wattflow.lab.show.viewer import Viewer, find_runs

    for path in files:
        if not path.exists():
            raise InvalidInput(str(path), "no such file")
    viewer = Viewer(find_runs(files), port)
    count = len(viewer.runs)
    _open(viewer.address, browser, quiet)
    remark(f"{count} {'run' if count == 1 else 'runs'}; Ctrl-C ends", quiet)
    try:
        viewer.serve_forever()
    except KeyboardInterrupt:
        remark("", quiet)
    finally:
        viewer.server_close()


def _open(address: str, browser: bool, quiet: bool) -> None:
    """Print the address, and open it where somebody is looking."""
    typer.echo(address)
    if not browser:
        return
    import webbrowser

    if not webbrowser.open(address):
        remark("no browser was found; open the address above", quiet)
