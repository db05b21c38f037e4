"""`wattflow account`, `token`, `report`, `audit`: who may ask for what, what they may use and used, who did what."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

from wattflow.cli import options as o
from wattflow.cli.live import HomeFolder, Server, TokenFile, connect, show
from wattflow.cli.screen import chosen_form, guarded, remark
from wattflow.model import units
from wattflow.model.errors import InvalidInput
from wattflow.runtime.addresses import segment

accounts = typer.Typer(help="Budgets, quotas, shares.", no_args_is_help=True, rich_markup_mode=None)
Scope = Annotated[str, typer.Argument(metavar="user|project", help="Whose limits.")]
PAGE = 1000
REPORTED = ("user", "project", "function")


def set_limits(
    scope: Scope,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    energy: Annotated[str | None, typer.Option("--energy", help="A month: 50kWh, 3.6MJ; none takes it away.")] = None,
    carbon: Annotated[str | None, typer.Option("--carbon", help="Grams of CO2 a month; none takes it away.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="hard, soft or alert: what a budget does.")] = None,
    running: Annotated[str | None, typer.Option("--running", help="Attempts at a time; none.")] = None,
    waiting: Annotated[str | None, typer.Option("--waiting", help="Open tasks; none.")] = None,
    share: Annotated[float | None, typer.Option("--share", help="Of the nodes, beside others' 1.")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=-1000, max=1000, help="Higher goes first; 0 is usual.")
    ] = None,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Set what a user or a project may use; what is not named stays as it is.

    Example: wattflow account set project climate --energy 50kWh --mode hard --share 2
    """
    given = {
        "energy_j": _amount("--energy", energy, _joules),
        "carbon_g": _amount("--carbon", carbon, float),
        "running": _amount("--running", running, int),
        "waiting": _amount("--waiting", waiting, int),
        "mode": mode,
        "share": share,
        "priority": priority,
    }
    # `none` takes a limit away (null in the PATCH); what was not typed is not sent, and stays.
    changed = {key: None if value == NONE else value for key, value in given.items() if value is not None}
    if not changed:
        raise InvalidInput("account set", "name what to set, for example --energy 50kWh")
    # Names may hold slashes; quoted whole, they stay one part of the path.
    path = f"/v1/accounts/{segment(scope)}/{segment(name)}"
    connection = connect(home, server, token_file, "operator")
    made = connection.call("PATCH", path, changed)
    remark(f"{scope} {name}: {', '.join(f'{key} {value}' for key, value in made.items() if value is not None)}")


def listed_accounts(
    home: HomeFolder = None, server: Server = None, token_file: TokenFile = None, output: o.Output = None
) -> None:
    """List limits, with what is used and reserved of them this month."""
    rows = connect(home, server, token_file, "operator").call("GET", "/v1/accounts")
    columns = ("scope", "name", "energy", "reserved", "carbon", "mode", "running", "waiting", "share", "priority")
    show(rows, columns, output or o.OutputForm.table, None, "no limits are set", {
        "energy": lambda row: _of(row["used_j"], row["energy_j"]),
        "reserved": lambda row: units.human_energy(row["reserved_j"]),
        "carbon": lambda row: (
            None if row["carbon_g"] is None else f"{row['used_g'] or 0.0:.4g} of {row['carbon_g']:g} g"
        ),
    })  # fmt: skip


def report(
    by: Annotated[str, typer.Option("--by", help="user, project or function.")] = "user",
    month: Annotated[str | None, typer.Option("--month", metavar="YYYY-MM", help="UTC; else this month.")] = None,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    output: o.Output = None,
    out: o.Out = None,
    force: o.Force = False,
) -> None:
    """Tell what was used in a month: attempts, processor time, joules, grams of CO2.

    An operator's token reports on everybody, a user's on that user.
    """
    form = chosen_form(output, out, force)
    if by not in REPORTED:
        raise InvalidInput("--by", f"is {by!r}; allowed are {', '.join(REPORTED)}")
    month = month or time.strftime("%Y-%m", time.gmtime())
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month):
        raise InvalidInput("--month", f"is {month!r}; a month is a year and two digits, as in 2026-03")
    # Without a file the home's operator token is at hand; a file that was given may be a user's.
    role = "operator" if token_file is None else "user"
    path = f"/v1/usage?by={segment(by)}&month={segment(month)}"
    connection = connect(home, server, token_file, role)
    rows = connection.call("GET", path)
    show(rows, (by, "attempts", "cpu time", "energy", "CO2"), form, out, f"nothing was used in {month}", {
        "energy": lambda row: units.human_energy(row["energy_j"]),
        "cpu time": lambda row: units.human_time(row["cpu_s"]),
        "CO2": lambda row: None if row["carbon_g"] is None else f"{row['carbon_g']:.4g} g",
    })  # fmt: skip
    shield = connection.call("GET", "/v1/status").get("shield")
    if shield is not None and month == time.strftime("%Y-%m", time.gmtime()):
        remark(promise(shield, sum(row["energy_j"] for row in rows)))


def promise(shield: dict[str, Any], used_j: float) -> str:
    """Say what a server's shield has kept, saved beside what tasks used, and cost."""
    from wattflow.plan.shield import summed

    cost = f"the shield took {shield['processor_s']:.1f} s of processor"
    if shield["saved"] is None:
        return f"{summed(shield)}; {cost}"
    # What was used is what the reference would have, less the saved share.
    saved_j = used_j * shield["saved"] / max(1e-9, 1.0 - shield["saved"])
    return f"{summed(shield)}; {units.human_energy(saved_j)} beside what these used; {cost}"


def audit(
    verify: Annotated[bool, typer.Option("--verify", help="Check every hash instead of showing entries.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Only entries beyond this number.")] = 0,
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    output: o.Output = None,
) -> None:
    """Show who did what, oldest first; --verify finds what was changed or taken out."""
    from wattflow.runtime.ledger import first_fault

    connection = connect(home, server, token_file, "operator")
    rows: list[dict[str, Any]] = []
    # The chain begins with the first entry, so a check must read them all.
    last = 0 if verify else after
    # An empty page ends it: the length of a page is the server's own affair.
    while page := connection.call("GET", f"/v1/audit?after={last}&most={PAGE}"):
        rows += page
        last = page[-1]["sequence"]
    if verify:
        fault = first_fault(rows)
        if fault is not None:
            raise InvalidInput("the audit log", fault)
        remark(f"{len(rows)} entries, every hash is right; the last is {rows[-1]['hash'] if rows else 'none'}")
        return
    at = {"at": lambda row: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["at_s"]))}
    show(rows, ("sequence", "at", "who", "action", "about"), output or o.OutputForm.table, None, "no entries", at)


NONE = "none"


def _amount(option: str, text: str | None, parse: Any) -> Any:
    if text is None or text == NONE:
        return text
    try:
        return parse(text)
    except ValueError:
        raise InvalidInput(option, f"{text!r} is no amount for it, nor `none`") from None


def _joules(text: str) -> float:
    from wattflow.runtime.client import joules

    return joules(text)


def _of(used: float, most: float | None) -> str:
    return units.human_energy(used) + ("" if most is None else f" of {units.human_energy(most)}")


accounts.command("set")(guarded(set_limits))
accounts.command("list")(guarded(listed_accounts))


tokens = typer.Typer(help="Tokens of users and agents.", no_args_is_help=True, rich_markup_mode=None)
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
        wanted["lifetime_s"] = o.measured("--expires", expires, units.duration_s)
    made = connect(home, server, token_file, "operator").call("POST", "/v1/tokens", wanted)
    # Alone on stdout, so that it can be sent into a file; the rest goes to stderr.
    typer.echo(made["token"])
    remark(f"token {made['id']} of {made['name']}, {_rights(made)}; it is not shown again")


def listed_tokens(
    home: HomeFolder = None, server: Server = None, token_file: TokenFile = None, output: o.Output = None
) -> None:
    """List tokens: whose, what they may do, until when."""
    rows = connect(home, server, token_file, "operator").call("GET", "/v1/tokens")
    columns = ("id", "name", "role", "project", "node", "created", "valid")
    words = {"valid": _valid, "created": lambda row: _day(row["created_s"])}
    show(rows, columns, output or o.OutputForm.table, None, "no tokens", words)


def revoke(
    named: Annotated[str, typer.Argument(metavar="ID|NAME", help="One token, or all of a name.")],
    home: HomeFolder = None,
    server: Server = None,
    token_file: TokenFile = None,
    quiet: o.Quiet = False,
) -> None:
    """Revoke a token at once."""
    ended = connect(home, server, token_file, "operator").call("DELETE", f"/v1/tokens/{segment(named)}")
    remark(f"{len(ended)} revoked: {', '.join(one['id'] for one in ended) or 'none was valid any more'}", quiet)


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


tokens.command("create")(guarded(create))
tokens.command("list")(guarded(listed_tokens))
tokens.command("revoke")(guarded(revoke))
