"""Every prediction figure on held-out data, beside its floor and goal. Needs the folder of real data (WATTFLOW_DATA).

Splits, all chosen so that no run, machine or source is on both sides; hyperparameters are chosen inside the training
side only.

- Lotaru, known task and machine: 5 folds over runs (machine, workflow, input); a run is held out whole.
- Lotaru, unseen machine: each machine left out in turn; of it only micro-benchmarks are known.
- Lotaru, down-sampled to full size: trained on the down-sampled runs (train-1, train-2), judged on full size (test);
  the harder reading, down-sampled runs of the local machine only, judged on full size everywhere else, stands beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from wattflow.predict import datasets, runtime
from wattflow.predict.evaluate import Figure, HeldOut, Split, group_folds, leave_one_out
from wattflow.predict.observations import Benchmarks, Observations

COVERAGE = (87.0, 93.0)


def held_out_runtime(rows: Observations, benchmarks: Benchmarks, splits: Iterable[Split]) -> HeldOut:
    parts = []
    for train, test in splits:
        model = runtime.fit(rows.take(train), benchmarks)
        found = model.predict(rows.take(test))
        parts.append(HeldOut(found.runtime_s, found.low_s, found.high_s, rows.runtime_s[test]))
    return HeldOut.pool(parts)


def errors(name: str, result: HeldOut, floor: tuple[float, float], goal: tuple[float, float]) -> list[Figure]:
    return [
        Figure(f"{name}_median", result.median_pct, "%", goal[0], floor[0]),
        Figure(f"{name}_mean", result.mean_pct, "%", goal[1], floor[1]),
        Figure(f"{name}_coverage", result.coverage_pct, "%", COVERAGE),
    ]


def lotaru(data: Path) -> list[Figure]:
    rows, benchmarks = datasets.lotaru(data), datasets.lotaru_benchmarks(data)
    full = rows.source == "test"
    figures = errors(
        "lotaru_known", held_out_runtime(rows, benchmarks, group_folds(rows.run)), (6.7, 11.6), (6.0, 10.0))  # fmt: skip
    machines = [split for _, split in leave_one_out(rows.machine)]
    figures += errors(
        "lotaru_unseen_machine", held_out_runtime(rows, benchmarks, machines), (8.8, 15.1), (8.0, 13.0))  # fmt: skip
    down = [(np.flatnonzero(~full), np.flatnonzero(full))]
    figures += errors("lotaru_down_to_full", held_out_runtime(rows, benchmarks, down), (19.6, 28.2), (17.0, 23.0))
    local = rows.machine == "local"
    if (local & ~full).any() and (~local & full).any():
        hard = [(np.flatnonzero(~full & local), np.flatnonzero(full & ~local))]
        figures += errors(
            "lotaru_down_to_full_elsewhere", held_out_runtime(rows, benchmarks, hard), (19.6, 28.2), (17.0, 23.0)
        )
    return figures


PARTS: dict[str, Callable[[Path], list[Figure]]] = {"lotaru": lotaru}


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
