"""Fine-tuning after a shift (`make bench-adapting`): does what a server learns from its record pay on what comes next?

    python -m research.bench_adapting [--cases 20] [--seconds 10] [--workers 2] [--out out/adapting.json]
    python -m research.bench_adapting --first 10 …   the cases from the tenth on, after those of --out

Simulated joules. Each case is a stream of an application and on a cluster that the weights in use have never seen.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from research import adapting
from wattflow.files.whole import write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="go on from this case; those before it stand in --out")
    parser.add_argument("--seconds", type=float, default=10.0, help="of training in each case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/adapting.json"))
    given = parser.parse_args()
    began = time.time()
    found = adapting.read(given.out.read_text())[: given.first] if given.first else []
    found += adapting.all_adapted(adapting.cases(given.cases)[len(found) :], given.seconds, given.workers)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(given.out, json.dumps([asdict(one) for one in found], indent=1))
    for one in found:
        case = one.case
        drift = ", nodes draw more" if case.drifted else ""
        print(f"{case.application} load {case.load:g}{drift}: {'promoted' if one.shadow.promoted else 'kept'}")
        print(f"  shadow test {one.shadow}\n  afterwards  {one.truth}")
    print(f"{len(found)} cases in {time.time() - began:.0f} s")
    figures(found)


def figures(found: list[adapting.Adapted]) -> None:
    """What a server would have got, and what the candidates alone did."""
    for name, values in (
        ("adapted", [one.served for one in found]),
        ("adapted_without_the_test", [one.truth.saved for one in found]),
    ):
        mean, low, high = (adapting.percent(value) for value in adapting.interval(values))
        print(f"figure {name} {mean:.2f} % goal <0 {'ok' if mean < 0 else 'short'}")
        worst = max(low, high)
        print(f"figure {name}_high_end {worst:.2f} % goal <0 {'ok' if worst < 0 else 'short'}")
    promoted = [one for one in found if one.shadow.promoted]
    slower = [one.truth.slower for one in promoted] or [0.0]
    response = adapting.percent(-sum(slower) / len(slower))
    print(f"figure adapted_response_of_the_promoted {response:+.2f} % goal ≤2 {'ok' if response <= 2 else 'short'}")
    lost = sum(one.served < -0.005 for one in found)
    print(f"figure adapted_promoted {len(promoted)} of_{len(found)} goal ≥1 {'ok' if promoted else 'short'}")
    print(f"figure adapted_promoted_that_lost {lost} cases goal 0 {'ok' if lost == 0 else 'short'}")


if __name__ == "__main__":
    main()
