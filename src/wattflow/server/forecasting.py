"""``python -m wattflow.server.forecasting``: one forecast, asked for on standard input, told on standard output."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from wattflow.live import Engine
from wattflow.live.roll import SeedRange, roll
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.run import Run
from wattflow.runtime.compaction import rebuilt
from wattflow.server.runs import make_run
from wattflow.sim import SimOptions, simulate
from wattflow.store import reads, schema
from wattflow.store.schema import read_store

NICE = 10
USUAL_S = 3600.0
"""The present of a forecast that goes to the end of all work."""
_FIGURES = ("energy_j", "response_s", "late", "ended", "open")


def rolled(database: sa.Engine, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The present of a server rolled forward under each policy, with the same draws for all."""
    # From the store, not from the server's memory: copying that would hold its loop.
    engine = rebuilt(database, folder, "fifo")[0].engine
    _from_submission(engine, database)
    now_s = float(engine.state.clock.now[0])
    for_s = given.get("for_s")
    until_s = math.inf if for_s is None else now_s + for_s

    def one(policy: str) -> dict[str, Any]:
        (found,) = roll(engine, [policy], until_s, range(given["seeds"]), given["spread"])
        joules = found.energy_j
        mean_w = None if for_s is None else SeedRange(joules.mean / for_s, joules.low / for_s, joules.high / for_s)
        more = {"power_w": mean_w and plain(mean_w), "makespan_s": None, "unknown": found.unknown}
        return {name: plain(getattr(found, name)) for name in _FIGURES} | more

    present = lately(database, given["now_s"], USUAL_S if for_s is None else for_s)
    return {"present": present, "results": [_tried(policy, one) for policy in given["policies"]]}


def _from_submission(engine: Engine, database: sa.Engine) -> None:
    """Let responses count from each task's submission: the engine knows that only of tasks that came later."""
    t, marks = schema.tasks.c, np.asarray(engine.state.marks["tag"])
    open_now = sa.select(t.id, t.submitted_s).where(t.state.in_(("waiting", "running")))
    known = {row["id"]: row["submitted_s"] for row in reads.rows(database, open_now)}
    submitted_s = np.array([known.get(tag, -math.inf) for tag in marks.tolist()])
    release = engine.state.tasks["release"]
    release[: len(marks)] = np.maximum(release[: len(marks)], submitted_s)


def lately(database: sa.Engine, now_s: float, span_s: float) -> dict[str, float | None]:
    """The present's own figures, over as long a time as a forecast's: what nodes drew, and how tasks were answered.

    ``covered`` is the share of the nodes' time that was measured; the watts are those of that share, and unknown
    where a node that is on told none.
    """
    e, t = schema.energy.c, schema.tasks.c
    sums = sa.select(e.node, sa.func.sum(e.counted_j).label("j"), sa.func.sum(e.ended_s - e.began_s).label("s"))
    sums = sums.where((e.began_s >= now_s - span_s) & (e.ended_s <= now_s + 1.0)).group_by(e.node)
    told = {row["node"]: row for row in reads.rows(database, sums) if row["s"] > 0}
    nodes = reads.nodes(database)
    known = bool(told) and all(node["name"] in told for node in nodes if node["state"] == "on")
    mean = sa.select(sa.func.avg(t.ended_s - t.submitted_s).label("s"))
    ended = reads.rows(database, mean.where((t.state == "done") & (t.ended_s >= now_s - span_s)))
    return {
        "power_w": sum(row["j"] / row["s"] for row in told.values()) if known else None,
        "covered": min(1.0, sum(row["s"] for row in told.values()) / (span_s * len(nodes))) if known else None,
        "span_s": span_s,
        "response_s": ended[0]["s"],
        "energy_j": None,
        "makespan_s": None,
    }


def rerun(database: sa.Engine, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """A recorded workflow simulated under each policy, on its own nodes or on a preset's."""
    from wattflow.clusters import load_cluster

    row = reads.workflow(database, given["workflow"])
    if row is None:
        raise InvalidInput("workflow", f"no workflow {given['workflow']}")
    real = make_run(database, row)
    cluster = load_cluster(given["cluster"]) if given.get("cluster") else real.cluster
    options = SimOptions(runtime_error=given["spread"])

    def one(policy: str) -> dict[str, Any]:
        runs = [simulate(real.workload, cluster, policy, seed=seed, options=options) for seed in range(given["seeds"])]
        rows = [_figures(run) for run in runs]
        figures = {name: plain(SeedRange.of([row[name] for row in rows])) for name in rows[0]}
        return figures | {"power_w": None, "unknown": 0}

    known = {name: None if math.isnan(value) else value for name, value in _figures(real).items()}
    present = {name: known[name] for name in ("energy_j", "response_s", "makespan_s")} | {"power_w": None}
    return {"present": present, "results": [_tried(policy, one) for policy in given["policies"]]}


def _figures(run: Run) -> dict[str, float]:
    from wattflow.lab.figures.metrics import metrics

    values = metrics(run)
    named = {"energy_j": "energy_j", "response_s": "response_mean_s", "late": "deadlines_missed",
             "makespan_s": "makespan_s", "open": "unfinished"}  # fmt: skip
    told = {name: math.nan if (value := values[key]) is None else value for name, key in named.items()}
    return told | {"ended": float(len(run.workload)) - told["open"]}


def plain(spread: SeedRange) -> dict[str, float] | None:
    """A spread as plain data; None where nothing is known."""
    return None if math.isnan(spread.mean) else asdict(spread)


def _tried(policy: str, one: Any) -> dict[str, Any]:
    """A policy's figures, or why it has none: the others are told all the same."""
    try:
        return {"policy": policy, "error": None, **one(policy)}
    except WattflowError as error:
        return {"policy": policy, "error": str(error)}


def main() -> int:
    """The process."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    given = json.load(sys.stdin)
    database, folder = read_store(given["store"]), Path(given["folder"])
    try:
        told = (rolled if given["kind"] == "roll" else rerun)(database, folder, given)
    except WattflowError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    print(json.dumps(told))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
