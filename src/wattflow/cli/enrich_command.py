"""`wattflow workload enrich`: joules into a trace, from its nodes' curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_target, never_onto, remark
from wattflow.model.errors import InvalidInput


def enrich(
    source: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace to read; its format is recognised.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="To write; its name chooses the format.")],
    nodes: Annotated[
        str, typer.Option("--nodes", help="Cluster file or preset whose nodes have the names of the trace's machines.")
    ],
    default: Annotated[
        str | None, typer.Option("--default", help="Node that stands for machines without one of their name.")
    ] = None,
    error: Annotated[
        float | None, typer.Option("--error", min=0.0, help="Relative error band to write, such as 0.07.")
    ] = None,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Fill the energy fields of a trace: each task's share of its node's watts above idle, by CPU time.

    WfFormat gets energyInKWh and avgPowerInW, the Workflow Trace Archive its energy columns; both say `modelled`.
    Joules that the trace already has are kept. Profiles by name (turbostat:, spec:, ccf:, ichnos:) and `load` curves of
    a cluster file are read as watts against busy threads, cores first.

    Example: wattflow workload enrich trace.json labelled.json --nodes cluster.toml --default node-1 --error 0.07
    """
    from wattflow import traces
    from wattflow.clusters import load_cluster
    from wattflow.energy.enrich import enrich as fill

    never_onto([source, nodes], target)
    check_target(force, target)
    cluster = load_cluster(nodes)
    # Nodes without watts cannot label anything.
    curves = {node.name: node.power for node in cluster.nodes if node.power is not None}
    if default is not None and default not in curves:
        known = ", ".join(sorted(curves)[:20])
        raise InvalidInput("--default", f"no node named {default!r} with watts; there are {known}")
    workload = traces.load(source)
    labelled = fill(workload, curves, None if default is None else curves[default], error)
    kinds = labelled.columns["energy_provenance"]
    filled = int(sum(bool(kind) for kind in kinds.tolist()))
    # A file without a single joule would look like a success.
    if filled == 0:
        machines = sorted({str(name) for name in workload.columns.get("machine", []) if name})
        named = f"its machines are {', '.join(machines[:10])}" if machines else "the trace names no machine"
        raise InvalidInput(str(source), f"no task got joules: {named}; name nodes so, or give --default NODE")
    dropped = traces.save(labelled, target)
    remark(f"wrote {target}: joules for {filled:,} of {len(labelled):,} tasks, modelled from {cluster.name}", quiet)
    for note in dropped:
        remark(f"note: the format cannot hold: {note}", quiet)
