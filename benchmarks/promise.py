"""The promise on the ground that judges: fewer joules, and nobody waits (`make bench-promise`).

    python benchmarks/promise.py [--minutes 50] [--estimates 20,100,…] [--no-sweep] [--part K/N] [--bounds] [--keep]

Every stream of `ground.places` under our shielded policy, `kubernetes` all on and with nodes off after 600 s, and a
sweep of plain rules × time-outs, of which the best that keeps the bound is known in hindsight only. A call goes on for
so many minutes; what it found is kept in OUT/streams*.jsonl by the sources that made it, so portions add up, also those
that run beside each other (`--part K/N`: each has places and a file of its own). `--no-sweep` leaves out the sweep and
the lower bound, half of the time; such streams do not count there. `--bounds` computes the bound for streams that are
known without. `--keep` writes all rows to research/results/promise.jsonl.gz, which belongs to the repository: a portion
on another machine goes on from there; rows of other sources stay in it until the same stream is kept anew. Figures of
the live side (`--live`) and of predictions are read from OUT/other.json, where their benchmarks left them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import ground
import numpy as np
from ground import Place
from policy_runs import deciding

from research import judge as judging
from research import stream_bound
from research.judge import ERROR, Judge, Verdict

OURS, BASE, SLEEPING = "wattflow:shield=kubernetes", "kubernetes", "kubernetes:sleep=600"
RULES = ("eft", "eft:order=work", "heft", "kubernetes", "least-energy", "most-allocated")
TIMEOUTS = ("", "sleep=30", "sleep=120", "sleep=600")


def with_settings(rule: str, setting: str) -> str:
    """A rule with one more setting, as it is typed."""
    return f"{rule}:{setting}" if setting else rule


SWEEP = tuple(with_settings(rule, after) for rule in RULES for after in TIMEOUTS)
"""Plain rules × none, 30, 120 and 600 s."""
ROUND = 9
"""Places of `ground.stratified`'s rounds."""
FEW = (OURS, BASE, SLEEPING)
"""What runs where estimates are worse than usual."""
USUAL, WORSE = "20", ("100", "unknown", "biased")
SHOWN = ("exact", "50", ground.PREDICTED)
"""Other estimates, shown without a goal."""
OTHER = {
    "live_cpu_of_a_core": ("%", "≤5"), "live_p99_of_a_decision": ("times", "≤1.05"),
    "live_doubled_load_answered": ("workflows", "≤10"), "prediction_sets_where_plain_wins": ("sets", "0"),
}  # fmt: skip
"""Figures that other benchmarks measure."""
KEPT = Path(judging.__file__).parent / "results" / "promise.jsonl.gz"
"""Portions that the repository keeps."""
FIGURES = tuple(field.name for field in fields(Verdict) if field.name != "policy")
Row = dict[str, Any]


def measure(place: Place, sweep: bool = True) -> Row:
    """One stream: every policy beside the reference, and the lower bound on its joules."""
    judge = Judge(place.stream())
    names = dict.fromkeys((*FEW, *SWEEP) if sweep and place.estimates == USUAL else FEW)
    found = {name: asdict(judge.verdict(name)) for name in names}
    return {
        "place": asdict(place), "workflows": judge.stream.workflows, "doubt": judge.doubt, "grows": judge.grows,
        "keeps_itself": judge.keeps_itself, "bound": bound_of(judge, found) if sweep else None, "policies": found,
    }  # fmt: skip


def bound_of(judge: Judge, found: dict[str, Row]) -> float:
    """Joules that no schedule undercuts in which nobody waits longer than the bound allows, over the reference's."""
    base_j = float(np.mean([one.energy_j for one in judge.base])) * found[BASE]["energy"]
    least_j = stream_bound.least_joules(judge.workload, judge.stream.cluster, judge.due_s, judge.horizon_s)
    return float(least_j / base_j)


def with_bound(row: Row) -> Row:
    """A stream that is known, with its lower bound."""
    return row | {"bound": bound_of(Judge(Place(**row["place"]).stream(row["workflows"])), row["policies"])}


@cache
def stamp() -> str:
    """The sources that decide a stream's figures: package, judge and ground."""
    judges = [Path(file) for file in (ground.__file__, judging.__file__)]
    return deciding(*judges, *sorted(ground.FOLDER.glob("*.toml")))


def packed(row: Row) -> Row:
    """A row as it is kept: figures without their names, to six digits."""
    policies = {name: [float(f"{found[figure]:.6g}") for figure in FIGURES] for name, found in row["policies"].items()}
    return row | {"place": list(row["place"].values()), "policies": policies}


def unpacked(row: Row) -> Row:
    """A row as it was measured."""
    policies = {
        name: {"policy": name, **dict(zip(FIGURES, found, strict=True))} for name, found in row["policies"].items()
    }
    return row | {"place": asdict(Place(*row["place"])), "policies": policies}


def kept_rows(path: Path) -> list[Row]:
    """Rows of a file of the repository as they stand there, whatever sources made them; none without the file."""
    text = gzip.decompress(path.read_bytes()).decode() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def keep_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a file of the repository; without a time in it, so that the same rows are the same bytes."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def kept(path: Path) -> list[Row]:
    """Streams of a kept file."""
    return [unpacked(row) for row in kept_rows(path)]


def keep(path: Path, rows: Iterable[Row], sources: str) -> None:
    """Put rows of these sources into a kept file, in place of those of the same streams."""
    found = {Place(**row["place"]): row for row in kept(path)}
    found |= {Place(**row["place"]): row | {"stamp": sources} for row in rows}
    keep_rows(path, [packed(found[place]) for place in sorted(found, key=str)])


class Record:
    """Rows of these sources, in memory and in a file that a later call goes on with."""

    def __init__(self, folder: Path, part: int, before: Path = KEPT) -> None:
        self.path, self.stamp, self.rows = folder / f"streams-{part}.jsonl", stamp(), {}
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            line for path in sorted(folder.glob("streams*.jsonl")) for line in path.read_text("utf-8").splitlines()
        ]
        # Rows with a bound last: they stand for those without.
        for row in sorted([*kept(before), *map(json.loads, lines)], key=lambda row: row["bound"] is not None):
            if row.pop("stamp") == self.stamp:
                self.rows[Place(**row["place"])] = row

    rows: dict[Place, Row]

    def add_bounds(self, minutes: float) -> None:
        """Compute the bound of streams that are known without one."""
        end = time.monotonic() + 60.0 * minutes
        with self.path.open("a", encoding="utf-8") as file:
            for place, row in self.rows.items():
                if row["bound"] is None and time.monotonic() < end:
                    self.rows[place] = with_bound(row)
                    file.write(json.dumps(self.rows[place] | {"stamp": self.stamp}) + "\n")
                    file.flush()

    def run(self, places: Iterable[Place], make: Callable[[Place], Row], workers: int, minutes: float) -> None:
        """Measure what is missing until the time is over; streams that have begun are finished."""
        missing = [place for place in places if place not in self.rows]
        print(f"{len(missing)} streams to go, {len(self.rows)} known", flush=True)
        end = time.monotonic() + 60.0 * minutes
        with ProcessPoolExecutor(workers) as pool, self.path.open("a", encoding="utf-8") as file:
            under_way: set[Any] = set()
            while (missing and time.monotonic() < end) or under_way:
                while missing and len(under_way) < workers and time.monotonic() < end:
                    under_way.add(pool.submit(make, missing.pop(0)))
                done, under_way = wait(under_way, return_when="FIRST_COMPLETED")
                for row in (future.result() for future in done):
                    self.rows[Place(**row["place"])] = row
                    file.write(json.dumps(row | {"stamp": self.stamp}) + "\n")
                file.flush()


def verdict(row: Row, policy: str) -> Verdict:
    return Verdict(**row["policies"][policy])


def joules(row: Row, policy: str, beside: str = BASE) -> float:
    """Joules over another policy's on the same stream."""
    return verdict(row, policy).energy / verdict(row, beside).energy


def hindsight(row: Row) -> str:
    """The plain rule with the fewest joules of those that keep the bound."""
    able = [name for name in SWEEP if verdict(row, name).kept] or [BASE]
    return min(able, key=lambda name: verdict(row, name).energy)


def was_swept(row: Row) -> bool:
    return all(name in row["policies"] for name in SWEEP)


def geometric(values: Iterable[float]) -> float:
    known = list(values)
    return float(np.exp(np.mean(np.log(known)))) if known else math.nan


def share_kept(rows: Sequence[Row], policy: str) -> float:
    return 100.0 * float(np.mean([verdict(row, policy).kept for row in rows])) if rows else math.nan


def line(name: str, value: float, unit: str, goal: str) -> str:
    """A figure; one that was not measured falls short."""
    limit = float(goal.lstrip("≤≥"))
    good = value >= limit if goal.startswith("≥") else value <= limit
    return f"figure promise_{name} {value:.3f} {unit} goal {goal} {'ok' if good else 'short'}"


def on_all(rows: Sequence[Row]) -> list[str]:
    """Figures of the usual estimates."""
    steady = [row for row in rows if not row["grows"]]
    equal = [row for row in rows if row["place"]["cluster"] == ground.EQUAL]
    swept = [row for row in rows if was_swept(row)]
    bounded = [row for row in rows if row["bound"] is not None]
    lines = [
        line("streams", len(rows), "streams", "≥300"),
        line("streams_sure_to_1_pct", 100.0 * mean(row["doubt"] <= ERROR for row in rows), "%", "≥100"),
        line("kept", share_kept(rows, OURS), "%", "≥97"),
        line("worst_p95", worst(verdict(row, OURS).p95 for row in rows), "times", "≤1.10"),
        line("deadlines_newly_missed", sum(verdict(row, OURS).newly_late for row in rows), "workflows", "≤0"),
        line("joules_over_all_on", geometric(joules(row, OURS) for row in rows), "times", "≤0.68"),
        line("joules_over_600_s", geometric(joules(row, OURS, SLEEPING) for row in rows), "times", "≤0.71"),
        line("joules_over_hindsight", geometric(joules(row, OURS, hindsight(row)) for row in swept), "times", "≤0.92"),
        line("equal_kept", share_kept(equal, OURS), "%", "≥97"),
        line("equal_joules_over_600_s", geometric(joules(row, OURS, SLEEPING) for row in equal), "times", "≤0.83"),
        line("worst_joules_over_600_s", worst(joules(row, OURS, SLEEPING) for row in rows), "times", "≤1.03"),
        line("joules_over_integer_bound", median(joules(r, OURS) / r["bound"] for r in bounded), "times", "≤1.35"),
    ]  # fmt: skip
    plain = (
        ("reference_keeps_itself", 100.0 * mean(row["keeps_itself"] for row in rows), "%"),
        ("backlog_grows", 100.0 * mean(row["grows"] for row in rows), "%"),
        ("kept_where_it_does_not_grow", share_kept(steady, OURS), "%"),
        ("kept_600_s", share_kept(rows, SLEEPING), "%"),
        ("joules_of_600_s_over_all_on", geometric(joules(row, SLEEPING) for row in rows), "times"),
        ("joules_of_hindsight_over_all_on", geometric(joules(row, hindsight(row)) for row in swept), "times"),
        ("streams_swept", len(swept), "streams"),
        ("streams_bounded", len(bounded), "streams"),
        ("bound_over_all_on", median(row["bound"] for row in bounded), "times"),
    )
    return lines + [f"figure promise_{name} {value:.3f} {unit} goal none ok" for name, value, unit in plain]


def on_worse(rows: Sequence[Row], estimates: str) -> list[str]:
    """Figures of worse estimates."""
    return [
        line(f"estimates_{estimates}_kept", share_kept(rows, OURS), "%", "≥95"),
        line(f"estimates_{estimates}_joules_over_all_on", geometric(joules(r, OURS) for r in rows), "times", "≤0.85"),
    ]


def worst(values: Iterable[float]) -> float:
    return max(values, default=math.nan)


def mean(values: Iterable[float]) -> float:
    known = list(values)
    return float(np.mean(known)) if known else math.nan


def median(values: Iterable[float]) -> float:
    known = list(values)
    return float(np.median(known)) if known else math.nan


def table(rows: Sequence[Row]) -> list[str]:
    """By cluster: joules, waiting, kept."""
    text = ["| cluster | streams | joules / all on | / 600 s | mean | p95 | kept | 600 s keeps | best in hindsight |"]
    text.append("|---|---|---|---|---|---|---|---|---|")
    for cluster in (ground.EQUAL, *ground.OTHERS):
        some = [row for row in rows if row["place"]["cluster"] == cluster]
        if some:
            figures = [
                geometric(joules(row, OURS) for row in some), geometric(joules(row, OURS, SLEEPING) for row in some),
                geometric(verdict(row, OURS).mean for row in some), geometric(verdict(row, OURS).p95 for row in some),
            ]  # fmt: skip
            best = geometric(joules(row, hindsight(row)) for row in some if was_swept(row))
            cells = [f"{value:.3f}" for value in figures]
            cells += [f"{share_kept(some, OURS):.0f} %", f"{share_kept(some, SLEEPING):.0f} %", f"{best:.3f}"]
            text.append(f"| {cluster} | {len(some)} | {' | '.join(cells)} |")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=50.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--estimates", default=",".join((USUAL, *WORSE, *SHOWN)))
    parser.add_argument(
        "--no-sweep", dest="sweep", action="store_false", help="leave out plain rules × time-outs, bounds"
    )
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every Nth round of nine streams, from the Kth on")
    parser.add_argument("--bounds", action="store_true", help="lower bounds of known streams alone")
    parser.add_argument("--live", action="store_true", help="what the shield costs a live engine, alone")
    parser.add_argument("--keep", action="store_true", help="write all rows to the repository's file")
    parser.add_argument("--out", type=Path, default=Path("out/promise"))
    given = parser.parse_args()
    if given.live:
        import promise_live

        promise_live.measure(given.out)
        return
    part, parts = map(int, given.part.split("/"))
    record = Record(given.out, part)
    kinds = given.estimates.split(",")
    shares = [ground.places(kind) for kind in kinds]
    places = [place for some in zip(*shares, strict=True) for place in some]
    if given.bounds:
        record.add_bounds(given.minutes)
    else:
        # Whole rounds: single places would give a part the clusters of one cell alone.
        mine = [place for i, place in enumerate(places) if i // (ROUND * len(kinds)) % parts == part - 1]
        record.run(mine, partial(measure, sweep=given.sweep), given.workers, given.minutes)
    if given.keep:
        keep(KEPT, record.rows.values(), record.stamp)
    rows = {
        kind: [row for place, row in record.rows.items() if place.estimates == kind] for kind in (USUAL, *WORSE, *SHOWN)
    }
    print("\n".join(table(rows[USUAL])))
    lines = on_all(rows[USUAL])
    for kind in WORSE:
        lines += on_worse(rows[kind], kind)
    for kind in SHOWN:
        lines.append(f"figure promise_estimates_{kind}_kept {share_kept(rows[kind], OURS):.3f} % goal none ok")
    other = given.out / "other.json"
    known = json.loads(other.read_text(encoding="utf-8")) if other.exists() else {}
    lines += [line(name, known.get(name, math.nan), unit, goal) for name, (unit, goal) in OTHER.items()]
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
