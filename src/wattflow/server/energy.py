"""Joules of nodes over time, from the windows that the store keeps, how budgets go on, and their carbon and price.

``zone.toml`` in the server's folder tells the latter, with the keys of a zone in a cluster file.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from wattflow.clusters.toml_file import parse_cluster
from wattflow.files.whole import small_text
from wattflow.model.cluster import Series, Zone
from wattflow.model.errors import InvalidInput
from wattflow.runtime.accounts import month_end_s
from wattflow.runtime.service import Service
from wattflow.store import reads, schema

FILE = "zone.toml"
_AROUND = ('name = "zone"\n[zones.default]\n', '\n[[nodes]]\nname = "n"\ncores = 1\nmemory = "1GiB"\n')


def read_zone(folder: Path) -> Zone:
    """Read the zone of a server; one of which nothing is known where there is no file.

    Raises:
        InvalidInput: The file is wrong.
    """
    path = folder / FILE
    if not path.exists():
        return Zone()
    return parse_cluster(small_text(path, "zone").join(_AROUND), str(path), folder).zones[0]


def intensity(folder: Path, told_g: float | None) -> Callable[[float], float] | None:
    """Tell what electricity emits at a moment, in grams for a kWh that a node draws: the zone's series with its PUE, or
    the one number that the server was started with; None where nobody says. Runs and budgets count alike.

    Raises:
        InvalidInput: Both say it.
    """
    zone = read_zone(folder)
    if not zone.carbon_known:
        return None if told_g is None else (lambda at_s: told_g)
    # Two sources that differ would give a run and a budget different grams for the same joules.
    if told_g is not None:
        raise InvalidInput("--carbon", f"{folder / FILE} says what electricity emits here: leave one of the two out")
    return lambda at_s: zone.carbon.at(at_s) * zone.pue


def from_time(zone: Zone, start_s: float) -> Zone:
    """Turn the series so that they begin at a time instead of at midnight."""
    return replace(zone, carbon=_turned(zone.carbon, start_s), price=_turned(zone.price, start_s))


def _turned(series: Series, start_s: float) -> Series:
    first = int(start_s // series.step_s) % len(series.values)
    return replace(series, values=(*series.values[first:], *series.values[:first]))


MOST_STEPS = 10_000
HOUR_S = 3600.0


def energy(database: sa.Engine, from_s: float, to_s: float, step_s: float) -> dict[str, Any]:
    """Joules by node, account and step; None where nobody measured. A window longer than a step is spread over those
    it touches by time, any other belongs to the step of its middle."""
    count = steps(from_s, to_s, step_s)
    nodes: dict[str, dict[str, list[float | None]]] = {}

    def add(node: str, step: int, joules: dict[str, Any], share: float) -> None:
        series = nodes.setdefault(node, {name: [None] * count for name in reads.JOULES})
        for name in reads.JOULES:
            series[name][step] = (series[name][step] or 0.0) + share * joules[name]

    for row in reads.joules_by_step(database, from_s, to_s, step_s):
        if 0 <= row["step"] < count:
            add(row["node"], row["step"], row, 1.0)
    for row in reads.long_windows(database, from_s, to_s, step_s):
        lasted_s = row["ended_s"] - row["began_s"]
        first = max(0, int((row["began_s"] - from_s) // step_s))
        last = min(count - 1, int((row["ended_s"] - from_s) // step_s))
        for step in range(first, last + 1):
            begin_s, end_s = from_s + step * step_s, from_s + (step + 1) * step_s
            inside_s = min(end_s, row["ended_s"]) - max(begin_s, row["began_s"])
            if inside_s > 0:
                add(row["node"], step, row, inside_s / lasted_s)
    return {"from_s": from_s, "to_s": from_s + count * step_s, "step_s": step_s, "nodes": nodes}


def steps(from_s: float, to_s: float, step_s: float) -> int:
    """How many steps a span has.

    Raises:
        InvalidInput: It ends before it begins, or has too many.
    """
    if not to_s > from_s:
        raise InvalidInput("to", f"{to_s:g} is not after from, {from_s:g}")
    count = math.ceil((to_s - from_s) / step_s)
    if count > MOST_STEPS:
        raise InvalidInput(
            "step", f"{count} steps are more than {MOST_STEPS}; take one of {(to_s - from_s) / MOST_STEPS:g} s or more"
        )
    return count


LATELY_S = 600.0
"""The present rate is that of so many seconds."""
Budget = dict[str, Any]
Account = tuple[str, str]


def budgets(service: Service, owner: str | None) -> list[Budget]:
    """Budgets that somebody sees: of open workflows, and the month's of users and projects; None sees all."""
    flows = [flow for flow in service.workflows.values() if flow.state == "open" and owner in (None, flow.owner)]
    told: list[Budget] = [
        {"scope": "workflow", "workflow": flow.id, "name": flow.name, "spent_j": flow.spent_j,
         "budget_j": flow.about.get("energy_budget_j"), "until_s": None}
        for flow in flows
    ]  # fmt: skip
    mine = {("user", owner), *(("project", flow.project) for flow in flows)}
    until_s = month_end_s(service.now())
    for account, limits in service.accounts.limits.items():
        if owner is None or account in mine:
            told += [
                {"scope": account[0], "workflow": None, "name": account[1], "what": what, "spent_j": used_j,
                 "budget_j": budget_j, "until_s": until_s}
                for what, budget_j, used_j in service.accounts.budgets(account, limits)
            ]  # fmt: skip
    return told


def forecast(database: sa.Engine, told: list[Budget], now_s: float) -> list[Budget]:
    """Budgets with their present rate, what will be spent at their end, and when they are used up at that rate."""
    if not any(one["budget_j"] is not None for one in told):
        return told
    watts = rates(database, now_s)
    return [one | _ahead(one, watts.get((one["scope"], one["workflow"] or one["name"])), now_s) for one in told]


def _ahead(one: Budget, rate_w: float | None, now_s: float) -> Budget:
    """All unknown where there is no budget, or no joules of late to go by."""
    if one["budget_j"] is None or rate_w is None:
        return {"rate_w": None, "expected_j": None, "runs_out_s": None}
    until_s, left_j = one["until_s"], max(0.0, one["budget_j"] - one["spent_j"])
    out_s = now_s + left_j / rate_w if rate_w > 0 else None
    expected_j = None if until_s is None else one["spent_j"] + rate_w * (until_s - now_s)
    is_renewed = out_s is not None and until_s is not None and out_s >= until_s
    return {"rate_w": rate_w, "expected_j": expected_j, "runs_out_s": None if is_renewed else out_s}


def rates(database: sa.Engine, now_s: float) -> dict[Account, float]:
    """Watts of workflows, users and projects of late: the joules of each attempt lie evenly over its time, and count
    by the part of it that is late enough. Where the first of them began later, the rate is that since then."""
    joules: defaultdict[Account, float] = defaultdict(float)
    since_s: defaultdict[Account, float] = defaultdict(lambda: now_s)
    from_s = now_s - LATELY_S
    for accounts, energy_j, began_s, ended_s in _lately(database, from_s, now_s):
        first_s = max(began_s, from_s)
        for account in accounts:
            joules[account] += energy_j * (ended_s - first_s) / (ended_s - began_s)
            since_s[account] = min(since_s[account], first_s)
    return {account: joules[account] / (now_s - since_s[account]) for account in joules}


def _lately(database: sa.Engine, from_s: float, now_s: float) -> Iterator[tuple[list[Account], float, float, float]]:
    """Attempts with joules that run, or ended after a time: whose they are, joules, begin and end."""
    a, t, w = schema.attempts, schema.tasks, schema.workflows
    joined = sa.join(sa.join(a, t, t.c.id == a.c.task), w, w.c.id == t.c.workflow)
    query = sa.select(w.c.id, w.c.owner, w.c.about, a.c.energy_j, a.c.placed_s, a.c.started_s, a.c.ended_s)
    lately = a.c.energy_j.is_not(None) & (a.c.outcome.is_(None) | (a.c.ended_s > from_s))
    whose: dict[str, list[Account]] = {}
    for row in reads.rows(database, query.select_from(joined).where(lately)):
        if row["id"] not in whose:
            project = msgspec.msgpack.decode(row["about"]).get("project")
            named = [("workflow", row["id"]), ("user", row["owner"]), ("project", str(project or ""))]
            whose[row["id"]] = named[: 3 if project else 2]
        began_s = row["started_s"] or row["placed_s"]
        ended_s = min(now_s, row["ended_s"] or now_s)
        if ended_s > max(began_s, from_s):  # a clock that was stepped back tells no rate
            yield whose[row["id"]], row["energy_j"], began_s, ended_s
