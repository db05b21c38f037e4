"""What holds for every run of every frame."""

from __future__ import annotations

import numpy as np

from wattflow.frames.frame import Frame
from wattflow.model.run import ACCOUNTS, Run


def check_laws(run: Run, frame: Frame) -> None:
    """Assert that no task is lost or done twice, that room and order are kept, and that joules close."""
    _each_task_once(run)
    _order(run)
    _room(run)
    _joules(run, frame)


def _each_task_once(run: Run) -> None:
    """Each part once; a gang broken up by a failure runs again as a whole, so there its last attempt counts."""
    done = run.attempts[run.attempts["outcome"] == 0]
    parts = np.array([shape.parts for shape in run.workload.shapes])[run.workload.shape]
    last = np.zeros(len(run.workload), np.int64)
    np.maximum.at(last, done["task"], done["attempt"])
    done = done[(done["attempt"] == last[done["task"]]) | (parts[done["task"]] == 1)]
    pairs = set(zip(done["task"].tolist(), done["part"].tolist()))
    assert len(pairs) == len(done), "a part was done twice"
    counted = np.bincount(done["task"], minlength=len(run.workload))
    assert (counted == parts).all(), f"tasks {np.flatnonzero(counted != parts)[:5]} were lost"


def _order(run: Run) -> None:
    rows = run.attempts
    started = ~np.isnan(rows["start_s"])
    assert (rows["ready_s"] >= run.workload.release_s[rows["task"]]).all()
    assert (rows["placed_s"] >= rows["ready_s"] - 1e-9).all()
    assert (rows["start_s"][started] >= rows["placed_s"][started]).all()
    assert (rows["end_s"] >= rows["placed_s"]).all()
    assert (np.diff(rows["end_s"]) >= 0).all(), "records are in order of end"
    end, first = run.end_s_by_task(), np.full(len(run.workload), np.inf)
    np.minimum.at(first, rows["task"], rows["placed_s"])
    for t in range(len(run.workload)):
        for parent in run.workload.parents_of(t):
            assert first[t] >= end[parent], "a child was placed before its parent's end"


def _room(run: Run) -> None:
    """Cores in use never exceed a host's; ends come before starts at one instant."""
    cores = np.array([shape.variants[0].cores for shape in run.workload.shapes])[run.workload.shape]
    for h, node in enumerate(run.cluster.nodes):
        rows = run.attempts[run.attempts["node"] == h]
        changes = [(row["end_s"], 0, -cores[row["task"]]) for row in rows if row["end_s"] > row["placed_s"]]
        changes += [(row["placed_s"], 1, cores[row["task"]]) for row in rows if row["end_s"] > row["placed_s"]]
        used = 0.0
        for _, _, change in sorted(changes):
            used += change
            assert used <= node.cores + 1e-9, "a host ran more than its cores"


def _joules(run: Run, frame: Frame) -> None:
    account = {name: run.energy_j[:, k].sum() for k, name in enumerate(ACCOUNTS)}
    rows = run.attempts
    assert np.isclose(account["run"] + account["lost"], rows["run_j"].sum(), rtol=1e-9, atol=1e-6)
    assert (run.energy_j >= -1e-6).all()
    if frame.elasticity is None and (frame.faults is None or frame.faults.host_mtbf_s is None):
        idle = sum(node.power.idle_w for node in run.cluster.nodes if node.power) * run.makespan_s
        assert np.isclose(account["idle"], idle, rtol=1e-9)
        assert np.isclose(run.total_j - account["transfer"], _energy(run), rtol=1e-6, atol=1e-6)


def _energy(run: Run) -> float:
    """Joules of all hosts from the records alone: P(busy cores) between changes."""
    cores = np.array([shape.variants[0].cores for shape in run.workload.shapes])[run.workload.shape]
    total = 0.0
    last = run.start_s + run.makespan_s
    for h, node in enumerate(run.cluster.nodes):
        rows = run.attempts[(run.attempts["node"] == h) & ~np.isnan(run.attempts["start_s"])]
        changes = [(row["start_s"], cores[row["task"]]) for row in rows]
        changes += [(row["end_s"], -cores[row["task"]]) for row in rows]
        busy, now = 0.0, run.start_s
        for at, change in [*sorted(changes), (last, 0.0)]:
            total += node.power.at(max(0.0, busy)) * (at - now) if node.power else 0.0
            busy, now = busy + change, at
    return total
