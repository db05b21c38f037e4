"""The crew for a number of workers or an address: in this process, on processes of this machine, or on Dask."""

from __future__ import annotations

import os

from wattflow.lab.run.work import Answer, Crew, Here, Piece, Work


def cores() -> int:
    """Count the cores that this process may use."""
    # Of a container or a pinned process, not of the machine.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crew_for(work: Work[Piece, Answer], workers: int | str) -> Crew[Piece, Answer]:
    """Return those who run the work: one (this process), several (processes), or a Dask cluster's address."""
    if isinstance(workers, str):
        from wattflow.lab.run.dask_crew import DaskCrew

        return DaskCrew(work, workers)
    if workers < 2:
        return Here(work)
    from wattflow.lab.run.process_crew import Processes

    return Processes(work, workers)
