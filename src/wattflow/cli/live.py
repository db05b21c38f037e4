"""Parts that the commands of the runtime share: reaching the server, and its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import deliver, plain_table, print_tables
from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.runtime.addresses import segment

if TYPE_CHECKING:
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.home import Home

HomeFolder = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="The server's folder; else WATTFLOW_HOME, else the user's.")
]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL,…", help="Another server than this machine's, and those that stand by."),
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="Token for --server.")]

Cpus = Annotated[float | None, typer.Option("--cpus", help="What the agent offers; else all.")]
GpuSharing = Annotated[
    str, typer.Option("--gpu-sharing", help="exclusive, time-slice, mps or mig: how tasks share its GPUs.")
]
Fpgas = Annotated[int, typer.Option("--fpgas", min=0, help="FPGAs to play with Verilator.")]
Preload = Annotated[str, typer.Option("--preload", help="Modules that the agent holds ready, with commas between.")]


def check_agent(cpus: float | None, gpu_sharing: str, preload: str, contained: bool) -> None:
    """Refuse options with which an agent could never start, or never do what they say."""
    from wattflow.runtime import messages
    from wattflow.runtime.executors.gpu import GpuExecutor, Sharing

    # From the types themselves, so that help, check and agent cannot differ.
    most = get_args(messages.Cpus)[1].le
    if cpus is not None and not 0 < cpus <= most:
        raise InvalidInput("--cpus", f"{cpus:g} is no number of processors to offer: above 0, at most {most:g}")
    known: tuple[Sharing, ...] = get_args(Sharing)
    sharing = next((one for one in known if one == gpu_sharing), None)
    if sharing is None:
        raise InvalidInput("--gpu-sharing", f"{gpu_sharing!r} is not one of {', '.join(known)}")
    if sharing == "mig":
        GpuExecutor.find(sharing)
    # A container has modules of its own.
    for name in () if contained else filter(None, preload.split(",")):
        top = name.partition(".")[0]
        if not top.isidentifier() or find_spec(top) is None:
            raise InvalidInput("--preload", f"there is no module {name!r} here")


def home_of(folder: Path | None) -> Home:
    """Return the folder of the server. Says which extra is missing where the runtime is not installed."""
    # By name, without loading: `wattflow --help` and most errors need none of them.
    for needed in ("aiohttp", "cloudpickle", "fastapi", "msgspec", "sqlalchemy", "uvicorn"):
        if find_spec(needed) is None:  # loading them takes longer than most commands
            raise MissingExtra(f"the runtime needs {needed}: pip install 'wattflow[run]'")
    from wattflow.runtime.home import Home

    return Home.of(folder)


def connect(home: Path | None, server: str | None, token_file: Path | None, role: str = "user") -> Connection:
    """Connect to the server of this machine, or to the one named."""
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.home import read_token

    place = home_of(home)
    if server is not None:
        check_address(server)
    token = read_token(token_file) if token_file is not None else place.token(role)
    if server is not None:
        return Connection(server, token)  # its certificate is checked by the system's
    # Looked for again: a server that was started anew may listen elsewhere.
    return Connection(place.addresses(), token, place.ca(), look=place.addresses)


def check_address(server: str) -> None:
    """Refuse what is no address of a server before anything tries to reach it."""
    if not re.fullmatch(r"https?://[^\s/,]+/?(,https?://[^\s/,]+/?)*", server):
        raise InvalidInput("--server", f"{server[:100]!r} is not like http://HOST:PORT")
    # After the form: whether a token may go there in clear text.
    from wattflow.runtime.addresses import check_server

    check_server(server)


def show(
    rows: list[dict[str, Any]],
    columns: tuple[str, ...],
    output: o.OutputForm,
    out: Path | None,
    none: str,
    words: Mapping[str, Callable[[dict[str, Any]], object]] | None = None,
) -> None:
    """Rows as a table for people, with columns in ``words``, or whole for programs: words would lose digits."""
    if output is not o.OutputForm.table:
        deliver(rows, output, out, {})
        return
    if not rows:
        typer.echo(none)
        return
    shown = [row | {column: word(row) for column, word in (words or {}).items()} for row in rows]
    print_tables([plain_table(shown, columns)])


def energy_of(row: dict[str, Any]) -> str | None:
    """Write the joules of a workflow, a task or an attempt, and how many they may be where hardly known."""
    from wattflow.runtime.payload import human_joules

    # Unknown is a dash, never 0.
    if row.get("energy_j") is None:
        return None
    return human_joules(row["energy_j"], row["low_j"] or 0.0, row["high_j"] or 0.0)


def pages(connection: Connection, path: str, column: str) -> list[dict[str, Any]]:
    """Read all rows of an answer that comes in pages; ``column`` holds what the next one begins after."""
    rows: list[dict[str, Any]] = []
    after = 0
    # Pages end with an empty one; each begins after the last row's number.
    while page := connection.call("GET", f"{path}?after={after}"):
        rows += page
        after = page[-1][column]
    return rows


def workflow_path(name: str) -> str:
    """Return where the server has a workflow; refuse what the path of none could be."""
    if not name or "/" in name:
        raise InvalidInput(repr(name), "is not a workflow: `wattflow ps` lists them")
    return f"/v1/workflows/{segment(name)}"


def is_number(name: str) -> bool:
    """Tell whether it is a task's number: ASCII, since "²" is a digit to Python and no number to `int`."""
    return name.isascii() and name.isdecimal()


def find_task(connection: Connection, name: str) -> dict[str, Any]:
    """Find a task by number, or as WORKFLOW/KEY."""
    from wattflow.model.errors import InvalidInput

    if is_number(name):
        found: dict[str, Any] = connection.call("GET", f"/v1/tasks/{int(name)}")
        return found
    workflow, _, key = name.rpartition("/")
    if workflow:
        # Exactly one, or none: keys are unique within a workflow.
        for task in connection.call("GET", f"/v1/workflows/{segment(workflow)}/tasks?key={segment(key)}"):
            return dict(task)
    raise InvalidInput(name, "is not a task: give its number (`wattflow ps WORKFLOW` shows them) or WORKFLOW/KEY")
