"""`wattflow token`: who may ask a server for what."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from wattflow.cli import options as o
from wattflow.cli.guard import guarded
from wattflow.cli.live import HomeFolder, Server, TokenFile, connect, show
from wattflow.cli.screen import remark
from wattflow.model import units
from wattflow.model.errors import InvalidInput

app = typer.Typer(help="Tokens of users and agents.", no_args_is_help=True, rich_markup_mode=None)
ROLES = "user, agent, operator or viewer"


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; workflows belong to this name.")],
    role: Annotated[str, typer.Option("--role", help=f"{ROLES}.")] = "user",
    project: Annotated[str, typer.Option("--project", help="Whose budget pays, beside the user's own.")] = "",
    node: Annotated[str, typer.Option("--node", help="The node that an agent's token speaks for; else NAME.")] = "",
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="Valid so long: 30d, 8h.")] = None,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Make a token and print it, once: only its hash is kept.

    Example: wattflow token create alice --project climate --expires 90d > alice.token
    """
    wanted: dict[str, object] = {"name": name, "role": role, "project": project}
    # A token without a node may speak for none.
    if role == "agent" or node:
        wanted["node"] = node or name
    if expires is not None:
        wanted["lifetime_s"] = _duration(expires)
    made = connect(home, server, token_file, "operator").call("POST", "/v1/tokens", wanted)
    # Alone on stdout, so that it can be sent into a file; the rest goes to stderr.
    typer.echo(made["token"])
    remark(f"token {made['id']} of {made['name']}, {_rights(made)}; it is not shown again")


def listed(
    home: HomeFolder = None, server: Server = None, token_file: TokenFile = None, output: o.Output = None
) -> None:
    """List tokens: whose, what they may do, until when."""
    rows = connect(home, server, token_file, "operator").call("GET", "/v1/tokens")
    form = output or o.Form.table
    shown = [row | {"valid": _valid(row), "created": _day(row["created_s"])} for row in rows]
    columns = ("id", "name", "role", "project", "node", "created", "valid")
    show(shown if form is o.Form.table else rows, columns, form, None, "no tokens")


def revoke(
    named: Annotated[str, typer.Argument(metavar="ID|NAME", help="One token, or all of a name.")],
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    quiet: o.Quiet = False,
) -> None:
    """Revoke a token at once."""
    ended = connect(home, server, token_file, "operator").call("DELETE", f"/v1/tokens/{quote(named, safe='')}")
    remark(f"{len(ended)} revoked: {', '.join(one['id'] for one in ended) or 'none was valid any more'}", quiet)


def _duration(text: str) -> float:
    try:
        return units.duration_s(text)
    except ValueError as error:
        raise InvalidInput("--expires", str(error)) from None


def _rights(row: dict[str, Any]) -> str:
    node = f" for node {row['node']}" if row["node"] else ""
    project = f" in project {row['project']}" if row["project"] else ""
    return f"role {row['role']}{node}{project}, {_valid(row)}"


def _valid(row: dict[str, Any]) -> str:
    if row["revoked_s"] is not None:
        return f"revoked {_day(row['revoked_s'])}"
    if row["expires_s"] is None:
        return "until revoked"
    return f"{'until' if row['expires_s'] > time.time() else 'expired'} {_day(row['expires_s'])}"


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


app.command("create")(guarded(create))
app.command("list")(guarded(listed))
app.command("revoke")(guarded(revoke))
