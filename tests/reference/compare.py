"""Whether a run of the engine is the reference's run."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from reference.facts import Result
from wattflow.model.run import ACCOUNTS, OUTCOMES, Run

TIME_S = 1e-6
ENERGY = 1e-4
_TIMES = ("ready_s", "placed_s", "start_s", "end_s")
_STAGES = ("message_s", "wake_s", "cold_s", "data_s", "hold_s")
_JOULES = ("run_j", "cold_j", "transfer_j")


def assert_same(run: Run, reference: Result, *, check_money: bool = True) -> None:
    """Raise AssertionError with every difference: who ran where and when, joules by account, carbon, cost, peak."""
    found = differences(run, reference, check_money=check_money)
    if found:
        more = f"\n… and {len(found) - 15} more" if len(found) > 15 else ""
        raise AssertionError(f"{len(found)} differences, engine | reference:\n" + "\n".join(found[:15]) + more)


def differences(run: Run, reference: Result, *, check_money: bool = True) -> list[str]:
    """All differences, earliest attempts first."""
    found = _attempt_differences(run, reference)
    for node in range(len(reference.energy_j)):
        total_j = float(reference.energy_j[node].sum())
        for column, account in enumerate(ACCOUNTS):
            mine, theirs = float(run.energy_j[node, column]), float(reference.energy_j[node, column])
            if not _near(mine, theirs, total_j):
                found.append(f"node {node}, {account}: {mine} J | {theirs} J")
        if check_money:
            for name in ("carbon_g", "cost"):
                mine, theirs = float(getattr(run, name)[node]), float(getattr(reference, name)[node])
                if not _near(mine, theirs, abs(theirs)):
                    found.append(f"node {node}, {name}: {mine} | {theirs}")
    if run.peak_w is None or not _near(run.peak_w, reference.peak_w, reference.peak_w):
        found.append(f"peak: {run.peak_w} W | {reference.peak_w} W")
    if abs(run.makespan_s - reference.makespan_s) > TIME_S:
        found.append(f"makespan: {run.makespan_s} s | {reference.makespan_s} s")
    return found


def _near(mine: float, theirs: float, scale: float) -> bool:
    """Equal to 0.01 % of the value itself, or to a millionth of the node's total where the value is tiny."""
    return abs(mine - theirs) <= max(ENERGY * abs(theirs), 1e-6 * abs(scale), 1e-6)


def _attempt_differences(run: Run, reference: Result) -> list[str]:
    """Attempts of each task and part side by side, in order of placement; numbers may count from 0 or 1."""
    mine: dict[tuple[int, int], list[np.void]] = defaultdict(list)
    for row in sorted(run.attempts, key=lambda r: (r["placed_s"], r["end_s"])):
        mine[int(row["task"]), int(row["part"])].append(row)
    theirs = defaultdict(list)
    for record in sorted(reference.records, key=lambda r: (r.placed_s, r.end_s)):
        theirs[record.task, record.part].append(record)
    found: list[tuple[float, str]] = []
    for key in sorted(mine.keys() | theirs.keys()):
        where = f"task {key[0]} part {key[1]}"
        if len(mine[key]) != len(theirs[key]):
            found.append((0.0, f"{where}: {len(mine[key])} attempts | {len(theirs[key])}"))
        for number, (row, record) in enumerate(zip(mine[key], theirs[key], strict=False)):
            for text in _row_differences(row, record):
                found.append((record.placed_s, f"{where} attempt {number}, placed {record.placed_s:.6f}: {text}"))
    return [text for _, text in sorted(found)]


def _row_differences(row: np.void, record: Any) -> list[str]:
    found = []
    for name in ("node", "device", "variant"):
        if int(row[name]) != getattr(record, name):
            found.append(f"{name} {int(row[name])} | {getattr(record, name)}")
    outcome = OUTCOMES[int(row["outcome"])]
    if outcome != record.outcome:
        found.append(f"outcome {outcome} | {record.outcome}")
    for name in _TIMES:
        mine, theirs = float(row[name]), getattr(record, name)
        if not (abs(mine - theirs) <= TIME_S or (np.isnan(theirs) and not mine <= record.end_s - TIME_S)):
            found.append(f"{name} {mine!r} | {theirs!r}")
    for name in _STAGES:  # single precision in the engine's rows
        mine, theirs = float(row[name]), getattr(record, name)
        if abs(mine - theirs) > max(TIME_S, 1e-5 * theirs):
            found.append(f"{name} {mine} | {theirs}")
    for name in _JOULES:
        mine, theirs = float(row[name]), getattr(record, name)
        if abs(mine - theirs) > max(1e-3, ENERGY * abs(theirs)):
            found.append(f"{name} {mine} | {theirs}")
    return found
