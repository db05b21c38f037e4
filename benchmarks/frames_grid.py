"""The grid: twelve designs on each of the 54 traces at full length, in several processes, resumable.

    python benchmarks/frames_grid.py [--workers 16] [--picture FILE]

Every trace that is done stands in the file of rows; started again, the grid goes on where it stopped, unless the
sources of frames have changed since: then it starts anew. The table stands beside the rows (`.md`), `--picture FILE`
draws it. `--tables` runs nothing and says what the rows say. A process needs about 0.8 GB.
"""

from __future__ import annotations

import argparse
import csv
import functools
import hashlib
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from frames_designs import twelve

from wattflow import frames
from wattflow.frames import frame_run, workloads
from wattflow.frames.frame_run import run_frame

COLUMNS = (
    "trace", "tasks", "hosts", "design", "p50", "p90", "p99", "p99.9", "mean", "energy_mj", "utilisation", "messages",
    "stolen", "placer_stolen", "cpu_s", "made_cpu_s", "sources",
)  # fmt: skip
WARMING = 2_000
"""Tasks of the run that compiles, before the processes start."""
Row = dict[str, str]


@functools.cache
def sources() -> str:
    """A hash of the code of frames, which the rows depend on."""
    digest = hashlib.sha256()
    for path in sorted(Path(frames.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def one_trace(job: tuple[int, int]) -> list[Row]:
    """All designs on one trace. ``made_cpu_s`` is the making of the trace, on its first row."""
    trace, tasks = job
    started = time.process_time()
    workload, cluster = workloads.ibm_like(trace, tasks)
    made = time.process_time() - started
    rows = []
    for name, frame in twelve().items():
        started = time.process_time()
        run = run_frame(frame, workload, cluster)
        spent = time.process_time() - started
        shown = frame_run.tail(run)
        values: dict[str, object] = {"trace": trace, "tasks": tasks, "hosts": len(cluster.nodes), "design": name}
        values |= {key: f"{shown[key]:.6g}" for key in ("p50", "p90", "p99", "p99.9", "mean")}
        values |= {"energy_mj": f"{run.total_j / 1e6:.6g}", "utilisation": f"{run.scalars['utilisation']:.5g}"}
        values |= {key: f"{run.scalars[key]:.0f}" for key in ("messages", "stolen", "placer_stolen")}
        values |= {"cpu_s": f"{spent:.4g}", "made_cpu_s": f"{made:.4g}", "sources": sources()}
        rows.append({key: str(values[key]) for key in COLUMNS})
        made = 0.0
        del run
    return rows


def read_rows(path: Path, tasks: int) -> list[Row]:
    """Rows of traces of this length that are there with all designs."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = [{"sources": ""} | row for row in csv.DictReader(file) if row["tasks"] == str(tasks)]
    names = set(twelve())
    whole = {
        trace
        for trace in {row["trace"] for row in rows}
        if {row["design"] for row in rows if row["trace"] == trace} == names
    }
    return [row for row in rows if row["trace"] in whole]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """All rows anew, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    order = {name: k for k, name in enumerate(twelve())}
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (int(row["trace"]), order[row["design"]])))
    draft.replace(path)


def run_grid(path: Path, tasks: int, traces: Sequence[int], workers: int = 2) -> list[Row]:
    """Run what the file of rows lacks; returns all rows."""
    rows = [row for row in read_rows(path, tasks) if row["sources"] == sources()]
    done = {int(row["trace"]) for row in rows}
    left = [(trace, tasks) for trace in traces if trace not in done]
    print(f"  {len(done)} of {len(traces)} traces are there", flush=True)
    if left:
        one_trace((left[0][0], WARMING))
        with multiprocessing.get_context("spawn").Pool(min(workers, len(left)), maxtasksperchild=4) as pool:
            for found in pool.imap_unordered(one_trace, left):
                rows += found
                write_rows(path, rows)
                print(
                    f"  trace {found[0]['trace']:>2s} done, {len(rows) // len(twelve())} of {len(traces)}", flush=True
                )
    return [row for row in rows if int(row["trace"]) in set(traces)]


def minutes_on_2_cores(rows: Sequence[Row]) -> float:
    """CPU seconds of all runs and of making the traces, over two cores."""
    return sum(float(row["cpu_s"]) + float(row["made_cpu_s"]) for row in rows) / 120.0


def of_design(rows: Sequence[Row], name: str, column: str) -> list[float]:
    return [float(row[column]) for row in rows if row["design"] == name]


def traces_of(rows: Sequence[Row]) -> set[str]:
    return {row["trace"] for row in rows}


def tables(rows: Sequence[Row]) -> str:
    """Markdown: each design over all traces."""
    best = {trace: min(float(row["p99"]) for row in rows if row["trace"] == trace) for trace in traces_of(rows)}
    base = {row["trace"]: float(row["energy_mj"]) for row in rows if row["design"] == "centralised"}
    lines = [
        "| design | p99: median | least | most | p99.9: median | best p99 (or as good) on | energy, centralised = 0 |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name in twelve():
        p99, p999 = of_design(rows, name, "p99"), of_design(rows, name, "p99.9")
        energy = [float(row["energy_mj"]) / base[row["trace"]] for row in rows if row["design"] == name]
        change = 100 * (math.exp(statistics.fmean(math.log(each) for each in energy)) - 1)
        wins = sum(float(row["p99"]) == best[row["trace"]] for row in rows if row["design"] == name)
        numbers = (f"{value:,.3g}" for value in (statistics.median(p99), min(p99), max(p99), statistics.median(p999)))
        lines.append(f"| {name} | {' | '.join(numbers)} | {wins} of {len(best)} | {change:+.2f} % |")
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """p99 slowdown of each design: one dot a trace, the median as a bar; logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    axes = figure.subplots()
    names = list(twelve())
    for at, name in enumerate(names):
        values = sorted(of_design(rows, name, "p99"))
        spread = [at + 0.3 * ((k * 0.618) % 1.0 - 0.5) for k in range(len(values))]
        axes.scatter(values, spread, s=9, alpha=0.6, color=f"C{at // 3}")
        axes.plot([statistics.median(values)] * 2, [at - 0.35, at + 0.35], color="black")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="p99 slowdown, one dot a trace; bar: median")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=Path("docs/frames_grid.csv"), help="the file of rows")
    parser.add_argument("--tasks", type=int, default=workloads.TASKS)
    parser.add_argument("--traces", type=int, default=workloads.TRACES, help="the first so many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tables", action="store_true", help="print what the rows say; run nothing")
    parser.add_argument("--picture", type=Path, help="draw the rows")
    given = parser.parse_args()
    rows = read_rows(given.rows, given.tasks) if given.tables else run_grid(
        given.rows, given.tasks, range(given.traces), given.workers
    )  # fmt: skip
    if not rows:
        sys.exit(f"{given.rows} has no trace of {given.tasks:,} tasks with all designs")
    if given.picture:
        draw(rows, given.picture)
    text = tables(rows)
    given.rows.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)
    print("\n".join(figures(rows, given.tasks)))


def figures(rows: Sequence[Row], tasks: int) -> list[str]:
    """Traces done and CPU minutes, in the usual form."""
    minutes, done = minutes_on_2_cores(rows), len(traces_of(rows))
    whole = done == workloads.TRACES and tasks == workloads.TASKS
    fresh = {row["sources"] for row in rows} == {sources()}
    goal = "<=20" if whole else "none"
    return [
        f"figure frames_grid_traces {done} traces goal {workloads.TRACES} {'ok' if whole else 'short'}",
        f"figure frames_grid_of_these_sources {int(fresh)} yes goal 1 {'ok' if fresh else 'short'}",
        f"figure frames_grid_minutes_on_2_cores {minutes:.4g} min goal {goal} {'ok' if minutes <= 20 else 'short'}",
    ]


if __name__ == "__main__":
    main()
