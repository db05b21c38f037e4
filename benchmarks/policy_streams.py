"""The flagship on six streams of workflows on `mixed`: who waits how long, and for how many joules.

    python benchmarks/policy_streams.py [--seeds 5]

The first stream is busy; the five lighter ones keep 5 to 14 % of the owned cores at work. Mean response of workflows in
seconds, and over that of `kubernetes` with all nodes on; that of tasks, from ready to end; joules over its joules.
"""

from __future__ import annotations

import argparse

import numpy as np
from policy_runs import capacity, cluster_of, policy_of

from wattflow.generate import Recipe
from wattflow.lab.figures.metrics import metrics
from wattflow.model.workload import Workload
from wattflow.sim import simulate

BUSY = "map-reduce:tasks=60,workflows=60,arrivals=poisson,rate=0.1,mean=90s"
LIGHT = (("montage", 0.05), ("montage", 0.14), ("map-reduce", 0.05), ("map-reduce", 0.1), ("map-reduce", 0.14))
POLICIES = (
    "kubernetes", "fifo", "fifo:sleep=30", "hpe:sleep=30", "least-energy:sleep=30", "eft", "eft:sleep=120", "heft",
    "taskflow", "wattflow", "wattflow:wait=inf",
)  # fmt: skip
BASE, OURS, BOUND = "kubernetes", "wattflow", 1.02
RIVALS = ("hpe:sleep=30", "least-energy:sleep=30", "eft:sleep=120")


def streams(cluster: str) -> dict[str, Recipe]:
    """The busy stream as it is written, and light ones whose rate follows from the share of cores at work."""
    found = {"map-reduce, busy": Recipe.parse(BUSY)}
    for family, load in LIGHT:
        probe = Recipe.parse(f"{family}:tasks=60,workflows=20,mean=90s").draw(7)
        cores = np.array([shape.variants[0].cores for shape in probe.shapes])[probe.shape]
        rate = load * capacity(cluster_of(cluster)) * 20 / float((probe.runtime_s * cores).sum())
        text = f"{family}:tasks=60,workflows=60,arrivals=poisson,rate={rate:g},mean=90s"
        found[f"{family}, {100 * load:.0f} %"] = Recipe.parse(text)
    return found


def measured(workload: Workload, cluster: str, policy: str, seed: int) -> tuple[float, float, float]:
    """Mean response of workflows, that of tasks, and joules of one run."""
    run = simulate(workload, cluster_of(cluster), policy_of(policy), seed=seed)
    end_s = np.zeros(len(workload.workflow_names))
    np.maximum.at(end_s, workload.workflow, run.end_s_by_task())
    by_task_s = metrics(run)["response_mean_s"]
    return float((end_s - workload.workflow_submit_s).mean()), by_task_s, run.total_j


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    lines = []
    for name, recipe in streams("mixed").items():
        drawn = [recipe.draw(seed) for seed in range(given.seeds)]
        found = {
            policy: np.array([measured(load, "mixed", policy, seed) for seed, load in enumerate(drawn)])
            for policy in POLICIES
        }
        base = found[BASE].mean(axis=0)
        print(f"\n| {name} | response, s | over {BASE}'s | by task, s | joules over {BASE}'s |\n|---|---|---|---|---|")
        for policy, rows in found.items():
            response_s, task_s, joules = rows.mean(axis=0)
            over = f"{response_s / base[0]:.2f} | {task_s:.0f} | {joules / base[2]:.2f}"
            print(f"| `{policy}` | {response_s:.0f} | {over} |", flush=True)
        slug = name.replace(", ", "_").replace("-", "_").replace(" %", "_pct")
        waits = found[OURS].mean(axis=0)[0] / base[0]
        least = min(found[rival].mean(axis=0)[2] for rival in RIVALS)
        more = found[OURS].mean(axis=0)[2] / least
        verdict = "ok" if waits <= BOUND else "short"
        lines.append(f"figure stream_{slug}_response_over_kubernetes {waits:.3f} times goal <={BOUND} {verdict}")
        lines.append(f"figure stream_{slug}_joules_over_best_sleeping_rival {more:.3f} times goal none ok")
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
