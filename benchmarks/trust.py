"""Nothing that one user, one task or one bad file does stops it for the others (`make bench-trust`).

Each part is run in portions (`--part`, `--seed`, `--count`, `--seconds`), which add up in a file with their seeds, the
commit and every failure. Without `--part` all parts run once, in under fifty minutes. The figures at the end are those
of everything in the file that was measured on the sources as they are now; a part that was never run has none, and
says so.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trust_tally import Portion, read, recorded, summed


class Figure(NamedTuple):
    """A number of a part: where it is found, and what it should be."""

    name: str
    part: str
    key: str
    unit: str
    goal: str
    least: float = -math.inf
    most: float = math.inf


FIGURES = (
    Figure("trust_poison_cases", "poison", "cases", "cases", ">=2000", least=2000),
    Figure("trust_poison_processes_ended", "poison", "ended", "processes", "0", most=0),
    Figure("trust_poison_neighbours_disturbed", "poison", "disturbed", "tasks", "0", most=0),
    Figure("trust_poison_stuck", "poison", "stuck", "cases", "0", most=0),
    Figure("trust_poison_stumbled", "poison", "stumbled", "cases", "0", most=0),
    Figure("trust_stateful_sequences", "stateful", "sequences", "sequences", ">=500", least=500),
    *(Figure(f"trust_stateful_{key.replace(' ', '_')}", "stateful", key, "tasks", "0", most=0)
      for key in ("lost", "doubled", "wrong", "stuck", "left behind", "odd")),
    Figure("trust_api_requests", "api", "requests", "requests", ">=5000", least=5000),
    Figure("trust_api_5xx", "api", "stumbles", "answers", "0", most=0),
    Figure("trust_api_hangs", "api", "hangs", "requests", "0", most=0),
    Figure("trust_flood_nodes_lost", "flood", "lost", "nodes", "0", most=0),
    Figure("trust_flood_p99_over_quiet", "flood", "p99_ratio", "x", "<=2", most=2),
    Figure("trust_pause_attempts_repeated", "pause", "repeated", "attempts", "0", most=0),
    Figure("trust_pause_longest", "pause", "paused_s", "s", ">=60", least=60),
    Figure("trust_standby_takes_over", "standby", "takeover_s", "s", "<=10", most=10),
    Figure("trust_standby_lost", "standby", "lost", "tasks", "0", most=0),
    Figure("trust_standby_doubled", "standby", "doubled", "tasks", "0", most=0),
    Figure("trust_budget_exceeded", "budget", "exceeded_j", "J", "<=0", most=0),
    Figure("trust_ledger_against_meters", "budget", "ledger_error", "%", "<=1", most=1),
    Figure("trust_audit_missing", "budget", "audit_missing", "entries", "0", most=0),
    Figure("trust_fleet_server_cpu", "fleet", "cpu", "cores", "<=1", most=1),
    Figure("trust_fleet_rss_growth", "fleet", "growth", "%", "<=5", most=5),
    Figure("trust_fleet_rate", "fleet", "rate", "tasks/s", ">=200", least=200),
    Figure("trust_windows_per_node_day", "windows", "mb", "MB", "<=0.5", most=0.5),
    Figure("trust_rate_over_dask", "stood", "rate_ratio", "x", ">=2", least=2),
    Figure("trust_warm_start_p50", "stood", "warm_ms", "ms", "<=10", most=10),
    Figure("trust_step_p99", "stood", "step_ms", "ms", "<=1", most=1),
    Figure("trust_process_per_task_over_dask", "stood", "typed_ratio", "x", ">=0.6", least=0.6),
)  # fmt: skip


def poison(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_poison import portion

    return [portion(folder, options.seed, options.count or 700)]


def stateful(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_stateful import portion

    return [portion(options.seed, options.count or 500, options.seconds or 900.0)]


def api(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_api import portions

    return portions(folder, options.seed, options.count or 40, 400)


def pause(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_outage import paused

    return [paused(folder, options.seed, options.seconds or 60.0)]


def standby(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_outage import taken_over

    return [taken_over(folder, options.seed)]


def fleet(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_fleet import portion

    return [portion(folder, options.seed, options.seconds or 120.0, options.count or 1000)]


def windows(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_windows import portion

    return [portion(folder, options.seed)]


def budget(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_budget import portion

    return [portion(folder, options.seed, options.count or 40)]


def stood(folder: Path, options: argparse.Namespace) -> list[Portion]:
    from trust_stood import portion

    return [portion(folder, options.seed, options.count or 2000)]


PARTS: dict[str, Callable[[Path, argparse.Namespace], list[Portion]]] = {
    "poison": poison, "stateful": stateful, "api": api, "pause": pause, "standby": standby, "fleet": fleet,
    "windows": windows, "budget": budget, "stood": stood,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=[*PARTS, "none"], help="one part instead of all; none: only the figures")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--count", type=int, help="cases, sequences, requests of each operation, or tasks")
    parser.add_argument("--seconds", type=float, help="how long a part may take, or a pause lasts")
    parser.add_argument("--record", type=Path, default=Path("out/trust.json"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the end of a block still tidies up
    for name in [options.part] if options.part else PARTS:
        if name != "none":
            run(name, options)
    return tell(read(options.record))


def run(name: str, options: argparse.Namespace) -> None:
    """One portion of a part; what could not be run is a failure of its own, and the other parts go on."""
    with tempfile.TemporaryDirectory(prefix="wattflow-trust-", ignore_cleanup_errors=True) as folder:
        try:
            found = PARTS[name](Path(folder), options)
        except Exception as error:
            what = f"could not be run: {type(error).__name__}: {error}"
            found = [Portion(part=name, seed=options.seed, took_s=0.0, failures=[what])]
    for portion in found:
        every = summed(recorded(options.record, portion))
        print(
            f"# {portion.part}, seed {portion.seed}: {portion.counts} {portion.worst}; so far {every.counts}",
            flush=True,
        )
        for failure in portion.failures[:10]:
            print(f"#   {failure[:500]}", flush=True)


def measured(figure: Figure, portions: Sequence[Portion]) -> float:
    """A figure over all portions of its part: a sum, or the least good of single measurements; NaN where none is."""
    single = [portion.worst[figure.key] for portion in portions if figure.key in portion.worst]
    if single:
        return max(single) if figure.most < math.inf else min(single)
    return summed(portions).counts.get(figure.key, math.nan) if portions else math.nan


def tell(portions: Sequence[Portion]) -> int:
    """One line per figure; 1 where one falls short."""
    from chaos_tally import sources

    mine = [portion for portion in portions if portion.sources == sources()]
    short = 0
    for figure in FIGURES:
        value = measured(figure, [portion for portion in mine if portion.part == figure.part])
        ok = figure.least <= value <= figure.most
        short += not ok
        print(f"figure {figure.name} {value:.4g} {figure.unit} goal {figure.goal} {'ok' if ok else 'short'}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
