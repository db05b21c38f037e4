"""`wattflow workload convert`: from one trace format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_target, never_onto, remark


def convert(
    source: Annotated[Path, typer.Argument(metavar="A", help="File or folder to read; its format is recognised.")],
    target: Annotated[Path, typer.Argument(metavar="B", help="File or folder to write; its name chooses the format.")],
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Convert a trace to another format.

    The target appears whole or not at all.
    Its name says the format: .json is WfFormat, .swf is SWF, no ending is a folder of the Workflow Trace Archive.

    Example: wattflow workload convert workflow.json trace.swf
    """
    from wattflow import traces

    # Before reading: a conversion onto itself would destroy the trace.
    never_onto([source], target)
    check_target(force, target)
    done = traces.convert(source, target)
    remark(f"wrote {target}: {done.tasks:,} tasks, {done.source_format} to {done.target_format}", quiet)
    for note in done.read_notes:
        remark(f"note: read: {note}", quiet)
    for note in done.dropped:
        remark(f"note: {done.target_format} cannot hold: {note}", quiet)
