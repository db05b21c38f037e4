"""How long a person waits for the command line: import, help, a warm comparison. Best of five, beside the goals."""

from __future__ import annotations

import subprocess
import sys
import time

COMMANDS = {
    "import_wattflow": (["-c", "import wattflow"], 0.15),
    "wattflow_help": (["-m", "wattflow.cli", "--help"], 0.3),
    "wattflow_compare_warm": (["-m", "wattflow.cli", "compare", "montage:tasks=100", "-p", "all", "--seeds", "1"], 5.0),
}


def best_s(arguments: list[str], repeats: int = 5) -> float:
    """Shortest of several runs; one run before them fills caches."""
    took = []
    for number in range(repeats + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        took.append(time.perf_counter() - began)
        if number and took[-1] > 10.0:
            break
    return min(took[1:])


def main() -> None:
    """One line per figure."""
    from wattflow.policy import registry

    print(f"wattflow compare runs all {len(registry.names())} policies on 100 tasks, one seed, compiled before")
    for name, (arguments, goal_s) in COMMANDS.items():
        value = best_s(arguments)
        print(f"figure {name} {value:.3f} s goal {goal_s:g} {'ok' if value <= goal_s else 'short'}")


if __name__ == "__main__":
    main()
