"""The flagship beside every other policy: energy under a bound on waiting (`make bench-policy`).

    python benchmarks/policy.py [--seeds 5] [--first-seed 0] [--workers 16] [--clusters …] [--out FOLDER]

Streams of workflows (Poisson arrivals) at three loads on eight clusters, estimates off by 20 %, ties drawn by the seed,
joules to the baseline's last end or to a later one of the policy's own. A policy keeps the bound in a scenario if
its mean and p95 response of workflows and its makespan, means over the seeds, are at most 1.02 × those of `kubernetes`
with all nodes on. Of the policies that keep it and do not know the future, the one with the fewest joules is the
opponent of that scenario; one that breaks the bound on each of the first two seeds is not run on the others. Numbers of
our policy were chosen on seeds from 1000 on. Results are kept in OUT/results.jsonl as they come: a second call goes on.
OUT/table.md holds every scenario as a table, OUT/front.png its picture.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import policy_picture
import policy_tables
from policy_runs import AWAKE, TRIAL, Batch, Book, Result, Scenario, Table, policy_of

from wattflow.policy import registry

LOADS = (0.3, 0.6, 0.8)
FAMILIES = ("montage", "map-reduce", "layered", "mixed")
CLUSTERS = ("mixed", "edge-cloud", "ichnos", "equal", "slow-wakers", "racks", "gpus", "functions")
REPORTED = (f"ichnos{AWAKE}",)
"""Reported, not judged: the same without the sleep states that were assumed for it."""
BOUND = 1.02
GOAL_PCT = 20.0
OURS, BASELINE, PUNCTUAL, ALGORITHM_1 = "wattflow", "kubernetes", "eft:sleep=120", "hpe:sleep=30"
AUTOSCALED = "kubernetes:sleep=600"
"""The baseline with nodes off after ten idle minutes, as cluster autoscalers do."""
ALWAYS = (OURS, BASELINE, AUTOSCALED, PUNCTUAL, ALGORITHM_1)
TYPED = (AUTOSCALED, *registry.ALIASES.values())
"""Settings of registered policies that take part."""
WAITS = (0.1, 0.3, 1.0, 3.0, math.inf)
"""Values of the dial that the picture shows beside 0."""
OUR_KIN = (OURS, "wattflow:order=path", "learned")
"""The flagship and what is made of it: shown beside it, no opponents."""
SEARCHES = "nsga2"
"""Knows the future and searches with hundreds of simulations: shown on one scenario, not judged."""
SHOWN = Scenario("mixed", "map-reduce", 0.3)
FIGURES = ("mean_s", "p95_s", "makespan_s")
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5 % points of Student's t by the number of seeds."""
TEXT: list[str] = []
"""Lines of the tables for people, as they come."""


def mean(results: list[Result], name: str) -> float:
    """Mean of a figure over the seeds."""
    return float(np.mean([getattr(result, name) for result in results]))


def over_baseline(table: Table, scenario: Scenario, policy: str, figure: str) -> float:
    """A figure over the baseline's on the same seeds, means over them."""
    ours = table[scenario, policy]
    seeds = {result.seed for result in ours}
    base = [result for result in table[scenario, BASELINE] if result.seed in seeds]
    return mean(ours, figure) / mean(base, figure)


def ratios(table: Table, scenario: Scenario, policy: str) -> tuple[float, float, float]:
    """Mean response, p95 response and makespan over those of the baseline."""
    mean_s, p95_s, makespan_s = (over_baseline(table, scenario, policy, figure) for figure in FIGURES)
    return mean_s, p95_s, makespan_s


def opponents(table: Table, scenario: Scenario, seeds: int, ours: tuple[str, ...] = OUR_KIN) -> list[str]:
    """Policies but ``ours`` that keep the bound and do not know the future, the most frugal first."""
    names = [name for (place, name) in table if place == scenario and name.partition(":")[0] not in ours]
    able = [
        name for name in names
        if len(table[scenario, name]) == seeds and not policy_of(name).knows_future
        and max(ratios(table, scenario, name)) <= BOUND
    ]  # fmt: skip
    return sorted(able, key=lambda name: mean(table[scenario, name], "energy_j"))


def hopeless(table: Table, scenario: Scenario, policy: str, first: range) -> bool:
    """Whether a policy breaks the bound on each of the first seeds."""
    base = {result.seed: result for result in table[scenario, BASELINE]}
    return all(
        max(getattr(result, f) / getattr(base[result.seed], f) for f in FIGURES) > BOUND
        for result in table[scenario, policy]
        if result.seed in first
    )


def log_ratio(table: Table, scenario: Scenario, ours: str, other: str) -> np.ndarray:
    """Logarithms of our joules over the other's, by seed."""
    pairs = zip(table[scenario, ours], table[scenario, other], strict=True)
    return np.array([math.log(a.energy_j / b.energy_j) for a, b in pairs])


def saved(logs: np.ndarray) -> tuple[float, float, float]:
    """Per cent saved, and the ends of a 95 % interval over seeds (paired, of the log ratio)."""
    half = STUDENT.get(len(logs), 1.96) * float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    centre = float(logs.mean())
    middle, low, high = (100.0 * (1.0 - math.exp(x)) for x in (centre, centre + half, centre - half))
    return middle, low, high


def newly_missed(table: Table, scenario: Scenario, policy: str) -> int:
    """Deadlines missed that `eft:sleep=120` meets, over all seeds."""
    pairs = zip(table[scenario, policy], table[scenario, PUNCTUAL], strict=True)
    return sum(len(set(ours.missed) - set(theirs.missed)) for ours, theirs in pairs)


def possible_pct(table: Table, scenario: Scenario, other: str) -> float:
    """What the lower bound on joules would leave to save against the other, per cent."""
    return 100.0 * (1.0 - mean(table[scenario, BASELINE], "bound_j") / mean(table[scenario, other], "energy_j"))


def report(table: Table, scenarios: list[Scenario], seeds: int, tag: str = "") -> list[str]:
    """A line per scenario, and the figures."""
    logs, rows, kept, missed = [], [], 0, 0
    print(
        f"\n{'scenario':28s} {'opponent':20s} {'saved %':>22s}  response  p95   makespan  late  possible %  ours/bound"
    )
    for scenario in scenarios:
        best = opponents(table, scenario, seeds)[0]
        own = log_ratio(table, scenario, OURS, best)
        logs.append(own)
        middle, low, high = saved(own)
        mean_r, p95_r, span_r = ratios(table, scenario, OURS)
        kept += max(mean_r, p95_r, span_r) <= BOUND
        late = newly_missed(table, scenario, OURS)
        missed += late
        gap = mean(table[scenario, OURS], "energy_j") / mean(table[scenario, BASELINE], "bound_j")
        leaves = possible_pct(table, scenario, best)
        rows.append(policy_tables.Row(scenario, best, (middle, low, high), (mean_r, p95_r, span_r), leaves, gap))
        print(
            f"{scenario.name:28s} {best:20s} {middle:6.1f} ({low:5.1f} … {high:5.1f})  "
            f"{mean_r:7.3f} {p95_r:6.3f} {span_r:7.3f} {late:6d} {leaves:8.1f} {gap:10.1f}"
        )
    total, low, high = saved(np.mean(logs, axis=0))
    print(f"all: {total:.1f} % ({low:.1f} … {high:.1f}), geometric mean over the scenarios")
    for cluster in dict.fromkeys(scenario.cluster for scenario in scenarios):
        some = [own for scenario, own in zip(scenarios, logs, strict=True) if scenario.cluster == cluster]
        print(f"  {cluster}: {'{:.1f} % ({:.1f} … {:.1f})'.format(*saved(np.mean(some, axis=0)))}")
    tight = [row for row in rows if row.leaves < GOAL_PCT]
    print(f"the lower bound leaves less than {GOAL_PCT:g} % in {len(tight)} of {len(rows)} scenarios")
    for row in tight:
        print(f"  {row.scenario.name}: it leaves {row.leaves:.1f} % against {row.opponent}; ours / bound {row.gap:.2f}")
    with_kin = kin_included(table, scenarios, seeds)
    TEXT.extend(policy_tables.savings(rows, BOUND))
    count = len(scenarios)
    goal = "goal none ok" if tag else f"goal ≥{GOAL_PCT:g} {verdict(total >= GOAL_PCT)}"
    return [
        f"figure policy{tag}_energy_below_best_opponent {total:.1f} % {goal}",
        f"figure policy{tag}_energy_below_kubernetes_600_s {below_autoscaled(table, scenarios):.1f} % goal none ok",
        f"figure policy{tag}_energy_below_best_with_learned_and_scp_wattflow {with_kin:.1f} % goal none ok",
        f"figure policy{tag}_scenarios_within_bound {kept} of {count} goal {count} {verdict(kept == count)}",
        f"figure policy{tag}_deadlines_newly_missed {missed} workflows goal 0 {verdict(missed == 0)}",
    ]


def below_autoscaled(table: Table, scenarios: list[Scenario]) -> float:
    """Per cent saved against the baseline with nodes off after ten idle minutes."""
    return saved(np.mean([log_ratio(table, scenario, OURS, AUTOSCALED) for scenario in scenarios], axis=0))[0]


def kin_included(table: Table, scenarios: list[Scenario], seeds: int) -> float:
    """Per cent saved where what is made of the flagship counts as an opponent too."""
    logs = []
    for scenario in scenarios:
        best = opponents(table, scenario, seeds, (OURS,))[0]
        logs.append(log_ratio(table, scenario, OURS, best))
    total, low, high = saved(np.mean(logs, axis=0))
    print(f"with learned and wattflow:order=path among the opponents: {total:.1f} % ({low:.1f} … {high:.1f})")
    return total


def against_algorithm_1(table: Table, scenarios: list[Scenario]) -> list[str]:
    """Energy against `hpe:sleep=30`, which may take longer, cluster by cluster, quiet and busy."""
    lines = []
    TEXT.extend(policy_tables.AGAINST)
    for cluster in dict.fromkeys(scenario.cluster for scenario in scenarios):
        for word, loads in (("quiet", LOADS[:1]), ("busy", LOADS[1:])):
            some = [s for s in scenarios if s.cluster == cluster and s.load in loads]
            middle, least, most = saved(np.mean([log_ratio(table, s, OURS, ALGORITHM_1) for s in some], axis=0))
            slower = np.mean([mean(table[s, OURS], "mean_s") / mean(table[s, ALGORITHM_1], "mean_s") for s in some])
            kept = sum(max(ratios(table, s, ALGORITHM_1)) <= BOUND for s in some)
            name = f"policy_{cluster}_{word}_below_hpe_sleep".replace("-", "_")
            print(
                f"{name}: {middle:.1f} % ({least:.1f} … {most:.1f}), response {slower:.2f} × hpe:sleep=30's, "
                f"which keeps the bound in {kept} of {len(some)}"
            )
            lines.append(f"figure {name} {middle:.1f} % goal >0 {verdict(least > 0)}")
            TEXT.append(policy_tables.against(cluster, word, (middle, least, most), float(slower), kept, len(some)))
    return lines


def verdict(good: bool) -> str:
    return "ok" if good else "short"


def place(table: Table, scenarios: list[Scenario], policy: str) -> tuple[float, float]:
    """Geometric means over the scenarios of response and energy over the baseline's."""
    logs = [[math.log(over_baseline(table, s, policy, figure)) for figure in ("mean_s", "energy_j")] for s in scenarios]
    response, energy = np.exp(np.mean(logs, axis=0))
    return float(response), float(energy)


def draw(table: Table, scenarios: list[Scenario], path: Path) -> None:
    """Energy against response of every policy, geometric means over the scenarios, and the front of our dial."""
    names = [name for name in dict.fromkeys(n for (_, n) in table) if all((s, name) in table for s in scenarios)]
    places = {name: place(table, scenarios, name) for name in names}
    front = [OURS, *(f"{OURS}:wait={wait:g}" for wait in WAITS)]
    policy_picture.draw(path, places, front, policy_picture.Words(OURS, BASELINE, BOUND))
    TEXT.extend(["", ", ".join(f"`{name}` {x:.3f}, {y:.3f}" for name, (x, y) in sorted(places.items()))])
    print("\nresponse and energy over kubernetes', geometric means over the scenarios:")
    for name in sorted(places, key=lambda name: places[name][1]):
        print(f"  {name:24s} {places[name][0]:6.3f} {places[name][1]:6.3f}")


def show_search(table: Table) -> None:
    """The searching planner beside ours on one scenario and seed."""
    (found,) = table[SHOWN, SEARCHES]
    parts = []
    for name in (OURS, BASELINE):
        other = next(result for result in table[SHOWN, name] if result.seed == found.seed)
        joules, response = found.energy_j / other.energy_j, found.mean_s / other.mean_s
        parts.append(f"{joules:.2f} × the joules of `{name}` at {response:.2f} × its mean response")
    text = f"`{SEARCHES}` (knows the future; {SHOWN.name}, seed {found.seed}): {'; '.join(parts)}."
    print(f"\n{text}")
    TEXT.extend(["", text])


def scenarios_of(clusters: list[str]) -> list[Scenario]:
    return [Scenario(cluster, family, load) for cluster in clusters for family in FAMILIES for load in LOADS]


def batches(scenarios: list[Scenario], policies: list[str], seeds: range) -> Iterator[Batch]:
    for scenario in scenarios:
        for seed in seeds:
            yield scenario, seed, tuple(policies)


def remaining(table: Table, scenarios: list[Scenario], policies: list[str], seeds: range) -> Iterator[Batch]:
    """The seeds behind the first two, without opponents that are out."""
    first, fixed = seeds[:TRIAL], set(ALWAYS)
    for scenario in scenarios:
        kept = [
            name for name in policies
            if name in fixed or name.startswith(f"{OURS}:") or not hopeless(table, scenario, name, first)
        ]  # fmt: skip
        yield from batches([scenario], kept, seeds[TRIAL:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clusters", default=",".join([*CLUSTERS, *REPORTED]))
    parser.add_argument("--policies", default="", help="only these opponents (the figures then say less)")
    parser.add_argument("--out", type=Path, default=Path("out/policy"))
    options = parser.parse_args()
    clusters = options.clusters.split(",")
    scenarios = scenarios_of(clusters)
    known = [*(name for name in registry.names() if name != SEARCHES), *TYPED]
    asked = options.policies.split(",") if options.policies else known
    policies = [name for name in known if name in {*asked, *ALWAYS}]
    policies += [f"{OURS}:wait={wait:g}" for wait in WAITS]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    book = Book(options.out / "results.jsonl", BASELINE, options.workers)
    searches = SHOWN in scenarios and (SEARCHES in asked or not options.policies)
    search = [(SHOWN, seeds[0], (SEARCHES,))] if searches else []
    first = [*search, *batches(scenarios, policies, seeds[:TRIAL])]
    book.run(first, "the first two seeds, every policy")
    trial = book.table(scenarios, seeds)
    book.run(remaining(trial, scenarios, policies, seeds), "the others, without those that broke the bound on both")
    table = book.table(scenarios, seeds)
    judged = scenarios_of([cluster for cluster in clusters if cluster not in REPORTED])
    lines = report(table, judged, len(seeds)) + against_algorithm_1(table, judged)
    for cluster in (cluster for cluster in clusters if cluster in REPORTED):
        tag = f"_{cluster}".replace("-", "_")
        print(f"\nreported, not judged: {cluster}")
        lines += report(table, scenarios_of([cluster]), len(seeds), tag)
    draw(table, judged, options.out / "front.png")
    if searches:
        show_search(table)
    (options.out / "table.md").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    print(f"results in {options.out}\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
