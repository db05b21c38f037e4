"""`make bench-operator`: what an operator may rely on, part by part; portions add up in out/operator.json.

Each part is a run of its own (`--part stateful --seed 3 --sequences 60`); without one, all are run, and one that has a
portion against the same sources already is not run again, so a run that was cut short goes on where it stopped
(`--again` runs all anew). The end prints a line for every row of the table, measured in the portions of the same
sources or said not to be: also after a part that failed, which costs its own rows alone and the exit code.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import traceback
from collections.abc import Callable, Sequence
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
    policy = options.policy or operator_sleep.POLICY
    counts, worst, failures = operator_sleep.played(options.nodes or 1000, options.minutes, options.seed, policy)
    # of another policy: kept, but no part of the row
    name = "sleep" if policy == operator_sleep.POLICY else f"sleep by {policy}"
    return _portion(name, options.seed, began_s, counts, failures, worst)


def offline(options: argparse.Namespace) -> Portion:
    """The same day in the simulator, with what no scheduler can exceed."""
    import operator_sleep

    began_s = time.monotonic()
    number = options.day or operator_sleep.DAY
    worst = operator_sleep.offline(options.nodes or 1000, options.minutes, options.seed, number, options.lag)
    # of another day, or with a lag: kept, but no part of the row
    own = number == operator_sleep.DAY and not options.lag
    name = "offline" if own else f"offline of day {number} with a lag of {options.lag:g} s"
    print(name, *(f"{key}: {value:.4g}" for key, value in worst.items()), sep="\n  ", flush=True)
    return _portion(name, options.seed, began_s, {}, [], worst)


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


def _of_rig(name: str) -> Callable[[argparse.Namespace], Portion]:
    """Return a part that another benchmark measures; see `operator_rig`."""

    def part(options: argparse.Namespace) -> Portion:
        import operator_rig

        began_s = time.monotonic()
        worst, failures = getattr(operator_rig, name)()
        return _portion(name, options.seed, began_s, {}, failures, worst)

    return part


ON_RIG = ("spread", "binds", "memory", "install", "conformance")
PARTS: dict[str, Callable[[argparse.Namespace], Portion]] = {
    "curves": curves, "offline": offline, "sleep": sleep, **{name: _of_rig(name) for name in ON_RIG},
    "stateful": stateful,
}  # fmt: skip
SEQUENCES = 300


def _done(name: str, known: Sequence[Portion]) -> bool:
    """Tell whether a part's portions against these sources are enough for its row."""
    own = [one for one in known if one.part == name and one.sources == SOURCES]
    if name == "stateful":
        return sum(one.counts.get("sequences", 0) for one in own) >= SEQUENCES
    return any(one.worst for one in own)  # one that brought no figure is tried again


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
    simulated = summed["offline"].worst if "offline" in summed else {}
    for name in ("at_most", "simulated", "decided"):
        for rival in ("all_on", "kubernetes_600"):
            figure(f"{name}_against_{rival}", simulated.get(f"{name}_against_{rival}"), "%", "none", ok=True)
    found = summed.get("curves")
    off = max(found.worst.values()) if found is not None else None
    figure("curves_off_at_most", off, "%", "≤5", off is not None and off <= 5)
    _rig_lines({one.part: one.worst for one in known if one.part in ON_RIG and one.worst})
    for one in summed.values():
        for failure in one.failures[:5]:
            print(f"failure {one.part}: {failure[:600]}")


def _rig_lines(found: dict[str, dict[str, float]]) -> None:
    """Print the rows that other benchmarks measure, each by its last portion."""
    specs = found.get("conformance", {})
    control, ended = specs.get("control"), specs.get("ended")
    _most("spread_of_8_over_8_nodes", found, "spread", "elsewhere", "replicas_elsewhere", 0)
    _most("install_typed", found, "install", "s", "s", 300)
    _most("p99_at_100_pods_a_second", found, "binds", "p99_ms", "ms", 250)
    theirs = found.get("binds", {}).get("theirs_p99_ms")
    figure("p99_at_100_pods_a_second_of_kube_scheduler", theirs, "ms", "none", ok=True)
    _most("memory_at_5000_nodes", found, "memory", "mb", "MB", 1000)
    over, passed, alike = found.get("binds", {}).get("over"), specs.get("passed"), specs.get("alike")
    figure("binds_over_unthrottled", over, "times", "≥1.5", (over or 0) >= 1.5)
    asked = max(23.0, control or 0)
    figure("e2e_specs_passed", passed, "specs", f"{asked:g}", (passed or 0) >= asked)
    figure("argo_examples_alike", alike, "workflows", f"{max(60.0, ended or 0):g}", (alike or 0) >= max(60, ended or 0))


def _most(name: str, found: dict[str, dict[str, float]], part: str, key: str, unit: str, goal: float) -> None:
    value = found.get(part, {}).get(key)
    figure(name, value, unit, f"≤{goal:g}" if goal else "0", value is not None and value <= goal)


def _stateful_lines(found: Portion | None) -> None:
    counts = found.counts if found is not None else {}
    count = counts.get("sequences")
    figure("sequences", count, "sequences", f"≥{SEQUENCES}", (count or 0) >= SEQUENCES)
    for kind in ("ended", "overcommitted", "lost", "uncordoned"):
        figure(kind, counts.get(kind), "times", "0", counts.get(kind) == 0)
    figure("leaders_that_lost_their_lease", counts.get("stepped down"), "times", "none", ok=True)


def _sleep_lines(found: Portion | None) -> None:
    counts = found.counts if found is not None else {}
    worst = found.worst if found is not None else {}
    figure("sleep_nodes", worst.get("nodes"), "nodes", "1000", worst.get("nodes", 0) >= 1000)
    left = worst.get("pods that did not end")
    figure("sleep_pods_that_did_not_end", left, "pods", "0", left == 0)
    figure("foreign_cordons_touched", counts.get("touched"), "nodes", "0", counts.get("touched") == 0)
    figure("waited_without_need", counts.get("waited"), "pods", "0", counts.get("waited") == 0)
    for name, goal in (("saved_against_all_on", 35.0), ("saved_against_kubernetes_600", 15.0)):
        value = worst.get(name)
        figure(name, value, "%", f"≥{goal:g}", value is not None and value >= goal and left == 0)


def main() -> None:
    """Run one part or all, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "report"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=0, help="default: 8 for sequences, 1000 for the day")
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("--minutes", type=float, default=0.0, help="at most, of one part")
    parser.add_argument("--policy", default="", help="of the day of sleep, other than its own")
    parser.add_argument("--day", type=int, default=0, help="of the log, for the day without a rig")
    parser.add_argument("--lag", type=float, default=0.0, help="seconds that each word takes, on the day without a rig")
    parser.add_argument("--again", action="store_true", help="run parts that have been measured, too")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    failed: list[str] = []
    try:
        for name in [options.part] if options.part else PARTS:
            done = not options.part and not options.again and _done(name, trust_tally.read(options.record))
            if name != "report" and not done and not _ran(name, options):
                failed.append(name)
    finally:
        report(options.record)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _ran(name: str, options: argparse.Namespace) -> bool:
    """Run one part and record its portion; tell whether it came to its end."""
    limits = {"stateful": 12.0, "sleep": 12.0, "offline": 12.0}
    chosen = argparse.Namespace(**(vars(options) | {"minutes": options.minutes or limits.get(name, 0.0)}))
    try:
        trust_tally.recorded(options.record, PARTS[name](chosen))
    except (Exception, SystemExit):  # whatever it was: the other rows do not depend on it
        print(f"{name} failed:", traceback.format_exc(), sep="\n", flush=True)
        return False
    return True


if __name__ == "__main__":
    main()
