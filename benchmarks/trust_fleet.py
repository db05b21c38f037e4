"""A thousand played agents and two hundred tasks a second: what the server costs, and whether it grows."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trust_rig import calls, house, lasting
from trust_tally import Portion

RATE = 200
BATCH = 20
SETTLED = 0.3
"""Part of the time after which growth is counted: tables and caches fill at first."""
CLUSTER = """
name = "played"
[[nodes]]
name = "played"
count = {count}
cores = 4
memory = "16 GiB"
power = {{ form = "linear", idle_w = 60.0, full_w = 120.0, provenance = "guessed", source = "synthetic" }}
"""


def portion(folder: Path, seed: int, seconds: float, nodes: int) -> Portion:
    """Tasks at a steady rate for so long."""
    began_s = time.monotonic()
    file = folder / "played.toml"
    file.write_text(CLUSTER.format(count=nodes))
    with house(folder / "home", "--driver", "simulated", "--cluster", str(file)) as home:
        connection, submitted, rss = calls(home, "user"), 0, []  # type: object, int, list[tuple[float, int]]
        serving = [pid for pid, kind in lasting(home.folder).items() if kind in ("server", "writer")]
        start_s, start_cpu_s = time.monotonic(), _cpu_s(serving)
        while (now_s := time.monotonic() - start_s) < seconds:
            tasks = [
                {"key": str(submitted + n), "name": "step", "command": ["true"], "estimate_s": 2.0}
                for n in range(BATCH)
            ]
            connection.patiently("POST", "/v1/submissions", {"workflow": f"fleet-{submitted // 2000}", "tasks": tasks})  # type: ignore[attr-defined]
            submitted += BATCH
            rss.append((now_s, _rss(serving)))
            time.sleep(max(0.0, submitted / RATE - (time.monotonic() - start_s)))
        took_s, cpu_s = time.monotonic() - start_s, _cpu_s(serving) - start_cpu_s
        status = calls(home).call("GET", "/v1/status")
    settled = next(size for at_s, size in rss if at_s >= SETTLED * seconds)
    open_tasks = status["running"] + status["waiting"]
    print(
        f"# {submitted} tasks, {open_tasks} open at the end; RSS {settled >> 20} to {rss[-1][1] >> 20} MiB", flush=True
    )
    failures = [f"{status['nodes']} of {nodes} nodes are left"] if status["nodes"] < nodes else []
    return Portion(part="fleet", seed=seed, took_s=time.monotonic() - began_s, failures=failures,
                   counts={"tasks": submitted, "seconds": took_s},
                   worst={"cpu": cpu_s / took_s, "growth": 100 * (rss[-1][1] / settled - 1),
                          "rate": (submitted - open_tasks) / took_s})  # fmt: skip


def _cpu_s(pids: list[int]) -> float:
    stats = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def _rss(pids: list[int]) -> int:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")
