"""Hard budgets on a real server and agent: what they are exceeded by, the books beside the meter, the audit log.

Three users of two projects submit more work than their budgets pay for; the server is killed and started again on the
way. What was acknowledged must be in the audit log afterwards.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from trust_rig import calls, cli, house, kill, lasting, wait_for
from trust_tally import Portion

from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.ledger import first_fault
from wattflow.store import reads, schema
from wattflow.store.schema import open_store

USERS = {"alice": "climate", "bob": "climate", "carol": "genomes"}
BUDGETS_J = {"climate": 150.0, "genomes": 60.0}
BURN = "i=0; while [ $i -lt {} ]; do i=$((i+1)); done"
LONGEST_S = 240.0


def portion(folder: Path, seed: int, tasks: int) -> Portion:
    """So many tasks of each user, with a kill of the server on the way."""
    began_s, draw = time.monotonic(), random.Random(seed)
    done: Counter[str] = Counter()
    with house(folder / "home") as home:
        tokens = _prepare(home, done)
        for step in range(4):
            for user, token in tokens.items():
                _submit(Connection(home.url(), token), f"{user}-{step}", user, tasks // 4, draw, done)
            if step == 1:
                _restart(home)
        wait_for(lambda: calls(home).call("GET", "/v1/status")["waiting"] <= 0, "end of the work", LONGEST_S)
        wait_for(lambda: calls(home).call("GET", "/v1/status")["running"] <= 0, "end of the work", LONGEST_S)
        time.sleep(4.0)  # joules come a second or two after an end
        entries = _entries(calls(home))
    done["shutdown"] += 1
    database = open_store(home.store)
    try:
        exceeded_j, error = _exceeded_j(database), _ledger_error(database)
    finally:
        database.dispose()
    found = Counter(entry["action"] for entry in entries)
    missing = sum(max(0, count - found[action]) for action, count in done.items() if action != "shutdown")
    fault = first_fault(entries)
    print(
        f"# {len(entries)} entries, {sum(done.values())} acknowledged actions; {fault or 'every hash is right'}",
        flush=True,
    )
    return Portion(part="budget", seed=seed, took_s=time.monotonic() - began_s, failures=[fault] if fault else [],
                   counts={"audit_missing": missing + (fault is not None), "entries": len(entries)},
                   worst={"exceeded_j": exceeded_j, "ledger_error": error})  # fmt: skip


def _prepare(home: Home, done: Counter[str]) -> dict[str, str]:
    boss, tokens = calls(home), {}
    for user, project in USERS.items():
        tokens[user] = boss.call("POST", "/v1/tokens", {"name": user, "project": project})["token"]
        done["token create"] += 1
    for project, budget_j in BUDGETS_J.items():
        boss.call("PATCH", f"/v1/accounts/project/{project}", {"energy_j": budget_j})
        done["limits"] += 1
    return tokens


def _submit(server: Connection, workflow: str, user: str, count: int, draw: random.Random, done: Counter[str]) -> None:
    """Submit; once a budget is used up, that is refused, which is no action."""
    from wattflow.runtime.transport import Denied

    tasks = [
        {"key": str(n), "name": "burn", "function_name": f"burn of {user}", "estimate_s": 0.5,
         "command": ["sh", "-c", BURN.format(draw.randrange(50_000, 600_000))]}
        for n in range(count)
    ]  # fmt: skip
    try:
        server.patiently("POST", "/v1/submissions", {"workflow": workflow, "tasks": tasks, "seal": True})
        done["submit"] += 1
    except Denied as error:
        if "budget" not in str(error):
            raise


def _restart(home: Home) -> None:
    """Kill the server, as a person would not, and start it again, as a person would."""
    for pid, kind in lasting(home.folder).items():
        if kind == "server":
            kill(pid)
    started = cli(home.folder, "up", "--port", "0", "--quiet")
    if started.returncode != 0:
        raise RuntimeError(f"the server did not start again: {started.stderr}")
    wait_for(lambda: calls(home).call("GET", "/v1/status")["nodes"] >= 1, "a node")


def _entries(boss: Connection) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := boss.call("GET", f"/v1/audit?after={len(found)}&most=1000"):
        found += page
    return found


def _exceeded_j(database: sa.Engine) -> float:
    """What budgets are exceeded by, less what attempts used above their reservations; the worst of all."""
    worst = -float("inf")
    for project, budget_j in BUDGETS_J.items():
        users = [user for user, its in USERS.items() if its == project]
        table, flows = schema.attempts, schema.workflows
        query = sa.select(table).join(schema.tasks, schema.tasks.c.id == table.c.task)
        query = query.join(flows, flows.c.id == schema.tasks.c.workflow).where(flows.c.owner.in_(users))
        rows = reads.rows(database, query)
        used_j = sum(row["energy_j"] or 0.0 for row in rows)
        above_j = sum(max(0.0, (row["energy_j"] or 0.0) - (row["reserved_j"] or 0.0)) for row in rows)
        print(f"# {project}: {used_j:.1f} of {budget_j:g} J, {len(rows)} attempts, {above_j:.1f} J above reservations")
        worst = max(worst, used_j - budget_j - above_j)
    return max(0.0, worst)


def _ledger_error(database: sa.Engine) -> float:
    """Percent that the books of the month differ by from what the meter's windows say that tasks used."""
    booked = sum(row["energy_j"] for row in reads.rows(database, sa.select(schema.usage)))
    metered = sum(row["tasks_j"] for row in reads.rows(database, sa.select(schema.energy)))
    return 100.0 * abs(booked - metered) / metered if metered else float("nan")
