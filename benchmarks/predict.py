"""Every prediction figure on held-out data, beside its floor and goal. Needs the folder of real data (WATTFLOW_DATA).

Splits, all chosen so that no run, machine or source is on both sides; hyperparameters are chosen inside the training
side only.

- Lotaru, known task and machine: 5 folds over runs (machine, workflow, input); a run is held out whole.
- Lotaru, unseen machine: each machine left out in turn; of it only micro-benchmarks are known. Beside it the same with
  online correction, judged from the machine's 21st task on.
- Lotaru, down-sampled to full size: trained on the down-sampled runs (train-1, train-2), judged on full size (test);
  the harder reading, down-sampled runs of the local machine only, judged on full size elsewhere, stands beside it.
- Lotaru, unknown workflow: each workflow left out in turn; only the coverage of its wide interval is judged.
- GreenFaaS, seen machines: 5 folds over calls (there is one run per machine and function, so runs cannot be held out);
  beside it folds over waves, calls that started together and share a meter reading: stricter, and the honest one.
- GreenFaaS, unseen machine: each machine left out; predictions may use calls that have finished on it (online), and
  beside it without (cold).
- Kepler: 6 blocks of time, each left out in turn; a block is about one kind of stress load.
- Sizey: 5 folds over samples (tags).
- Drift: the held-out runs of each machine made 30 % slower; and full-size inputs after training on down-sampled ones.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from wattflow.model.profile import Scope
from wattflow.predict import datasets, fast, needs, online, runtime, serverless, trees, watts
from wattflow.predict.evaluate import Figure, HeldOut, Split, group_folds, leave_one_out
from wattflow.predict.observations import Benchmarks, Observations, Texts

COVERAGE = (87.0, 93.0)
KEPLER_BLOCKS, DRIFT_TASKS, UNSEEN_TASKS, SLOWER = 6, 50, 20, 1.3


def held_out_runtime(rows: Observations, benchmarks: Benchmarks, splits: Iterable[Split], kind: str) -> HeldOut:
    parts = []
    # a pair of task and machine may be new in any split
    kinds = (kind, runtime.NEW_MACHINE) if kind != runtime.NEW_MACHINE else (runtime.NEW_SOURCE, runtime.NEW_MACHINE)
    for train, test in splits:
        model = runtime.fit(rows.take(train), benchmarks, kinds)
        found = model.predict(rows.take(test))
        parts.append(HeldOut(found.runtime_s, found.low_s, found.high_s, rows.runtime_s[test]))
    return HeldOut.pool(parts)


def unseen_machine(rows: Observations, benchmarks: Benchmarks, splits: Iterable[Split]) -> tuple[HeldOut, HeldOut]:
    """Left-out machines from benchmarks alone; and with online correction, judged after their first 20 tasks."""
    cold, warm = [], []
    for train, test in splits:
        model = runtime.fit(rows.take(train), benchmarks, (runtime.NEW_MACHINE,))
        some = rows.take(test)
        found = model.predict(some)
        cold.append(HeldOut(found.runtime_s, found.low_s, found.high_s, some.runtime_s))
        runs = np.random.default_rng(0).permutation(np.unique(some.run))
        order = np.concatenate([np.flatnonzero(some.run == run) for run in runs])
        corrector, size, factor = online.Corrector(), model.size(some), np.ones(len(some))
        for row in order.tolist():
            about = (str(some.task[row]), str(some.machine[row]))
            factor[row] = np.exp(corrector.correction(*about, float(size[row])))
            missed = float(np.log(some.runtime_s[row] / found.runtime_s[row]))
            corrector.finished(*about, missed, float(size[row]), model.scale(about[0]))
        late = order[UNSEEN_TASKS:]
        parts = (found.runtime_s, found.low_s, found.high_s)
        warm.append(HeldOut(*((part * factor)[late] for part in parts), some.runtime_s[late]))
    return HeldOut.pool(cold), HeldOut.pool(warm)


def errors(name: str, result: HeldOut, floor: tuple[float, float], goal: tuple[float, float]) -> list[Figure]:
    return [
        Figure(f"{name}_median", result.median_pct, "%", goal[0], floor[0]),
        Figure(f"{name}_mean", result.mean_pct, "%", goal[1], floor[1]),
        Figure(f"{name}_coverage", result.coverage_pct, "%", COVERAGE),
    ]


def lotaru(data: Path) -> list[Figure]:
    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    full = rows.source == "test"
    known = held_out_runtime(rows, benchmarks, group_folds(rows.run), runtime.KNOWN)
    figures = errors("lotaru_known", known, (6.7, 11.6), (6.0, 10.0))
    machines = [split for _, split in leave_one_out(rows.machine)]
    unseen, online_too = unseen_machine(rows, benchmarks, machines)
    figures += errors("lotaru_unseen_machine", unseen, (8.8, 15.1), (8.0, 13.0))
    figures += errors("lotaru_unseen_machine_after_20_tasks", online_too, (8.8, 15.1), (8.0, 13.0))[:2]
    down = [(np.flatnonzero(~full), np.flatnonzero(full))]
    figures += errors(
        "lotaru_down_to_full", held_out_runtime(rows, benchmarks, down, runtime.NEW_SOURCE), (19.6, 28.2), (17.0, 23.0)
    )
    local = rows.machine == "local"
    if (local & ~full).any() and (~local & full).any():
        hard = [(np.flatnonzero(~full & local), np.flatnonzero(full & ~local))]
        figures += errors(
            "lotaru_down_to_full_elsewhere",
            held_out_runtime(rows, benchmarks, hard, runtime.NEW_MACHINE),
            (19.6, 28.2),
            (17.0, 23.0),
        )
    return figures


def greenfaas(data: Path) -> list[Figure]:
    calls, _ = datasets.greenfaas(data)
    seen = serverless.observe(calls)
    each = np.array([str(i) for i in range(len(calls))])
    machines = [split for _, split in leave_one_out(calls.machine)]

    def held_out(splits: Iterable[Split], group: Texts, history: bool = True) -> HeldOut:
        parts = []
        for train, test in splits:
            model = serverless.fit(calls.take(train), seen.take(train), group[train], history)
            parts.append(HeldOut(*model.predict(calls.take(test), seen.take(test)), calls.energy_j[test]))
        return HeldOut.pool(parts)

    figures = []
    for name, found, goal in (
        ("greenfaas_seen_machines", held_out(group_folds(each), each), (25.0, 38.0)),
        ("greenfaas_seen_machines_by_wave", held_out(group_folds(calls.wave), calls.wave), (25.0, 38.0)),
        ("greenfaas_unseen_machine", held_out(machines, calls.machine), (45.0, 90.0)),
        ("greenfaas_unseen_machine_cold", held_out(machines, calls.machine, history=False), (45.0, 90.0)),
    ):
        figures.append(Figure(f"{name}_median", found.median_pct, "%", goal[0], goal[1]))
        if "seen_machines" in name:
            figures.append(Figure(f"{name}_r2_log", found.r2_log, "", 0.95, 0.91, higher_is_better=True))
        figures.append(Figure(f"{name}_coverage", found.coverage_pct, "%", COVERAGE))
    return figures


def kepler(data: Path) -> list[Figure]:
    figures = []
    for scope, floor, goal in ((Scope.WALL, 5.2, 4.5), (Scope.PACKAGE, 12.2, 10.0)):
        counters, truth = datasets.kepler(data, scope.value)
        block = np.arange(len(truth)) * KEPLER_BLOCKS // len(truth)
        name = {Scope.WALL: "platform", Scope.PACKAGE: "package"}[scope]
        for label, kinds in (("", ()), ("_network", ("network",)), ("_line", ("line",))):
            parts = []
            for b in range(KEPLER_BLOCKS):
                train, test = block != b, block == b
                model = watts.fit({k: v[train] for k, v in counters.items()}, truth[train], scope, kinds)
                parts.append(HeldOut(*model.predict({k: v[test] for k, v in counters.items()}), truth[test]))
            found = HeldOut.pool(parts)
            if label == "_line":
                print(f"# kepler {name} watts, straight line in the counters, as a baseline: {found.mean_pct:.2f} %")
                continue
            figures.append(Figure(f"kepler_{name}{label}_mean", found.mean_pct, "%", goal, floor))
            if not label:
                figures.append(Figure(f"kepler_{name}_coverage", found.coverage_pct, "%", COVERAGE))
    return figures


def memory(data: Path) -> list[Figure]:
    rows = datasets.sizey(data)
    request = np.zeros(len(rows))
    for train, test in group_folds(rows.run):
        model = needs.fit(rows.task[train], rows.peak_bytes[train], rows.run[train])
        request[test] = model.request(rows.task[test], rows.request_bytes[test])
    waste, failures = needs.over_allocation(request, rows.request_bytes, rows.peak_bytes)
    asked, _ = needs.over_allocation(rows.request_bytes, rows.request_bytes, rows.peak_bytes)
    return [
        Figure("sizey_over_allocation_of_users", 100 * waste / asked, "%", 50.0, 100.0),
        Figure("sizey_failures", 100 * failures, "%", 1.0),
    ]


def drift(data: Path) -> list[Figure]:
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
        Figure("drift_slower_machine_regained", regained[0], "%", 80.0, None, higher_is_better=True),
        Figure("drift_slower_machine_new_sizes_regained", regained[1], "%", 80.0, None, higher_is_better=True),
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


def unknown_workflow(data: Path) -> list[Figure]:
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
    return [Figure("lotaru_unknown_workflow_coverage", found.coverage_pct, "%", (87.0, 100.0))]


def speed(data: Path) -> list[Figure]:
    """One row at a time: ours compiled, scikit-learn's as the peer, in one process."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    model = runtime.fit(rows, benchmarks, kinds=(runtime.KNOWN,))
    one = fast.RowPredictor(model)
    asked = (str(rows.task[0]), str(rows.machine[0]), float(model.size(rows)[0]), str(rows.data[0]))
    ours = microseconds(lambda: one.predict_s(*asked), 5000)
    table = np.log(rows.sizes + 1)
    target = np.log(rows.runtime_s)
    peer = HistGradientBoostingRegressor(max_iter=200, early_stopping=False).fit(table, target)
    flat, row = trees.from_sklearn(peer), np.ascontiguousarray(table[0])
    boosted = microseconds(lambda: flat.predict_row(row), 5000)
    theirs = microseconds(lambda: peer.predict(table[:1]), 100)
    print(f"# scikit-learn, one row through 200 trees: {theirs:.0f} µs; the same trees flattened: {boosted:.1f} µs")
    return [
        Figure("single_row_runtime", ours, "us", 20.0),
        Figure("single_row_200_trees", boosted, "us", 20.0),
        Figure("single_row_speedup_over_sklearn", theirs / boosted, "x", 100.0, None, higher_is_better=True),
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


PARTS: dict[str, Callable[[Path], list[Figure]]] = {
    "lotaru": lotaru,
    "unknown": unknown_workflow,
    "greenfaas": greenfaas,
    "kepler": kepler,
    "memory": memory,
    "drift": drift,
    "speed": speed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all by default")
    default = os.environ.get("WATTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    options = parser.parse_args()
    for name in options.parts or PARTS:
        began = time.perf_counter()
        for figure in PARTS[name](options.data):
            print(figure.line(), flush=True)
        print(f"# {name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
