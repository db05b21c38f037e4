"""Every prediction figure on held-out data, beside plain baselines on the same split. Needs WATTFLOW_DATA.

A line's goal is the best plain baseline of `plain`, or the goal set before where that is harder; what loses to either
is short. Splits are runs, machines, sources, workflows and blocks in time, never random rows; members, weights and
settings are chosen inside the training side only.

- Lotaru, known: 5 folds over runs (machine, workflow, input). Unseen machine: each left out, of it only
  micro-benchmarks are known; beside it with online correction from its 21st task on. Down to full: down-sampled runs
  (train-1, train-2) against full size (test); elsewhere: down-sampled on the local machine, full size on the others.
- Nextflow, next run: earlier runs of a workflow against its next one.
- GreenFaaS: by wave (calls that started together), the last 40 % of the time, and each machine left out, with finished
  calls there known (online) and without (cold).
- Kepler: the first 60 % of the time against the rest; and, for coverage, four such cuts.
- Coverage of next runs, later calls and later watts is that of intervals as they are served: their width follows what
  had ended before each began (`online.AdaptiveWidth`); how intervals as fitted do is printed beside it.
- Memory: each tenth of a trace's time with what had finished before it.
- Unseen: phases, workflows, functions and repeats on which no choice was made (`predict_unseen`).
- Drift: held-out runs made 30 % slower; and full-size inputs after training on down-sampled ones.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import plain
import predict_unseen

from research import call_energy as serverless
from research import prediction_sets as datasets
from research.floors import FloorFigure, leave_one_out
from wattflow.model.profile import Scope
from wattflow.predict import needs, online, runtime, serving, trees, watts
from wattflow.predict.evaluate import HeldOut, Split, group_folds
from wattflow.predict.observations import Benchmarks, Floats, Observations, Texts, concatenate, of_workload
from wattflow.traces import registry

COVERAGE = (87.0, 93.0)
DRIFT_TASKS, UNSEEN_TASKS, SLOWER, KEPLER_PAST, TENTHS = 50, 20, 1.3, 0.6, 10
NEXTFLOW, AMPLISEQ = "nextflow_traces", "energy_labelled/ichnos_ampliseq/task_traces.csv.gz"
GAINS: dict[str, float] = {}
"""Share by which each set's main error lies below its best plain baseline."""
LEAST_WASTE: dict[str, float] = {}
"""The same where the plain one of least waste is the best, however often it fails."""

Pair = tuple[Observations, Observations]


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def beside(
    name: str, ours: HeldOut, others: dict[str, HeldOut], goals: dict[str, float], main: str
) -> list[FloorFigure]:
    """Errors of ours beside the best plain one; ``goals`` names the metrics, with a goal set before or infinity."""
    figures = []
    for metric, goal in goals.items():
        found = {label: getattr(other, f"{metric}_pct") for label, other in others.items()}
        best = min(found, key=lambda label: found[label])
        value = getattr(ours, f"{metric}_pct")
        ranked = ", ".join(f"{label} {found[label]:.1f}" for label in sorted(found, key=lambda label: found[label])[:5])
        print(f"# {name} {metric}: ours {value:.1f} %; plain: {ranked}", flush=True)
        figures.append(FloorFigure(f"{name}_{metric}", value, "%", min(goal, found[best] * (1 + 1e-9)), found[best]))
        if metric == main:
            GAINS[name] = 1.0 - value / found[best]
    figures.append(FloorFigure(f"{name}_coverage", ours.coverage_pct, "%", COVERAGE))
    return figures


def as_it_runs(name: str, held: HeldOut, kind: Texts, begun_s: Floats, ended_s: Floats) -> HeldOut:
    """The same with intervals as they are served: each is as wide as what had ended before it began has shown."""
    width = online.AdaptiveWidth()
    low, high = held.low.copy(), held.high.copy()
    ends = np.argsort(ended_s, kind="stable")
    judged = 0
    for row in np.argsort(begun_s, kind="stable").tolist():
        while ended_s[ends[judged]] <= begun_s[row] and ends[judged] != row:
            done = int(ends[judged])
            seen = (float(part[done]) for part in (held.true, held.predicted, held.low, held.high))
            width.finished(str(kind[done]), *seen)
            judged += 1
        fitted = (float(part[row]) for part in (held.predicted, held.low, held.high))
        low[row], high[row] = width.interval(str(kind[row]), *fitted)
    print(f"# {name} coverage: {held.coverage_pct:.1f} % with intervals as fitted, never adapted", flush=True)
    return replace(held, low=low, high=high)


def repeats(name: str, train: Observations, test: Observations) -> None:
    """How much identical calls differ from run to run, and so how little anybody can miss on this set."""
    here = list(zip(train.task.tolist(), train.data.tolist(), train.machine.tolist(), strict=True))
    past: dict[tuple[str, str, str], list[float]] = {}
    for key, seconds in zip(here, train.runtime_s.tolist(), strict=True):
        past.setdefault(key, []).append(seconds)
    keys = zip(test.task.tolist(), test.data.tolist(), test.machine.tolist(), strict=True)
    apart = [abs(np.log(seconds / np.median(past[key])))
             for key, seconds in zip(keys, test.runtime_s.tolist(), strict=True) if key in past]  # fmt: skip
    typical = 100 * float(np.median(apart))
    print(f"# {name}: {len(apart)} rows repeat a call on the same machine; repeats differ by {typical:.1f} % (median), "
          f"so even the true mean would miss by {typical / np.sqrt(2):.1f} %", flush=True)  # fmt: skip


def pooled(parts: Iterable[HeldOut]) -> HeldOut:
    return HeldOut.pool(parts)


def runtimes(
    name: str,
    splits: Iterable[Pair],
    benchmarks: Benchmarks,
    kinds: tuple[str, ...],
    goals: dict[str, float],
    in_time: bool = False,
) -> list[FloorFigure]:
    """Fit, predict and judge runtimes on every split; ``in_time``: intervals as they are served while tasks end."""
    ours: list[HeldOut] = []
    others: dict[str, list[HeldOut]] = {}
    for number, (train, test) in enumerate(splits):
        progress(f"{name}: split {number + 1}, {len(train)} rows → {len(test)}")
        found = runtime.fit(train, benchmarks, kinds).predict(test)
        held = HeldOut(found.runtime_s, found.low_s, found.high_s, test.runtime_s)
        if in_time:
            ended_s = test.columns["finished_s"]
            held = as_it_runs(name, held, test.task, ended_s - test.runtime_s, ended_s)
        ours.append(held)
        baselines = plain.runtimes(train.sizes.shape[1])
        if benchmarks:
            baselines |= {f"line per task by benchmarks, size {s}": plain.scaled(benchmarks, s) for s in (0, 1)}
        for label, baseline in baselines.items():
            guess = baseline(train, test)
            others.setdefault(label, []).append(HeldOut(guess, guess, guess, test.runtime_s))
    return beside(name, pooled(ours), {label: pooled(parts) for label, parts in others.items()}, goals, "median")


def lotaru(data: Path) -> list[FloorFigure]:
    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    full, local = rows.source == "test", rows.machine == "local"

    def taken(splits: Iterable[Split]) -> list[Pair]:
        return [(rows.take(train), rows.take(test)) for train, test in splits]

    three = (runtime.KNOWN, runtime.NEW_SOURCE, runtime.NEW_MACHINE)
    machines = [split for _, split in leave_one_out(rows.machine)]
    down = [(np.flatnonzero(~full), np.flatnonzero(full))]
    hard = [(np.flatnonzero(~full & local), np.flatnonzero(full & ~local))]
    known = {"median": 6.0, "mean": 10.0}
    unseen, sampled = {"median": 8.0, "mean": 13.0}, {"median": 17.0, "mean": 23.0}
    figures = runtimes(
        "lotaru_known", taken(group_folds(rows.run)), benchmarks, (runtime.KNOWN, runtime.NEW_MACHINE), known
    )
    figures += runtimes("lotaru_unseen_machine", taken(machines), benchmarks, (runtime.NEW_MACHINE,), unseen)
    figures += corrected_machine(taken(machines), benchmarks)
    figures += runtimes("lotaru_down_to_full", taken(down), benchmarks, three, sampled)
    return figures + runtimes("lotaru_down_to_full_elsewhere", taken(hard), benchmarks, three, sampled)


def corrected_machine(splits: Iterable[Pair], benchmarks: Benchmarks) -> list[FloorFigure]:
    """Left-out machines with online correction, judged after their first 20 tasks."""
    warm = []
    for train, some in splits:
        model = runtime.fit(train, benchmarks, (runtime.NEW_MACHINE,))
        found, size = model.predict(some), model.size(some)
        runs = np.random.default_rng(0).permutation(np.unique(some.run))
        order = np.concatenate([np.flatnonzero(some.run == run) for run in runs])
        corrector, factor = online.Corrector(), np.ones(len(some))
        for row in order.tolist():
            about = (str(some.task[row]), str(some.machine[row]))
            factor[row] = np.exp(corrector.correction(*about, float(size[row])))
            missed = float(np.log(some.runtime_s[row] / found.runtime_s[row]))
            corrector.finished(*about, missed, float(size[row]), model.scale(about[0]))
        late = order[UNSEEN_TASKS:]
        parts = (found.runtime_s, found.low_s, found.high_s)
        warm.append(HeldOut(*((part * factor)[late] for part in parts), some.runtime_s[late]))
    result = pooled(warm)
    name = "lotaru_unseen_machine_after_20_tasks"
    return [
        FloorFigure(f"{name}_median", result.median_pct, "%", 8.0),
        FloorFigure(f"{name}_mean", result.mean_pct, "%", 13.0),
    ]


def trace(path: Path, workflow: str) -> Observations:
    """A Nextflow trace as rows in the order they finished; rows without a runtime are left out."""
    rows = of_workload(registry.load(path))
    rows = rows.take(np.argsort(rows.columns["finished_s"], kind="stable"))
    return replace(rows.take(rows.runtime_s > 0), workflow=np.full(int((rows.runtime_s > 0).sum()), workflow))


def next_runs(data: Path) -> dict[str, Pair]:
    """Earlier runs and the next one of the Nextflow workflows that ran more than once."""
    folder = data / NEXTFLOW
    found = {}
    for name in ("nanoseq", "montage"):
        one, two = (trace(folder / "glasgow_workflows" / f"{name}-{i}.csv.gz", name) for i in (1, 2))
        found[name] = (one, two)
    first, second, third = (
        trace(folder / f"glasgow_cluster_scale/nodes-2/chipseq-{i}.csv.gz", "chipseq") for i in (1, 2, 3)
    )
    found["chipseq"], found["chipseq_after_two"] = (first, second), (concatenate([first, second]), third)
    rows = trace(data / AMPLISEQ, "ampliseq")
    machine = np.array([run.rsplit(" ", 1)[0] for run in rows.run.tolist()])  # node and governor
    rows, last = replace(rows, machine=machine), np.char.endswith(rows.run, " 2")
    found["ampliseq"] = (rows.take(~last), rows.take(last))
    return found


def nextflow(data: Path) -> list[FloorFigure]:
    figures = []
    kinds = (runtime.KNOWN, runtime.NEW_SOURCE, runtime.NEW_MACHINE)
    slowest = 0.0
    pairs = next_runs(data)
    runtime.fit(pairs["nanoseq"][0])  # compiled code is loaded once, not with each workflow
    for name, pair in pairs.items():
        began = time.process_time()
        runtime.fit(pair[0])
        slowest = max(slowest, time.process_time() - began)
        repeats(f"next_run_{name}", *pair)
        goals = {"median": np.inf, "mean": np.inf}
        figures += runtimes(f"next_run_{name}", [pair], {}, kinds, goals, in_time=True)
    return [*figures, FloorFigure("refit_per_workflow_slowest", slowest, "s", 1.0)]


def greenfaas(data: Path) -> list[FloorFigure]:
    calls, _ = datasets.greenfaas(data)
    seen = serverless.observe(calls)
    order = np.argsort(calls.start_s, kind="stable")
    past = int(KEPLER_PAST * len(order))
    machines = [split for _, split in leave_one_out(calls.machine)]
    waves = list(group_folds(calls.wave))
    figures = []
    for name, splits, group, history, goal in (
        ("greenfaas_by_wave", waves, calls.wave, True, 25.0),
        ("greenfaas_later", [(order[:past], order[past:])], calls.wave, True, np.inf),
        ("greenfaas_unseen_machine", machines, calls.machine, True, 45.0),
        ("greenfaas_unseen_machine_cold", machines, calls.machine, False, 45.0),
    ):
        progress(f"{name}: {len(splits)} splits")
        ours, others = [], {}
        for train, test in splits:
            model = serverless.fit(calls.take(train), seen.take(train), group[train], history)
            true = calls.energy_j[test]
            held = HeldOut(*model.predict(calls.take(test), seen.take(test)), true)
            if name == "greenfaas_later":
                ended_s = calls.start_s[test] + calls.duration_s[test]
                held = as_it_runs(name, held, calls.function[test], calls.start_s[test], ended_s)
            ours.append(held)
            for label, guess in plain.joules(calls, train, test, history).items():
                others.setdefault(label, []).append(HeldOut(guess, guess, guess, true))
        if not history:
            hindsight(name, calls)
        pooled_others = {label: pooled(parts) for label, parts in others.items()}
        figures += beside(name, pooled(ours), pooled_others, {"median": goal}, "median")
    return figures


def hindsight(name: str, calls: serverless.Calls) -> None:
    """What the best constant per function and machine would miss, chosen with the answers in sight: nobody's bound."""
    energy, missed = np.log(calls.energy_j), []
    for key in np.unique(np.char.add(calls.function, calls.machine)):
        mine = energy[np.char.add(calls.function, calls.machine) == key]
        errors = [np.abs(np.expm1(guess - mine)) for guess in np.quantile(mine, np.linspace(0.02, 0.98, 49))]
        missed.append(min(errors, key=lambda error: float(np.median(error))))
    typical = 100 * float(np.median(np.concatenate(missed)))
    print(f"# {name}: the best constant per function and machine in hindsight misses by {typical:.1f} %", flush=True)


def kepler(data: Path) -> list[FloorFigure]:
    figures = []
    for scope, name, goal in ((Scope.WALL, "platform", 4.5), (Scope.PACKAGE, "package", 10.0)):
        counters, truth = datasets.kepler(data, scope.value)
        table = np.column_stack([counters[column] for column in watts.COUNTERS])

        def cut(share: float, kinds: tuple[str, ...] = watts.KINDS) -> tuple[HeldOut, int]:
            row = int(share * len(truth))  # noqa: B023
            model = watts.fit({k: v[:row] for k, v in counters.items()}, truth[:row], scope, kinds)  # noqa: B023
            later = {k: v[row:] for k, v in counters.items()}  # noqa: B023
            held, now = HeldOut(*model.predict(later), truth[row:]), np.arange(len(truth) - row)  # noqa: B023
            return as_it_runs(f"kepler_{name}_after_{share:.0%}", held, np.full(len(now), name), now, now + 0.5), row  # noqa: B023

        progress(f"kepler {name}: first 60 % of the time → the rest")
        ours, row = cut(KEPLER_PAST)
        guesses = plain.watts((table[:row], truth[:row]), table[row:])
        others = {label: HeldOut(guess, guess, guess, truth[row:]) for label, guess in guesses.items()}
        figures += beside(f"kepler_{name}_later", ours, others, {"mean": goal}, "mean")
        rolling = pooled([cut(share)[0] for share in (0.5, 0.6, 0.7, 0.8)])
        figures.append(FloorFigure(f"kepler_{name}_four_cuts_coverage", rolling.coverage_pct, "%", COVERAGE))
    return figures


def memory_traces(data: Path) -> dict[str, Observations]:
    folder = data / NEXTFLOW
    found = {f"sizey_{name}": trace(folder / f"sizey/{name}.csv.gz", name) for name in ("eager", "iwd", "rnaseq")}
    for name in ("chipseq-1", "mag-1", "montage-1", "nanoseq-1", "rnaseq-1"):
        found[name] = trace(folder / f"glasgow_workflows/{name}.csv.gz", name.removesuffix("-1"))
    found["ampliseq"] = trace(data / AMPLISEQ, "ampliseq")
    return found


def memory(data: Path) -> list[FloorFigure]:
    """Each tenth of a trace's time is requested with what had finished before it began."""
    held: dict[str, list[Floats]] = {}
    peaks, asked = [], []
    for name, rows in memory_traces(data).items():
        progress(f"memory: {name}")
        rows = rows.take((rows.peak_bytes > 0) & (rows.request_bytes > 0))
        finished = rows.columns["finished_s"]
        begun = finished - rows.runtime_s
        edges = [*np.quantile(begun, np.arange(1, TENTHS) / TENTHS).tolist(), np.inf]
        for start, end in itertools.pairwise(edges):
            train, test = rows.take(finished < start), rows.take((begun >= start) & (begun < end))
            if len(train) < 20 or not len(test):
                continue
            model = needs.fit(train.task, train.peak_bytes, asked=train.request_bytes)
            guesses = {label: rule(train, test) for label, rule in plain.MEMORY.items()}
            guesses |= {"ours": model.request(test.task, test.request_bytes), "as asked": test.request_bytes}
            for label, guess in guesses.items():
                held.setdefault(label, []).append(guess)
            peaks.append(test.peak_bytes)
            asked.append(test.request_bytes)
    peak, user = np.concatenate(peaks), np.concatenate(asked)
    found = {}
    for label, parts in held.items():
        request = np.concatenate(parts)
        waste, failures = needs.over_allocation(request, user, peak)
        found[label] = (100 * waste / (waste + peak.sum()), 100 * failures)
        print(
            f"# memory, {label}: {found[label][0]:.1f} % of what was held was not used, {found[label][1]:.2f} % failed"
        )
    waste, failures = found["ours"]
    rivals = [found[label] for label in plain.MEMORY]
    best = min(rival[0] for rival in rivals)
    for label in plain.MEMORY:
        print(f"# memory: {100 * (1 - waste / found[label][0]):.1f} % less than {label}, which fails "
              f"{found[label][1] / failures:.1f} times as often")  # fmt: skip
    GAINS["memory"] = 1.0 - waste / found["1.5 × largest so far"][0]  # the usual plain one; 1.1 × fails too often
    LEAST_WASTE["memory"] = 1.0 - waste / best
    return [
        FloorFigure("memory_not_used", waste, "%", best, best),
        FloorFigure("memory_failures", failures, "%", min(rival[1] for rival in rivals)),
    ]


def drift(data: Path) -> list[FloorFigure]:
    """Trained on down-sampled runs; then each machine turns 30 % slower, and then full-size inputs come."""
    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    full = rows.source == "test"
    folds = list(group_folds(rows.run))
    train, test = folds[0]
    model = runtime.fit(rows.take(train), benchmarks, kinds=(runtime.KNOWN,))
    before, lost, after = corrected(rows.take(test), model)
    down = runtime.fit(rows.take(~full), benchmarks, kinds=(runtime.KNOWN, runtime.NEW_SOURCE, runtime.NEW_MACHINE))
    _, lost_both, after_both = corrected(rows.take(full), down)
    print(f"# median error {before:.1f} %; 30 % slower {lost:.1f} %, corrected {after:.1f} %; slower and new sizes "
          f"{lost_both:.1f} %, corrected {after_both:.1f} %")  # fmt: skip
    regained = [100 * (lost - after) / (lost - before), 100 * (lost_both - after_both) / (lost_both - before)]
    return [
        FloorFigure("drift_slower_machine_regained", regained[0], "%", 80.0, None, higher_is_better=True),
        FloorFigure("drift_slower_machine_new_sizes_regained", regained[1], "%", 80.0, None, higher_is_better=True),
    ]


def corrected(rows: Observations, model: runtime.RuntimeModel) -> tuple[float, float, float]:
    """Median errors (%) of each machine's tasks after its 50th: undrifted, drifted, and drifted with correction."""
    found = model.predict(rows)
    error = np.log(rows.runtime_s) - np.log(found.runtime_s)
    size = model.size(rows)
    before, lost, after = [], [], []
    for _, (_, mine) in leave_one_out(rows.machine):
        order = mine[np.random.default_rng(0).permutation(len(mine))]
        corrector = online.Corrector()
        for count, row in enumerate(order.tolist()):
            drifted = error[row] + np.log(SLOWER)
            task, machine = str(rows.task[row]), str(rows.machine[row])
            if count >= DRIFT_TASKS:
                correction = corrector.correction(task, machine, float(size[row]))
                before.append(abs(np.expm1(-error[row])))
                lost.append(abs(np.expm1(-drifted)))
                after.append(abs(np.expm1(correction - drifted)))
            else:
                corrector.finished(task, machine, drifted, float(size[row]), model.scale(task))
    return tuple(100.0 * float(np.median(part)) for part in (before, lost, after))  # type: ignore[return-value]


def unknown_workflow(data: Path) -> list[FloorFigure]:
    """A workflow that was never profiled: no point, a wide interval. Its coverage is wide on purpose."""
    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    parts, missed, blind = [], [], []
    for _, (train, test) in leave_one_out(rows.workflow):
        found = runtime.fit(rows.take(train), benchmarks, kinds=(runtime.NEW_TASK,)).predict(rows.take(test))
        parts.append(HeldOut(found.runtime_s, found.low_s, found.high_s, rows.runtime_s[test]))
        centre = np.sqrt(found.low_s * found.high_s)
        missed.append(np.abs(np.log(centre / rows.runtime_s[test])))
        blind.append(np.abs(np.log(np.median(rows.runtime_s[train]) / rows.runtime_s[test])))
    print(f"# middle of the interval, typical factor off: {np.exp(np.median(np.concatenate(missed))):.2f} by likeness "
          f"of names, {np.exp(np.median(np.concatenate(blind))):.2f} by the median of all tasks")  # fmt: skip
    found = HeldOut.pool(parts)
    return [FloorFigure("lotaru_unknown_workflow_coverage", found.coverage_pct, "%", (87.0, 100.0))]


def speed(data: Path) -> list[FloorFigure]:
    """One row at a time: ours compiled, scikit-learn's as the peer, in one process."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    model = runtime.fit(rows, benchmarks, kinds=(runtime.KNOWN,))
    one = serving.RowPredictor(model)
    asked = (str(rows.task[0]), str(rows.machine[0]), float(model.size(rows)[0]), str(rows.data[0]))
    ours = microseconds(lambda: one.predict_s(*asked), 5000)
    table = np.log(rows.sizes + 1)
    target = np.log(rows.runtime_s)
    peer = HistGradientBoostingRegressor(max_iter=200, early_stopping=False).fit(table, target)
    ensemble = trees.BoostSetting(loss="l2", leaves=31, rounds=200)
    flat, row = trees.boost(table, target, ensemble), np.ascontiguousarray(table[0])
    boosted = microseconds(lambda: flat.predict_row(row), 5000)
    theirs = microseconds(lambda: peer.predict(table[:1]), 100)
    print(f"# scikit-learn, one row through 200 trees: {theirs:.0f} µs; LightGBM's flattened: {boosted:.1f} µs")
    return [
        FloorFigure("single_row_runtime", ours, "us", 20.0),
        FloorFigure("single_row_200_trees", boosted, "us", 20.0),
        FloorFigure("single_row_speedup_over_sklearn", theirs / boosted, "x", 100.0, None, higher_is_better=True),
    ]


def microseconds(call: Callable[[], object], times: int) -> float:
    """Median over five rounds of the mean time of a call, after a first one that compiles."""
    call()
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            call()
        rounds.append((time.perf_counter() - began) / times * 1e6)
    return float(np.median(rounds))


PARTS: dict[str, Callable[[Path], list[FloorFigure]]] = {
    "lotaru": lotaru,
    "nextflow": nextflow,
    "greenfaas": greenfaas,
    "kepler": kepler,
    "memory": memory,
    "unknown": unknown_workflow,
    "unseen": lambda data: predict_unseen.unseen(data, trace),
    "drift": drift,
    "speed": speed,
}


def gain() -> list[FloorFigure]:
    """How far the sets judged in this run lie below their best plain baselines."""
    for name, value in sorted(GAINS.items(), key=lambda entry: entry[1]):
        print(f"# gain over the best plain: {name} {100 * value:.1f} %")
    if len(GAINS) < 3:
        return []
    typical, strict = (100 * float(np.median(list(part.values()))) for part in (GAINS, GAINS | LEAST_WASTE))
    return [
        FloorFigure("gain_over_best_plain_median", typical, "%", 15.0, None, higher_is_better=True),
        FloorFigure(
            "gain_over_best_plain_median_memory_by_waste_alone", strict, "%", 15.0, None, higher_is_better=True
        ),
        FloorFigure("sets_worse_than_best_plain", float(sum(value < -1e-9 for value in GAINS.values())), "sets", 0.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all by default")
    default = os.environ.get("WATTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    options = parser.parse_args()
    figures = []
    for name in options.parts or PARTS:
        began, used = time.perf_counter(), time.process_time()
        figures += PARTS[name](options.data)
        print(f"# {name}: {time.perf_counter() - began:.0f} s, {time.process_time() - used:.0f} s of CPU", flush=True)
    for figure in [*figures, *gain()]:
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
