"""How long a person waits for the command line: import, help, a warm comparison.

The figure is the shortest wall time of five. The processor time of that run stands above it: where the two are far
apart, other work on the machine was in the way.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

COMMANDS = {
    "import_wattflow": (["-c", "import wattflow"], 0.15),
    "wattflow_help": (["-m", "wattflow.cli", "--help"], 0.3),
    "wattflow_compare_warm": (["-m", "wattflow.cli", "compare", "montage:tasks=100", "-p", "all", "--seeds", "1"], 5.0),
}


def timed_s(arguments: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one run."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """One line per figure."""
    from wattflow.policy import registry

    print(f"wattflow compare runs all {len(registry.names())} policies on 100 tasks, one seed, compiled before")
    for name, (arguments, goal_s) in COMMANDS.items():
        timed_s(arguments)
        wall_s, cpu_s = min(timed_s(arguments) for _ in range(5))
        print(
            f"{name}: {cpu_s:.3f} s of processor time, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        print(f"figure {name} {wall_s:.3f} s goal {goal_s:g} {'ok' if wall_s <= goal_s else 'short'}")


if __name__ == "__main__":
    main()
