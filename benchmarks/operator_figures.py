"""`make bench-operator`: what an operator may rely on, part by part; portions add up in out/operator.json.

Each part is a run of its own (`--part stateful --seed 3 --sequences 60`); without one, all are run in an order that
fits into fifty minutes. The end prints a line for every row of the table, measured in the portions of the same sources
or said not to be.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import trust_tally
from trust_tally import Portion

import wattflow

UNDER_TEST = ("kube", "live", "engine", "levels")
RECORD = Path("out/operator.json")


def sources() -> str:
    """A hash of the code under test."""
    root, digest = Path(wattflow.__file__).parent, hashlib.sha256()
    for path in sorted(path for name in UNDER_TEST for path in (root / name).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


SOURCES = sources()
"""As they are at the start: a portion counts for what it was run with."""


def stateful(options: argparse.Namespace) -> Portion:
    """Drawn sequences on a small cluster; see `operator_stateful`."""
    import operator_stateful as drawn

    counts = dict.fromkeys(("sequences", "acts", "ended", "overcommitted", "lost", "uncordoned", "stepped down"), 0.0)
    failures: list[str] = []
    began_s = time.monotonic()
    policy = ("wattflow", "least-energy:sleep=1")[options.seed % 2]
    with drawn.ground(options.nodes or 8, policy) as at:
        for i in range(options.sequences):
            if time.monotonic() - began_s > 60 * options.minutes:
                break
            number = 10_000 * options.seed + i
            done, found = drawn.sequence(at, number)
            counts["sequences"] += 1
            counts["acts"] += len(done)
            for kind, texts in found.items():
                counts[kind] += len(texts)
                if kind != "stepped down":
                    failures += [f"seed {number} {kind}: {text}; after {'; '.join(done)}" for text in texts]
            if i % 10 == 9 or any(found.values()):
                print(f"{i + 1} sequences, {time.monotonic() - began_s:.0f} s", *failures[-1:], flush=True)
    return _portion("stateful", options.seed, began_s, counts, failures)


def curves(options: argparse.Namespace) -> Portion:
    """Node curves fitted to a week of metrics with noise, gaps and restarts, against the truth that made them."""
    import operator_curves

    began_s = time.monotonic()
    worst = operator_curves.worst(range(10 * options.seed, 10 * options.seed + 10))
    return _portion(
        "curves", options.seed, began_s, {}, [], {f"bend {bend:g}": 100 * off for bend, off in worst.items()}
    )


def sleep(options: argparse.Namespace) -> Portion:
    """A recorded day on nodes that sleep; see `operator_sleep`."""
    import operator_sleep

    began_s = time.monotonic()
    counts, worst, failures = operator_sleep.played(options.nodes or 1000, options.minutes, options.seed)
    return _portion("sleep", options.seed, began_s, counts, failures, worst)


def _portion(
    part: str,
    seed: int,
    began_s: float,
    counts: dict[str, float],
    failures: list[str],
    worst: dict[str, float] | None = None,
) -> Portion:
    took_s = time.monotonic() - began_s
    return Portion(
        part=part, seed=seed, took_s=took_s, counts=counts, worst=worst or {}, failures=failures, sources=SOURCES
    )


PARTS: dict[str, Callable[[argparse.Namespace], Portion]] = {"stateful": stateful, "curves": curves, "sleep": sleep}


def figure(name: str, value: float | None, unit: str, goal: str, ok: bool) -> None:
    """Print one line."""
    shown = "not-measured" if value is None else f"{value:.4g}"
    print(f"figure operator_{name} {shown} {unit} goal {goal} {'ok' if ok and value is not None else 'short'}")


def report(record: Path) -> None:
    """Print every row of the table, over all portions against these sources."""
    mine = SOURCES
    known = [one for one in trust_tally.read(record) if one.sources == mine]
    summed = {
        name: trust_tally.summed([one for one in known if one.part == name])
        for name in PARTS
        if any(one.part == name for one in known)
    }
    _stateful_lines(summed.get("stateful"))
    _sleep_lines(summed.get("sleep"))
    found = summed.get("curves")
    off = max(found.worst.values()) if found is not None else None
    figure("curves_off_at_most", off, "%", "≤5", off is not None and off <= 5)
    elsewhere = {
        "e2e_specs_passed": ("specs", "23", "make test-conformance"),
        "argo_examples_alike": ("workflows", "≥60", "make test-conformance"),
        "spread_of_8_over_8_nodes": ("replicas_elsewhere", "0", "tests/cluster/test_scheduler_scores.py"),
        "install_typed": ("s", "≤300", "make test-install"),
        "binds_over_unthrottled": ("times", "≥1.5", "make bench-kube"),
        "p99_at_100_pods_a_second": ("ms", "≤250", "make bench-kube"),
        "memory_at_5000_nodes": ("MB", "≤1000", "make bench-kube"),
    }
    for name, (unit, goal, command) in elsewhere.items():
        print(f"operator: {name} is measured by {command}")
        figure(name, None, unit, goal, ok=False)
    for one in summed.values():
        for failure in one.failures[:5]:
            print(f"failure {one.part}: {failure[:600]}")


def _stateful_lines(found: Portion | None) -> None:
    counts = found.counts if found is not None else {}
    count = counts.get("sequences")
    figure("sequences", count, "sequences", "≥300", (count or 0) >= 300)
    for kind in ("ended", "overcommitted", "lost", "uncordoned"):
        figure(kind, counts.get(kind), "times", "0", counts.get(kind) == 0)
    figure("leaders_that_lost_their_lease", counts.get("stepped down"), "times", "none", ok=True)


def _sleep_lines(found: Portion | None) -> None:
    counts = found.counts if found is not None else {}
    worst = found.worst if found is not None else {}
    figure("sleep_nodes", worst.get("nodes"), "nodes", "1000", worst.get("nodes", 0) >= 1000)
    figure("foreign_cordons_touched", counts.get("touched"), "nodes", "0", counts.get("touched") == 0)
    figure("waited_without_need", counts.get("waited"), "pods", "0", counts.get("waited") == 0)
    for name, goal in (("saved_against_all_on", 35.0), ("saved_against_kubernetes_600", 15.0)):
        value = worst.get(name)
        figure(name, value, "%", f"≥{goal:g}", value is not None and value >= goal)


def main() -> None:
    """Run one part or all, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "report"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=0, help="default: 8 for sequences, 1000 for the day")
    parser.add_argument("--sequences", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=0.0, help="at most, of one part")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    limits = {"stateful": 28.0, "curves": 1.0, "sleep": 10.0}
    for name in [options.part] if options.part else PARTS:
        if name != "report":
            chosen = argparse.Namespace(**(vars(options) | {"minutes": options.minutes or limits[name]}))
            trust_tally.recorded(options.record, PARTS[name](chosen))
    report(options.record)


if __name__ == "__main__":
    main()
