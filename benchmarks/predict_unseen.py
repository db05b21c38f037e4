"""Prediction on ground that no choice was made on: phases, workflows, functions and repeats kept out of all tuning.

Each set is judged beside plain rivals by blocks of time; a set counts against us where a plain rival is better by more
than two standard errors of the paired difference, blocks taken as the units. Run as the part ``unseen`` of
`benchmarks/predict.py`.

- Phases: the steady phases of Kepler's node (stretches of constant load) at one level of load, with all rows at other
  levels known; the node comes back to each level many times, so a single phase left out would have been seen before.
- First seen: memory of a workflow of which nothing had run before, each tenth of its time with what had finished.
- New function: watts of a function's calls, with the calls of all other functions known, and its own as they finish.
- Repeats: the next run of a known input on the same machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import plain
from sklearn.ensemble import HistGradientBoostingRegressor

from research import call_energy as serverless
from research import prediction_sets as datasets
from research.floors import FloorFigure, leave_one_out
from wattflow.model.profile import Scope
from wattflow.predict import needs, runtime, sources, watts
from wattflow.predict.evaluate import HeldOut, relative_errors
from wattflow.predict.observations import Floats, Ints, Observations

STEADY, LEAST_PHASE, TENTHS = 0.1, 8, 10
COVERAGE = (87.0, 93.0)
Trace = Callable[[Path, str], Observations]


@dataclass(frozen=True)
class Judged:
    """Errors of ours and of each plain rival on the same rows, with the block of each row."""

    name: str
    ours: Floats
    plain: dict[str, Floats]
    block: Ints

    def verdict(self) -> tuple[bool, str]:
        """(a plain rival is better beyond two standard errors, one line with all means)."""
        shown, worse = [], False
        for label, errors in sorted(self.plain.items(), key=lambda entry: float(entry[1].mean())):
            gap, error = paired(self.ours - errors, self.block)
            worse |= gap > 2.0 * error and gap > 1e-12
            shown.append(f"{label} {100 * errors.mean():.2f} ({100 * gap:+.2f} ± {100 * error:.2f})")
        line = f"# unseen {self.name}: ours {100 * self.ours.mean():.2f} %; plain: {', '.join(shown[:5])}"
        return worse, line


def paired(gap: Floats, block: Ints) -> tuple[float, float]:
    """Mean of a paired difference and its standard error, rows of a block erring together."""
    sums = np.bincount(block, weights=gap - gap.mean())
    return float(gap.mean()), float(np.sqrt((sums**2).sum()) / len(gap))


def steady_phases(busy: Floats) -> Ints:
    """Number of the steady phase of each row, in time order; -1 between phases.

    A phase is a stretch of at least eight rows whose busy CPU time stays within a tenth of its first row's.
    """
    phase, start, number = np.full(len(busy), -1), 0, 0
    for row in range(1, len(busy) + 1):
        ends = row == len(busy) or abs(busy[row] - busy[start]) > STEADY * max(busy[start], 1.0)
        if ends and row - start >= LEAST_PHASE:
            phase[start:row] = number
            number += 1
        start = row if ends else start
    return phase


def levels_of(busy: Floats, phase: Ints) -> Ints:
    """Level of load of each row's phase: phases whose busy CPU time follows within a tenth are at one level."""
    numbers = np.arange(phase.max() + 1)
    usual = np.array([np.median(busy[phase == number]) for number in numbers])
    order = np.argsort(usual)
    steps = np.diff(usual[order]) > STEADY * np.maximum(usual[order][:-1], 1.0)
    level = np.empty(len(numbers), np.int64)
    level[order] = np.concatenate([[0], np.cumsum(steps)])
    return np.where(phase >= 0, level[np.maximum(phase, 0)], -1)


def phases(data: Path) -> Iterator[tuple[Judged, FloorFigure]]:
    """Watts of steady phases at a level of load that was never seen, one level at a time."""
    for scope, name in ((Scope.WALL, "platform"), (Scope.PACKAGE, "package")):
        counters, truth = datasets.kepler(data, scope.value)
        busy = counters["bpf_cpu_time_us"] / 1000.0
        phase = steady_phases(busy)
        level = levels_of(busy, phase)
        table = np.column_stack([counters[column] for column in watts.COUNTERS])
        held, guesses, blocks = [], {}, []
        for left_out in range(int(level.max()) + 1):
            out = level == left_out
            model = watts.fit({k: v[~out] for k, v in counters.items()}, truth[~out], scope)
            held.append(HeldOut(*model.predict({k: v[out] for k, v in counters.items()}), truth[out]))
            blocks.append(phase[out])
            for label, guess in plain.watts((table[~out], truth[~out]), table[out]).items():
                guesses.setdefault(label, []).append(relative_errors(guess, truth[out]))
        ours = HeldOut.pool(held)
        judged = Judged(
            f"kepler {name} phase", relative_errors(ours.predicted, ours.true),
            {label: np.concatenate(parts) for label, parts in guesses.items()}, np.concatenate(blocks),
        )  # fmt: skip
        yield judged, FloorFigure(f"unseen_kepler_{name}_phase_coverage_as_fitted", ours.coverage_pct, "%", COVERAGE)


def first_seen(data: Path, trace: Trace) -> Iterator[tuple[str, Observations]]:
    """Traces with requests and peaks that no rule of memory was chosen on."""
    folder = data / "nextflow_traces"
    for number in (1, 2, 3):
        yield (
            f"chipseq on two nodes {number}",
            trace(folder / f"glasgow_cluster_scale/nodes-2/chipseq-{number}.csv.gz", "chipseq"),
        )
    for name in ("montage", "nanoseq"):
        yield f"{name} 2", trace(folder / f"glasgow_workflows/{name}-2.csv.gz", name)
    rows = datasets.lotaru(data)
    for workflow in np.unique(rows.workflow).tolist():
        some = rows.take(rows.workflow == workflow)
        # Lotaru keeps no clock: its rows stand in the order in which they were recorded.
        finished = np.cumsum(some.runtime_s)
        yield f"lotaru {workflow}", replace(some, columns={**some.columns, "finished_s": finished})


def from_five_runs_on(times: float) -> Callable[[Observations, Observations], Floats]:
    """So many times the task's largest peak once it ran five times, as asked before."""

    def predict(train: Observations, test: Observations) -> Floats:
        runs: dict[str, list[float]] = {}
        for task, peak in zip(train.task.tolist(), train.peak_bytes.tolist(), strict=True):
            runs.setdefault(task, []).append(peak)
        bound = np.array([
            times * max(runs[task]) if len(runs.get(task, ())) >= 5 else np.inf for task in test.task.tolist()
        ])  # fmt: skip
        return np.fmin(bound, test.request_bytes)

    return predict


MEMORY = {
    "1.5 × largest so far": plain.largest_so_far(1.5),
    "1.5 × from five runs on": from_five_runs_on(1.5),
    "2 × from five runs on": from_five_runs_on(2.0),
}


def memory(data: Path, trace: Trace) -> tuple[bool, str]:
    """Whether a plain rule both wastes less and fails no more on workflows seen for the first time, and the line."""
    held: dict[str, list[Floats]] = {}
    peaks, asked = [], []
    for _, rows in first_seen(data, trace):
        rows = rows.take((rows.peak_bytes > 0) & (rows.request_bytes > 0))
        finished = rows.columns["finished_s"]
        begun = finished - rows.runtime_s
        edges = [*np.quantile(begun, np.arange(TENTHS) / TENTHS).tolist(), np.inf]
        for start, end in itertools.pairwise(edges):
            train, test = rows.take(finished < start), rows.take((begun >= start) & (begun < end))
            if not len(test):
                continue
            model = needs.fit(train.task, train.peak_bytes, asked=train.request_bytes)
            held.setdefault("ours", []).append(model.request(test.task, test.request_bytes))
            for label, rule in MEMORY.items():
                held.setdefault(label, []).append(rule(train, test))
            peaks.append(test.peak_bytes)
            asked.append(test.request_bytes)
    peak, user = np.concatenate(peaks), np.concatenate(asked)
    found = {}
    for label, parts in held.items():
        waste, failures = needs.over_allocation(np.concatenate(parts), user, peak)
        found[label] = (100 * waste / (waste + peak.sum()), 100 * failures)
    mine = found["ours"]
    worse = any(found[label][0] < mine[0] and found[label][1] <= mine[1] for label in MEMORY)
    shown = ", ".join(
        f"{label} {waste:.1f} % not used, {failed:.2f} % failed" for label, (waste, failed) in found.items()
    )
    return worse, f"# unseen memory, first seen: {shown}"


def new_function(data: Path) -> Judged:
    """Watts of the calls of each function left out, its own finished calls known as they come."""
    calls, _ = datasets.greenfaas(data)
    seen = serverless.observe(calls)
    lags = lagged(calls)
    ours, guesses, blocks = [], {}, []
    waves = np.unique(calls.wave, return_inverse=True)[1]
    for _, (train, test) in leave_one_out(calls.function):
        model = serverless.fit(calls.take(train), seen.take(train), calls.wave[train])
        ours.append(relative_errors(np.exp(model.parts(calls.take(test), seen.take(test))[1]), calls.power_w[test]))
        blocks.append(waves[test])
        for label, guess in watts_of_calls(calls, lags, train, test).items():
            guesses.setdefault(label, []).append(relative_errors(guess, calls.power_w[test]))
    return Judged(
        "watts of a new function",
        np.minimum(np.concatenate(ours), 1.0),
        {label: np.minimum(np.concatenate(parts), 1.0) for label, parts in guesses.items()},
        np.concatenate(blocks),
    )


def lagged(calls: serverless.Calls) -> Floats:
    """Logs of the last three finished readings on the machine, how many run there, and the machine's number."""
    end_s, machine = calls.start_s + calls.duration_s, np.unique(calls.machine, return_inverse=True)[1]
    rows = np.full((len(calls), 5), np.nan)
    for i in range(len(calls)):
        same = np.flatnonzero(machine == machine[i])
        done = same[end_s[same] <= calls.start_s[i]]
        last = done[np.argsort(end_s[done], kind="stable")][-3:]
        rows[i, : len(last)] = np.log(calls.power_w[last])[::-1]
        rows[i, 3] = np.sum((calls.start_s[same] <= calls.start_s[i]) & (end_s[same] > calls.start_s[i]))
        rows[i, 4] = machine[i]
    return rows


def watts_of_calls(calls: serverless.Calls, lags: Floats, train: Ints, test: Ints) -> dict[str, Floats]:
    """Plain ways to tell a call's watts: a boosted tree with lags, the machine's last reading and its median."""
    logs = np.log(calls.power_w)
    usual = {m: float(np.median(logs[train][calls.machine[train] == m])) for m in np.unique(calls.machine).tolist()}
    median = np.array([usual[m] for m in calls.machine[test].tolist()])
    tree = HistGradientBoostingRegressor(loss="absolute_error", random_state=0).fit(lags[train], logs[train])
    return {
        "boosted tree with lags": np.exp(tree.predict(lags[test])),
        "last reading of the machine": np.exp(np.where(np.isfinite(lags[test, 0]), lags[test, 0], median)),
        "median of the machine": np.exp(median),
    }


def repeats(data: Path) -> Judged:
    """The next run of four tools on fifteen machine settings, with the runs before it known."""
    table = sources.Table(
        data / "nextflow_traces/glasgow_tasks_by_machine/tasks.csv",
        ("tool", "machine", "governor", "rep", "realtime"),
    )
    setting = np.char.add(np.char.add(table.texts("machine"), " "), table.texts("governor"))
    rep = table.numbers("rep")
    rows = Observations.of(
        task=table.texts("tool"), machine=setting, run=np.char.add(setting, table.texts("rep")),
        data=np.full(len(table), "the same input"), runtime_s=table.numbers("realtime") / 1000.0,
    )  # fmt: skip
    good = np.isfinite(rows.runtime_s) & (rows.runtime_s > 0)
    ours, guesses, blocks = [], {}, []
    for number in np.unique(rep[good])[1:].tolist():
        train, test = rows.take(good & (rep < number)), rows.take(good & (rep == number))
        ours.append(relative_errors(runtime.fit(train).predict(test).runtime_s, test.runtime_s))
        blocks.append(np.unique(test.machine, return_inverse=True)[1])
        for label, rule in plain.runtimes(0).items():
            guesses.setdefault(label, []).append(relative_errors(rule(train, test), test.runtime_s))
    return Judged(
        "repeats by machine", np.concatenate(ours), {k: np.concatenate(v) for k, v in guesses.items()},
        np.concatenate(blocks),
    )  # fmt: skip


def unseen(data: Path, trace: Trace) -> list[FloorFigure]:
    """All sets; the last figure counts those in which a plain rival is better."""
    figures, lost = [], 0
    for judged, figure in phases(data):
        worse, line = judged.verdict()
        print(line, flush=True)
        figures.append(figure)
        lost += worse
    for worse, line in (memory(data, trace), new_function(data).verdict(), repeats(data).verdict()):
        print(line, flush=True)
        lost += worse
    return [*figures, FloorFigure("unseen_sets_where_plain_is_better", float(lost), "sets", 0.0)]
