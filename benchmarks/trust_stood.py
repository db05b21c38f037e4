"""What stood before stands: rates beside Dask (reused workers, and a process per task as typed), warm start, step."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import runtime
from trust_rig import _by_value, house
from trust_tally import Portion

ROUNDS = 3


def portion(folder: Path, seed: int, tasks: int) -> Portion:
    """One interleaved comparison on this machine."""
    import os

    began_s = time.monotonic()
    with house(folder / "home") as home, runtime.dask_cluster() as dask:
        os.environ["WATTFLOW_HOME"] = str(home.folder)
        rates = _rates(dask, tasks)
        warm_ms = _warm_ms()
    known = len(runtime.FIGURES)
    runtime.step_times()
    step_ms = next(float(line.split()[2]) for line in runtime.FIGURES[known:] if " runtime_step_p99 " in line)
    middle = {side: statistics.median(values) for side, values in rates.items()}
    print(
        f"# tasks a second: { {side: [round(value) for value in values] for side, values in rates.items()} }",
        flush=True,
    )
    worst = {"rate_ratio": middle["reused"] / middle["dask"], "typed_ratio": middle["typed"] / middle["dask"],
             "warm_ms": warm_ms, "step_ms": step_ms}  # fmt: skip
    return Portion(part="stood", seed=seed, took_s=time.monotonic() - began_s, counts={"tasks": tasks}, worst=worst)


def _rates(dask: Any, tasks: int) -> dict[str, list[float]]:
    import wattflow

    same = _by_value(runtime.same)
    quick = wattflow.task(cpus=0.02, isolate=False)(same)
    found: dict[str, list[float]] = {}
    with wattflow.Client(name="stood") as client:
        for made in (quick, same):
            list(client.map(made, range(20)))
        dask.gather(dask.map(runtime.same, range(100), pure=False))
        for _ in range(ROUNDS):
            sides = {
                "reused": (tasks, lambda n: list(client.map(quick, range(n)))),
                "typed": (tasks // 5, lambda n: list(client.map(same, range(n)))),
                "dask": (tasks, lambda n: dask.gather(dask.map(runtime.same, range(n), pure=False))),
            }
            for side, (count, work) in sides.items():
                started_s = time.perf_counter()
                if len(work(count)) != count:  # type: ignore[no-untyped-call]
                    raise RuntimeError(f"{side}: results are missing")
                found.setdefault(side, []).append(count / (time.perf_counter() - started_s))
    return found


def _warm_ms(count: int = 40) -> float:
    import wattflow

    with wattflow.Client(name="warm") as client:
        futures = []
        for n in range(count):
            futures.append(client.submit(_by_value(runtime.same), n))
            futures[-1].result()
        return 1e3 * statistics.median(future.attempts()[-1]["cold_s"] for future in futures)
