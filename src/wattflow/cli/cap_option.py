"""`--cap-w`: a cap on the cluster's watts as it is typed, as a file has it, and as results tell of it.

A cap file is a CSV of two columns, time and watts; a header, blank lines and lines that start with ``#`` are passed
over. Times are all whole seconds from the run's start (the first is 0), or all ISO 8601 (the run starts at the first).
Watts hold until the next row; the last row's as long as those before it; then the rows begin anew. One row holds
always. Nothing else is passed over: a row that was dropped would be another cap than the one that was asked for.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wattflow.clusters import carbon, load_cluster
from wattflow.energy.virtual import DEMO_CURVE
from wattflow.files import whole
from wattflow.lab.figures.power_series import cap_kept
from wattflow.model.cluster import Cluster, Series
from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.run import Run
from wattflow.policy import power_cap, registry, spec
from wattflow.policy.base import Policy
from wattflow.runtime.cap_series import CapSeries

LEAST_W, MOST_W = 1e-3, 1e12
"""Far beyond any cluster, and near enough that sums and shares of such watts stay numbers."""
ALWAYS_S = 3600.0
"""Step of a cap that does not change."""
MOST_STEPS = 1_000_000
_RANGE = f"a cap is above 0 W ({LEAST_W:g} to {MOST_W:g} W)"
_TIMES = "times are whole seconds from the start (0, 60, …) or ISO 8601 (2026-01-01T00:00:00Z)"


@dataclass(frozen=True, slots=True)
class Cap:
    """A cap: watts over time, and where they come from.

    Attributes:
        begins_s: When the series begins, in seconds since 1970; None: with the run or server that keeps it.
    """

    series: Series
    source: Mapping[str, object] = field(default_factory=dict)
    begins_s: float | None = None

    def beside(self, run: Run) -> tuple[Run, tuple[str, ...]]:
        """Return the run with the cap and how it was kept in its manifest, and the same as lines for a person."""
        kept = cap_kept(run, self.series)
        told = {**self.source, "time_above": kept.time, "overshoot": kept.over}
        line = f"cap: above it {100 * kept.time:.3g} % of the time, by {100 * kept.over:.3g} % of its joules"
        lines = (*_too_low(min(self.series.values), _idle_w(run.cluster)), line)
        return replace(run, manifest={**run.manifest, "cap": told}), lines


def _too_low(watts: float, floor_w: float) -> tuple[str, ...]:
    """Return the line that says so where a cap is below what nodes draw without work; none where it is not."""
    told = f"cap: {watts:g} W is too low with all nodes awake: the idle cluster alone draws {floor_w:,.6g} W"
    return (told,) if watts < floor_w else ()


def _idle_w(cluster: Cluster) -> float:
    """Return watts of all nodes, awake and without work."""
    return math.fsum(
        (node.power.idle_w if node.power else 0.0) + sum(device.power.idle_w for device in node.devices)
        for node in cluster.nodes
    )


def capped(text: str | None, policy: str) -> tuple[Cap | None, Policy]:
    """Return the cap that was typed, and the typed policy, with all its settings, keeping it.

    Without ``--cap-w`` it is what the policy's own ``watts=`` says.
    """
    if text is None:
        chosen, (base, settings) = registry.load(policy), spec.base_of(policy)
        own = [value for key, _, value in (one.partition("=") for one in settings) if key == "watts"]
        return (_cap(own[-1]) if base == "power-cap" and own else None), chosen
    _settings(policy)
    chosen = registry.load(policy)
    cap = _cap(text)
    return cap, power_cap.following(cap.series, policy=chosen)


def held_live(text: str, policy: str, default: str) -> tuple[str, Cap]:
    """Return the policy, as it is typed, that keeps a server below a typed cap, and the cap; for the default policy,
    `power-cap`."""
    return ":".join(("power-cap", *_settings("power-cap" if policy == default else policy))), _cap(text)


def write_live(cap: Cap, path: Path, now_s: float) -> None:
    """Write a cap for a server: one without dates begins now."""
    begins_s = now_s if cap.begins_s is None else cap.begins_s
    whole.write_text(path, CapSeries(cap.series, begins_s).text())


def live_floor(watts: float, driver: str, agent: bool, cluster: str | None) -> tuple[str, ...]:
    """Return what `up` says of a cap below the idle watts that are known before any node joins: those of a cluster
    that is played, or by its curve those of the node here, without its devices."""
    if driver == "simulated":
        return _too_low(watts, _idle_w(load_cluster(cluster or "mixed")))
    return _too_low(watts, DEMO_CURVE.idle_w) if driver == "agents" and agent else ()


def _settings(policy: str) -> Sequence[str]:
    """Return the settings of a policy that is to keep a typed cap."""
    base, settings = spec.base_of(policy)
    if base != "power-cap":
        raise InvalidInput("--cap-w", f"is held by the policy power-cap alone, not by {policy}; write -p power-cap")
    own = {setting.partition("=")[0].strip() for setting in settings} & {"share", "watts"}
    if own:
        told = f"does not go with {min(own)} ({policy}): each sets the cap; leave one of them out"
        raise InvalidInput("--cap-w", told)
    return settings


def _cap(text: str) -> Cap:
    try:
        watts = float(text)
    except ValueError:
        return _of_file(text)
    # `not … <=`: NaN is refused as well.
    if not LEAST_W <= watts <= MOST_W:
        raise InvalidInput("--cap-w", f"{text!r} is out of range; {_RANGE}, or a CSV file")
    return Cap(Series(ALWAYS_S, (watts,)), {"watts": watts})


def _of_file(text: str) -> Cap:
    path, source = Path(text), f"--cap-w {text}"
    if not text or not path.is_file():
        raise InvalidInput("--cap-w", f"{text!r} is neither watts nor a file that is there; {_RANGE}, or a CSV file")
    rows = carbon.numbered_rows(path, source)
    # Data that begins with a bad cell is no header: its other cell gives it away.
    if rows and _time(rows[0][1][0]) is None and _number(rows[0][1][1]) is None:
        del rows[0]
    series, begins_s = _series(rows, source)
    least, most = min(series.values), max(series.values)
    span = {"step_s": series.step_s, "steps": len(series.values), "least_w": least, "most_w": most}
    return Cap(series, {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), **span}, begins_s)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _time(cell: str) -> tuple[bool, float] | None:
    """Tell whether a cell is a date, with its seconds: from the start, or of the epoch."""
    seconds = _number(cell)
    if seconds is not None:
        return False, seconds
    date = carbon.when(cell)
    return None if date is None else (True, date.timestamp())


def _series(rows: Sequence[tuple[int, list[str]]], source: str) -> tuple[Series, float | None]:
    """Return rows as a series, and when it begins where they have dates."""
    if not rows:
        raise InvalidInput(source, f"has no rows of a time and watts; {_TIMES}")
    times = [_time(cells[0]) for _, cells in rows]
    problems = [
        Problem(f"line {line}", what)
        for (line, cells), time in zip(rows, times, strict=True)
        if (what := _wrong(cells, time, times[0]))
    ]
    if problems:
        raise InvalidInput(source, problems)
    # All of one kind by now; dates count from the first of them.
    known = [time for time in times if time is not None]
    start_s = min(seconds for _, seconds in known) if known[0][0] else None
    points = sorted(
        (int(at_s - (start_s or 0.0)), line, float(cells[1]))
        for (_, at_s), (line, cells) in zip(known, rows, strict=True)
    )
    return _on_steps(points, source), start_s


def _wrong(cells: Sequence[str], time: tuple[bool, float] | None, first: tuple[bool, float] | None) -> str:
    """Return what is wrong with a row; empty where nothing is."""
    if len(cells) < 2:
        return f"{','.join(cells)!r} is no time and watts"
    if time is None or not (time[0] or (time[1] >= 0 and time[1].is_integer())):
        return f"{cells[0]!r} is no time; {_TIMES}"
    if not time[1].is_integer():
        return f"{cells[0]!r} has a part of a second; {_TIMES}"
    if first is not None and time[0] != first[0]:
        return f"{cells[0]!r} is another form of time than the first row's; {_TIMES}"
    watts = _number(cells[1])
    if watts is None or not LEAST_W <= watts <= MOST_W:
        return f"{cells[1]!r} is no cap in watts; {_RANGE}"
    return ""


def _on_steps(points: Sequence[tuple[int, int, float]], source: str) -> Series:
    """Put rows of seconds, line and watts on the longest step that all of them keep."""
    if points[0][0] != 0:
        raise InvalidInput(source, f"line {points[0][1]}: the first time is {points[0][0]} s; seconds count from 0")
    for before, after in itertools.pairwise(points):
        if before[0] == after[0]:
            raise InvalidInput(source, f"line {after[1]}: the time of line {before[1]} again; one row for each time")
    if len(points) == 1:
        return Series(ALWAYS_S, (points[0][2],))
    held = [after[0] - before[0] for before, after in itertools.pairwise(points)]
    held.append(held[-1])
    step_s = math.gcd(*held)
    if sum(held) // step_s > MOST_STEPS:
        raise InvalidInput(source, f"needs {sum(held) // step_s:,} steps of {step_s} s; {MOST_STEPS:,} are allowed")
    values = (itertools.repeat(watts, seconds // step_s) for seconds, (_, _, watts) in zip(held, points, strict=True))
    return Series(float(step_s), tuple(itertools.chain.from_iterable(values)))
