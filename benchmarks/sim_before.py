"""The simulator now against the sources of the commit before the live engine, in the same run (part of `bench-live`).

Both run in processes of their own, in turns; of each case the least processor time counts. The commit is the parent of
the one that brought `engine/fold.py`. Compilation is not counted: each process runs every case once before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ROUNDS = 3


def cases(scale: float) -> Iterator[tuple[str, object, object, str, bool]]:
    """Name, workload, cluster, policy, whether the queue is strict."""
    import numpy as np

    from wattflow.clusters import load_cluster
    from wattflow.generate import benchmark_workload
    from wattflow.model.workflow import Variant
    from wattflow.model.workload import Shape, Workload

    small = load_cluster("bench-64x4")
    for kind in ("independent", "dag"):
        yield kind, benchmark_workload(int(200_000 * scale), kind, seed=1), small, "fifo", True
    rng = np.random.default_rng(3)

    def workload(name: str, count: int, shapes: list[Variant], gap_s: float) -> Workload:
        return Workload.of_columns(
            name, release_s=np.cumsum(rng.exponential(gap_s, count)), runtime_s=rng.lognormal(1.8, 1, count),
            shapes=[Shape(0, (v,)) for v in shapes], shape=rng.integers(0, len(shapes), count).astype(np.int32),
        )  # fmt: skip

    mixed = [Variant(cores=float(c), memory_bytes=m << 30) for c in (1, 2, 3, 4) for m in (1, 2, 4)]
    large = load_cluster("bench-5000")
    slots = sum(node.request_cores for node in large.nodes)
    yield "5000_nodes", workload("m", int(50_000 * scale), mixed, 25 / (0.8 * slots)), large, "least-energy", False
    forty = [Variant(cores=1 + k / 20) for k in range(40)]
    yield "overload", workload("o", int(50_000 * scale), forty, 10 * 2 / (1.1 * 256)), small, "least-energy", False


def worker(scale: float) -> None:
    """Processor seconds of each case, the better of two after one that does not count."""
    from wattflow.sim.simulate import SimOptions, Simulation

    found = {}
    for name, workload, cluster, policy, strict in cases(scale):
        options = SimOptions(queue="strict") if strict else SimOptions()
        taken = []
        for _ in range(3):
            simulation = Simulation(workload, cluster, policy, options=options)  # type: ignore[arg-type]
            began = time.process_time()
            simulation.run()
            taken.append(time.process_time() - began)
        found[name] = min(taken[1:])
    print(json.dumps(found))


def sources(folder: Path) -> Path | None:
    """The sources of the commit before, unpacked; None where the history is not at hand."""
    log = ["git", "log", "--format=%P", "--diff-filter=A", "--", "src/wattflow/engine/fold.py"]
    try:
        parents = subprocess.run(log, cwd=HERE, check=True, capture_output=True, text=True).stdout.split()
        archive = subprocess.run(["git", "archive", parents[0], "src"], cwd=HERE, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


def differences(scale: float = 1.0) -> dict[str, float]:
    """By how much each case is faster (+) or slower (−) now, as a share of the time before; empty without history."""
    with tempfile.TemporaryDirectory() as folder:
        before = sources(Path(folder))
        if before is None:
            return {}
        best: dict[Path, dict[str, float]] = {before: {}, HERE / "src": {}}
        for _ in range(ROUNDS):
            for place, seconds in best.items():
                env = os.environ | {"PYTHONPATH": str(place)}
                command = [sys.executable, __file__, "--worker", str(scale)]
                out = subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True, text=True).stdout
                for name, value in json.loads(out.splitlines()[-1]).items():
                    seconds[name] = min(value, seconds.get(name, value))
        now = best[HERE / "src"]
        return {name: 100 * (was - now[name]) / was for name, was in best[before].items()}


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker(float(sys.argv[-1]))
    else:
        print(differences())
